"""Positions that are added to the embedding, rotate queries and keys, or add one number to a score (T5, ALiBi).

Letters: B batch, H heads, L length, Q queries, K keys, E head width, W rotated width, D dim.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saucier import config as c
from saucier.devices import is_traced
from saucier.errors import InputError
from saucier.parts.context import Context


class LearnedPositions(nn.Module):
    """A trained vector for each position. Source: Gehring et al. 2017, arXiv:1705.03122."""

    def __init__(self, config: c.Learned, dim: int) -> None:
        """Build a table of `config.length` rows."""
        super().__init__()
        self.weight = nn.Parameter(torch.empty(config.length, dim))

    def forward(self, positions: Tensor) -> Tensor:
        """Shapes: positions [B, L] -> [B, L, D]. Raises `InputError` for a position beyond the table."""
        check_positions(positions, len(self.weight), "learned positions")
        return F.embedding(positions, self.weight)


class SinusoidalPositions(nn.Module):
    """Sines and cosines of the position. Source: Vaswani et al. 2017, §3.5 (S eq 19)."""

    def __init__(self, config: c.Sinusoidal, dim: int) -> None:
        """Keep the base and the order of the values; nothing is trained."""
        super().__init__()
        self.config, self.dim = config, dim

    def forward(self, positions: Tensor) -> Tensor:
        """Shapes: positions [B, L] -> [B, L, D], float32. Raises `InputError` for a position beyond the table."""
        if self.config.length is not None:
            check_positions(positions, self.config.length, "positions of the table")
        match self.config.layout.kind:
            case "interleaved":
                angles = self.angles(positions, (self.dim + 1) // 2, self.dim / 2)
                table = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)[..., :self.dim]
            case "halves":
                angles = self.angles(positions, (self.dim + 1) // 2, self.dim / 2)
                table = torch.cat([angles.sin(), angles[..., :self.dim // 2].cos()], dim=-1)
            case "full_range":
                angles = self.angles(positions, self.dim // 2, max(self.dim // 2 - 1, 1))
                table = F.pad(torch.cat([angles.sin(), angles.cos()], dim=-1), (0, self.dim % 2))
        table = table.float()
        places = self.config.places
        if isinstance(places, c.SkipPadding):
            table = table * (positions != places.padding)[..., None]
        return table

    def angles(self, positions: Tensor, count: int, steps: float) -> Tensor:
        """Position times frequency; `steps` is how many frequencies lie between one and one over the base.

        Shapes: positions [B, L] -> [B, L, count].
        """
        exact = torch.float32 if positions.device.type == "mps" else torch.float64  # far positions need every digit
        powers = torch.arange(count, device=positions.device, dtype=exact)
        return positions[..., None] * torch.exp(powers * (-math.log(self.config.base) / steps))


def check_positions(positions: Tensor, length: int, what: str) -> None:
    """Raise `InputError` for a position beyond a table of `length` rows."""
    if is_traced() or not positions.numel() or positions.device.type == "meta":
        return
    if int(positions.max()) >= length:
        raise InputError(f"position {int(positions.max())} is beyond the {length} {what}",
                         where="input_ids", remedy="shorten the input, or use a model with more positions")


class AxialPositions(nn.Module):
    """A trained vector for the row of each position, and one for its column. Source: Kitaev et al. 2020, release."""

    def __init__(self, config: c.Axial, dim: int) -> None:
        """Build the tables [rows, width] and [columns, width]."""
        super().__init__()
        self.rows, self.columns = (nn.Parameter(torch.empty(*size))
                                   for size in zip(config.shape, config.widths, strict=True))

    def forward(self, positions: Tensor) -> Tensor:
        """Shapes: positions [B, L] -> [B, L, D]. Raises `InputError` for a position beyond the grid."""
        columns = len(self.columns)
        check_positions(positions, len(self.rows) * columns, "places of the grid")
        return torch.cat([F.embedding(positions // columns, self.rows), F.embedding(positions % columns, self.columns)],
                         dim=-1)


EMBEDDING_POSITIONS: Mapping[type[c.Config], Callable[[Any, int], nn.Module]] = {
    c.Learned: LearnedPositions, c.Axial: AxialPositions, c.Sinusoidal: SinusoidalPositions}
"""Positions that are added to the token vectors -> what builds them for a width."""


def build_embedding_positions(config: c.EmbeddingPositions, dim: int) -> nn.Module | None:
    """Return the module that is added to the token vectors, if any."""
    build = EMBEDDING_POSITIONS.get(type(config))
    return build and build(config, dim)


def relative_distance(start: int, queries: int, keys: int, device: torch.device) -> Tensor:
    """Key position minus query position. Shapes: -> [Q, K]."""
    return torch.arange(keys, device=device)[None, :] - torch.arange(start, start + queries, device=device)[:, None]


def sine_vectors(distances: Tensor, dim: int, base: float) -> Tensor:
    """Sines, then cosines, of distances. Shapes: [N] -> [N, D]."""
    even = torch.arange(0, dim, 2, device=distances.device, dtype=torch.float32)
    angles = distances[:, None] * (1 / base ** (even / dim))
    return torch.cat([angles.sin(), angles.cos()], dim=-1)[:, :dim]


class T5BiasTable(nn.Module):
    """A learned scalar a head and bucket. Source: Raffel et al. 2020, §2.1; bucket formula from its code release."""

    def __init__(self, config: c.T5Bias, heads: int) -> None:
        """Build the table [buckets, H]."""
        super().__init__()
        self.config = config
        self.weight = nn.Parameter(torch.empty(config.buckets, heads))

    def forward(self, context: Context) -> Tensor:
        """Return the table, for attention that adds it tile by tile. Shapes: -> [N, H]."""
        return self.weight

    def of_pairs(self, context: Context) -> Tensor:
        """Return the bias of a whole pass, for attention that adds it to all scores. Shapes: -> [1, H, Q, K]."""
        span = context.span
        buckets = find_t5_bucket(self.config, relative_distance(span.start, span.queries, span.keys,
                                                                self.weight.device))
        return F.embedding(buckets, self.weight).permute(2, 0, 1)[None]


def find_t5_bucket(config: c.T5Bias, distance: Tensor) -> Tensor:
    """Return the bucket of each key-minus-query distance: exact when near, logarithmic when far. Shapes: the same."""
    buckets, offset = config.buckets, torch.zeros_like(distance)
    if config.bidirectional:
        buckets //= 2
        offset, distance = (distance > 0).long() * buckets, distance.abs()
    else:
        distance = (-distance).clamp(min=0)
    exact = buckets // 2
    ratio = torch.log(distance.float().clamp(min=1) / exact) / math.log(config.max_distance / exact)
    far = (exact + (ratio * (buckets - exact)).long()).clamp(max=buckets - 1)
    return offset + torch.where(distance < exact, distance, far)


def alibi_slopes(heads: int) -> list[float]:
    """Return the slope of each head: powers of 2**(-8/n), interleaved for other head counts.

    Source: Press et al. 2022, §3 and code release.
    """
    power = 2 ** math.floor(math.log2(heads))
    slopes = [2 ** (-8 * (i + 1) / power) for i in range(power)]
    return slopes + [2 ** (-4 * (2 * i + 1) / power) for i in range(heads - power)]


def kept_slopes(config: c.Alibi, heads: int) -> list[float]:
    """Return the slope of each head; where there were more, those that the ones that are left had."""
    return alibi_slopes(heads) if config.kept is None else [
        alibi_slopes(config.kept.of)[number] for number in config.kept.numbers]


def alibi_bias(config: c.Alibi, heads: int, start: int, queries: int, keys: int, device: torch.device) -> Tensor:
    """Minus slope times distance; symmetric, so that it also serves encoders. Shapes: -> [1, H, Q, K], float32."""
    slopes = torch.tensor(kept_slopes(config, heads), device=device)
    return -slopes[None, :, None, None] * relative_distance(start, queries, keys, device).abs()


@dataclass(frozen=True, slots=True)
class Rotation:
    """The angles of a pass."""

    cosine: Tensor
    """[B or 1, 1, L, W], float32."""
    sine: Tensor
    partner: Callable[[Tensor], Tensor]
    """Gives each value the one that it turns with, signed: [..., W] -> [..., W]."""


def build_rotation(config: c.Rotary, positions: Tensor, head_dim: int) -> Rotation:
    """Return the cosines and sines for these positions. Source: Su et al. 2021, §3.4.2, eq 34, arXiv:2104.09864.

    Shapes: positions [B or 1, L].
    """
    if config.length is not None:
        check_positions(positions, config.length, "positions of the table")
    turns, sharpness = compute_frequencies(config, positions, head_dim)
    angles = positions[:, None, :, None].float() * turns
    match config.pairs.kind:
        case "halves":
            angles, partner = torch.cat([angles, angles], dim=-1), rotate_half
        case "neighbours":
            angles, partner = angles.repeat_interleave(2, dim=-1), rotate_pairs
    if sharpness == 1.0:
        return Rotation(angles.cos(), angles.sin(), partner)
    return Rotation(angles.cos() * sharpness, angles.sin() * sharpness, partner)


def rotate(x: Tensor, by: Rotation) -> Tensor:
    """Rotate the first part of each head. Shapes: x [B, H, L, E] -> the same."""
    width = by.cosine.shape[-1]
    turned, kept = x[..., :width], x[..., width:]
    turned = (turned * by.cosine + by.partner(turned) * by.sine).to(x.dtype)
    return torch.cat([turned, kept], dim=-1) if kept.shape[-1] else turned


def rotate_half(x: Tensor) -> Tensor:
    """Minus the second half, then the first. Shapes: [..., W] -> [..., W]."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat([-second, first], dim=-1)


def rotate_pairs(x: Tensor) -> Tensor:
    """Every pair (a, b) as (-b, a). Shapes: [..., W] -> [..., W]."""
    return torch.stack([-x[..., 1::2], x[..., ::2]], dim=-1).flatten(-2)


def compute_frequencies(config: c.Rotary, positions: Tensor, head_dim: int) -> tuple[Tensor, float]:
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
            return grow_base(dynamic, base, width, positions) ** -share, 1.0
        case c.Llama3Scaling() as llama:
            return smooth_llama3(llama, base**-share), 1.0
        case c.Yarn() as yarn:
            sharpness = 0.1 * math.log(yarn.factor) + 1.0 if yarn.attention is None else yarn.attention
            return ramp_yarn(yarn, base, share), sharpness
        case c.LongRope(short=short, long=long, length=length, attention=attention):
            near, far = (torch.tensor(divisors, device=positions.device) for divisors in (short, long))
            return base**-share / torch.where(positions.max() < length, near, far), attention


def grow_base(scaling: c.DynamicScaling, base: float, width: int, positions: Tensor) -> Tensor:
    """Return the base for the longest text of the pass. Source: Peng et al. 2023, §3.1 and §3.3, arXiv:2309.00071."""
    seen = (positions.max() + 1).clamp(min=scaling.length)
    stretch = scaling.factor * seen / scaling.length - (scaling.factor - 1)
    return base * stretch ** (width / (width - 2))


def smooth_llama3(scaling: c.Llama3Scaling, turns: Tensor) -> Tensor:
    """Divide long waves, keep short ones. Source: Llama 3.1, code release. Shapes: [W/2] -> [W/2]."""
    rounds = scaling.length * turns / (2 * math.pi)
    kept = ((rounds - scaling.low) / (scaling.high - scaling.low)).clamp(0, 1)
    return turns * (kept + (1 - kept) / scaling.factor)


def ramp_yarn(scaling: c.Yarn, base: float, share: Tensor) -> Tensor:
    """Divide the waves that turn few times. Source: Peng et al. 2023, §3.2, eq 11–13. Shapes: share [W/2] -> [W/2]."""
    pairs = share.shape[0]

    def pair_with(rounds: float) -> float:
        """The pair whose wave turns this number of times in the trained length; pairs are counted by fractions."""
        return pairs * math.log(scaling.length / (rounds * 2 * math.pi)) / math.log(base)

    first, last = pair_with(scaling.fast), pair_with(scaling.slow)
    if scaling.rounded:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, 2 * pairs - 1)
    spread = last - first or 0.001  # a step where the slope has no room
    divided = ((torch.arange(pairs, device=share.device, dtype=torch.float32) - first) / spread).clamp(0, 1)
    return base**-share * (1 - divided + divided / scaling.factor)
