"""A decoder that uses the encoder's weights: maps and norms of the sublayers that both have are the same modules."""

from __future__ import annotations

from torch import nn

from saucier.parts.stack import Stack

OWN = "inner.positions"
"""Tables of positions stay each stack's own: they speak of what each may see."""


def tie_blocks(lender: Stack, borrower: Stack) -> None:
    """Let the sublayers of one stack use the weights of those of the same name in the other."""
    for theirs, ours in zip(lender.blocks, borrower.blocks, strict=True):
        for name, sublayer in theirs.items():  # type: ignore[operator]  # a block is a dictionary of sublayers
            tie(sublayer, ours[name])  # type: ignore[index]


def tie(lender: nn.Module, borrower: nn.Module) -> None:
    """Put every module that holds weights of one into the same place of the other."""
    for path, module in lender.named_modules():
        if module._parameters and not path.startswith(OWN):
            parent, _, name = path.rpartition(".")
            setattr(borrower.get_submodule(parent), name, module)
