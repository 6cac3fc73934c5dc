"""Positions as modules: tables added to the embedding, and scores of relative distance.

Letters: B batch, H heads, L length, Q queries, K keys, E head width, D dim.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saucier import config as c
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
        match self.config.layout:
            case c.Interleaved():
                angles = self.angles(positions, (self.dim + 1) // 2, self.dim / 2)
                table = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)[..., :self.dim]
            case c.Halves():
                angles = self.angles(positions, (self.dim + 1) // 2, self.dim / 2)
                table = torch.cat([angles.sin(), angles[..., :self.dim // 2].cos()], dim=-1)
            case c.FullRange():
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
    """Raise `InputError` for a position beyond a table of so many rows."""
    if torch.compiler.is_compiling() or not positions.numel() or positions.device.type == "meta":
        return
    if int(positions.max()) >= length:
        raise InputError(f"position {int(positions.max())} is beyond the {length} {what}",
                         where="input_ids", remedy="shorten the input, or use a model with more positions")


class AxialPositions(nn.Module):
    """A trained vector for the row of each position, and one for its column. Source: Kitaev et al. 2020, release."""

    def __init__(self, config: c.Axial) -> None:
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


def build_embedding_positions(config: c.EmbeddingPositions, dim: int) -> nn.Module | None:
    """Return the module that is added to the token vectors, if any."""
    match config:
        case c.Learned():
            return LearnedPositions(config, dim)
        case c.Axial():
            return AxialPositions(config)
        case c.Sinusoidal():
            return SinusoidalPositions(config, dim)
        case c.NoPositions():
            return None


def relative_distance(start: int, queries: int, keys: int, device: torch.device) -> Tensor:
    """Key position minus query position. Shapes: -> [Q, K]."""
    return torch.arange(keys, device=device)[None, :] - torch.arange(start, start + queries, device=device)[:, None]


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
        buckets = bucket(self.config, relative_distance(span.start, span.queries, span.keys, self.weight.device))
        return F.embedding(buckets, self.weight).permute(2, 0, 1)[None]


def bucket(config: c.T5Bias, distance: Tensor) -> Tensor:
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


def alibi_bias(heads: int, start: int, queries: int, keys: int, device: torch.device) -> Tensor:
    """Minus slope times distance; symmetric, so that it also serves encoders. Shapes: -> [1, H, Q, K], float32."""
    slopes = torch.tensor(alibi_slopes(heads), device=device)
    return -slopes[None, :, None, None] * relative_distance(start, queries, keys, device).abs()


class ShawPositions(nn.Module):
    """Relative vectors for keys and values. Source: Shaw et al. 2018, §3.2, eq 3–4, arXiv:1803.02155."""

    def __init__(self, config: c.Shaw, head_dim: int) -> None:
        """Build the two tables [2·max_distance + 1, E]."""
        super().__init__()
        self.reach = config.max_distance
        self.keys = nn.Parameter(torch.empty(2 * self.reach + 1, head_dim))
        self.values = nn.Parameter(torch.empty(2 * self.reach + 1, head_dim))

    def rows(self, start: int, queries: int, keys: int) -> Tensor:
        """Return the table row of each query-key pair. Shapes: -> [Q, K]."""
        return relative_distance(start, queries, keys, self.keys.device).clamp(-self.reach, self.reach) + self.reach

    def scores(self, query: Tensor, rows: Tensor) -> Tensor:
        """Shapes: query [B, H, Q, E], rows [Q, K] -> [B, H, Q, K].

        Every query meets each table row once, then picks.
        """
        return (query @ self.keys.T).gather(-1, rows.expand(*query.shape[:2], *rows.shape))

    def mix(self, weights: Tensor, rows: Tensor) -> Tensor:
        """The values' part of the output: weights summed by table row first.

        Shapes: weights [B, H, Q, K] -> [B, H, Q, E].
        """
        summed = weights.new_zeros(*weights.shape[:3], len(self.values))
        return summed.scatter_add(-1, rows.expand_as(weights), weights) @ self.values


class SkewedPositions(nn.Module):
    """Relative keys of the past, one table a head, by skewing.

    Source: Huang et al. 2018, §3.4.1, arXiv:1809.04281 (S alg 1).
    """

    def __init__(self, config: c.MusicTransformer, heads: int, head_dim: int) -> None:
        """Build the table [H, length, E]; its last row is distance 0."""
        super().__init__()
        self.weight = nn.Parameter(torch.empty(heads, config.length, head_dim))

    def forward(self, query: Tensor, key: Tensor, scale: float, context: Context) -> Tensor:
        """What is added to the scaled scores; entries for later keys have no meaning and must be masked.

        Shapes: query [B, H, Q, E], key [B, G, K, E] -> [B, H, Q, K].
        """
        return self.scores(query, key.shape[2] - query.shape[2], key.shape[2]) * scale

    def scores(self, query: Tensor, start: int, keys: int) -> Tensor:
        """The same unscaled, for queries from position `start` on. Shapes: query [B, H, Q, E] -> [B, H, Q, K]."""
        if keys > self.weight.shape[1]:
            raise InputError(f"{keys} positions are more than the {self.weight.shape[1]} relative ones",
                             where="input_ids", remedy="shorten the input")
        relative = query @ self.weight[:, -keys:].transpose(-1, -2)
        if query.shape[2] == keys:
            return skew(relative)
        rows = torch.arange(keys, device=query.device)[None, :] - torch.arange(start, start + query.shape[2],
                                                                               device=query.device)[:, None]
        return relative.gather(-1, (rows + keys - 1).clamp(max=keys - 1).expand_as(relative))


def skew(relative: Tensor) -> Tensor:
    """Move scores from relative distance to key position without an O(L²·E) tensor.

    Shapes: [B, H, L, L] -> the same.
    """
    length = relative.shape[-1]
    padded = F.pad(relative, (1, 0))
    return padded.reshape(*relative.shape[:2], length + 1, length)[:, :, 1:]
