"""ELECTRA: a small generator fills masked words in, and a discriminator tells which words it replaced."""

from __future__ import annotations

from saucier import config as c
from saucier.checkpoints.choices import LABELS, TIED, bare, keep_all, labelling, language, with_head
from saucier.checkpoints.keys import Document, Key, Layout, Published
from saucier.checkpoints.rules import Rule
from saucier.families import lineage
from saucier.families.summary import SUMMARY, spelled_out, summarizing


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
    norm = c.LayerNorm(eps=1e-12)
    attention = c.SelfAttention(projection=c.Projection(heads=heads), kernel=c.Softmax(dropout=dropout))
    feed_forward = c.FeedForward(hidden=hidden or 4 * dim, activation="gelu")
    residuals = tuple(c.PostNorm(inner=inner, norm=norm, dropout=dropout) for inner in (attention, feed_forward))
    return c.Transformer(
        dim=dim,
        embed=c.Embedding(vocab=vocab, positions=c.Learned(length=length), norm=norm, dropout=dropout,
                          segments=c.SegmentTable(), projection=None if width == dim else c.ProjectNormed(width=width)),
        encoder=c.Stack(layers=c.Repeat(block=c.Block(sublayers=residuals), times=layers)),
        head=c.ReplacedTokenHead(),
    )


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


KEYS = (
    *lineage.SIZES,
    lineage.SEGMENTS,
    lineage.DROPOUT,
    lineage.SEES_PAST_ONLY,
    lineage.POSITIONS,
    lineage.activation("head.transform.activation"),
    lineage.norms(),
    Key("embedding_size", ("embed.projection.width",), default=128, found=table_width),
)
FIRST = c.ClassificationHead(pick=c.First(), transform=c.Transform())


def settle(tree: c.Transformer) -> c.Transformer:
    """Leave the map behind the embedding out where it would change no width, and decoders in their place."""
    if tree.embed.projection is not None and tree.embed.projection.width == tree.dim:
        tree = tree.model_copy(update={"embed": tree.embed.model_copy(update={"projection": None})})
    return lineage.settle(tree)


words = language("generator_predictions.dense", "generator_predictions.LayerNorm", "generator_lm_head")
DISCRIMINATOR = (
    Rule("head.transform.dense.{p}", "discriminator_predictions.dense.{p}"),
    Rule("head.output.{p}", "discriminator_predictions.dense_prediction.{p}"),
)
CLASSES = {
    "ElectraForPreTraining": Published(keep_all, DISCRIMINATOR),
    "ElectraForMaskedLM": Published(with_head(generating), words, (TIED,)),
    "ElectraForCausalLM": Published(with_head(generating), words, (TIED,)),
    "ElectraForSequenceClassification": labelling(FIRST, "classifier.out_proj", dense="classifier.dense",
                                                  keys=(LABELS, lineage.CLASSIFIER)),
    "ElectraForTokenClassification": labelling(c.TokenHead(), keys=(LABELS, lineage.CLASSIFIER)),
    "ElectraForQuestionAnswering": labelling(c.SpanHead(), "qa_outputs", keys=()),
    "ElectraForMultipleChoice": labelling(summarizing, dense="sequence_summary.summary", keys=SUMMARY),
    "ElectraModel": bare,
}
ELECTRA_LAYOUT = Layout(
    "electra",
    lineage.positioned(electra),
    KEYS,
    lineage.body,
    CLASSES,
    "electra.",
    fixed={"add_cross_attention": False},
    free=frozenset({"tie_word_embeddings", *(key.foreign for key in SUMMARY)}),
    normalize=spelled_out,
    settle=settle,
    restore=lineage.restore,
)
