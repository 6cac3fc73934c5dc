"""Illegal combinations around bottlenecks and trigrams."""

from __future__ import annotations

from saucier.config.disentangled import Disentangled, SharedMaps
from saucier.config.layers import SelfAttention, Softmax
from saucier.config.model import Block, ProjectTrigram, SegmentTokens, Stack, Transformer
from saucier.config.streams import OneStream
from saucier.errors import InputError


def check_trigram(config: Transformer) -> None:
    """Trigrams hold the next token, which a decoder must not see, and take no other vectors from their table."""
    if not isinstance(config.embed.projection, ProjectTrigram):
        return
    if config.decoder is not None and (config.encoder is None or config.output_embed is config.embed):
        raise InputError("a trigram holds the next token", where="embed.projection",
                         remedy="use it in an encoder alone")
    if isinstance(config.embed.segments, SegmentTokens):
        raise InputError("segments that are tokens have no neighbours", where="embed.segments",
                         remedy="use kind: table")


def check_bottleneck(where: str, name: str, stack: Stack, block: Block) -> None:
    """Inside a bottleneck attention has plain maps, and no cache; the stack has one plain stream."""
    if block.bottleneck is None:
        return
    if name == "decoder":
        raise InputError("a bottleneck has no cache", where=where, remedy="use it in an encoder")
    if stack.memory or stack.queries or not isinstance(stack.residual, OneStream):
        raise InputError("a bottleneck stands in a plain stack", where=where,
                         remedy="leave out memory, queries and streams")
    for residual in block.sublayers:
        inner = residual.inner
        if residual.kind not in ("post", "pre", "sandwich"):
            raise InputError(f"no {residual.kind} sublayer in a bottleneck", where=where, remedy="use kind: post")
        if isinstance(inner, SelfAttention):
            check_narrow_attention(where, inner, residual.kind)


def check_narrow_attention(where: str, attention: SelfAttention, residual: str) -> None:
    """The attention reads what the bottleneck gives it, with maps of its own."""
    if residual != "post":
        raise InputError("an attention in a bottleneck reads the block's input, and no norm comes before it",
                         where=where, remedy="use kind: post")
    shared = isinstance(attention.positions, Disentangled) and isinstance(attention.positions.maps, SharedMaps)
    if attention.global_maps or not attention.projection.key_bias or shared:
        raise InputError("an attention in a bottleneck has plain maps of its own", where=where,
                         remedy="leave out global_maps, key_bias and shared maps")
    if not isinstance(attention.kernel, Softmax):
        raise InputError(f"no {attention.kernel.kind} kernel in a bottleneck", where=where, remedy="use kind: softmax")
