"""ETC's relative positions: how query and key are related, by few labels, each a vector on the keys.

Letters: B batch, H heads, G key-value heads, Q queries, K keys, E head width, N labels.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from saucier import config as c
from saucier.parts.context import Context


class GlobalLocalPositions(nn.Module):
    """A vector a label, which queries meet as a second key. Source: Ainslie et al. 2020, §3.1, arXiv:2004.08483."""

    def __init__(self, config: c.GlobalLocal, head_dim: int) -> None:
        """Build the table [N, E]."""
        super().__init__()
        self.config = config
        self.weight = nn.Parameter(torch.empty(config.labels, head_dim))

    def met(self, query: Tensor, scale: float) -> Tensor:
        """Meet every label once. Shapes: query [B, H, Q, E] -> [B, H, Q, N]."""
        return (query @ self.weight.T.to(query.dtype)) * scale

    def forward(self, query: Tensor, key: Tensor, scale: float, context: Context) -> Tensor:
        """What is added to the scaled scores. Shapes: query [B, H, Q, E], key [B, G, K, E] -> [B, H, Q, K]."""
        places = torch.arange(key.shape[2], device=query.device)
        asking = places[key.shape[2] - query.shape[2]:]
        labels = labels_of(self.config, asking[:, None], places[None])
        return self.met(query, scale).gather(-1, labels.expand(*query.shape[:3], -1))


def labels_of(config: c.GlobalLocal, queries: Tensor, keys: Tensor) -> Tensor:
    """Return the label of each pair: local ones first, then global ones, then local to global, then global to local.

    Shapes: queries [Q, 1], keys [1, K] -> [Q, K].
    """
    first, reach = config.globals, config.reach
    near = (keys - queries).clamp(-reach, reach) + reach
    distances = 2 * reach + 1
    asks, asked = queries < first, keys < first
    to_global = 2 * distances + ((queries - first) // config.stretch != keys).long()
    to_local = 2 * distances + 2 + ((keys - first) // config.stretch != queries).long()
    across = torch.where(asks, to_local, to_global)
    return torch.where(asks == asked, near + asks.long() * distances, across)
