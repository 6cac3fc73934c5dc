"""DistilBERT: BERT without segments and pooler, with half the layers, trained to agree with its teacher."""

from __future__ import annotations

from saucier import config as c
from saucier.checkpoints.choices import LABELS, TIED, bare, labelling, language, whole
from saucier.checkpoints.keys import ACTIVATIONS, Key, Layout, Published
from saucier.checkpoints.rules import Concat, Rule, Rules


def distilbert(
    dim: int = 768,
    layers: int = 6,
    *,
    heads: int = 12,
    vocab: int = 30522,
    length: int = 512,
    hidden: int | None = None,
    dropout: float = 0.1,
) -> c.Transformer:
    """DistilBERT with its language head. Source: Sanh et al. 2019, §3, arXiv:1910.01108."""
    norm = c.LayerNorm(eps=1e-12)
    attention = c.SelfAttention(projection=c.Projection(heads=heads), kernel=c.Softmax(dropout=dropout))
    feed_forward = c.FeedForward(hidden=hidden or 4 * dim, activation="gelu")
    residuals = (c.PostNorm(inner=attention, norm=norm), c.PostNorm(inner=feed_forward, norm=norm, dropout=dropout))
    return c.Transformer(
        dim=dim,
        embed=c.Embedding(vocab=vocab, positions=c.Learned(length=length), norm=norm, dropout=dropout),
        encoder=c.Stack(layers=c.Repeat(block=c.Block(sublayers=residuals), times=layers)),
        head=c.LanguageHead(bias=True, transform=c.Transform(norm=norm)),
    )


ATTENTION, FEED_FORWARD = "encoder.layers.block.sublayers.0", "encoder.layers.block.sublayers.1"
KEYS = (
    Key("dim", ("dim",)),
    Key("n_layers", ("encoder.layers.times",)),
    Key("n_heads", (f"{ATTENTION}.inner.projection.heads",)),
    Key("hidden_dim", (f"{FEED_FORWARD}.inner.hidden",)),
    Key("vocab_size", ("embed.vocab",)),
    Key("max_position_embeddings", ("embed.positions.length",)),
    Key("activation", (f"{FEED_FORWARD}.inner.activation", "head.transform.activation"), names=ACTIVATIONS,
        default="gelu"),
    Key("dropout", ("embed.dropout", f"{FEED_FORWARD}.dropout"), default=0.1),
    Key("attention_dropout", (f"{ATTENTION}.inner.kernel.dropout",), default=0.1),
)
BLOCK = {
    "attention.inner.out": "attention.out_lin",
    "attention.norm": "sa_layer_norm",
    "feed_forward.inner.up": "ffn.lin1",
    "feed_forward.inner.down": "ffn.lin2",
    "feed_forward.norm": "output_layer_norm",
}


def weights(tree: c.Transformer) -> Rules:
    """The names of DistilBERT's body."""
    block, theirs = "encoder.blocks.{i}.", "@transformer.layer.{i}."
    maps = tuple(f"{theirs}attention.{name}_lin.{{p}}" for name in "qkv")
    return Rules([
        Rule("embed.tokens.weight", "@embeddings.word_embeddings.weight"),
        Rule("embed.positions.weight", "@embeddings.position_embeddings.weight"),
        Rule("embed.norm.{p}", "@embeddings.LayerNorm.{p}"),
        Rule(block + "attention.inner.qkv.{p}", maps, Concat((tree.dim,) * 3)),
        *(Rule(block + ours + ".{p}", theirs + other + ".{p}") for ours, other in BLOCK.items()),
    ], ignored=["@embeddings.position_ids"])


def dropped(field: str, default: float) -> Key:
    """The dropout before a head's output map, by its published field."""
    return Key(field, ("head.dropout",), default=default)


FIRST, DENSE = c.First(), c.Transform(activation="relu")
CLASSES = {
    "DistilBertForMaskedLM": Published(whole.keep, language("vocab_transform", "vocab_layer_norm", "vocab_projector"),
                                       (TIED,)),
    "DistilBertForSequenceClassification": labelling(
        c.ClassificationHead(pick=FIRST, transform=DENSE), dense="pre_classifier",
        keys=(LABELS, dropped("seq_classif_dropout", 0.2))),
    "DistilBertForTokenClassification": labelling(c.TokenHead(), keys=(LABELS, dropped("dropout", 0.1))),
    "DistilBertForQuestionAnswering": labelling(c.SpanHead(), "qa_outputs", keys=(dropped("qa_dropout", 0.1),)),
    "DistilBertForMultipleChoice": labelling(c.ChoiceHead(pick=FIRST, transform=DENSE), dense="pre_classifier",
                                             keys=(dropped("seq_classif_dropout", 0.2),)),
    "DistilBertModel": bare,
}
DISTILBERT_LAYOUT = Layout(
    "distilbert",
    distilbert,
    KEYS,
    weights,
    CLASSES,
    "distilbert.",
    free=frozenset({"tie_word_embeddings", "seq_classif_dropout", "qa_dropout", "sinusoidal_pos_embds",
                    "tie_weights_"}),
)
"""`sinusoidal_pos_embds` says only how the table of positions began: it stands in the file like a trained one."""
