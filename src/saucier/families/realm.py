"""REALM: BERTs that give texts vectors, score candidates by them, and read a question with what was found."""

from __future__ import annotations

from saucier import config as c
from saucier.checkpoints.keys import Document, Key, Layout, Published
from saucier.checkpoints.rules import Rule, Rules
from saucier.families import lineage
from saucier.families.bert import bert


def realm(
    dim: int = 768,
    layers: int = 12,
    *,
    heads: int = 12,
    vocab: int = 30522,
    length: int = 512,
    hidden: int | None = None,
    width: int = 128,
    dropout: float = 0.1,
) -> c.Transformer:
    """REALM's embedder: the pooled first token, mapped to `width` and normed.

    Source: Guu et al. 2020, §3.2, arXiv:2002.08909.
    """
    body = bert(dim, layers, heads=heads, vocab=vocab, length=length, hidden=hidden, dropout=dropout)
    return body.model_copy(update={"head": c.VectorHead(pick=c.Pooled(), width=width, norm=c.LayerNorm(eps=1e-12))})


BESIDE = c.LanguageHead(tied=False, bias=True, transform=c.Transform(norm=c.LayerNorm()))
"""The language head that published embedders carry without using it."""


def keep_embedder(tree: c.Transformer, document: Document) -> c.Transformer:
    """The vector, and a language head beside it."""
    assert isinstance(tree.head, c.VectorHead), "as the family's function says"
    return tree.model_copy(update={"head": tree.head.model_copy(update={"language": BESIDE})})


def keep_reader(tree: c.Transformer, document: Document) -> c.Transformer:
    """The language head that reads a question with its candidates; the pooler stays, as published."""
    return tree.model_copy(update={"head": BESIDE.model_copy(update={"tied": True})})


def words(ours: str, prefix: str) -> tuple[Rule, ...]:
    """The names of a language head, which stands in our tree at `ours`."""
    theirs = prefix + "cls.predictions."
    return (
        Rule(f"{ours}.transform.dense.{{p}}", theirs + "transform.dense.{p}"),
        Rule(f"{ours}.transform.norm.{{p}}", theirs + "transform.LayerNorm.{p}"),
        Rule(f"{ours}.bias", theirs + "bias"),
        Rule(f"{ours}.weight", theirs + "decoder.weight"),
    )


HEADS = ("head.transform", "head.language.transform")
KEYS = (*lineage.SIZES, lineage.SEGMENTS, lineage.DROPOUT, lineage.activation(), lineage.norms())
HEAD_KEYS = (
    lineage.activation(*(f"{head}.activation" for head in HEADS)),
    lineage.norms("head.norm.eps", *(f"{head}.norm.eps" for head in HEADS)),
)
WIDTH = Key("retriever_proj_size", ("head.width",), default=128)


def embedder(prefix: str) -> Published:
    """Return the class of an embedder, whose names begin with `prefix`."""
    rules = (Rule("head.project.{p}", prefix + "cls.dense.{p}"), Rule("head.norm.{p}", prefix + "cls.LayerNorm.{p}"))
    return Published(keep_embedder, (*rules, *words("head.language", prefix)), (*HEAD_KEYS, WIDTH),
                     base=prefix + "realm.")


CLASSES = {
    "RealmEmbedder": embedder(""),
    "RealmScorer": embedder("embedder."),
    "RealmKnowledgeAugEncoder": Published(keep_reader, words("head", ""), HEAD_KEYS),
}


def weights(tree: c.Transformer) -> Rules:
    """The names of BERT's body."""
    return lineage.body(tree, copies=("cls.predictions.decoder.{p}",))


REALM_LAYOUT = Layout(
    "realm",
    realm,
    KEYS,
    weights,
    CLASSES,
    "realm.",
    fixed={"is_decoder": False, "position_embedding_type": "absolute"},
    free=frozenset({
        "tie_word_embeddings", "retriever_proj_size", "num_candidates", "span_hidden_size", "max_span_width",
        "reader_layer_norm_eps", "reader_beam_size", "reader_seq_len", "num_block_records", "searcher_beam_size",
    }),
)
