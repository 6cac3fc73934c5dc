"""DPR: BERTs that give questions and passages vectors, and one that reads the passages found."""

from __future__ import annotations

from saucier import config as c
from saucier.checkpoints.classes import keep_all
from saucier.checkpoints.fields import Document, Key, look_up, put
from saucier.checkpoints.layout import Layout, Published
from saucier.checkpoints.weight_names import Rule
from saucier.families import bert_lineage
from saucier.families.bert import bert


def dpr(
    dim: int = 768,
    layers: int = 12,
    *,
    heads: int = 12,
    vocab: int = 30522,
    length: int = 512,
    hidden: int | None = None,
    width: int | None = None,
    dropout: float = 0.1,
) -> c.Transformer:
    """One of DPR's two encoders: the first token's vector represents the text, mapped to `width` where given.

    Source: Karpukhin et al. 2020, §3, arXiv:2004.04906.
    """
    tree = bert(dim, layers, heads=heads, vocab=vocab, length=length, hidden=hidden, dropout=dropout)
    head = c.EmbeddingHead(pooling=(c.Pooling(kind="first"),), maps=mapped(width or 0), normalize=False)
    # padding is found by its id, where the batch gives no mask
    return put(tree, {"embed.padding": 0, "pooler": None, "head": head})


def mapped(width: int) -> tuple[c.DenseMap, ...]:
    """Return a plain map to a width; none for a width of 0."""
    return (c.DenseMap(width=width, activation="identity"),) if width else ()


def keep_reader(tree: c.Transformer, document: Document) -> c.Transformer:
    """The body of the reader, which takes all tokens as of the first segment, and its three logits."""
    return put(tree, {"embed.segments": c.FirstSegment(count=look_up(tree, "embed.segments.count")),
                      "embed.padding": None, "head": c.ReaderHead()})


ENCODER_KEYS = (
    Key("pad_token_id", ("embed.padding",), default=0),
    Key("projection_dim", ("head.maps",), default=0, ours=mapped, theirs=lambda maps: maps[0].width if maps else 0),
)
NO_PROJECTION = Key("projection_dim", (), names={0: 0}, default=0, found=lambda tree: 0)
"""A reader reads the vectors as they are."""


def encoder(name: str) -> Published:
    """Return the class of one of the two encoders, by the name of its part."""
    return Published(keep_all, (Rule("head.maps.0.{p}", f"{name}.encode_proj.{{p}}"),), ENCODER_KEYS,
                     base=f"{name}.bert_model.")


DPR_LAYOUT = Layout(
    "dpr", dpr,
    keys=bert_lineage.keys(),
    weights=bert_lineage.BODY,
    classes={
        "DPRQuestionEncoder": encoder("question_encoder"),
        "DPRContextEncoder": encoder("ctx_encoder"),
        "DPRReader": Published(keep_reader, (Rule("head.output.{p}", "span_predictor.qa_outputs.{p}"),
                                             Rule("head.relevance.{p}", "span_predictor.qa_classifier.{p}")),
                               (NO_PROJECTION,), base="span_predictor.encoder.bert_model."),
    },
    base="question_encoder.bert_model.",
    fixed={"add_cross_attention": False, "is_decoder": False, "position_embedding_type": "absolute"},
    free=frozenset({"tie_word_embeddings", "projection_dim"}),
)
