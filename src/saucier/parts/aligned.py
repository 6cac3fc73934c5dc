"""Recurrent layers that look at the encoder: Bahdanau's and Luong's ways, with or without a step's result fed on.

Letters: B batch, L length, S source length, D dim, G gates.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from saucier import config as c
from saucier.parts.alignment import Alignment, Source
from saucier.parts.cells import Layers, State, Steps
from saucier.parts.linear import Linear


@dataclass(slots=True)
class Target:
    """A text that is read with attention."""

    x: Tensor
    """[B, L, D]."""
    places: Tensor
    """[B or 1, L], the place of each token in its text."""
    steps: Steps


@dataclass(slots=True)
class Read:
    """What came of it."""

    outputs: Tensor
    """[B, L, D]."""
    weights: Tensor
    """[B, L, S]."""
    states: State


class Bahdanau(nn.Module):
    """Look with the state before the step, and step with what was found.

    Source: Bahdanau et al. 2015, §3.1 and A.1.2, arXiv:1409.0473.
    """

    def __init__(self, config: c.Bahdanau, dim: int) -> None:
        """Build the alignment and the readout."""
        super().__init__()
        self.alignment = Alignment(config, dim)
        self.combine = Linear(3 * dim, 2 * dim) if isinstance(config.readout, c.DeepOutput) else None

    def forward(self, layers: Layers, states: State, target: Target, source: Source) -> Read:
        """Read a text step by step."""
        each = len(layers.cell(0).widths)

        def one(place: int, sums: Tensor, old: State) -> tuple[State, tuple[Tensor, ...]]:
            found, weights = self.alignment(old[-each][:, None], source.at(place), target.places[:, place, None])
            output, new = layers.step(sums, found[:, 0], old)
            return new, (output, found[:, 0], weights[:, 0])

        (outputs, found, weights), states = stepwise(one, layers, states, target)
        return Read(self.read_out(outputs, found, target.x), weights, states)

    def read_out(self, outputs: Tensor, found: Tensor, x: Tensor) -> Tensor:
        """Return what the layer gives: the output, or a maxout over pairs (A.2.2). Shapes: [B, L, D] each."""
        if self.combine is None:
            return outputs
        return self.combine(torch.cat([outputs, x, found], dim=-1)).unflatten(-1, (-1, 2)).amax(-1)  # type: ignore[no-any-return]


class Luong(nn.Module):
    """Step, look with the state behind the step, and give a map of both. Source: Luong et al. 2015, arXiv:1508.04025.

    With input feeding (§3.3) the last of the states is what the step before gave.
    """

    def __init__(self, config: c.Luong, dim: int) -> None:
        """Build the alignment and the map of context and state, eq 5."""
        super().__init__()
        self.config = config
        self.alignment = Alignment(config, dim)
        self.combine = Linear(2 * dim, dim, bias=False)

    def forward(self, layers: Layers, states: State, target: Target, source: Source) -> Read:
        """Read a text, step by step where results are fed on, and else at once."""
        if not self.config.input_feeding:
            x, states = layers(target.x, states, target.steps)
            found, weights = self.alignment(x, source, target.places)
            return Read(self.attentional(found, x), weights, states)

        def one(place: int, sums: Tensor, old: State) -> tuple[State, tuple[Tensor, ...]]:
            output, new = layers.step(sums, old[-1], old[:-1])
            found, weights = self.alignment(output[:, None], source.at(place), target.places[:, place, None])
            given = self.attentional(found[:, 0], output)
            return (*new, given), (given, weights[:, 0])

        (outputs, weights), states = stepwise(one, layers, states, target)
        return Read(outputs, weights, states)

    def attentional(self, found: Tensor, output: Tensor) -> Tensor:
        """Return `tanh(W [context; state])`. Shapes: [..., D] each."""
        return torch.tanh(self.combine(torch.cat([found, output], dim=-1)))


One = Callable[[int, Tensor, State], tuple[State, tuple[Tensor, ...]]]
"""A step: its place, what the first layer makes of the token [B, G], the states -> the states, what is recorded."""


def stepwise(one: One, layers: Layers, states: State, target: Target) -> tuple[list[Tensor], State]:
    """Take the steps of a text; return what they record, [B, L, ...] each, and the last states."""
    made = []
    for place, sums in enumerate(layers.sums(target.x)):
        old = target.steps.before(place, states)
        new, record = one(place, sums, old)
        states = target.steps.after(place, old, new)
        made.append(record)
    return [torch.stack(part, dim=1) for part in zip(*made, strict=True)], states


def build_looking(config: c.Bahdanau | c.Luong, dim: int) -> Bahdanau | Luong:
    """Return the module for an attention inside a recurrence."""
    match config:
        case c.Bahdanau():
            return Bahdanau(config, dim)
        case c.Luong():
            return Luong(config, dim)
