"""GPT-2: GPT with norms inside the residuals and one at the end."""

from __future__ import annotations

from functools import partial

from saucier import config as c
from saucier.checkpoints.classes import PAST, add_cross_attention, decoder_classes, swap_sublayers
from saucier.checkpoints.fields import Key, look_up, make_keys, put
from saucier.checkpoints.layout import Layout
from saucier.errors import InputError
from saucier.families.bert_lineage import CROSSED
from saucier.families.gpt import DOUBLE, FIELDS, FREE, decoder, embedding, weights


def gpt2(dim: int = 768, layers: int = 12, *, heads: int = 12, vocab: int = 50257, length: int = 1024,
         hidden: int | None = None, dropout: float = 0.1, visibility: c.DecoderVisibility = PAST) -> c.Transformer:
    """GPT-2: norms before each sublayer and one at the end, residual maps started smaller with depth.

    Source: Radford et al. 2019, §2.3.
    """
    stack = put(decoder(layers, heads, hidden or 4 * dim, dropout, c.PreNorm),
                {"layers.block.sublayers.0.inner.visibility": visibility})
    return c.Transformer(dim=dim, embed=embedding(vocab, length, dropout), head=c.LanguageHead(), decoder=stack,
                         initialization=c.NormalInit(depth_scaled=True))


def by_fields(dim: int, layers: int, heads: int, *, scaled: bool, by_depth: bool, crossing: bool) -> c.Transformer:
    """GPT-2 whose scores are not `scaled` by the heads' width, or are divided by the layer's number (`by_depth`).

    Source: Karamcheti et al. 2021, "Mistral: A Journey towards Reproducible Language Model Training", for the latter.
    Raises `InputError` for cross-attention in blocks that differ.
    """
    if crossing and by_depth:
        raise InputError("add_cross_attention and scale_attn_by_inverse_layer_idx cannot be expressed together",
                         where="config.json", remedy="set one of them to false")
    tree = gpt2(dim, layers, heads=heads)
    tree = add_cross_attention(tree, "decoder") if crossing else tree
    if scaled and not by_depth:
        return tree
    block, scale = look_up(tree, "decoder.layers.block"), (dim // heads) ** -0.5 if scaled else 1.0
    scored = [put(block, {SCALE: scale / (depth + 1)}) for depth in range(layers if by_depth else 1)]
    made = c.Cycle(blocks=tuple(scored), times=1) if by_depth else c.Repeat(block=scored[0], times=layers)
    return put(tree, {"decoder.layers": made})


crossing_between = partial(swap_sublayers, stack="decoder")
"""Exchanges cross-attention and feed-forward, where keys look for them and where they are: its own inverse."""


SCALE = "sublayers.0.inner.projection.scale"
LAYERS, FEED_FORWARD = "decoder.layers", "decoder.layers.*.sublayers.1.inner"
GPT2_LAYOUT = Layout(
    "gpt2", by_fields,
    keys=(
        *make_keys("decoder", {**FIELDS, "vocab_size": ("vocab", 50257), "n_positions": ("length", 1024),
                               "activation_function": ("activation", "gelu_new")}, arguments=("dim", "heads")),
        Key("n_layer", (), argument="layers", default=12,
            found=lambda tree: tree.decoder and len(tree.decoder.blocks())),
        Key("n_inner", (f"{FEED_FORWARD}.hidden",), default=lambda document: 4 * (document.get("n_embd") or 768)),
        Key("scale_attn_weights", (f"{LAYERS}.*.{SCALE}",), argument="scaled", default=True, absent=True,
            theirs=lambda scale: scale != 1.0),
        Key("scale_attn_by_inverse_layer_idx", (LAYERS,), argument="by_depth", default=False,
            theirs=lambda layers: isinstance(layers, c.Cycle)),
        CROSSED,
    ),
    weights=lambda tree: weights(tree, tokens="wte", positions="wpe"),
    classes={**decoder_classes("GPT2", language="LMHeadModel"), "GPT2DoubleHeadsModel": DOUBLE},
    base="transformer.", free=FREE | {"is_decoder"}, finish=crossing_between, undo=crossing_between,
)
