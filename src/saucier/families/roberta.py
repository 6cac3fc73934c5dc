"""RoBERTa, and XLM-R and CamemBERT which are the same network: BERT with positions that leave padding out."""

from __future__ import annotations

from collections.abc import Callable

from saucier import config as c
from saucier.checkpoints.choices import LABELS, TIED, bare, keep_language, labelling, language
from saucier.checkpoints.keys import Key, Layout, Published
from saucier.checkpoints.rules import Rules
from saucier.families import lineage


def roberta(
    dim: int = 768,
    layers: int = 12,
    *,
    heads: int = 12,
    vocab: int = 50265,
    length: int = 514,
    hidden: int | None = None,
    padding: int = 1,
    dropout: float = 0.1,
) -> c.Transformer:
    """RoBERTa with its language head. Source: Liu et al. 2019, §3.1 and appendix A, arXiv:1907.11692.

    `length` rows of positions hold `length` - `padding` - 1 tokens, since counting begins after the padding id.
    """
    norm = c.LayerNorm(eps=1e-5)
    attention = c.SelfAttention(projection=c.Projection(heads=heads), kernel=c.Softmax(dropout=dropout))
    feed_forward = c.FeedForward(hidden=hidden or 4 * dim, activation="gelu")
    residuals = tuple(c.PostNorm(inner=inner, norm=norm, dropout=dropout) for inner in (attention, feed_forward))
    positions = c.Learned(length=length, places=c.SkipPadding(padding=padding))
    return c.Transformer(
        dim=dim,
        embed=c.Embedding(vocab=vocab, positions=positions, norm=norm, dropout=dropout,
                          segments=c.SegmentTable(count=1)),
        encoder=c.Stack(layers=c.Repeat(block=c.Block(sublayers=residuals), times=layers)),
        head=c.LanguageHead(bias=True, transform=c.Transform(norm=norm)),
    )


def xlm_roberta(dim: int = 768, layers: int = 12, *, heads: int = 12, vocab: int = 250002, length: int = 514,
                hidden: int | None = None, padding: int = 1, dropout: float = 0.1) -> c.Transformer:
    """XLM-R: RoBERTa with the vocabulary of a hundred languages.

    Source: Conneau et al. 2020, §3 and appendix B, arXiv:1911.02116.
    """
    return roberta(dim, layers, heads=heads, vocab=vocab, length=length, hidden=hidden, padding=padding,
                   dropout=dropout)


def camembert(dim: int = 768, layers: int = 12, *, heads: int = 12, vocab: int = 32005, length: int = 514,
              hidden: int | None = None, padding: int = 1, dropout: float = 0.1) -> c.Transformer:
    """CamemBERT: RoBERTa for French. Source: Martin et al. 2020, §4.2, arXiv:1911.03894."""
    return roberta(dim, layers, heads=heads, vocab=vocab, length=length, hidden=hidden, padding=padding,
                   dropout=dropout)


KEYS = (
    *lineage.SIZES,
    lineage.SEGMENTS,
    lineage.DROPOUT,
    lineage.SEES_PAST_ONLY,
    lineage.POSITIONS,
    lineage.CROSSED,
    lineage.activation(),
    lineage.norms("head.transform.norm.eps"),
    Key("pad_token_id", ("embed.positions.places.padding",), default=1),
)


def weights(tree: c.Transformer) -> Rules:
    """The names of RoBERTa's body: BERT's."""
    return lineage.body(tree, copies=("lm_head.decoder.{p}",))


words = language("lm_head.dense", "lm_head.layer_norm", "lm_head.decoder", bias="lm_head.bias")
FIRST = c.ClassificationHead(pick=c.First(), transform=c.Transform(activation="tanh"))


def classes(name: str) -> dict[str, Published]:
    """Return the published classes of one of the three families."""
    return {
        f"{name}ForMaskedLM": Published(keep_language, words, (TIED,)),
        f"{name}ForCausalLM": Published(keep_language, words, (TIED,)),
        f"{name}ForSequenceClassification": labelling(FIRST, "classifier.out_proj", dense="classifier.dense",
                                                      keys=(LABELS, lineage.CLASSIFIER)),
        f"{name}ForTokenClassification": labelling(c.TokenHead(), keys=(LABELS, lineage.CLASSIFIER)),
        f"{name}ForQuestionAnswering": labelling(c.SpanHead(), "qa_outputs", keys=()),
        f"{name}ForMultipleChoice": labelling(c.ChoiceHead(), keys=(lineage.HEAD_DROPOUT,)),
        f"{name}Model": bare,
    }


def layout(model_type: str, family: Callable[[], c.Transformer], name: str) -> Layout:
    """Return the layout of one of the three families."""
    return Layout(model_type, lineage.positioned(lineage.pooled(family)), KEYS, weights, classes(name), "roberta.",
                  free=frozenset({"tie_word_embeddings"}), settle=lineage.settle,
                  restore=lineage.restore)


ROBERTA_LAYOUT = layout("roberta", roberta, "Roberta")
XLM_ROBERTA_LAYOUT = layout("xlm-roberta", xlm_roberta, "XLMRoberta")
CAMEMBERT_LAYOUT = layout("camembert", camembert, "Camembert")
