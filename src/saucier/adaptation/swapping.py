"""Putting other modules in the place of some of a model's."""

from __future__ import annotations

from collections.abc import Mapping

from torch import nn


def swap(model: nn.Module, replaced: Mapping[int, nn.Module]) -> None:
    """Put other modules in the place of some, by their ids, wherever these stand: stacks may share modules."""
    for parent in list(model.modules()):
        for name, child in parent._modules.items():
            if child is not None and id(child) in replaced and replaced[id(child)] is not parent:
                parent._modules[name] = replaced[id(child)]
