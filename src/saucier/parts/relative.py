"""Relative positions without clipping, one table a layer for all heads: scores of queries, or of queries and keys.

Letters: B batch, H heads, G key-value heads, Q queries, K keys, E head width, N rows of a table.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from saucier import config as c
from saucier.errors import InputError
from saucier.parts.context import Context


class RelativeKeys(nn.Module):
    """A vector a distance, which queries meet as a second key. Source: Shaw et al. 2018, §3.2, eq 4, unclipped."""

    def __init__(self, config: c.RelativeKey, head_dim: int) -> None:
        """Build the table [2·length - 1, E]; row length - 1 is distance 0, later rows are keys further back."""
        super().__init__()
        self.scale = config.scale
        self.weight = nn.Parameter(torch.empty(2 * config.length - 1, head_dim))

    def forward(self, query: Tensor, key: Tensor, scale: float, context: Context) -> Tensor:
        """What is added to the scaled scores; the queries are the last of the keys' positions.

        Shapes: query [B, H, Q, E], key [B, G, K, E] -> [B, H, Q, K]. Raises `InputError` for more keys than distances.
        """
        return met(query, self.weight, distance_rows(self.weight, query.shape[2], key.shape[2])) * (self.scale or scale)


class RelativeKeysAndQueries(nn.Module):
    """The same, and keys meet the vector too. Source: Huang et al. 2020, method 4, arXiv:2009.13658."""

    def __init__(self, config: c.RelativeKeyQuery, head_dim: int) -> None:
        """Build the table [2·length - 1, E]; row length - 1 is distance 0, later rows are keys further back."""
        super().__init__()
        self.scale = config.scale
        self.weight = nn.Parameter(torch.empty(2 * config.length - 1, head_dim))

    def forward(self, query: Tensor, key: Tensor, scale: float, context: Context) -> Tensor:
        """What is added to the scaled scores; grouped key heads serve all their query heads.

        Shapes: query [B, H, Q, E], key [B, G, K, E] -> [B, H, Q, K]. Raises `InputError` for more keys than distances.
        """
        rows = distance_rows(self.weight, query.shape[2], key.shape[2])
        by_key = met(key, self.weight, rows.T).transpose(-1, -2)
        by_key = by_key.repeat_interleave(query.shape[1] // key.shape[1], dim=1)
        return (met(query, self.weight, rows) + by_key) * (self.scale or scale)


def distance_rows(table: Tensor, queries: int, keys: int) -> Tensor:
    """Return the table row of each query-key pair. Shapes: table [N, E] -> [Q, K]."""
    length = (len(table) + 1) // 2
    if keys > length:
        raise InputError(f"{keys} positions are more than the {length} relative ones", where="input_ids",
                         remedy="shorten the input")
    places = torch.arange(keys, device=table.device)
    return places[keys - queries:, None] - places[None, :] + length - 1


def met(x: Tensor, table: Tensor, rows: Tensor) -> Tensor:
    """Meet each row of the table once, then pick. Shapes: x [B, H, Q, E], rows [Q, K] -> [B, H, Q, K]."""
    return (x @ table.T).gather(-1, rows.expand(*x.shape[:2], *rows.shape))
