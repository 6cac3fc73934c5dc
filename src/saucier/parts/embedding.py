"""Tokens to vectors.

Letters: B batch, L length, D dim.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from saucier import config as c
from saucier.parts.dropout import Dropout
from saucier.parts.norms import build_norm
from saucier.parts.positions import build_embedding_positions


class Embedding(nn.Module):
    """Token table, positions, segments, norm, dropout: those that the config has."""

    def __init__(self, config: c.Embedding, dim: int) -> None:
        """Build the tables."""
        super().__init__()
        self.scale = config.scale
        self.tokens = nn.Embedding(config.vocab, dim)
        self.positions = build_embedding_positions(config.positions, dim)
        self.segments = nn.Embedding(config.segments, dim) if config.segments else None
        self.norm = build_norm(config.norm, dim) if config.norm else None
        self.dropout = Dropout(config.dropout)

    def forward(self, ids: Tensor, positions: Tensor, segments: Tensor | None = None, *,
                vectors: Tensor | None = None) -> Tensor:
        """Shapes: ids [B, L]; positions [B or 1, L]; segments [B, L], zeros when None; vectors [B, L, D] in place of
        the table's -> [B, L, D].
        """
        x: Tensor = self.tokens(ids) if vectors is None else vectors
        if self.scale != 1.0:
            x = x * self.scale
        if self.positions is not None:
            x = x + self.positions(positions).to(x.dtype)
        if self.segments is not None:
            x = x + self.segments(torch.zeros_like(ids) if segments is None else segments)
        if self.norm is not None:
            x = self.norm(x)
        return self.dropout(x)  # type: ignore[no-any-return]
