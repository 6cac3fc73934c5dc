"""RoFormer: a BERT whose queries and keys are rotated, each value with its neighbour."""

from __future__ import annotations

from saucier import config as c
from saucier.checkpoints.choices import DROPOUT, TIED, encoder_classes, keep_all
from saucier.checkpoints.keys import ACTIVATIONS, Key, Layout, Published
from saucier.checkpoints.places import first_attention
from saucier.checkpoints.rules import Rules, Table
from saucier.checkpoints.sides import restore, settle, with_cross
from saucier.families import lineage
from saucier.families.summary import FIELDS, spelled_out, summarized


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
    embed = c.Embedding(vocab=vocab, norm=norm, dropout=dropout, segments=c.SegmentTable(),
                        projection=c.ProjectNormed(width=embedding) if embedding else None)
    attention = c.SelfAttention(projection=c.Projection(heads=heads), positions=positions)
    return lineage.encoder(dim, layers, embed, heads=heads, hidden=hidden, attention=attention,
                           head=c.LanguageHead(bias=True, transform=c.Transform(width=embedding, norm=norm)))


def from_fields(dim: int, *, width: int, crossing: bool) -> c.Transformer:
    """The family by the published fields; tables as wide as the model have no projection."""
    tree = roformer(dim, embedding=None if width == dim else width)
    return with_cross(tree) if crossing else tree


KEYS = lineage.keys(
    Key("embedding_size", (), argument="width", default=lambda document: document["hidden_size"],
        found=lambda tree: tree.embed.widths(tree.dim)[0]),
    Key("rotary_value", (f"{lineage.ATTENTION}.inner.positions.values",), default=False),
    lineage.SEES_PAST_ONLY, lineage.CROSSED, arguments=("dim",), transform="head.transform")


def weights(tree: c.Transformer) -> Rules:
    """The names of RoFormer's body: BERT's, and a table of the angles' sines and cosines."""
    attention = first_attention(tree)
    assert isinstance(attention.positions, c.Rotary), "as the family's function says"
    length = attention.positions.length
    rules = lineage.BERT_BODY(tree)
    rules.tables = [Table("@encoder.embed_positions.weight", c.Sinusoidal(layout=c.Halves(), length=length),
                          attention.projection.widths(tree.dim)[2])] if length else []
    return rules


LABELLED = lineage.labelled_first("gelu", lineage.HEAD_DROPOUT, Key(
    "hidden_act", ("head.transform.activation",), names=ACTIVATIONS, default="gelu"))
ROFORMER_LAYOUT = Layout(
    "roformer", from_fields, KEYS, weights, {
        **encoder_classes("RoFormer", lineage.WORDS, LABELLED, dropout=DROPOUT, keep=keep_all),
        "RoFormerForCausalLM": Published(keep_all, lineage.WORDS, (TIED,)),
        "RoFormerForMultipleChoice": summarized(c.ChoiceHead(), kind="last", used=False,
                                                 activation="linear"),
    }, "roformer.",
    free=FIELDS | {"tie_word_embeddings", "max_position_embeddings"}, normalize=spelled_out, settle=settle,
    restore=restore)
