"""RoFormer: a BERT whose queries and keys are rotated, each value with its neighbour."""

from __future__ import annotations

from dataclasses import replace

from saucier import config as c
from saucier.checkpoints.classes import (
    DROPOUT,
    SUMMARY_FIELDS,
    TIED,
    add_cross_attention,
    encoder_classes,
    keep_all,
    move_to_decoder,
    move_to_encoder,
    name_null_activation,
    summary_class,
)
from saucier.checkpoints.fields import ACTIVATIONS, Key, first_attention, look_up
from saucier.checkpoints.layout import Layout, Published
from saucier.checkpoints.weight_names import Rules, Table
from saucier.families import bert_lineage


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
    positions = c.Rotary(pairs=c.Pairs(kind="neighbours"), length=length)
    embed = c.Embedding(vocab=vocab, norm=norm, dropout=dropout, segments=c.SegmentTable(),
                        projection=c.ProjectNarrow(kind="normed", width=embedding) if embedding else None)
    attention = c.SelfAttention(projection=c.Projection(heads=heads), positions=positions)
    return bert_lineage.encoder(dim, layers, embed, heads=heads, hidden=hidden, attention=attention,
                                head=c.LanguageHead(bias=True, transform=c.Transform(width=embedding, norm=norm)))


def from_fields(dim: int, *, width: int, crossing: bool) -> c.Transformer:
    """The family by the published fields; tables as wide as the model have no projection."""
    tree = roformer(dim, embedding=None if width == dim else width)
    return add_cross_attention(tree) if crossing else tree


def weights(tree: c.Transformer) -> Rules:
    """The names of RoFormer's body: BERT's, and a table of the angles' sines and cosines."""
    attention = first_attention(tree)  # of an encoder, or of a decoder alone
    length = look_up(attention, "positions.length")
    table = Table("@encoder.embed_positions.weight",
                  c.Sinusoidal(layout=c.SinusoidLayout(kind="halves"), length=length),
                  attention.projection.widths(tree.dim)[2])
    return replace(bert_lineage.BERT_BODY(tree), tables=[table] if length else [])


LABELLED = bert_lineage.labelled_first("gelu", bert_lineage.HEAD_DROPOUT, Key(
    "hidden_act", ("head.transform.activation",), names=ACTIVATIONS, default="gelu"))
ROFORMER_LAYOUT = Layout(
    "roformer", from_fields,
    keys=bert_lineage.keys(
        Key("embedding_size", (), argument="width", default=lambda document: document["hidden_size"],
            found=lambda tree: tree.embed.widths(tree.dim)[0]),
        Key("rotary_value", (f"{bert_lineage.ATTENTION}.inner.positions.values",), default=False),
        bert_lineage.SEES_PAST_ONLY, bert_lineage.CROSSED, arguments=("dim",), transform="head.transform"),
    weights=weights,
    classes={**encoder_classes("RoFormer", bert_lineage.WORDS, LABELLED, dropout=DROPOUT, keep=keep_all),
             "RoFormerForCausalLM": Published(keep_all, bert_lineage.WORDS, (TIED,)),
             "RoFormerForMultipleChoice": summary_class(c.ChoiceHead(), kind="last", used=False,
                                                        activation="linear"),},
    base="roformer.", free=SUMMARY_FIELDS | {"tie_word_embeddings", "max_position_embeddings"},
    normalize=name_null_activation, finish=move_to_decoder, undo=move_to_encoder,
)
