"""Bottleneck adapters after sublayers: after their dropout, before the residual is added."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from saucier.adaptation.target_modules import swap_modules
from saucier.adaptation.tuning import Adapter, Houlsby, Pfeiffer
from saucier.errors import InputError
from saucier.model import Transformer
from saucier.parts.block import NarrowBlock
from saucier.parts.feed_forward import Experts, FeedForward, GatedFeedForward
from saucier.parts.linear import ACTIVATIONS, Linear
from saucier.parts.stack import Stack

INITIAL_STD = 1e-2
"""Standard deviation that the first map starts with. Source: Houlsby et al. 2019, §3.6."""


class BottleneckAdapter(nn.Module):
    """`x + up(activation(down(x)))`. Source: Houlsby et al. 2019, §2.1, arXiv:1902.00751."""

    added = True
    """Its parameters are no part of the model that was built."""

    def __init__(self, dim: int, by: Adapter) -> None:
        """Build both maps."""
        super().__init__()
        self.down, self.up = Linear(dim, by.width), Linear(by.width, dim)
        self.activation = ACTIVATIONS[by.activation]

    def begin(self, generator: torch.Generator) -> None:
        """Start as no change, exactly: the second map is zero, where the paper's is small."""
        with torch.no_grad():
            self.down.weight.normal_(0.0, INITIAL_STD, generator=generator)
            for rest in (self.down.bias, self.up.weight, self.up.bias):
                rest.zero_()

    def forward(self, x: Tensor) -> Tensor:
        """Shapes: [..., D] -> [..., D]."""
        read = x.to(self.down.weight.dtype)
        return x + self.up(self.activation(self.down(read))).to(x.dtype)  # type: ignore[no-any-return]


class DropoutThenAdapter(nn.Module):
    """A sublayer's dropout with a bottleneck after it."""

    rewritten = True
    """It replaces a dropout."""

    def __init__(self, dropout: nn.Module, adapter: BottleneckAdapter) -> None:
        """Put the bottleneck after a dropout."""
        super().__init__()
        self.dropout, self.adapter = dropout, adapter

    def forward(self, x: Tensor) -> Tensor:
        """Shapes: [..., D] -> [..., D]."""
        return self.adapter(self.dropout(x))  # type: ignore[no-any-return]


def add_bottlenecks(model: Transformer, by: Adapter, generator: torch.Generator) -> None:
    """Put a bottleneck after the sublayers that the placement means. Raises `InputError` where there are some."""
    if any(isinstance(module, DropoutThenAdapter) for module in model.modules()):
        raise InputError("the model has bottlenecks already", where="tuning", remedy="take them off first")
    replaced: dict[int, nn.Module] = {}
    for residual, dim in list_residuals(model):
        if wrap_dropout(residual, by):
            added = BottleneckAdapter(dim, by)
            added.begin(generator)
            dropout = residual.get_submodule("dropout")
            replaced[id(dropout)] = DropoutThenAdapter(dropout, added.to(model.embed.tokens.weight.device))
    swap_modules(model, replaced)


def list_residuals(model: Transformer) -> Iterator[tuple[nn.Module, int]]:
    """Yield every residual of the stacks with the width of its stream."""
    for stack in (model.encoder, model.decoder):
        for block in stack.blocks if isinstance(stack, Stack) else ():
            if isinstance(block, NarrowBlock):
                width = block.bottleneck.config.width
                yield from ((residual, width) for residual in block.inside.children())
            else:
                yield from ((residual, model.config.dim) for residual in block.children())


def wrap_dropout(residual: nn.Module, by: Adapter) -> bool:
    """Say whether a placement means a residual."""
    match by.placement:
        case Houlsby():
            return True
        case Pfeiffer():
            return isinstance(residual.get_submodule("inner"), FeedForward | GatedFeedForward | Experts)
