"""MPNet: BERT with relative biases that all layers share, trained on masked and permuted words at once."""

from __future__ import annotations

from saucier import config as c
from saucier.checkpoints.choices import LABELS, TIED, bare, keep_language, labelling, language
from saucier.checkpoints.keys import Layout, Published
from saucier.checkpoints.rules import Concat, Rule, Rules
from saucier.families import lineage


def mpnet(
    dim: int = 768,
    layers: int = 12,
    *,
    heads: int = 12,
    vocab: int = 30527,
    length: int = 514,
    hidden: int | None = None,
    dropout: float = 0.1,
) -> c.Transformer:
    """MPNet with its language head. Source: Song et al. 2020, §2.2 and appendix A, arXiv:2004.09297.

    Positions skip padding (id 1), as in RoBERTa: `length` rows hold `length` - 2 tokens.
    """
    norm = c.LayerNorm(eps=1e-5)
    attention = c.SelfAttention(projection=c.Projection(heads=heads), positions=c.T5Bias(buckets=32, max_distance=128),
                                kernel=c.Softmax(dropout=dropout))
    feed_forward = c.FeedForward(hidden=hidden or 4 * dim, activation="gelu")
    residuals = tuple(c.PostNorm(inner=inner, norm=norm, dropout=dropout) for inner in (attention, feed_forward))
    positions = c.Learned(length=length, places=c.SkipPadding(padding=1))
    return c.Transformer(
        dim=dim,
        embed=c.Embedding(vocab=vocab, positions=positions, norm=norm, dropout=dropout),
        encoder=c.Stack(layers=c.Repeat(block=c.Block(sublayers=residuals), times=layers)),
        head=c.LanguageHead(bias=True, transform=c.Transform(norm=norm)),
    )


KEYS = (*lineage.SIZES, lineage.DROPOUT, lineage.activation(), lineage.norms("head.transform.norm.eps"))
BLOCK = {**lineage.BLOCK, "attention.inner.out": "attention.attn.o", "attention.norm": "attention.LayerNorm"}


def weights(tree: c.Transformer) -> Rules:
    """The names of MPNet's body."""
    block, theirs = "encoder.blocks.{i}.", "@encoder.layer.{i}."
    maps = tuple(f"{theirs}attention.attn.{name}.{{p}}" for name in "qkv")
    return Rules([
        Rule("embed.tokens.weight", "@embeddings.word_embeddings.weight"),
        Rule("embed.positions.weight", "@embeddings.position_embeddings.weight"),
        Rule("embed.norm.{p}", "@embeddings.LayerNorm.{p}"),
        Rule("encoder.shared.weight", "@encoder.relative_attention_bias.weight"),
        Rule(block + "attention.inner.qkv.{p}", maps, Concat((tree.dim,) * 3)),
        *(Rule(block + ours + ".{p}", theirs + other + ".{p}") for ours, other in BLOCK.items()),
        Rule("pooler.dense.{p}", "@pooler.dense.{p}"),
    ], ignored=["@embeddings.position_ids", "lm_head.decoder.{p}"])


words = language("lm_head.dense", "lm_head.layer_norm", "lm_head.decoder", bias="lm_head.bias")
FIRST = c.ClassificationHead(pick=c.First(), transform=c.Transform(activation="tanh"))
CLASSES = {
    "MPNetForMaskedLM": Published(keep_language, words, (TIED,)),
    "MPNetForSequenceClassification": labelling(FIRST, "classifier.out_proj", dense="classifier.dense",
                                                keys=(LABELS, lineage.HEAD_DROPOUT)),
    "MPNetForTokenClassification": labelling(c.TokenHead(), keys=(LABELS, lineage.HEAD_DROPOUT)),
    "MPNetForQuestionAnswering": labelling(c.SpanHead(), "qa_outputs", keys=()),
    "MPNetForMultipleChoice": labelling(c.ChoiceHead(), keys=(lineage.HEAD_DROPOUT,)),
    "MPNetModel": bare,
}
MPNET_LAYOUT = Layout(
    "mpnet",
    lineage.pooled(mpnet),
    KEYS,
    weights,
    CLASSES,
    "mpnet.",
    fixed={"relative_attention_num_buckets": 32},
    free=frozenset({"tie_word_embeddings"}),
)
"""The published computation has 32 buckets, whatever the field says; other numbers are refused."""
