"""A block: sublayers in a row, each inside its residual, and the maps of blocks narrower than the model (MobileBERT).

Letters: B batch, L length, D dim, E width of the narrow stream.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from saucier import config as c
from saucier.config.questions import sublayer_name
from saucier.parts.attention import CrossAttention, SelfAttention
from saucier.parts.attention_slots import MIXERS
from saucier.parts.context import Context
from saucier.parts.feed_forward import Experts, FeedForward, GatedFeedForward
from saucier.parts.linear import Linear
from saucier.parts.mixing import FourierMixing
from saucier.parts.norms import Dropout, build_norm
from saucier.parts.recurrent import Recurrent
from saucier.parts.segment_memory import prepend_memory


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
        shared = config.reads.kind == "shared"
        self.attention = Linear(dim, config.width) if shared else None
        self.attention_norm = build_norm(config.norm, config.width) if shared else None
        self.up, self.norm = Linear(config.width, dim), build_norm(config.norm, dim)
        self.dropout = Dropout(config.dropout)

    def narrow(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return the narrow stream, and what the attention reads in its place. Shapes: [B, L, D] -> [B, L, E], ..."""
        stream = self.down_norm(self.down(x))
        match self.config.reads.kind:
            case "narrow":
                return stream, None
            case "shared":
                assert self.attention is not None and self.attention_norm is not None, "built in __init__"
                return stream, torch.cat([self.attention_norm(self.attention(x)), x], dim=-1)
            case "wide":
                return stream, torch.cat([x, x], dim=-1)

    def widen(self, x: Tensor, stream: Tensor) -> Tensor:
        """Shapes: x [B, L, D], stream [B, L, E] -> [B, L, D]."""
        return self.norm(x + self.dropout(self.up(stream)))  # type: ignore[no-any-return]


def build_attention(config: c.SelfAttention, dim: int) -> nn.Module:
    """Return the module of a self-attention, which some kernels build in their own way."""
    return (MIXERS[type(config.kernel)].attention or SelfAttention)(config, dim)


SUBLAYERS: Mapping[type[c.Config], Callable[[Any, int], nn.Module]] = {
    c.SelfAttention: build_attention, c.CrossAttention: CrossAttention, c.FeedForward: FeedForward,
    c.GatedFeedForward: GatedFeedForward, c.Experts: Experts, c.FourierMixing: FourierMixing, c.Recurrent: Recurrent}
"""What is inside a residual -> what builds it for a width."""


def build_sublayer(config: c.Sublayer, dim: int) -> nn.Module:
    """Return the module for a sublayer config."""
    return SUBLAYERS[type(config)](config, dim)


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
        return x + self.change(x, context)

    def change(self, x: Tensor, context: Context) -> Tensor:
        """What is added to the residual. Shapes: x [B, L, D] -> [B, L, D]."""
        return self.dropout(self.inner(self.norm(prepend_memory(x, self.inner, context)), context))  # type: ignore[no-any-return]


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
        return self.norm(x + self.dropout(self.inner(prepend_memory(x, self.inner, context), context)))  # type: ignore[no-any-return]


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
        return x + self.change(x, context)

    def change(self, x: Tensor, context: Context) -> Tensor:
        """What is added to the residual. Shapes: x [B, L, D] -> [B, L, D]."""
        return self.dropout(self.norm_after(self.inner(self.norm(prepend_memory(x, self.inner, context)), context)))  # type: ignore[no-any-return]


class FromNorm(nn.Module):
    """`n + dropout(inner(n))` where `n = norm(x)`. Source: Shoeybi et al. 2019, code release, arXiv:1909.08053."""

    def __init__(self, config: c.FromNorm, dim: int) -> None:
        """Build the norm and the sublayer."""
        super().__init__()
        self.norm = build_norm(config.norm, dim)
        self.inner = build_sublayer(config.inner, dim)
        self.dropout = Dropout(config.dropout)

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """Shapes: x [B, L, D] -> [B, L, D]."""
        normed = self.norm(x)
        return normed + self.dropout(self.inner(normed, context))  # type: ignore[no-any-return]


class Parallel(nn.Module):
    """`y + dropout(inner(norm(x)))` next to a pre-norm sublayer. Source: Wang and Komatsuzaki 2021, code release."""

    def __init__(self, config: c.Parallel, dim: int) -> None:
        """Build the sublayer, and the norm where it has its own."""
        super().__init__()
        self.norm = build_norm(config.norm, dim) if config.norm else None
        self.inner = build_sublayer(config.inner, dim)
        self.dropout = Dropout(config.dropout)

    def forward(self, x: Tensor, normed: Tensor, context: Context) -> Tensor:
        """What it adds, given what the pre-norm sublayer reads, and that after its norm. Shapes: [B, L, D] each."""
        return self.dropout(self.inner(normed if self.norm is None else self.norm(x), context))  # type: ignore[no-any-return]


class Skip(nn.Module):
    """`x + dropout(inner(x))`. Source: He et al. 2015, arXiv:1512.03385."""

    def __init__(self, config: c.Skip, dim: int) -> None:
        """Build the sublayer."""
        super().__init__()
        self.inner = build_sublayer(config.inner, dim)
        self.dropout = Dropout(config.dropout)

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """Shapes: x [B, L, D] -> [B, L, D]."""
        return x + self.dropout(self.inner(x, context))  # type: ignore[no-any-return]


class Chain(nn.Module):
    """`dropout(inner(x))`. Source: Zaremba et al. 2014, §3.1, arXiv:1409.2329."""

    def __init__(self, config: c.Chain, dim: int) -> None:
        """Build the sublayer."""
        super().__init__()
        self.inner = build_sublayer(config.inner, dim)
        self.dropout = Dropout(config.dropout)

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """Shapes: x [B, L, D] -> [B, L, D]."""
        return self.dropout(self.inner(x, context))  # type: ignore[no-any-return]


RESIDUALS: Mapping[type[c.Config], Callable[[Any, int], nn.Module]] = {
    c.PreNorm: PreNorm, c.PostNorm: PostNorm, c.SandwichNorm: SandwichNorm, c.Parallel: Parallel, c.FromNorm: FromNorm,
    c.Skip: Skip, c.Chain: Chain}
"""Residual -> what builds it for a width."""


class NarrowBlock(nn.Module):
    """A block inside a bottleneck. Source: Sun et al. 2020 (MobileBERT), §3.1, arXiv:2004.02984."""

    def __init__(self, config: c.Block, dim: int) -> None:
        """Build the bottleneck, and the block of its width; attentions get maps from what they read."""
        super().__init__()
        assert config.bottleneck is not None, "a block without a bottleneck is a Block"
        self.bottleneck = Bottleneck(config.bottleneck, dim)
        self.inside = Block(config, config.bottleneck.width)
        for residual in self.inside.values():
            if isinstance(residual.inner, SelfAttention) and config.bottleneck.reads.kind != "narrow":
                query, key, _ = residual.inner.widths
                maps = SplitMaps(config.bottleneck.attention_inputs(dim), (query + key, key),
                                 bias=residual.inner.config.projection.bias)
                residual.inner.qkv = maps  # type: ignore[assignment]  # called like the one map it replaces

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """Shapes: x [B, L, D] -> [B, L, D]."""
        stream, context.read = self.bottleneck.narrow(x)
        stream = self.inside(stream, context)
        context.read = None
        return self.bottleneck.widen(x, stream)


class Block(nn.ModuleDict):
    """Residual sublayers by name (`attention`, `cross`, `feed_forward`), in the order of the config."""

    def __init__(self, config: c.Block, dim: int) -> None:
        """Build every sublayer; a name used twice gets a number."""
        super().__init__()
        for residual in config.sublayers:
            name = sublayer_name(residual.inner)
            taken = sum(key.split("_")[0] == name.split("_")[0] for key in self)
            self[f"{name}_{taken + 1}" if taken else name] = RESIDUALS[type(residual)](residual, dim)

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """Shapes: x [B, L, D] -> [B, L, D]. A decoder alone that reads no encoder leaves its cross-attentions out."""
        present = [sublayer for sublayer in self.values()
                   if context.reads_memory or not isinstance(sublayer.inner, CrossAttention)]
        for sublayer, *beside in group_parallel(present):
            x = apply_parallel(x, sublayer, beside, context) if beside else sublayer(x, context)
        return x


def group_parallel(sublayers: list[nn.Module]) -> list[list[nn.Module]]:
    """Put parallel sublayers after the one whose input they read."""
    found: list[list[nn.Module]] = []
    for sublayer in sublayers:
        if isinstance(sublayer, Parallel):
            found[-1].append(sublayer)
        else:
            found.append([sublayer])
    return found


def apply_parallel(x: Tensor, first: nn.Module, beside: list[nn.Module], context: Context) -> Tensor:
    """Apply sublayers that read the same. Shapes: x [B, L, D] -> [B, L, D]."""
    assert isinstance(first, PreNorm), "check() refuses anything else before a parallel sublayer"
    normed = first.norm(x)
    total = x + first.dropout(first.inner(normed, context))
    for sublayer in beside:
        total = total + sublayer(x, normed, context)
    return total  # type: ignore[no-any-return]
