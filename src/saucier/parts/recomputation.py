"""Activations that are computed again for the backward pass: checkpointed blocks, and reversible residual streams.

The second computation has the same random numbers, choices and number format.

Letters: B batch, L length, D dim.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint, get_device_states, set_device_states

from saucier.parts.context import Context

Again = Callable[[], AbstractContextManager[None]]


def same_draws(x: Tensor) -> Again:
    """Return what lets torch's global generators, for what is computed where `x` is, draw again what they draw next.

    Afterwards the generators are where they were.
    """
    cpu, kind = torch.get_rng_state(), x.device.type
    devices, states = ([], []) if kind == "cpu" else get_device_states(x)

    @contextmanager
    def again() -> Iterator[None]:
        with torch.random.fork_rng(devices, device_type="cuda" if kind == "cpu" else kind):
            torch.set_rng_state(cpu)
            if kind != "cpu":
                set_device_states(devices, states, device_type=kind)
            yield

    return again


def same_format(x: Tensor) -> torch.autocast:
    """Return the context in which products where `x` is have the number format that they have now.

    Copies of weights are not kept from one product to the next: those made without a gradient would be found by
    products that need one.
    """
    device = x.device.type
    return torch.autocast(device, dtype=torch.get_autocast_dtype(device), enabled=torch.is_autocast_enabled(device),
                          cache_enabled=False)


def recompute_block(block: nn.Module, x: Tensor, context: Context) -> Tensor:
    """Apply a block of which only the input is kept for the backward pass. Shapes: x [B, L, D] -> [B, L, D]."""
    found = context.copied()
    turns = iter([context])  # the pass itself, which counts and records; every turn after it has its own copy

    def turn(read: Tensor) -> Tensor:
        given: Tensor = block(read, next(turns, None) or found.copied())
        return given

    return checkpoint(turn, x, use_reentrant=False)  # type: ignore[no-any-return]


def run_two_streams(x: Tensor, blocks: Sequence[nn.Module], context: Context, record: list[Tensor] | None) -> Tensor:
    """Apply blocks to two streams that begin as `x`; `record` receives the second before each block and at the end.

    Shapes: x [B, L, D] -> [B, L, 2D], the first stream before the second.
    Source: Kitaev et al. 2020, §3, eq 9, arXiv:2001.04451 (S eq 103–105).
    """
    first = second = x
    for block in blocks:
        if record is not None:
            record.append(second)
        sublayers = list(block.children())
        for reads_second, reads_first in zip(sublayers[::2], sublayers[1::2], strict=True):
            first = first + compute_change(reads_second, second, context)
            second = second + compute_change(reads_first, first, context)
    if record is not None:
        record.append(second)
    return torch.cat([first, second], dim=-1)


def compute_change(sublayer: nn.Module, read: Tensor, context: Context) -> Tensor:
    """Return what a sublayer adds to the stream that it does not read. Shapes: [B, L, D] -> [B, L, D]."""
    return sublayer.change(read, context)  # type: ignore[operator, no-any-return]  # check() allows no other


def compute_change_with_graph(sublayer: nn.Module, read: Tensor, context: Context) -> Tensor:
    """Do as `compute_change`, with a graph: attention takes other ways without one. Shapes: [B, L, D] -> [B, L, D]."""
    with torch.enable_grad():
        return compute_change(sublayer, read if read.requires_grad else read.detach().requires_grad_(), context)


def is_reversible_pass(x: Tensor, context: Context, record: list[Tensor] | None) -> bool:
    """Say whether streams can be computed back, and somebody may ask for a gradient, of their end alone.

    They cannot in 16 bits, and the compiler, which recomputes by its own choice, cannot trace it. What a cache holds,
    and weights of attention, would need gradients of their own.
    """
    wide = x.dtype in (torch.float32, torch.float64) and x.device.type != "meta"
    alone = record is None and context.cache is None and not context.want_weights
    return torch.is_grad_enabled() and wide and alone and not torch.compiler.is_compiling()


@dataclass(slots=True)
class ReversibleRun:
    """Sublayers in a row, applied once, and to be applied once more from the last to the first."""

    sublayers: list[nn.Module]
    context: Context
    shared: Sequence[nn.Module]
    """Parts of the stack that the sublayers read."""
    format: torch.autocast
    turns: list[tuple[Context, Again]] = field(default_factory=list)
    """What each sublayer found when it was applied: the pass, with its choices, and the random numbers."""

    def learned(self, sublayers: Sequence[nn.Module]) -> list[Tensor]:
        """Return what else than `x` may get a gradient from sublayers: what the pass made before, and weights."""
        weights = (weight for part in (*sublayers, *self.shared) for weight in part.parameters())
        causes = [one for one in (*read_tensors(self.context), *weights) if one is not None and one.requires_grad]
        return list({id(one): one for one in causes}.values())  # each once

    def forward(self, x: Tensor) -> Tensor:
        """Apply all of them. Shapes: [B, L, D] -> [B, L, 2D]."""
        streams = [x, x]
        with self.format:
            for number, sublayer in enumerate(self.sublayers):
                self.context.choices = []
                self.turns.append((self.context.copied(), same_draws(x)))
                change = compute_change_with_graph(sublayer, streams[1 - number % 2], self.context)
                streams[number % 2] = streams[number % 2] + change.detach()
        self.context.choices = None
        return torch.cat(streams, dim=-1)

    def again(self, number: int, read: Tensor, stand_ins: dict[int, Tensor]) -> Tensor:
        """Apply one of them as it was applied, with a graph. Shapes: [B, L, D] -> [B, L, D]."""
        found, draws = self.turns[number]
        hidden, shared, bias = (None if one is None else stand_ins.get(id(one), one)
                                for one in read_tensors(found))
        memory = found.memory and replace(found.memory, hidden=hidden)
        made = {} if shared is not None and shared.requires_grad else self.context.made  # made of it, without a graph
        context = replace(found.copied(), memory=memory, shared=shared, bias=bias, made=made,
                          choices=None, replayed=iter(found.choices or ()))
        with draws(), self.format:
            return compute_change_with_graph(self.sublayers[number], read, context)


class ReversibleFunction(torch.autograd.Function):
    """Applies a run, keeps what it gives, and computes from it what was before."""

    @staticmethod
    def forward(ctx: Any, run: ReversibleRun, x: Tensor, *learned: Tensor) -> Tensor:
        """Shapes: x [B, L, D] -> [B, L, 2D]."""
        given = run.forward(x)
        ctx.run, ctx.learned = run, learned
        ctx.save_for_backward(given)
        return given

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Shapes: gradient [B, L, 2D] -> None, [B, L, D], and as what is learned."""
        run, sums = ctx.run, GradientSums(ctx.learned)
        streams, gradients = list(ctx.saved_tensors[0].chunk(2, dim=-1)), list(gradient.chunk(2, dim=-1))
        for number in reversed(range(len(run.sublayers))):
            changes, reads = number % 2, 1 - number % 2
            read = streams[reads].detach().requires_grad_()
            change = run.again(number, read, sums.stand_ins)
            found = sums.add(change, [read, *run.learned(run.sublayers[number:number + 1])], gradients[changes])
            gradients[reads] = gradients[reads] + found
            streams[changes] = streams[changes] - change.detach()
        return None, gradients[0] + gradients[1], *sums.totals()


def read_tensors(context: Context) -> tuple[Tensor | None, ...]:
    """Return what sublayers read of a pass: the encoder's output, the positions' table and their bias."""
    return None if context.memory is None else context.memory.hidden, context.shared, context.bias


class GradientSums:
    """Gradients of what is learned, added up over the sublayers."""

    def __init__(self, learned: Sequence[Tensor]) -> None:
        """Let a leaf stand in for each tensor that is itself the result of a graph."""
        self.learned = learned
        self.stand_ins = {id(one): one.detach().requires_grad_() for one in learned if not one.is_leaf}
        self.found: dict[int, Tensor] = {}

    def add(self, change: Tensor, causes: Sequence[Tensor], gradient: Tensor) -> Tensor:
        """Add the gradients of one sublayer; return that of its first cause, what it read. Shapes: [B, L, D] each."""
        leaves = [self.stand_ins.get(id(one), one) for one in causes]
        parts = torch.autograd.grad(change, leaves, gradient.to(change.dtype), allow_unused=True)
        for one, part in zip(causes[1:], parts[1:], strict=True):
            if part is not None:
                self.found[id(one)] = self.found[id(one)] + part if id(one) in self.found else part
        return torch.zeros_like(gradient) if parts[0] is None else parts[0]

    def totals(self) -> list[Tensor | None]:
        """Return the sums, in the order of what is learned."""
        return [self.found.get(id(one)) for one in self.learned]


def run_reversible(x: Tensor, blocks: Sequence[nn.Module], context: Context, shared: Sequence[nn.Module]) -> Tensor:
    """Apply blocks as `run_two_streams` does, and keep for the backward pass only what the last ones give.

    What came before a sublayer is computed from what comes after it. `shared` are parts of the stack that its blocks
    read. Shapes: x [B, L, D] -> [B, L, 2D].
    Source: Gomez et al. 2017, §3.2, arXiv:1707.04585; Kitaev et al. 2020, §3, eq 10.
    """
    sublayers = [sublayer for block in blocks for sublayer in block.children()]
    run = ReversibleRun(sublayers, context, shared, same_format(x))
    return ReversibleFunction.apply(run, x, *run.learned(sublayers))  # type: ignore[no-untyped-call, no-any-return]
