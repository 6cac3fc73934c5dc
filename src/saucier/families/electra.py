"""ELECTRA: a small generator fills masked words in, and a discriminator tells which words it replaced."""

from __future__ import annotations

from saucier import config as c
from saucier.checkpoints.classes import (
    SUMMARY_FIELDS,
    TIED,
    encoder_classes,
    keep_all,
    language_rules,
    move_to_decoder,
    move_to_encoder,
    name_null_activation,
    summary_class,
    with_head,
)
from saucier.checkpoints.fields import Document, Key, put
from saucier.checkpoints.layout import Layout, Published
from saucier.checkpoints.weight_names import Rule
from saucier.families import bert_lineage


def electra(
    dim: int = 256,
    layers: int = 12,
    *,
    heads: int = 4,
    vocab: int = 30522,
    length: int = 512,
    width: int = 128,
    hidden: int | None = None,
    dropout: float = 0.1,
) -> c.Transformer:
    """ELECTRA's discriminator, small unless said otherwise; `width` is that of the embedding tables.

    Source: Clark et al. 2020, §2 and table 6, arXiv:2003.10555.
    """
    embed = c.Embedding(vocab=vocab, positions=c.Learned(length=length), norm=c.LayerNorm(eps=1e-12), dropout=dropout,
                        segments=c.SegmentTable(),
                        projection=None if width == dim else c.ProjectNarrow(kind="normed", width=width))
    return bert_lineage.encoder(dim, layers, embed, heads=heads, hidden=hidden, head=c.ReplacedTokenHead())


def electra_generator(
    dim: int = 64,
    layers: int = 12,
    *,
    heads: int = 1,
    vocab: int = 30522,
    length: int = 512,
    width: int = 128,
    hidden: int | None = None,
    dropout: float = 0.1,
) -> c.Transformer:
    """ELECTRA's generator, a quarter of the small discriminator's width, with tables as wide as the discriminator's.

    Source: Clark et al. 2020, §3.2 and table 6, arXiv:2003.10555.
    """
    tree = electra(dim, layers, heads=heads, vocab=vocab, length=length, width=width, hidden=hidden, dropout=dropout)
    return tree.model_copy(update={"head": generating(tree, {})})


def generating(tree: c.Transformer, document: Document) -> c.Head:
    """Return the generator's head for a body: back to the width of the token table, to which the output is tied."""
    return c.LanguageHead(bias=True, transform=c.Transform(width=table_width(tree), norm=tree.embed.norm))


def table_width(tree: c.Transformer) -> int:
    """Return the width of the token table."""
    return tree.embed.widths(tree.dim)[0]


def settled(tree: c.Transformer) -> c.Transformer:
    """Leave the map after the embedding out where it would change no width, and decoders in their place."""
    if tree.embed.projection is not None and table_width(tree) == tree.dim:
        tree = put(tree, {"embed.projection": None})
    return move_to_decoder(tree)


words = language_rules("generator_predictions.dense", "generator_predictions.LayerNorm", "generator_lm_head")
DISCRIMINATOR = (
    Rule("head.transform.dense.{p}", "discriminator_predictions.dense.{p}"),
    Rule("head.output.{p}", "discriminator_predictions.dense_prediction.{p}"),
)
WRITER = Published(with_head(generating), words, (TIED,))
ELECTRA_LAYOUT = Layout(
    "electra", bert_lineage.positioned(electra),
    keys=bert_lineage.keys(
        bert_lineage.SEES_PAST_ONLY, bert_lineage.POSITIONS, bert_lineage.CROSSED,
        Key("embedding_size", ("embed.projection.width",), default=128, found=table_width),
        transform="head.transform"),
    weights=bert_lineage.BODY,
    classes={
        "ElectraForPreTraining": Published(keep_all, DISCRIMINATOR),
        **encoder_classes("Electra", words, bert_lineage.labelled_first("gelu", bert_lineage.CLASSIFIER),
                          dropout=bert_lineage.CLASSIFIER),
        "ElectraForMaskedLM": WRITER,
        "ElectraForCausalLM": WRITER,
        "ElectraForMultipleChoice": summary_class(c.ChoiceHead(), kind="first", activation="gelu"),
    },
    base="electra.", free=SUMMARY_FIELDS | {"tie_word_embeddings"}, normalize=name_null_activation, finish=settled,
    undo=move_to_encoder,
)
