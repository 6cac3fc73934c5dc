"""Position-wise feed-forward networks, plain and gated."""

from __future__ import annotations

from torch import Tensor, nn

from saucier import config as c
from saucier.parts.activations import ACTIVATIONS
from saucier.parts.context import Context
from saucier.parts.dropout import Dropout
from saucier.parts.linear import Linear, activated


class FeedForward(nn.Module):
    """`down(activation(up(x)))`. Source: Vaswani et al. 2017, §3.3."""

    def __init__(self, config: c.FeedForward, dim: int) -> None:
        """Build both maps for a residual of width `dim`."""
        super().__init__()
        self.up = Linear(dim, config.hidden, bias=config.bias)
        self.down = Linear(config.hidden, dim, bias=config.bias)
        self.activation = config.activation
        self.dropout = Dropout(config.dropout)

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """Shapes: x [B, L, D] -> [B, L, D]. The context is not read: every position is on its own."""
        return self.down(self.dropout(activated(self.up, x, self.activation)))  # type: ignore[no-any-return]


class GatedFeedForward(nn.Module):
    """`down(activation(gate(x)) * value(x))`, gate and value as one map. Source: Shazeer 2020, arXiv:2002.05202."""

    def __init__(self, config: c.GatedFeedForward, dim: int) -> None:
        """Build the maps; the rows of `up` are the gate's, then the value's."""
        super().__init__()
        self.up = Linear(dim, 2 * config.hidden, bias=config.bias)
        self.down = Linear(config.hidden, dim, bias=config.bias)
        self.activation = ACTIVATIONS[config.activation]
        self.dropout = Dropout(config.dropout)

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """Shapes: x [B, L, D] -> [B, L, D]."""
        gate, value = self.up(x).chunk(2, dim=-1)
        return self.down(self.dropout(self.activation(gate) * value))  # type: ignore[no-any-return]
