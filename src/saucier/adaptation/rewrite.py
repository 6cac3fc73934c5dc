"""`rewrite` changes a built model in place, as its config says; `unrewrite` takes everything back.

Nothing here builds a model or copies its class: maps, residuals and the input get something in addition to them. The
bottlenecks after residuals are here; what maps and the input get is in `lora`, `quantization` and `prefix`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from saucier.adaptation import tuning as a
from saucier.adaptation.lora import LowRank, add_pairs
from saucier.adaptation.prefix import add_prefix, add_prompt
from saucier.adaptation.quantization.aware import add_rounding, remove_rounding
from saucier.adaptation.quantization.maps import held_bytes, is_quantized, list_matrices
from saucier.adaptation.quantization.schemes import QuantizationAware
from saucier.adaptation.target_modules import select_parameters, swap_modules
from saucier.adaptation.tuning import Tuning
from saucier.errors import InputError
from saucier.model import Transformer
from saucier.parts.block import NarrowBlock
from saucier.parts.feed_forward import Experts, FeedForward, GatedFeedForward
from saucier.parts.linear import ACTIVATIONS, Linear
from saucier.parts.provenance import Applied
from saucier.parts.stack import Stack


def rewrite(model: Transformer, *, by: a.Tuning, where: a.Where | None = None, seed: int = 0) -> Transformer:
    """Change a model in place and return it: what is new starts as no change and learns, the rest is frozen.

    What stays learning besides is `by.train` and what the model did not get from its origin (a new head). `where`
    overrules `by.where`; several rewrites may follow each other. `seed` feeds the starting values. Weights that were
    rounded in loading are the stored ones first: what is learned next to them belongs to those.
    Raises `InputError` for a place that the model does not have, that is taken, or that cannot be changed so; the model
    is then as it was.
    """
    model.restore_stored()
    return apply_rewrite(model, by=by, where=where, seed=seed)


def apply_rewrite(model: Transformer, *, by: a.Tuning, where: a.Where | None = None, seed: int = 0) -> Transformer:
    """Do the same in the number format that the model has, as loading an adapter does."""
    by = set_target(by, where)
    frozen = {name: model.get_parameter(name) for name in list_frozen(model, by)}
    with restore_on_error(model):
        if type(by) in ADDITIONS:
            ADDITIONS[type(by)](model, by, torch.Generator().manual_seed(seed))
    for parameter in frozen.values():
        parameter.requires_grad_(False)
    model.provenance = replace(model.provenance, rewrites=(*model.provenance.rewrites, Applied(by, frozenset(frozen))))
    return model


@contextmanager
def restore_on_error(model: Transformer) -> Iterator[None]:
    """Put a model's modules and provenance back as they were, where the change fails that is made meanwhile."""
    before, front = [(module, dict(module._modules)) for module in model.modules()], model.front
    provenance = model.provenance
    try:
        yield
    except BaseException:
        for module, inside in before:
            module._modules.clear()
            module._modules.update(inside)
        model.front, model.provenance = front, provenance
        raise


def set_target(by: a.Tuning, where: a.Where | None) -> a.Tuning:
    """Return a rewrite with another `where`. Raises `InputError` for one that has its one place in a model."""
    if where is None:
        return by
    if "where" not in type(by).model_fields:
        raise InputError(f"{by.kind} has one place in a model", where="where", remedy="leave it out")
    return by.model_copy(update={"where": where})


def list_frozen(model: Transformer, by: a.Tuning) -> set[str]:
    """Return the names of the parameters that a rewrite stops from learning."""
    learning = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    if isinstance(by, QuantizationAware):
        return set()
    if isinstance(by, a.Freeze):
        lower = tuple(f"{stack}.blocks.{number}." for stack in ("encoder", "decoder") for number in range(by.lower))
        return learning & (select_parameters(model, by.where) | {name for name in learning if name.startswith(lower)})
    keep = select_parameters(model, ("biases", *by.train) if isinstance(by, a.Bias) else by.train)
    return learning - keep - model.provenance.unlike - list_added(model)


def list_added(model: nn.Module) -> set[str]:
    """Return the names of the parameters that rewrites have added."""
    return {f"{name}.{end}" for name, module in model.named_modules() if getattr(module, "added", False)
            for end, _ in module.named_parameters()}


def unrewrite(model: Transformer) -> Transformer:
    """Take every rewrite back, in place: the model is as it was before the first, to the last bit.

    Raises `InputError` where weights were rounded, which cannot be taken back.
    """
    if is_quantized(model):
        raise InputError("weights were rounded to a few bits, which cannot be taken back", where="unrewrite",
                         remedy="load the base model again")
    swap_modules(model, {id(module): module.base for module in model.modules()
                         if isinstance(module, LowRank | DropoutThenAdapter)})
    model.front = None
    remove_rounding(model)
    parameters = dict(model.named_parameters())
    for applied in model.provenance.rewrites:
        for name in applied.frozen:
            parameters[name.replace(".base.", ".")].requires_grad_(True)
    model.provenance = replace(model.provenance, rewrites=())
    return model


def list_trainable(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return the parameters that learn, by name."""
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}


def share(model: nn.Module) -> tuple[int, int]:
    """Return how many values learn, and how many the model has."""
    rounded = sum(prod(matrix.shape) for matrix in list_matrices(model).values())
    return (sum(parameter.numel() for parameter in list_trainable(model).values()),
            sum(parameter.numel() for parameter in model.parameters()) + rounded)


def rewrite_and_report(model: Transformer, by: Tuning, *, seed: int) -> Iterator[str]:
    """Rewrite a model in place; yield lines about it. Raises `InputError` as `rewrite`."""
    before = held_bytes(model)
    rewrite(model, by=by, seed=seed)
    learning, everything = share(model)
    yield f"{by.kind}: {learning:,} of {everything:,} parameters learn, {learning / everything:.2%}"
    if (after := held_bytes(model)) < before:
        yield f"the model takes {after / 1e6:,.1f} MB instead of {before / 1e6:,.1f}"


INITIAL_STD = 1e-2
"""Standard deviation that the first map starts with. Source: Houlsby et al. 2019, §3.6."""


class BottleneckAdapter(nn.Module):
    """`x + up(activation(down(x)))`. Source: Houlsby et al. 2019, §2.1, arXiv:1902.00751."""

    added = True
    """Its parameters are no part of the model that was built."""

    def __init__(self, dim: int, by: a.Adapter) -> None:
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

    def __init__(self, base: nn.Module, adapter: BottleneckAdapter) -> None:
        """Put the bottleneck after a dropout."""
        super().__init__()
        self.base, self.adapter = base, adapter

    def forward(self, x: Tensor) -> Tensor:
        """Shapes: [..., D] -> [..., D]."""
        return self.adapter(self.base(x))  # type: ignore[no-any-return]


def add_bottlenecks(model: Transformer, by: a.Adapter, generator: torch.Generator) -> None:
    """Put a bottleneck after the sublayers that the placement means. Raises `InputError` where there are some."""
    if any(isinstance(module, DropoutThenAdapter) for module in model.modules()):
        raise InputError("the model has bottlenecks already", where="tuning", remedy="take them off first")
    replaced: dict[int, nn.Module] = {}
    for residual, dim in list_residuals(model):
        feeds = isinstance(residual.get_submodule("inner"), FeedForward | GatedFeedForward | Experts)
        if feeds or isinstance(by.placement, a.Houlsby):
            added = BottleneckAdapter(dim, by)
            added.begin(generator)
            dropout = residual.get_submodule("dropout")
            replaced[id(dropout)] = DropoutThenAdapter(dropout, added.to(model.device))
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


ADDITIONS: Mapping[type, Callable[[Transformer, Any, torch.Generator], None]] = {
    a.Lora: add_pairs, a.Qlora: add_pairs, a.Prefix: add_prefix, a.Prompt: add_prompt, a.Adapter: add_bottlenecks,
    QuantizationAware: add_rounding}
"""Kind of rewrite -> what puts something into a model; the others only stop parameters from learning."""
