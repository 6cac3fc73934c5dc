"""DeBERTa's disentangled attention: the stack's table of distance vectors, and what each attention makes of it.

Letters: B batch, H heads, G key-value heads, Q queries, K keys, E head width, D dim, R rows of the table.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from saucier import config as c
from saucier.parts.context import Context
from saucier.parts.dropout import dropout
from saucier.parts.kernels import spread
from saucier.parts.linear import Linear, first_outputs
from saucier.parts.norms import build_norm
from saucier.parts.positions import relative_distance


class DistanceTable(nn.Module):
    """One vector for each distance, shared by the layers of a stack. Source: He et al. 2021, §3.1, arXiv:2006.03654."""

    def __init__(self, config: c.Disentangled, dim: int) -> None:
        """Build the table [R, D] and its norm."""
        super().__init__()
        self.weight = nn.Parameter(torch.empty(config.distances.rows, dim))
        self.norm = build_norm(config.norm, dim) if config.norm else None

    def forward(self, context: Context) -> Tensor:
        """The table of a pass. Shapes: -> [R, D]."""
        return self.weight if self.norm is None else self.norm(self.weight)


class DisentangledPositions(nn.Module):
    """Content-to-position and position-to-content scores of one attention. Source: He et al. 2021, §3.1, eq 3-4."""

    def __init__(self, config: c.Disentangled, projection: c.Projection, dim: int) -> None:
        """Build the maps of the terms in use, unless the attention's own maps serve."""
        super().__init__()
        self.config, self.widths = config, projection.widths(dim)
        own, width = config.maps if isinstance(config.maps, c.OwnMaps) else None, self.widths[0]
        self.key = Linear(dim, width, bias=own.key_bias) if own and config.content_to_position else None
        self.query = Linear(dim, width) if own and config.position_to_content else None

    def forward(self, query: Tensor, key: Tensor, scale: float, context: Context) -> Tensor:
        """What is added to the scaled scores.

        The code release looks up both terms in the row of query minus key, and so do we; the paper's eq 4 has the
        opposite row for the second. Shapes: query [B, H, Q, E], key [B, G, K, E] -> [B, H, Q, K].
        """
        heads, queries, keys = query.shape[1], query.shape[2], key.shape[2]
        rows, met = context.once(("distances", self.config.distances, queries, keys),
                                 lambda: rows_met(self.config.distances, queries, keys, query.device))
        by_key, by_query = self.vectors(context, met)
        total = query.new_zeros(())
        if by_key is not None:
            found = query @ spread(by_key, heads).transpose(-1, -2)
            total = found.gather(-1, rows.expand(*found.shape[:2], queries, keys))
        if by_query is not None:
            found = spread(key, heads) @ by_query.transpose(-1, -2)
            turned = rows.T.expand(*found.shape[:2], keys, queries)
            total = total + found.gather(-1, turned).transpose(-1, -2)
        return total * scale

    def vectors(self, context: Context, met: slice) -> tuple[Tensor | None, Tensor | None]:
        """Return the keys and the queries of the distances that are `met`, for the terms in use.

        Shapes: [1, G or H, R, E] twice.
        """
        assert context.shared is not None, "the stack gave its table"
        table = context.shared[met]
        table = dropout(table, self.config.dropout) if self.training else table
        if isinstance(self.config.maps, c.SharedMaps):
            query_width, key_width, _ = self.widths
            assert context.maps is not None, "the attention gave its maps"
            both = first_outputs(context.maps, table, query_width + key_width)
            query, key = both.split([query_width, key_width], dim=-1)
            keys, queries = self.config.content_to_position, self.config.position_to_content
            used = (key if keys else None, query if queries else None)
        else:
            used = (self.key and self.key(table), self.query and self.query(table))
        by_key, by_query = (part if part is None else self.split(part) for part in used)
        return by_key, by_query

    def split(self, x: Tensor) -> Tensor:
        """Shapes: [R, H·E] -> [1, H, R, E]."""
        return x.view(len(x), -1, self.widths[2]).transpose(0, 1)[None]


def rows_met(distances: c.ExactDistances | c.LogDistances, queries: int, keys: int,
             device: torch.device) -> tuple[Tensor, slice]:
    """Return which rows of the table the last `queries` of `keys` positions meet, and the row of each pair in them.

    A short text meets few of the distances, and nothing is computed for the others. Shapes: -> [Q, K].
    """
    rows = table_rows(distances, -relative_distance(keys - queries, queries, keys, device))
    if torch.compiler.is_compiling():  # a slice that follows from a tensor would break the graph
        return rows, slice(None)
    first, last = table_rows(distances, torch.tensor([1 - queries, keys - 1], device="cpu")).tolist()
    return rows - first, slice(first, last + 1)


def table_rows(distances: c.ExactDistances | c.LogDistances, distance: Tensor) -> Tensor:
    """Return the table row of each query-minus-key distance: the larger, the further behind. Shapes: any -> the same.
    """
    half = distances.rows // 2
    if isinstance(distances, c.LogDistances):
        distance = log_bucket(distance, distances)
    return (distance + half).clamp(0, distances.rows - 1)


def log_bucket(distance: Tensor, distances: c.LogDistances) -> Tensor:
    """Return the signed bucket of query-minus-key distances: exact when near, logarithmic when far.

    Source: He et al. 2021, code release of DeBERTa-v2.
    """
    exact = distances.buckets // 2
    far = distance.abs().clamp(min=max(exact - 1, 1)) / exact
    farthest = torch.tensor((distances.reach - 1) / exact)  # float32 as `far` is: a ratio of 1 must be 1 exactly
    grown = torch.ceil(torch.log(far) / torch.log(farthest) * (exact - 1)).long() + exact
    return torch.where(distance.abs() <= exact, distance, grown * distance.sign())
