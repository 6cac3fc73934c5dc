"""BERT: an encoder with post-norm, learned positions and segments, trained on masked words and sentence pairs."""

from __future__ import annotations

from saucier import config as c
from saucier.checkpoints.choices import DROPOUT, LABELS, as_decoder, as_encoder, bare, keep_language, labelling, whole
from saucier.checkpoints.keys import ACTIVATIONS, Key, Layout, Published
from saucier.checkpoints.rules import Concat, Rule, Rules


def bert(
    dim: int = 768,
    layers: int = 12,
    *,
    heads: int = 12,
    vocab: int = 30522,
    length: int = 512,
    hidden: int | None = None,
    segments: int = 2,
    dropout: float = 0.1,
) -> c.Transformer:
    """BERT with both pretraining heads. Source: Devlin et al. 2019, §3, arXiv:1810.04805."""
    norm = c.LayerNorm(eps=1e-12)
    attention = c.SelfAttention(projection=c.Projection(heads=heads), kernel=c.Softmax(dropout=dropout))
    feed_forward = c.FeedForward(hidden=hidden or 4 * dim, activation="gelu")
    residuals = tuple(c.PostNorm(inner=inner, norm=norm, dropout=dropout) for inner in (attention, feed_forward))
    return c.Transformer(
        dim=dim,
        embed=c.Embedding(vocab=vocab, positions=c.Learned(length=length), norm=norm, dropout=dropout,
                          segments=c.SegmentTable(count=segments) if segments else None),
        encoder=c.Stack(layers=c.Repeat(block=c.Block(sublayers=residuals), times=layers)),
        pooler=c.Pooler(),
        head=c.PretrainingHead(language=c.LanguageHead(bias=True, transform=c.Transform(norm=norm))),
    )


ATTENTION, FEED_FORWARD = "encoder.layers.block.sublayers.0", "encoder.layers.block.sublayers.1"
HEAD = "head.language.transform"
KEYS = (
    Key("hidden_size", ("dim",)),
    Key("num_hidden_layers", ("encoder.layers.times",)),
    Key("num_attention_heads", (f"{ATTENTION}.inner.projection.heads",)),
    Key("intermediate_size", (f"{FEED_FORWARD}.inner.hidden",)),
    Key("vocab_size", ("embed.vocab",)),
    Key("max_position_embeddings", ("embed.positions.length",)),
    Key("type_vocab_size", ("embed.segments.count",), default=2),
    Key("hidden_act", (f"{FEED_FORWARD}.inner.activation", f"{HEAD}.activation"), names=ACTIVATIONS, default="gelu"),
    Key(
        "layer_norm_eps",
        ("embed.norm.eps", f"{ATTENTION}.norm.eps", f"{FEED_FORWARD}.norm.eps", f"{HEAD}.norm.eps"),
        default=1e-12,
    ),
    Key("hidden_dropout_prob", ("embed.dropout", f"{ATTENTION}.dropout", f"{FEED_FORWARD}.dropout"), default=0.1),
    Key("attention_probs_dropout_prob", (f"{ATTENTION}.inner.kernel.dropout",), default=0.1),
)


def weights(tree: c.Transformer) -> Rules:
    """The names of BERT's body."""
    names = {
        "attention.inner.out": "attention.output.dense",
        "attention.norm": "attention.output.LayerNorm",
        "feed_forward.inner.up": "intermediate.dense",
        "feed_forward.inner.down": "output.dense",
        "feed_forward.norm": "output.LayerNorm",
    }
    embed = {"tokens": "word_embeddings", "positions": "position_embeddings", "segments": "token_type_embeddings"}
    stack = "encoder" if tree.encoder else "decoder"
    block, theirs = f"{stack}.blocks.{{i}}.", "@encoder.layer.{i}."
    return Rules(
        [
            *(Rule(f"embed.{ours}.weight", f"@embeddings.{other}.weight") for ours, other in embed.items()),
            Rule("embed.norm.{p}", "@embeddings.LayerNorm.{p}"),
            Rule(
                block + "attention.inner.qkv.{p}",
                tuple(f"{theirs}attention.self.{name}.{{p}}" for name in ("query", "key", "value")),
                Concat((tree.dim,) * 3),
            ),
            *(Rule(block + ours + ".{p}", theirs + other + ".{p}") for ours, other in names.items()),
            Rule("pooler.dense.{p}", "@pooler.dense.{p}"),
        ],
        ignored=["@embeddings.position_ids", "cls.predictions.decoder.{p}"],
    )


def language(ours: str) -> tuple[Rule, ...]:
    """The names of the language head, which stands in our tree at `ours`."""
    return (
        Rule(f"{ours}.transform.dense.{{p}}", "cls.predictions.transform.dense.{p}"),
        Rule(f"{ours}.transform.norm.{{p}}", "cls.predictions.transform.LayerNorm.{p}"),
        Rule(f"{ours}.bias", "cls.predictions.bias"),
    )


SENTENCE = "cls.seq_relationship"
CLASSES = {
    "BertForPreTraining": Published(whole.keep, (*language("head.language"), Rule("head.sentence.{p}",
                                                                                  SENTENCE + ".{p}"))),
    "BertForMaskedLM": Published(keep_language, language("head")),
    "BertLMHeadModel": Published(as_decoder, language("head"), restore=as_encoder),
    "BertForNextSentencePrediction": labelling(c.ClassificationHead(), SENTENCE, keys=()),
    "BertForSequenceClassification": labelling(c.ClassificationHead(), keys=(LABELS, DROPOUT)),
    "BertForTokenClassification": labelling(c.TokenHead(), keys=(LABELS, DROPOUT)),
    "BertForQuestionAnswering": labelling(c.SpanHead(), "qa_outputs", keys=()),
    "BertForMultipleChoice": labelling(c.ChoiceHead(), keys=(DROPOUT,)),
    "BertModel": bare,
}
BERT_LAYOUT = Layout(
    "bert",
    bert,
    KEYS,
    weights,
    CLASSES,
    "bert.",
    fixed={"tie_word_embeddings": True, "add_cross_attention": False, "position_embedding_type": "absolute"},
    free=frozenset({"is_decoder"}),
)
