"""The maps into and out of a block whose stream is narrower than the model's.

Letters: B batch, L length, D dim, E width of the narrow stream.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from saucier import config as c
from saucier.parts.dropout import Dropout
from saucier.parts.linear import Linear
from saucier.parts.norms import build_norm


class SplitMaps(nn.Module):
    """Queries and keys of one input, values of another; both stand side by side in what comes in."""

    def __init__(self, inputs: tuple[int, int], rows: tuple[int, int], *, bias: bool) -> None:
        """Build the two maps."""
        super().__init__()
        self.inputs = inputs
        self.query_key = Linear(inputs[0], rows[0], bias=bias)
        self.value = Linear(inputs[1], rows[1], bias=bias)

    @property
    def weight(self) -> Tensor:
        """The matrix whose first rows make the queries."""
        return self.query_key.weight

    def forward(self, x: Tensor) -> Tensor:
        """Shapes: x [B, L, both inputs] -> [B, L, queries, keys and values]."""
        first, second = x.split(list(self.inputs), dim=-1)
        return torch.cat([self.query_key(first), self.value(second)], dim=-1)


class Bottleneck(nn.Module):
    """Down, and up again around the residual. Source: Sun et al. 2020, §3.1, arXiv:2004.02984."""

    def __init__(self, config: c.Bottleneck, dim: int) -> None:
        """Build the maps and their norms."""
        super().__init__()
        self.config = config
        self.down, self.down_norm = Linear(dim, config.width), build_norm(config.norm, config.width)
        shared = isinstance(config.reads, c.ReadsShared)
        self.attention = Linear(dim, config.width) if shared else None
        self.attention_norm = build_norm(config.norm, config.width) if shared else None
        self.up, self.norm = Linear(config.width, dim), build_norm(config.norm, dim)
        self.dropout = Dropout(config.dropout)

    def narrow(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return the narrow stream, and what the attention reads in its place. Shapes: [B, L, D] -> [B, L, E], ..."""
        stream = self.down_norm(self.down(x))
        match self.config.reads:
            case c.ReadsNarrow():
                return stream, None
            case c.ReadsShared():
                assert self.attention is not None and self.attention_norm is not None, "built in __init__"
                return stream, torch.cat([self.attention_norm(self.attention(x)), x], dim=-1)
            case c.ReadsWide():
                return stream, torch.cat([x, x], dim=-1)

    def widen(self, x: Tensor, stream: Tensor) -> Tensor:
        """Shapes: x [B, L, D], stream [B, L, E] -> [B, L, D]."""
        return self.norm(x + self.dropout(self.up(stream)))  # type: ignore[no-any-return]
