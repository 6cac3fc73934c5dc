"""REALM: BERTs that give texts vectors, score candidates by them, and read a question with what was found."""

from __future__ import annotations

from saucier import config as c
from saucier.checkpoints.classes import TIED, keep_with
from saucier.checkpoints.fields import Key
from saucier.checkpoints.layout import Layout, Published
from saucier.checkpoints.weight_names import Rule
from saucier.families import bert_lineage
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
    return body.model_copy(update={"head": c.EmbeddingHead(
        pooling=(c.Pooling(kind="pooled"),), maps=(c.DenseMap(width=width, activation="identity"),),
        norm=c.LayerNorm(eps=1e-12), normalize=False)})


UNUSED_LANGUAGE_HEAD = c.LanguageHead(tied=False, bias=True, transform=c.Transform(norm=c.LayerNorm()))
"""The language head that published embedders carry without using it."""


keep_reader = keep_with({"head": UNUSED_LANGUAGE_HEAD.model_copy(update={"tied": True})})
"""Keeps the language head that reads a question with its candidates; the pooler stays, as published."""
HEAD_KEYS = tuple(key for head in ("head.transform", "head.language.transform")
                  for key in bert_lineage.keys(transform=head) if key.foreign in ("hidden_act", "layer_norm_eps"))


def embedder(prefix: str) -> Published:
    """Return the class of an embedder, whose names begin with `prefix`."""
    names = bert_lineage.words(f"{prefix}cls.predictions", Rule("head.maps.0.{p}", f"{prefix}cls.dense.{{p}}"),
                               Rule("head.norm.{p}", f"{prefix}cls.LayerNorm.{{p}}"))
    return Published(keep_with({"head.language": UNUSED_LANGUAGE_HEAD}), names, (
        *HEAD_KEYS, Key("layer_norm_eps", ("head.norm.eps",), default=1e-12),
        Key("retriever_proj_size", ("head.maps.0.width",), default=128)), base=prefix + "realm.")


REALM_LAYOUT = Layout(
    "realm", bert_lineage.positioned(realm),
    keys=bert_lineage.keys(bert_lineage.POSITIONS),
    weights=bert_lineage.BERT_BODY,
    classes={
        "RealmEmbedder": embedder(""),
        "RealmScorer": embedder("embedder."),
        "RealmKnowledgeAugEncoder": Published(keep_reader, bert_lineage.WORDS, (*HEAD_KEYS, TIED)),
    },
    base="realm.", fixed={"is_decoder": False},
    free=frozenset({
        "tie_word_embeddings", "retriever_proj_size", "num_candidates", "span_hidden_size", "max_span_width",
        "reader_layer_norm_eps", "reader_beam_size", "reader_seq_len", "num_block_records", "searcher_beam_size",
    }),
)
