"""LED: BART whose encoder is Longformer's, for long sources."""

from __future__ import annotations

from collections.abc import Sequence

from saucier import config as c
from saucier.checkpoints.classes import drop_classes
from saucier.checkpoints.fields import Key, put
from saucier.checkpoints.layout import Layout
from saucier.checkpoints.weight_names import Concat, Rule, Rules
from saucier.families import bart_lineage
from saucier.families.bart import bart
from saucier.families.longformer import WINDOW, finding, reaches, see_windows, windows


def led(dim: int = 1024, layers: int = 12, *, heads: int = 16, vocab: int = 50265, length: int = 16384,
        target_length: int = 1024, window: int | Sequence[int] = 1024, dropout: float = 0.1) -> c.Transformer:
    """LED, large by default. Source: Beltagy et al. 2020, §7, arXiv:2004.05150.

    `length` and `target_length` are the most tokens of a source and of a target; `window` is Longformer's.
    """
    reach = reaches(window, layers)
    tree = put(bart(dim, layers, heads=heads, vocab=vocab, dropout=dropout), {
        "embed.positions": c.Learned(length=length), "decoder_embed.positions": c.Learned(length=target_length)})
    return see_windows(tree, reach)


def from_fields(dim: int, *, layers: int, window: int | Sequence[int], tied: bool) -> c.Transformer:
    """The family by the published fields; an untied output layer goes with a table of its own on each side."""
    tree = led(dim, layers, window=window)
    return tree if tied else put(tree, {"decoder_embed.tied": False, "head.tied": False})




def weights(tree: c.Transformer) -> Rules:
    """The names of BART's body, with the encoder's attentions under Longformer's."""
    ours, theirs = "encoder.blocks.{i}.attention.inner.", "@encoder.layers.{i}.self_attn."
    body = bart_lineage.weights(tree)

    def maps(end: str) -> tuple[str, ...]:
        return tuple(f"{theirs}longformer_self_attn.{name}{end}.{{p}}" for name in ("query", "key", "value"))

    kept = [rule for rule in body.rules if not rule.ours.startswith(ours)]
    return Rules([
        *kept, Rule(ours + "out.{p}", theirs + "output.{p}"), Rule(ours + "qkv.{p}", maps(""), Concat((tree.dim,) * 3)),
        Rule(ours + "global_qkv.{p}", maps("_global"), Concat((tree.dim,) * 3)),
    ], ignored=bart_lineage.COPIES_AND_UNUSED)


CLASSES = drop_classes(bart_lineage.classes("LED", labels=2), "ForCausalLM")
LED_LAYOUT = Layout(
    "led", from_fields,
    keys=(
        *(key for key in bart_lineage.KEYS if key.foreign not in ("encoder_layers", "scale_embedding")),
        Key("encoder_layers", (), argument="layers", default=12, found=lambda tree: len(windows(tree))),
        WINDOW,
        Key("max_encoder_position_embeddings", ("embed.positions.length",), default=16384),
        Key("max_decoder_position_embeddings", ("decoder_embed.positions.length",), default=1024),
        bart_lineage.START,
    ),
    weights=weights,
    classes={**CLASSES, "LEDForSequenceClassification": finding(c.AtMostFirst(kind="first_token"),
                                                                CLASSES["LEDForSequenceClassification"])},
    base="led.", normalize=bart_lineage.newer, older=bart_lineage.OLDER,
    free=bart_lineage.FREE | {"classifier_dropout"},
)
