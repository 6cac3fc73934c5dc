"""What each parameter is to an optimizer: a matrix inside a block, an output matrix, a table, or a vector.

This is the one place that says which weights decay and which are orthogonalized.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import Enum

from torch import nn

from saucier.parts.attention import CrossAttention, SelfAttention
from saucier.parts.bottleneck import SplitMaps
from saucier.parts.feedforward import GatedFeedForward
from saucier.parts.heads import LanguageHead


class Role(Enum):
    """The kinds of parameters."""

    MATRIX = "matrix"
    """A linear map inside a stack: decays; Muon orthogonalizes it."""
    OUTPUT = "output"
    """A linear map outside the stacks, such as an untied output matrix: decays."""
    OTHER = "other"
    """Tables, norms and biases: no decay."""


def roles(model: nn.Module) -> dict[str, Role]:
    """Return the role of every trainable parameter, by name; a tied output matrix counts as the table that it is."""
    stacks = [stack for name, stack in model.named_children() if name in ("encoder", "decoder")]
    inside = {id(module.weight) for stack in stacks for module in stack.modules() if isinstance(module, nn.Linear)}
    maps = {id(module.weight) for module in model.modules() if isinstance(module, nn.Linear | LanguageHead)}
    tables = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    found = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            key = id(parameter)
            found[name] = Role.MATRIX if key in inside else Role.OUTPUT if key in maps - tables else Role.OTHER
    return found


BLOCK = re.compile(r"(encoder|decoder)\.blocks\.(\d+)\.")


def below_the_head(model: nn.Module) -> Callable[[str], int]:
    """Return how many groups of layers stand above a parameter, by its name: none above a head, all above embeddings.

    Each stack counts its own blocks.
    """
    counts = {stack: len(getattr(model, stack).blocks) for stack in ("encoder", "decoder")
              if getattr(model, stack, None) is not None}

    def depth(name: str) -> int:
        if name.startswith(("embed.", "decoder_embed.", "front.")):
            return max(counts.values(), default=0) + 1
        found = BLOCK.match(name)
        return counts[found[1]] - int(found[2]) if found else 0

    return depth


def learned_parameters(model: nn.Module, modules: Mapping[str, nn.Module]) -> dict[str, nn.Parameter]:
    """Return every trainable parameter once, by name: the model's own, then those of an objective's modules.

    The latter are named `objective.MODULE.NAME`; one that is shared keeps the name that came first.
    """
    found: dict[int, tuple[str, nn.Parameter]] = {}
    for name, parameter in [*model.named_parameters(), *named_parameters(modules)]:
        if parameter.requires_grad:
            found.setdefault(id(parameter), (name, parameter))
    return dict(found.values())


def named_parameters(modules: Mapping[str, nn.Module]) -> list[tuple[str, nn.Parameter]]:
    """Return the parameters of an objective's modules under the names that a run knows them by."""
    return [(f"objective.{module}.{name}", parameter)
            for module, one in modules.items() for name, parameter in one.named_parameters()]


def all_roles(model: nn.Module, modules: Mapping[str, nn.Module]) -> dict[str, Role]:
    """Return the role of every parameter, the model's and those of an objective's modules."""
    return {f"objective.{module}.{name}": role for module, one in modules.items() for name, role in roles(one).items()
            } | roles(model)


def fused_rows(model: nn.Module) -> dict[int, list[int]]:
    """Return, for the id of each weight that holds several maps on top of each other, the rows of each.

    Queries, keys and values are orthogonalized apart, as separate maps would be.
    """
    found: dict[int, list[int]] = {}
    for module in model.modules():
        match module:  # a map that a rewrite changed has no matrix that learns
            case SelfAttention(qkv=nn.Linear() | SplitMaps()):
                query, key, _ = module.widths
                found[id(module.qkv.weight)] = [query, key, key]
            case CrossAttention(kv=nn.Linear()):
                found[id(module.kv.weight)] = [module.kv.out_features // 2] * 2
            case GatedFeedForward(up=nn.Linear()):
                found[id(module.up.weight)] = [module.up.out_features // 2] * 2
    return found
