"""Longformer: RoBERTa with a sliding window of its own in every layer, and global tokens with maps of their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from saucier import config as c
from saucier.checkpoints.classes import encoder_classes, head_class
from saucier.checkpoints.fields import Document, Key, look_up, put
from saucier.checkpoints.layout import Layout, Published
from saucier.config.blocks import arrange_blocks
from saucier.errors import InputError
from saucier.families import bert_lineage
from saucier.families.roberta import PADDING, roberta


def longformer(
    dim: int = 768,
    layers: int = 12,
    *,
    heads: int = 12,
    vocab: int = 50265,
    length: int = 4098,
    hidden: int | None = None,
    window: int | Sequence[int] = 512,
    padding: int = 1,
    dropout: float = 0.1,
) -> c.Transformer:
    """Longformer with its language head. Source: Beltagy et al. 2020, §3 and §5, arXiv:2004.05150.

    Positions are counted from `padding` + 1, the id of the padding.
    `window`: how many neighbours a token sees, half on each side; one number a layer, or one for all. Raises
    `InputError` for odd ones, for ones below 2, and for another number of them than layers.
    """
    reach = reaches(window, layers)
    tree = roberta(dim, layers, heads=heads, vocab=vocab, length=length, hidden=hidden, padding=padding,
                   dropout=dropout)
    return see_windows(put(tree, {"pooler": c.Pooler()}), reach)


def see_windows(tree: c.Transformer, reach: Sequence[int]) -> c.Transformer:
    """Give the layers of an encoder windows, and tokens that see all with maps of their own."""
    block = look_up(tree, "encoder.layers.block")
    blocks = [put(block, {"sublayers.0.inner.visibility": c.Window(side + 1) | c.Global(),
                          "sublayers.0.inner.global_maps": c.GlobalMaps()}) for side in reach]
    return put(tree, {"encoder.layers": arrange_blocks(tuple(blocks))})


def reaches(window: int | Sequence[int], layers: int) -> tuple[int, ...]:
    """Return how far each layer's window reaches to a side. Raises `InputError` for windows that do not fit."""
    widths = (window,) * layers if isinstance(window, int) else tuple(window)
    if not isinstance(window, int) and len(widths) != layers:
        raise InputError(f"{len(widths)} windows for {layers} layers", where="window",
                         remedy="give one number for all layers, or one for each")
    if wrong := [width for width in widths if width < 2 or width % 2]:
        raise InputError(f"{wrong[0]} neighbours cannot stand half on each side", where="window",
                         remedy="give even numbers of 2 or more")
    return tuple(width // 2 for width in widths)


def windows(tree: c.Transformer) -> list[int]:
    """Return the neighbours that each layer of the encoder sees."""
    return [2 * (c.sliding_reach(part.visibility) or 0) for part in (tree.encoder.attentions() if tree.encoder else ())]


OTHERWISE = "encoder.layers.*.sublayers.0.inner.visibility.terms.1.otherwise"


WINDOW = Key("attention_window", (), argument="window", default=512, found=windows)
SEPARATOR = Key("sep_token_id", (f"{OTHERWISE}.token",), default=2)


def finding(tokens: c.GlobalTokens, published: Published) -> Published:
    """Return a class that makes these tokens global where the batch names none."""
    def keep(tree: c.Transformer, document: Document) -> c.Transformer:
        return published.keep(put(tree, {OTHERWISE: tokens}), document)

    return Published(keep, published.rules, published.keys)


LONGFORMER_LAYOUT = Layout(
    "longformer", longformer,
    keys=bert_lineage.keys(
        Key("num_hidden_layers", (), argument="layers", found=lambda tree: len(windows(tree))), WINDOW, PADDING,
        normed="head.transform.norm"),
    weights=replace(bert_lineage.ROBERTA_BODY,
                    maps={**bert_lineage.BODY.maps, "attention.inner.global_qkv": (
                        "attention.self.query_global", "attention.self.key_global", "attention.self.value_global")}),
    classes={
        **encoder_classes("Longformer", bert_lineage.ROBERTA_WORDS, finding(
            c.AtMostFirst(kind="first_token"), bert_lineage.labelled_first("tanh", bert_lineage.HEAD_DROPOUT)),
            dropout=bert_lineage.HEAD_DROPOUT),
        "LongformerForQuestionAnswering": finding(
            c.AtSeparator(kind="before_separator"), head_class(c.SpanHead(), "qa_outputs", keys=(SEPARATOR,))),
        "LongformerForMultipleChoice": finding(c.AtSeparator(kind="after_separator"), head_class(
            c.ChoiceHead(), keys=(SEPARATOR, bert_lineage.HEAD_DROPOUT))),
    },
    base="longformer.", free=frozenset({"onnx_export", "tie_word_embeddings"}),
)
