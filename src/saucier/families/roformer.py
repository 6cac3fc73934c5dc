"""RoFormer: a BERT whose queries and keys are rotated, each value with its neighbour."""

from __future__ import annotations

from saucier import config as c
from saucier.checkpoints.choices import DROPOUT, LABELS, TIED, bare, labelling, language, whole
from saucier.checkpoints.keys import ACTIVATIONS, Key, Layout, Published
from saucier.checkpoints.rules import Rules, Table
from saucier.families import lineage


def roformer(
    dim: int = 768,
    layers: int = 12,
    *,
    heads: int = 12,
    vocab: int = 50000,
    length: int = 1536,
    hidden: int | None = None,
    embedding: int | None = None,
    dropout: float = 0.1,
) -> c.Transformer:
    """RoFormer with its language head. Source: Su et al. 2021, §3.4 and §4.5, arXiv:2104.09864.

    `embedding`: width of the tables where they are narrower than the model; `length`: where the table of angles ends.
    """
    norm = c.LayerNorm(eps=1e-12)
    positions = c.Rotary(pairs=c.Neighbours(), length=length)
    attention = c.SelfAttention(projection=c.Projection(heads=heads), positions=positions,
                                kernel=c.Softmax(dropout=dropout))
    residuals = tuple(c.PostNorm(inner=inner, norm=norm, dropout=dropout)
                      for inner in (attention, c.FeedForward(hidden=hidden or 4 * dim)))
    return c.Transformer(
        dim=dim,
        embed=c.Embedding(vocab=vocab, norm=norm, dropout=dropout, segments=c.SegmentTable(),
                          projection=c.ProjectNormed(width=embedding) if embedding else None),
        encoder=c.Stack(layers=c.Repeat(block=c.Block(sublayers=residuals), times=layers)),
        head=c.LanguageHead(bias=True, transform=c.Transform(width=embedding, norm=norm)))


def from_fields(dim: int, *, width: int) -> c.Transformer:
    """The family by the published fields; tables as wide as the model have no projection."""
    return roformer(dim, embedding=None if width == dim else width)


ROTARY, HEAD = f"{lineage.ATTENTION}.inner.positions", "head.transform"
KEYS = (
    *(key for key in lineage.SIZES if key.foreign != "hidden_size"),
    Key("hidden_size", ("dim",), argument="dim"),
    Key("embedding_size", (), argument="width", default=lambda document: document["hidden_size"],
        found=lambda tree: tree.embed.widths(tree.dim)[0]),
    Key("rotary_value", (f"{ROTARY}.values",), default=False),
    lineage.SEGMENTS,
    lineage.DROPOUT,
    lineage.SEES_PAST_ONLY,
    lineage.activation(f"{HEAD}.activation"),
    lineage.norms(f"{HEAD}.norm.eps"),
)


def weights(tree: c.Transformer) -> Rules:
    """The names of RoFormer's body: BERT's, and a table of the angles' sines and cosines."""
    stack = tree.encoder or tree.decoder
    attention = stack.blocks()[0].sublayers[0].inner if stack else None
    assert isinstance(attention, c.SelfAttention) and isinstance(attention.positions, c.Rotary), "as the function says"
    table = Table("@encoder.embed_positions.weight",
                  c.Sinusoidal(layout=c.Halves(), length=attention.positions.length),
                  attention.projection.widths(tree.dim)[2])
    rules = lineage.body(tree, copies=("cls.predictions.decoder.{p}",))
    rules.tables = [table] if attention.positions.length else []
    return rules


words = language("cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm", "cls.predictions.decoder",
                 bias="cls.predictions.bias")
CLASSIFIER = c.ClassificationHead(pick=c.First(), transform=c.Transform())
ROFORMER_LAYOUT = Layout(
    "roformer", from_fields, KEYS, weights, {
        "RoFormerForMaskedLM": Published(whole.keep, words, (TIED,)),
        "RoFormerForCausalLM": Published(whole.keep, words, (TIED,)),
        "RoFormerForSequenceClassification": labelling(
            CLASSIFIER, "classifier.out_proj", dense="classifier.dense",
            keys=(LABELS, lineage.HEAD_DROPOUT,
                  Key("hidden_act", ("head.transform.activation",), names=ACTIVATIONS, default="gelu"))),
        "RoFormerForTokenClassification": labelling(c.TokenHead(), keys=(LABELS, DROPOUT)),
        "RoFormerForQuestionAnswering": labelling(c.SpanHead(), "qa_outputs", keys=()),
        "RoFormerForMultipleChoice": labelling(c.ChoiceHead(pick=c.Last()), keys=()),
        "RoFormerModel": bare,
    }, "roformer.", fixed={"add_cross_attention": False, "summary_type": "last", "summary_use_proj": False},
    free=frozenset({"tie_word_embeddings", "max_position_embeddings"}), settle=lineage.settle,
    restore=lineage.restore)
