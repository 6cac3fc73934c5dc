"""Illegal combinations inside one sublayer: attention by each of its slots, and recurrent layers."""

from __future__ import annotations

from saucier.config.disentangled import Disentangled, LogDistances
from saucier.config.kernels import Chunks, Favor, Hashing, LowRank
from saucier.config.layers import Projection, SelfAttention
from saucier.config.model import Transformer
from saucier.config.positions import (
    DynamicScaling,
    GlobalLocal,
    Llama3Scaling,
    LongRope,
    MusicTransformer,
    NoPositions,
    Rotary,
    Scaling,
    T5Bias,
    Yarn,
)
from saucier.config.questions import global_terms, is_causal, list_recurrent_parts, list_terms
from saucier.config.recurrent import Ahead, FromFinalStates, FromLastLayer, Recurrent
from saucier.config.stack import OneStream, Stack
from saucier.config.visibility import ByHead, Causal, FirstTokens, Full
from saucier.errors import InputError


def check_attention(path: str, stack: str, attention: SelfAttention, dim: int) -> None:
    """What concerns one self-attention, by each of its slots."""
    check_projection(path, attention.projection, dim)
    check_positions(path, attention, dim)
    check_kernel(path, attention)
    check_favor(path, attention, dim)
    check_low_rank(path, attention)
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


def check_positions(path: str, attention: SelfAttention, dim: int) -> None:
    """Positions that assume something of the visibility or of the head's width."""
    head = attention.projection.widths(dim)[2]
    match attention.positions:
        case Disentangled() as positions:
            check_disentangled(path, positions)
        case Rotary() as rotary if rotary.width(head) % 2 or rotary.width(head) == 0:
            raise InputError(
                f"rotary turns pairs of values, and {rotary.share:g} of a head of {head} is {rotary.width(head)}",
                where=f"{path}.positions",
                remedy="make the rotated part even",
            )
        case Rotary(scaling=scaling) as rotary:
            check_scaling(f"{path}.positions.scaling", scaling, rotary.width(head) // 2)
        case MusicTransformer() if not is_causal(attention.visibility):
            raise InputError(
                "the skewed relative positions know only the past",
                where=f"{path}.positions",
                remedy="use visibility causal, or kind: shaw",
            )
        case T5Bias(bidirectional=True) if is_causal(attention.visibility):
            raise InputError(
                "half of the T5 buckets would be for a future that is never seen",
                where=f"{path}.positions",
                remedy="use bidirectional: false",
            )
        case T5Bias(buckets=buckets, max_distance=distance, bidirectional=both) if distance <= buckets // (
            4 if both else 2
        ):
            raise InputError(
                f"max_distance {distance} is within the {buckets // (4 if both else 2)} exact buckets",
                where=f"{path}.positions",
                remedy="raise max_distance or lower buckets",
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


def check_scaling(path: str, scaling: Scaling, pairs: int) -> None:
    """Scalings that assume something of the number of rotated pairs, or whose slope would have no extent."""
    match scaling:
        case LongRope(short=short, long=long) if {len(short), len(long)} != {pairs}:
            raise InputError(
                f"{len(short)} short and {len(long)} long divisors for {pairs} pairs of values",
                where=path,
                remedy="give one divisor for each pair",
            )
        case DynamicScaling() if pairs == 1:
            raise InputError(
                "dynamic scaling keeps the fastest pair and stretches the others, and there is one pair",
                where=path,
                remedy="rotate more of each head, or use kind: linear",
            )
        case Llama3Scaling(low=low, high=high) if low >= high:
            raise InputError(
                f"waves are divided below {low:g} turns and kept above {high:g}",
                where=path,
                remedy="make high larger than low",
            )
        case Yarn(fast=fast, slow=slow) if slow >= fast:
            raise InputError(
                f"waves are divided below {slow:g} turns and kept above {fast:g}",
                where=path,
                remedy="make fast larger than slow",
            )


def check_disentangled(path: str, positions: Disentangled) -> None:
    """Some score reads the distances, and logarithmic ranges begin where exact distances end."""
    if positions.terms == 1:
        raise InputError("disentangled positions without either score", where=f"{path}.positions",
                         remedy="use content_to_position or position_to_content, or kind: none")
    distances = positions.distances
    if isinstance(distances, LogDistances) and distances.reach - 1 <= distances.buckets // 2:
        raise InputError(f"reach {distances.reach} is within the {distances.buckets // 2} exact distances",
                         where=f"{path}.positions", remedy="raise reach or lower buckets")


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
        if isinstance(term, ByHead) and heads % len(term.terms):
            raise InputError(f"{heads} heads do not divide into {len(term.terms)} visibilities",
                             where=f"{path}.visibility.terms", remedy="give as many terms as heads, or a divisor")


def check_kernel(path: str, attention: SelfAttention) -> None:
    """Chunks are laid out by place alone, and hashes need one map for queries and keys."""
    kernel, projection = attention.kernel, attention.projection
    if not isinstance(kernel, Chunks | Hashing):
        return
    chunks = kernel.chunks if isinstance(kernel, Hashing) else kernel
    causal = isinstance(attention.visibility, Causal)
    if not isinstance(attention.visibility, Full | Causal) or attention.global_maps:
        raise InputError(f"kernel {kernel.kind} has chunks in place of a visibility", where=f"{path}.visibility",
                         remedy="use full or causal")
    if causal and chunks.after:
        place = "kernel.chunks" if isinstance(kernel, Hashing) else "kernel"
        raise InputError("a causal attention has nothing to see in later chunks", where=f"{path}.{place}.after",
                         remedy="use after: 0")
    if (chunks.multiple or chunks.length) % chunks.length:
        raise InputError(f"{chunks.multiple} positions are no whole chunks of {chunks.length}",
                         where=f"{path}.kernel.multiple", remedy="make multiple a multiple of length")
    if projection.kv_heads not in (None, projection.heads) or not projection.key_bias:
        raise InputError(f"kernel {kernel.kind} needs keys like its queries", where=f"{path}.projection",
                         remedy="leave kv_heads and key_bias out")
    if not isinstance(attention.positions, NoPositions) and not (
            isinstance(attention.positions, Rotary) and isinstance(kernel, Chunks)):
        raise InputError(f"kernel {kernel.kind} cannot take positions {attention.positions.kind}",
                         where=f"{path}.positions", remedy="use positions in the embedding, or kernel softmax")
    if isinstance(kernel, Hashing) and projection.scale is not None:
        raise InputError("keys of length 1 have no other scale", where=f"{path}.projection.scale", remedy="remove it")


WIDEST = 128
"""Values of a head whose features are never too large or too small for sums in float32."""


def check_favor(path: str, attention: SelfAttention, dim: int) -> None:
    """Sums over keys know no pairs: nothing can be added to the score of one, or hidden from one, but what is later."""
    if not isinstance(attention.kernel, Favor):
        return
    if not isinstance(attention.visibility, Full | Causal) or attention.global_maps:
        raise InputError("kernel favor has no pairs of positions to hide", where=f"{path}.visibility",
                         remedy="use full or causal without maps for global tokens, or kernel softmax")
    if not isinstance(attention.positions, NoPositions | Rotary):
        raise InputError(f"kernel favor cannot take positions {attention.positions.kind}", where=f"{path}.positions",
                         remedy="use rotary, or positions in the embedding, or kernel softmax")
    head = attention.projection.widths(dim)[2]
    if head > WIDEST:
        raise InputError(f"features of heads of {head} values are beyond float32", where=f"{path}.projection",
                         remedy=f"use more heads, of {WIDEST} values at most")


def check_low_rank(path: str, attention: SelfAttention) -> None:
    """A mixture is made of a whole text: nothing of it can be hidden, and it stands at no place."""
    if not isinstance(attention.kernel, LowRank):
        return
    if not isinstance(attention.visibility, Full) or attention.global_maps:
        raise InputError("kernel low_rank mixes all tokens of a text, later ones too", where=f"{path}.visibility",
                         remedy="use visibility full in an encoder, or kernel softmax or favor")
    if not isinstance(attention.positions, NoPositions | Rotary):
        raise InputError(f"kernel low_rank cannot take positions {attention.positions.kind}", where=f"{path}.positions",
                         remedy="use rotary, or positions in the embedding, or kernel softmax")


def check_recurrent(name: str, stack: Stack, config: Transformer) -> None:
    """Raise `InputError` where recurrent layers cannot work."""
    for index, block in enumerate(stack.blocks()):
        for residual in block.sublayers:
            if isinstance(residual.inner, Recurrent):
                where = f"{name}.blocks.{index}.recurrent"
                check_recurrent_width(where, residual.inner, block.width(config.dim))
                check_recurrent_place(where, name, residual.inner, config)
        if index and stack.layers.kind != "cycle":
            break  # the same block again
    if not (parts := list_recurrent_parts(stack)):
        return
    if stack.memory or stack.queries or not isinstance(stack.residual, OneStream):
        raise InputError("recurrent layers keep their own states, in a plain stack", where=f"{name}.layers",
                         remedy="leave out memory, queries and streams")
    if name == "decoder" and any(isinstance(part.start, FromFinalStates) for part in parts):
        check_initial_states(parts, config)


def check_recurrent_width(where: str, part: Recurrent, dim: int) -> None:
    """Two directions share the width."""
    if dim % len(part.ways):
        raise InputError(f"two directions do not share a width of {dim}", where=f"{where}.direction",
                         remedy="use an even dim, or kind: ahead")


def check_recurrent_place(where: str, name: str, part: Recurrent, config: Transformer) -> None:
    """A decoder reads ahead, and only beside an encoder is there one to look at."""
    if name == "decoder" and not isinstance(part.direction, Ahead):
        raise InputError("a layer that reads backwards sees the future", where=f"{where}.direction",
                         remedy="use kind: ahead in a decoder")
    if part.reads_encoder and not (name == "decoder" and config.encoder):
        slot = "start" if part.attention is None else "attention"
        raise InputError("there is no encoder to look at", where=f"{where}.{slot}",
                         remedy="use it in a decoder beside an encoder, or leave it out")
    if isinstance(part.start, FromFinalStates | FromLastLayer) and not list_recurrent_parts(config.encoder):
        raise InputError("the encoder has no recurrent layers whose last states could be taken",
                         where=f"{where}.start", remedy="use kind: mean or zeros")
    if isinstance(part.start, FromFinalStates | FromLastLayer) and any(
            block.bottleneck for block in (config.encoder.blocks() if config.encoder else ())):
        raise InputError("the encoder's states are as narrow as its bottleneck", where=f"{where}.start",
                         remedy="use kind: mean or zeros")


def check_initial_states(parts: list[Recurrent], config: Transformer) -> None:
    """States that are copied have the same shape on both sides, layer by layer."""
    given = [shape for part in list_recurrent_parts(config.encoder) for shape in layer_states(part, config.dim)]
    wanted = [shape for part in parts if isinstance(part.start, FromFinalStates)
              for shape in layer_states(part, config.dim)]
    if given != wanted:
        raise InputError(f"the encoder ends in states of {given}, and the decoder begins in {wanted}",
                         where="decoder.layers", remedy="give both the same cell and number of layers, or use "
                         "start: {kind: last_layer}")


def layer_states(part: Recurrent, dim: int) -> list[tuple[int, ...]]:
    """Return the widths of the states of each layer, both directions side by side."""
    return [tuple(len(part.ways) * width for width in part.states(dim))] * part.layers
