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
from saucier.parts.norms import build_norm
from saucier.parts.picks import at, picked

if TYPE_CHECKING:
    from saucier.parts.heads import Reading


class EmbeddingHead(nn.Module):
    """Token vectors to one vector. Source: Reimers and Gurevych 2019, §3, arXiv:1908.10084."""

    def __init__(self, config: c.EmbeddingHead, dim: int, language: nn.Module | None = None) -> None:
        """Build the maps and the norm, with the language head that stands beside."""
        super().__init__()
        self.config = config
        widths = config.widths(dim)
        self.maps = nn.ModuleList(Linear(width, one.width, bias=one.bias)
                                  for one, width in zip(config.maps, widths, strict=False))
        self.norm = build_norm(config.norm, widths[-1]) if config.norm else None
        self.language = language

    def forward(self, reading: Reading) -> Tensor:
        """Shapes: hidden [B, L, D], mask [B, L] -> [B, E]."""
        vector = torch.cat([pooled(one, reading) for one in self.config.pooling], -1)
        for one, map_ in zip(self.config.maps, self.maps, strict=True):
            vector = ACTIVATIONS[one.activation](map_(vector))
        vector = vector if self.norm is None else self.norm(vector)
        return nn.functional.normalize(vector, dim=-1) if self.config.normalize else vector

    def answer(self, reading: Reading) -> dict[str, Tensor]:
        """The vectors [B, E], which stand for the pooler's where there is none."""
        vector = self(reading)
        return {"embeddings": vector} if reading.pooled is not None else {"embeddings": vector, "pooler_output": vector}


def pooled(pooling: c.Pooling, reading: Reading) -> Tensor:
    """Return one vector a text. Shapes: -> [B, D]."""
    hidden = reading.hidden
    kept = torch.ones_like(hidden[..., 0]) if reading.mask is None else reading.mask.to(hidden.dtype)
    match pooling:
        case c.Pooled() | c.First():
            return picked(pooling, reading)
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


def weighted(hidden: Tensor, weights: Tensor) -> Tensor:
    """Shapes: hidden [B, L, D], weights [B, L] -> [B, D]."""
    return (hidden * weights[..., None].to(hidden.dtype)).sum(1)


def count(weights: Tensor) -> Tensor:
    """Shapes: weights [B, L] -> [B, 1], their sum."""
    return weights.sum(1, keepdim=True).clamp(min=1e-9)
