"""What computes each kernel and each kind of positions of a self-attention: a new one is a line in a table here.

Those from outside are registered with what builds them (`saucier.config.registry`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from saucier import config as c
from saucier.config.registry import find_builder, is_outside
from saucier.parts.context import KernelCall
from saucier.parts.favor import attend_by_features
from saucier.parts.funnel import PooledDistances
from saucier.parts.hashing import HashedAttention, attend_in_chunks
from saucier.parts.kernels import attend_to_mixtures, build_mixtures
from saucier.parts.nystrom import attend_by_landmarks, build_filter
from saucier.parts.relative_positions import (
    DisentangledPositions,
    GlobalLocalPositions,
    RelativeKeys,
    RelativeKeysAndQueries,
    ShawPositions,
    SkewedPositions,
    TransformerXLPositions,
)


@dataclass(frozen=True, slots=True)
class Mixer:
    """How a kernel is computed."""

    attend: Callable[[Tensor, Tensor, Tensor, KernelCall], Tensor] | None = None
    """Mixes the values of unpacked rows: query [B, H, Q, E], key and value [B, G, K, E] -> as query.

    None: pair by pair, by the attention itself, which then takes all positions and visibilities.
    """
    weights: Callable[[c.SelfAttention], nn.Module | None] | None = None
    """Builds what the kernel trains in one attention; None: nothing."""
    name: str = "mixtures"
    """What the attention calls these weights."""
    attention: Callable[[c.SelfAttention, int], nn.Module] | None = None
    """Builds the whole attention, where it has other maps than usual."""


MIXERS: Mapping[type[c.Config], Mixer] = {
    c.Softmax: Mixer(),
    c.Chunks: Mixer(attend_in_chunks),
    c.Hashing: Mixer(attention=HashedAttention),
    c.Favor: Mixer(attend_by_features),
    c.LowRank: Mixer(attend_to_mixtures, build_mixtures),
    c.Nystrom: Mixer(attend_by_landmarks, build_filter, "convolution"),
}
"""Kernel -> how it is computed."""



def find_mixer(kernel: c.Config) -> Mixer:
    """Return how a kernel is computed; one from outside by the module that its builder makes of the attention."""
    if (mixer := MIXERS.get(type(kernel))) is not None:
        return mixer
    return Mixer(lambda query, key, value, call: call.weights(query, key, value, call),  # type: ignore[misc]
                 find_builder(kernel), "kernel")


RELATIVE_VECTORS = {"relative_key": RelativeKeys, "relative_key_query": RelativeKeysAndQueries}
POSITIONS: Mapping[type[c.Config], Callable[[Any, c.Projection, int], nn.Module]] = {
    c.Disentangled: DisentangledPositions,
    c.Shaw: lambda positions, heads, dim: ShawPositions(positions, heads.widths(dim)[2]),
    c.RelativeVectors: lambda positions, heads, dim: RELATIVE_VECTORS[positions.kind](positions, heads.widths(dim)[2]),
    c.PooledDistances: PooledDistances,
    c.GlobalLocal: lambda positions, heads, dim: GlobalLocalPositions(positions, heads.widths(dim)[2]),
    c.MusicTransformer: lambda positions, heads, dim: SkewedPositions(positions, heads.heads, heads.widths(dim)[2]),
    c.TransformerXL: lambda positions, heads, dim: TransformerXLPositions(positions, heads.heads, heads.widths(dim)[2],
                                                                         dim),
}
"""Positions of which each attention has trained tables -> their module.

The others have none. Such a module is called as `(query, key, scale, context)` and returns what is added to
the scaled scores, [B, H, Q, K]; Shaw's positions, which enter the values too, have their own way.
"""


def build_positions(config: c.SelfAttention, dim: int) -> nn.Module | None:
    """Return the trained tables of an attention's positions, if they have any."""
    build = POSITIONS.get(type(config.positions))
    if build is None and is_outside(config.positions.kind):
        build = find_builder(config.positions)
    return build and build(config.positions, config.projection, dim)
