"""A block: sublayers in a row, each inside its residual, and the maps of blocks narrower than the model (MobileBERT).

Letters: B batch, L length, D dim, E width of the narrow stream.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from saucier import config as c
from saucier.config.questions import name_sublayers
from saucier.config.registry import find_builder
from saucier.parts.attention import CrossAttention, SelfAttention
from saucier.parts.attention_slots import find_mixer
from saucier.parts.context import Context
from saucier.parts.feed_forward import Experts, FeedForward, GatedFeedForward
from saucier.parts.linear import Linear
from saucier.parts.mixing import FourierMixing
from saucier.parts.norms import Dropout, build_norm
from saucier.parts.recurrent import Recurrent


class SplitMaps(nn.Module):
    """Queries and keys of one input, values of another; both are side by side in what comes in."""

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
        if self.attention is not None and self.attention_norm is not None:
            return stream, torch.cat([self.attention_norm(self.attention(x)), x], dim=-1)
        return stream, None if self.config.reads.kind == "narrow" else torch.cat([x, x], dim=-1)

    def widen(self, x: Tensor, stream: Tensor) -> Tensor:
        """Shapes: x [B, L, D], stream [B, L, E] -> [B, L, D]."""
        return self.norm(x + self.dropout(self.up(stream)))  # type: ignore[no-any-return]


def build_attention(config: c.SelfAttention, dim: int) -> nn.Module:
    """Return the module of a self-attention, which some kernels build in their own way."""
    return (find_mixer(config.kernel).attention or SelfAttention)(config, dim)


SUBLAYERS: Mapping[type[c.Config], Callable[[Any, int], nn.Module]] = {
    c.SelfAttention: build_attention, c.CrossAttention: CrossAttention, c.FeedForward: FeedForward,
    c.GatedFeedForward: GatedFeedForward, c.Experts: Experts, c.FourierMixing: FourierMixing, c.Recurrent: Recurrent}
"""What is inside a residual -> what builds it for a width."""


class Residual(nn.Module):
    """`x + dropout(inner(x))`; those with norms say where these are. Source: He et al. 2015, arXiv:1512.03385."""

    def __init__(self, config: c.Residual, dim: int) -> None:
        """Build the sublayer, and the norm where there is one."""
        super().__init__()
        norm = getattr(config, "norm", None)
        self.norm: Any = build_norm(norm, dim) if norm else None
        self.inner = (SUBLAYERS.get(type(config.inner)) or find_builder(config.inner))(config.inner, dim)
        self.dropout = Dropout(config.dropout)

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """Shapes: x [B, L, D] -> [B, L, D]."""
        return x + self.change(x, context)

    def change(self, x: Tensor, context: Context) -> Tensor:
        """What is added to the residual. Shapes: x [B, L, D] -> [B, L, D]."""
        read = x if context.segment is None else context.segment.prepend(x, self.inner)
        return self.dropout(self.inner(read, context))  # type: ignore[no-any-return]


class PreNorm(Residual):
    """`x + dropout(inner(norm(x)))`. Source: Xiong et al. 2020, arXiv:2002.04745."""

    def change(self, x: Tensor, context: Context) -> Tensor:
        """What is added to the residual. Shapes: x [B, L, D] -> [B, L, D]."""
        read = x if context.segment is None else context.segment.prepend(x, self.inner)
        return self.dropout(self.inner(self.norm(read), context))  # type: ignore[no-any-return]


class PostNorm(Residual):
    """`norm(x + dropout(inner(x)))`. Source: Vaswani et al. 2017, §3.1."""

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """Shapes: x [B, L, D] -> [B, L, D]."""
        return self.norm(x + self.change(x, context))  # type: ignore[no-any-return]


class SandwichNorm(Residual):
    """`x + dropout(norm_after(inner(norm(x))))`. Source: Ding et al. 2021, §2.4, arXiv:2105.13290."""

    def __init__(self, config: c.SandwichNorm, dim: int) -> None:
        """Build a second norm too."""
        super().__init__(config, dim)
        self.norm_after = build_norm(config.norm, dim)

    def change(self, x: Tensor, context: Context) -> Tensor:
        """What is added to the residual. Shapes: x [B, L, D] -> [B, L, D]."""
        read = x if context.segment is None else context.segment.prepend(x, self.inner)
        return self.dropout(self.norm_after(self.inner(self.norm(read), context)))  # type: ignore[no-any-return]


class FromNorm(Residual):
    """`n + dropout(inner(n))` where `n = norm(x)`. Source: Shoeybi et al. 2019, code release, arXiv:1909.08053."""

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """Shapes: x [B, L, D] -> [B, L, D]."""
        return super().forward(self.norm(x), context)


class Parallel(Residual):
    """`y + dropout(inner(norm(x)))` next to a pre-norm sublayer, which `apply_parallel` puts together.

    Without a norm of its own it reads what that reads. Source: Wang and Komatsuzaki 2021, code release.
    """


class Chain(Residual):
    """`dropout(inner(x))`. Source: Zaremba et al. 2014, §3.1, arXiv:1409.2329."""

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """Shapes: x [B, L, D] -> [B, L, D]."""
        return self.change(x, context)


RESIDUALS: Mapping[type[c.Config], Callable[[Any, int], nn.Module]] = {
    c.PreNorm: PreNorm, c.PostNorm: PostNorm, c.SandwichNorm: SandwichNorm, c.Parallel: Parallel, c.FromNorm: FromNorm,
    c.Skip: Residual, c.Chain: Chain}
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
        """Build every sublayer."""
        super().__init__({name: RESIDUALS[type(one)](one, dim) for name, one in name_sublayers(config).items()})
        self.groups = {True: self.group_parallel(alone=False), False: self.group_parallel(alone=True)}
        """Whether there is an encoder to read -> the sublayers that are applied."""

    def group_parallel(self, *, alone: bool) -> list[list[str]]:
        """Put parallel sublayers after the one whose input they read; `alone`: leave cross-attentions out."""
        found: list[list[str]] = []
        for name, sublayer in self.items():
            if isinstance(sublayer, Parallel):
                found[-1].append(name)
            elif not (alone and isinstance(sublayer.inner, CrossAttention)):
                found.append([name])
        return found

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """Shapes: x [B, L, D] -> [B, L, D]. A decoder alone that reads no encoder leaves its cross-attentions out."""
        for names in self.groups[context.reads_memory]:
            first, *parallel = (self._modules[name] for name in names)
            x = apply_parallel(x, first, parallel, context) if parallel else first(x, context)
        return x


def apply_parallel(x: Tensor, first: Any, parallel: list[Any], context: Context) -> Tensor:
    """Apply sublayers that read the same. Shapes: x [B, L, D] -> [B, L, D]."""
    normed, total = first.norm(x), x
    for one in (first, *parallel):
        read = normed if one is first or one.norm is None else one.norm(x)
        total = total + one.dropout(one.inner(read, context))
    return total
