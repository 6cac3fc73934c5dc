"""The head that gives one vector for a text: pooling, maps, and scaling to length one.

Letters: B batch, L length, D dim, E width of the vector.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from saucier import config as c
from saucier.parts.activations import ACTIVATIONS
from saucier.parts.linear import Linear

if TYPE_CHECKING:
    from saucier.parts.heads import Reading


class EmbeddingHead(nn.Module):
    """Token vectors to one vector. Source: Reimers and Gurevych 2019, §3, arXiv:1908.10084."""

    def __init__(self, config: c.EmbeddingHead, dim: int) -> None:
        """Build the maps."""
        super().__init__()
        self.config = config
        self.maps = nn.ModuleList(Linear(width, one.width, bias=one.bias)
                                  for one, width in zip(config.maps, config.widths(dim), strict=False))

    def forward(self, hidden: Tensor, mask: Tensor | None) -> Tensor:
        """Shapes: hidden [B, L, D], mask [B, L] -> [B, E]."""
        kept = torch.ones_like(hidden[..., 0]) if mask is None else mask.to(hidden.dtype)
        vector = torch.cat([pooled(one, hidden, kept) for one in self.config.pooling], -1)
        for one, map_ in zip(self.config.maps, self.maps, strict=True):
            vector = ACTIVATIONS[one.activation](map_(vector))
        return nn.functional.normalize(vector, dim=-1) if self.config.normalize else vector

    def answer(self, reading: Reading) -> dict[str, Tensor]:
        """The vectors [B, E]."""
        return {"embeddings": self(reading.hidden, reading.mask)}


def pooled(pooling: c.Pooling, hidden: Tensor, kept: Tensor) -> Tensor:
    """Return one vector a text. Shapes: hidden [B, L, D], kept [B, L] of ones and zeros -> [B, D]."""
    match pooling:
        case c.FirstReal():
            return at(hidden, kept.argmax(-1))
        case c.LastReal():
            return at(hidden, (kept * torch.arange(kept.shape[1], device=kept.device)).argmax(-1))
        case c.MaxReal():
            return hidden.masked_fill(kept[..., None] == 0, -1e9).amax(1)
        case c.MeanReal():
            return weighted(hidden, kept) / count(kept)
        case c.MeanRoot():
            return weighted(hidden, kept) / count(kept).sqrt()
        case c.WeightedMean():
            weights = kept * kept.cumsum(-1)  # a token's place among the real ones, so that padding changes nothing
            return weighted(hidden, weights) / count(weights)


def at(hidden: Tensor, places: Tensor) -> Tensor:
    """Shapes: hidden [B, L, D], places [B] -> [B, D]."""
    return hidden[torch.arange(len(hidden), device=hidden.device), places]


def weighted(hidden: Tensor, weights: Tensor) -> Tensor:
    """Shapes: hidden [B, L, D], weights [B, L] -> [B, D]."""
    return (hidden * weights[..., None].to(hidden.dtype)).sum(1)


def count(weights: Tensor) -> Tensor:
    """Shapes: weights [B, L] -> [B, 1], their sum."""
    return weights.sum(1, keepdim=True).clamp(min=1e-9)
