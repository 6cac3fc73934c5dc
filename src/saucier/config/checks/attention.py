"""What concerns one attention, by each of its slots."""

from __future__ import annotations

from saucier.config.checks.chunks import check_kernel
from saucier.config.checks.favor import check_favor
from saucier.config.checks.low_rank import check_low_rank
from saucier.config.checks.patterns import check_patterns
from saucier.config.disentangled import Disentangled, LogDistances
from saucier.config.layers import Projection, SelfAttention
from saucier.config.positions import MusicTransformer, Rotary, T5Bias
from saucier.config.rotary import DynamicScaling, Llama3Scaling, LongRope, Scaling, Yarn
from saucier.config.visibility import global_terms, is_causal
from saucier.errors import InputError


def check_attention(path: str, stack: str, attention: SelfAttention, dim: int) -> None:
    """What concerns one self-attention, by each of its slots."""
    check_projection(path, attention.projection, dim)
    check_positions(path, attention, dim)
    check_kernel(path, attention)
    check_favor(path, attention, dim)
    check_low_rank(path, attention)
    check_patterns(path, attention)
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
