"""Illegal combinations inside one sublayer: attention by each of its slots, and recurrent layers."""

from __future__ import annotations

from saucier.config.attention_slots import Projection
from saucier.config.layers import SelfAttention
from saucier.config.model import Transformer
from saucier.config.questions import global_terms, list_recurrent_parts, list_terms
from saucier.config.recurrent import Recurrent
from saucier.config.relative_positions import GlobalLocal
from saucier.config.stack import Stack
from saucier.config.visibility import FirstTokens
from saucier.errors import InputError


def check_attention(path: str, stack: str, attention: SelfAttention, dim: int) -> None:
    """What concerns one self-attention, by each of its slots."""
    check_projection(path, attention.projection, dim)
    attention.positions.check(path, attention, dim)
    attention.kernel.check(path, attention, dim)
    check_head_terms(path, attention)
    check_global_maps(path, stack, attention)


def check_projection(path: str, projection: Projection, dim: int) -> None:
    """Heads divide the width, and key-value heads divide the heads."""
    if projection.head_dim is None and dim % projection.heads:
        raise InputError(
            f"dim {dim} does not divide into {projection.heads} heads",
            where=f"{path}.projection",
            remedy="change heads, or give head_dim",
        )
    if projection.heads % (projection.kv_heads or projection.heads):
        raise InputError(
            f"{projection.heads} heads do not divide into {projection.kv_heads} key-value heads",
            where=f"{path}.projection.kv_heads",
            remedy="use a divisor of heads",
        )


def check_global_maps(path: str, stack: str, attention: SelfAttention) -> None:
    """Maps for global tokens need global tokens, an encoder (the cache holds one set of keys), and no positions."""
    if attention.global_maps is None:
        return
    if not global_terms(attention.visibility):
        raise InputError(
            "maps for global tokens, and no token is ever global",
            where=f"{path}.global_maps",
            remedy="leave them out, or add kind: global to the visibility",
        )
    if stack == "decoder" or attention.positions.kind != "none":
        raise InputError(
            "maps for global tokens work in an encoder, and without positions in the attention",
            where=f"{path}.global_maps",
            remedy="leave them out, or use positions of the embedding",
        )


def check_head_terms(path: str, attention: SelfAttention) -> None:
    """Terms by head are shared out evenly among the heads, and labels know of as many global tokens as there are."""
    named = {term.otherwise for term in global_terms(attention.visibility)}
    if isinstance(attention.positions, GlobalLocal):
        counts = {one.count for one in named if isinstance(one, FirstTokens)} or {0}
        if counts != {attention.positions.globals}:
            raise InputError(f"labels for {attention.positions.globals} global tokens, and {max(counts)} are global",
                             where=f"{path}.positions.globals", remedy=f"use globals: {max(counts)}")
    heads = attention.projection.heads
    for term in list_terms(attention.visibility):
        if term.kind == "by_head" and heads % len(term.terms):
            raise InputError(f"{heads} heads do not divide into {len(term.terms)} visibilities",
                             where=f"{path}.visibility.terms", remedy="give as many terms as heads, or a divisor")


def check_recurrent(name: str, stack: Stack, config: Transformer) -> None:
    """Raise `InputError` where recurrent layers cannot work."""
    for index, block in enumerate(stack.layers.distinct()):
        for residual in block.sublayers:
            if isinstance(residual.inner, Recurrent):
                where, width = f"{name}.blocks.{index}.recurrent", block.width(config.dim)
                if width % len(residual.inner.ways):
                    raise InputError(f"two directions do not share a width of {width}", where=f"{where}.direction",
                                     remedy="use an even dim, or kind: ahead")
                check_recurrent_place(where, name, residual.inner, config)
    if not (parts := list_recurrent_parts(stack)):
        return
    if stack.memory or stack.queries or stack.residual.kind != "one":
        raise InputError("recurrent layers keep their own states, in a plain stack", where=f"{name}.layers",
                         remedy="leave out memory, queries and streams")
    if name == "decoder" and any(part.start.kind == "final" for part in parts):
        check_initial_states(parts, config)


def check_recurrent_place(where: str, name: str, part: Recurrent, config: Transformer) -> None:
    """A decoder reads ahead, and only with an encoder is there one to look at."""
    if name == "decoder" and part.direction.kind != "ahead":
        raise InputError("a layer that reads backwards sees the future", where=f"{where}.direction",
                         remedy="use kind: ahead in a decoder")
    if part.reads_encoder and not (name == "decoder" and config.encoder):
        slot = "start" if part.attention is None else "attention"
        raise InputError("there is no encoder to look at", where=f"{where}.{slot}",
                         remedy="use it in a decoder beside an encoder, or leave it out")
    if part.start.kind in ("final", "last_layer") and not list_recurrent_parts(config.encoder):
        raise InputError("the encoder has no recurrent layers whose last states could be taken",
                         where=f"{where}.start", remedy="use kind: mean or zeros")
    if part.start.kind in ("final", "last_layer") and any(
            block.bottleneck for block in (config.encoder.blocks() if config.encoder else ())):
        raise InputError("the encoder's states are as narrow as its bottleneck", where=f"{where}.start",
                         remedy="use kind: mean or zeros")


def check_initial_states(parts: list[Recurrent], config: Transformer) -> None:
    """States that are copied have the same shape on both sides, layer by layer."""
    given = [shape for part in list_recurrent_parts(config.encoder) for shape in layer_states(part, config.dim)]
    wanted = [shape for part in parts if part.start.kind == "final"
              for shape in layer_states(part, config.dim)]
    if given != wanted:
        raise InputError(f"the encoder ends in states of {given}, and the decoder begins in {wanted}",
                         where="decoder.layers", remedy="give both the same cell and number of layers, or use "
                         "start: {kind: last_layer}")


def layer_states(part: Recurrent, dim: int) -> list[tuple[int, ...]]:
    """Return the widths of the states of each layer, both directions side by side."""
    return [tuple(len(part.ways) * width for width in part.states(dim))] * part.layers
