"""What computes each kernel and each kind of positions of a self-attention: a new one is a line in a table here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from saucier import config as c
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
