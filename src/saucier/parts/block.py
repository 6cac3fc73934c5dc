"""A block: sublayers in a row, each inside its residual.

Letters: B batch, L length, D dim.
"""

from __future__ import annotations

from torch import Tensor, nn

from saucier import config as c
from saucier.config.count import sublayer_name
from saucier.parts.attention import CrossAttention, SelfAttention
from saucier.parts.context import Context
from saucier.parts.dropout import Dropout
from saucier.parts.experts import Experts
from saucier.parts.feedforward import FeedForward, GatedFeedForward
from saucier.parts.mixing import FourierMixing
from saucier.parts.norms import build_norm
from saucier.parts.recurrence import with_past


def build_sublayer(config: c.Sublayer, dim: int) -> nn.Module:
    """Return the module for a sublayer config."""
    match config:
        case c.SelfAttention():
            return SelfAttention(config, dim)
        case c.CrossAttention():
            return CrossAttention(config, dim)
        case c.FeedForward():
            return FeedForward(config, dim)
        case c.GatedFeedForward():
            return GatedFeedForward(config, dim)
        case c.Experts():
            return Experts(config, dim)
        case c.FourierMixing():
            return FourierMixing(config, dim)


class PreNorm(nn.Module):
    """`x + dropout(inner(norm(x)))`. Source: Xiong et al. 2020, arXiv:2002.04745."""

    def __init__(self, config: c.PreNorm, dim: int) -> None:
        """Build the norm and the sublayer."""
        super().__init__()
        self.norm = build_norm(config.norm, dim)
        self.inner = build_sublayer(config.inner, dim)
        self.dropout = Dropout(config.dropout)

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """Shapes: x [B, L, D] -> [B, L, D]."""
        return x + self.dropout(self.inner(self.norm(with_past(x, self.inner, context)), context))  # type: ignore[no-any-return]


class PostNorm(nn.Module):
    """`norm(x + dropout(inner(x)))`. Source: Vaswani et al. 2017, §3.1."""

    def __init__(self, config: c.PostNorm, dim: int) -> None:
        """Build the sublayer and the norm."""
        super().__init__()
        self.norm = build_norm(config.norm, dim)
        self.inner = build_sublayer(config.inner, dim)
        self.dropout = Dropout(config.dropout)

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """Shapes: x [B, L, D] -> [B, L, D]."""
        return self.norm(x + self.dropout(self.inner(with_past(x, self.inner, context), context)))  # type: ignore[no-any-return]


class SandwichNorm(nn.Module):
    """`x + dropout(norm_after(inner(norm(x))))`. Source: Ding et al. 2021, §2.4, arXiv:2105.13290."""

    def __init__(self, config: c.SandwichNorm, dim: int) -> None:
        """Build both norms and the sublayer."""
        super().__init__()
        self.norm = build_norm(config.norm, dim)
        self.inner = build_sublayer(config.inner, dim)
        self.norm_after = build_norm(config.norm, dim)
        self.dropout = Dropout(config.dropout)

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """Shapes: x [B, L, D] -> [B, L, D]."""
        return x + self.dropout(self.norm_after(self.inner(self.norm(with_past(x, self.inner, context)), context)))  # type: ignore[no-any-return]


def build_residual(config: c.Residual, dim: int) -> nn.Module:
    """Return the module for a residual config."""
    match config:
        case c.PreNorm():
            return PreNorm(config, dim)
        case c.PostNorm():
            return PostNorm(config, dim)
        case c.SandwichNorm():
            return SandwichNorm(config, dim)


class Block(nn.ModuleDict):
    """Residual sublayers by name (`attention`, `cross`, `feed_forward`), in the order of the config."""

    def __init__(self, config: c.Block, dim: int) -> None:
        """Build every sublayer; a name used twice gets a number."""
        super().__init__()
        for residual in config.sublayers:
            name = sublayer_name(residual.inner)
            taken = sum(key.split("_")[0] == name.split("_")[0] for key in self)
            self[f"{name}_{taken + 1}" if taken else name] = build_residual(residual, dim)

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """Shapes: x [B, L, D] -> [B, L, D]. A decoder alone that reads no encoder leaves its cross-attentions out."""
        for sublayer in self.values():
            if context.reads_memory or not isinstance(sublayer.inner, CrossAttention):
                x = sublayer(x, context)
        return x
