"""Rotary positions: the angles of a pass, scaled for long texts where the config says so, and the turning itself.

Letters: B batch, H heads, L length, E head width, W rotated width.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from saucier import config as c
from saucier.parts.positions import check_positions


@dataclass(frozen=True, slots=True)
class Rotation:
    """The angles of a pass."""

    cosine: Tensor
    """[B or 1, 1, L, W], float32."""
    sine: Tensor
    partner: Callable[[Tensor], Tensor]
    """Gives each value the one that it turns with, signed: [..., W] -> [..., W]."""


def rotation(config: c.Rotary, positions: Tensor, head_dim: int) -> Rotation:
    """Return the cosines and sines for these positions. Source: Su et al. 2021, §3.4.2, eq 34, arXiv:2104.09864.

    Shapes: positions [B or 1, L].
    """
    if config.length is not None:
        check_positions(positions, config.length, "positions of the table")
    turns, sharpness = frequencies(config, positions, head_dim)
    angles = positions[:, None, :, None].float() * turns
    match config.pairs:
        case c.AcrossHalves():
            angles, partner = torch.cat([angles, angles], dim=-1), other_half
        case c.Neighbours():
            angles, partner = angles.repeat_interleave(2, dim=-1), neighbour
    if sharpness == 1.0:
        return Rotation(angles.cos(), angles.sin(), partner)
    return Rotation(angles.cos() * sharpness, angles.sin() * sharpness, partner)


def rotate(x: Tensor, by: Rotation) -> Tensor:
    """Rotate the first part of each head. Shapes: x [B, H, L, E] -> the same."""
    width = by.cosine.shape[-1]
    turned, kept = x[..., :width], x[..., width:]
    turned = (turned * by.cosine + by.partner(turned) * by.sine).to(x.dtype)
    return torch.cat([turned, kept], dim=-1) if kept.shape[-1] else turned


def other_half(x: Tensor) -> Tensor:
    """Minus the second half, then the first. Shapes: [..., W] -> [..., W]."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat([-second, first], dim=-1)


def neighbour(x: Tensor) -> Tensor:
    """Every pair (a, b) as (-b, a). Shapes: [..., W] -> [..., W]."""
    return torch.stack([-x[..., 1::2], x[..., ::2]], dim=-1).flatten(-2)


def frequencies(config: c.Rotary, positions: Tensor, head_dim: int) -> tuple[Tensor, float]:
    """Return the angle a position of each pair, and the factor on cosines and sines.

    Two scalings look at the longest text of the pass, which the positions tell. Shapes: positions [B or 1, L] -> [W/2].
    """
    width, base = config.width(head_dim), config.base
    share = torch.arange(0, width, 2, device=positions.device, dtype=torch.float32) / width
    match config.scaling:
        case c.NoScaling():
            return base**-share, 1.0
        case c.LinearScaling(factor=factor):
            return base**-share / factor, 1.0
        case c.DynamicScaling() as dynamic:
            return grown_base(dynamic, base, width, positions) ** -share, 1.0
        case c.Llama3Scaling() as llama:
            return smoothed(llama, base**-share), 1.0
        case c.Yarn() as yarn:
            sharpness = 0.1 * math.log(yarn.factor) + 1.0 if yarn.attention is None else yarn.attention
            return ramped(yarn, base, share), sharpness
        case c.LongRope(short=short, long=long, length=length, attention=attention):
            near, far = (torch.tensor(divisors, device=positions.device) for divisors in (short, long))
            return base**-share / torch.where(positions.max() < length, near, far), attention


def grown_base(scaling: c.DynamicScaling, base: float, width: int, positions: Tensor) -> Tensor:
    """Return the base for the longest text of the pass. Source: Peng et al. 2023, §3.1 and §3.3, arXiv:2309.00071."""
    seen = (positions.max() + 1).clamp(min=scaling.length)
    stretch = scaling.factor * seen / scaling.length - (scaling.factor - 1)
    return base * stretch ** (width / (width - 2))


def smoothed(scaling: c.Llama3Scaling, turns: Tensor) -> Tensor:
    """Divide long waves, keep short ones. Source: Llama 3.1, code release. Shapes: [W/2] -> [W/2]."""
    rounds = scaling.length * turns / (2 * math.pi)
    kept = ((rounds - scaling.low) / (scaling.high - scaling.low)).clamp(0, 1)
    return turns * (kept + (1 - kept) / scaling.factor)


def ramped(scaling: c.Yarn, base: float, share: Tensor) -> Tensor:
    """Divide the waves that turn few times. Source: Peng et al. 2023, §3.2, eq 11–13. Shapes: share [W/2] -> [W/2]."""
    pairs = share.shape[0]

    def pair_with(rounds: float) -> float:
        """The pair whose wave turns so many times in the trained length; pairs are counted by fractions."""
        return pairs * math.log(scaling.length / (rounds * 2 * math.pi)) / math.log(base)

    first, last = pair_with(scaling.fast), pair_with(scaling.slow)
    if scaling.rounded:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, 2 * pairs - 1)
    spread = last - first or 0.001  # a step where the slope has no room
    divided = ((torch.arange(pairs, device=share.device, dtype=torch.float32) - first) / spread).clamp(0, 1)
    return base**-share * (1 - divided + divided / scaling.factor)
