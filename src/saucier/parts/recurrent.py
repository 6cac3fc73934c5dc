"""`Recurrent`, the sublayer of recurrent layers, with Bahdanau's and Luong's attention to an encoder.

It reads padded and packed texts, and continues from a cache.

Letters: B batch, L length, S source length, D dim, G gates, W width of a state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from saucier import config as c
from saucier.errors import InputError
from saucier.parts.context import Context
from saucier.parts.linear import Linear
from saucier.parts.pooling import mean_vector
from saucier.parts.recurrent_cells import AlignedSource, Alignment, Layers, State, Steps, find_steps


@dataclass(slots=True)
class TargetText:
    """A text that is read with attention."""

    x: Tensor
    """[B, L, D]."""
    places: Tensor
    """[B or 1, L], the place of each token in its text."""
    steps: Steps


AttendedText = tuple[Tensor, Tensor, State]
"""What came of it: outputs [B, L, D], weights [B, L, S], and the last states."""


class Bahdanau(nn.Module):
    """Look with the state before the step, and step with what was found.

    Source: Bahdanau et al. 2015, §3.1 and A.1.2, arXiv:1409.0473.
    """

    def __init__(self, config: c.Bahdanau, dim: int) -> None:
        """Build the alignment and the readout."""
        super().__init__()
        self.alignment = Alignment(config, dim)
        self.combine = Linear(3 * dim, 2 * dim) if config.readout.kind == "deep" else None

    def forward(self, layers: Layers, states: State, target: TargetText, source: AlignedSource) -> AttendedText:
        """Read a text step by step."""
        each = len(layers.cell(0).widths)

        def one(place: int, sums: Tensor, old: State) -> tuple[State, tuple[Tensor, ...]]:
            found, weights = self.alignment(old[-each][:, None], source.at(place), target.places[:, place, None])
            output, new = layers.step(sums, found[:, 0], old)
            return new, (output, found[:, 0], weights[:, 0])

        (outputs, found, weights), states = run_steps(one, layers, states, target)
        if self.combine is not None:  # a maxout over pairs, A.2.2
            outputs = self.combine(torch.cat([outputs, target.x, found], dim=-1)).unflatten(-1, (-1, 2)).amax(-1)
        return outputs, weights, states


class Luong(nn.Module):
    """Step, look with the state after the step, and give a map of both. Source: Luong et al. 2015, arXiv:1508.04025.

    With input feeding (§3.3) the last of the states is what the step before gave.
    """

    def __init__(self, config: c.Luong, dim: int) -> None:
        """Build the alignment and the map of context and state, eq 5."""
        super().__init__()
        self.config = config
        self.alignment = Alignment(config, dim)
        self.combine = Linear(2 * dim, dim, bias=False)

    def forward(self, layers: Layers, states: State, target: TargetText, source: AlignedSource) -> AttendedText:
        """Read a text, step by step where results are fed on, and else at once."""
        if not self.config.input_feeding:
            x, states = layers(target.x, states, target.steps)
            found, weights = self.alignment(x, source, target.places)
            return self.attentional(found, x), weights, states

        def one(place: int, sums: Tensor, old: State) -> tuple[State, tuple[Tensor, ...]]:
            output, new = layers.step(sums, old[-1], old[:-1])
            found, weights = self.alignment(output[:, None], source.at(place), target.places[:, place, None])
            given = self.attentional(found[:, 0], output)
            return (*new, given), (given, weights[:, 0])

        (outputs, weights), states = run_steps(one, layers, states, target)
        return outputs, weights, states

    def attentional(self, found: Tensor, output: Tensor) -> Tensor:
        """Return `tanh(W [context; state])`. Shapes: [..., D] each."""
        return torch.tanh(self.combine(torch.cat([found, output], dim=-1)))


Step = Callable[[int, Tensor, State], tuple[State, tuple[Tensor, ...]]]
"""A step: its place, what the first layer makes of the token [B, G], the states -> the states, what is recorded."""


def run_steps(one: Step, layers: Layers, states: State, target: TargetText) -> tuple[list[Tensor], State]:
    """Take the steps of a text; return what they record, [B, L, ...] each, and the last states."""
    made = []
    for place, sums in enumerate(layers.sums(target.x)):
        old = target.steps.before(place, states)
        new, record = one(place, sums, old)
        states = target.steps.after(place, old, new)
        made.append(record)
    return [torch.stack(part, dim=1) for part in zip(*made, strict=True)], states


ALIGNMENTS: Mapping[type[c.Config], Callable[[Any, int], Bahdanau | Luong]] = {c.Bahdanau: Bahdanau, c.Luong: Luong}
"""Attention inside a recurrence -> what builds it for a width."""


class Recurrent(nn.Module):
    """Recurrent layers, how their states begin, and how they look at the encoder."""

    def __init__(self, config: c.Recurrent, dim: int) -> None:
        """Build the layers, the map of the start, and the attention."""
        super().__init__()
        self.config, self.widths = config, config.kept(dim)
        self.layers = Layers(config, dim)
        mapped = config.start.kind in ("last_layer", "mean")
        self.begin = Linear(dim, sum(config.all_states(dim))) if mapped else None
        self.looking = ALIGNMENTS[type(config.attention)](config.attention, dim) if config.attention else None

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """Shapes: x [B, L, D], or [1, T, D] when packed -> the same."""
        layout = context.layout
        return self.read(x, context) if layout is None else layout.pack(self.read(layout.unpack(x), context))

    def read(self, x: Tensor, context: Context) -> Tensor:
        """Read rows from the states that they begin with, and keep those that they end in. Shapes: [B, L, D]."""
        real = context.real_keys()
        steps = find_steps(None if real is None else real[:, real.shape[1] - x.shape[1]:],
                           context.span.query_documents)
        cache, slot = context.cache, context.next_slot("recurrent")
        states = self.first(x, context) if cache is None or slot not in cache.states else cache.states[slot]
        if self.looking is None:
            x, states = self.layers(x, states, steps)
        else:
            target = TargetText(x, find_text_positions(x, context, steps), steps)
            x, weights, states = self.looking(self.layers, states, target, self.source(self.looking, context, slot))
            if context.want_weights:
                context.cross_attentions.append(weights[:, None])
        if cache is not None:
            cache.states[slot] = states
        context.final_states += split_by_layer(states, self.config)
        return x

    def source(self, looking: Bahdanau | Luong, context: Context, slot: int) -> AlignedSource:
        """Return what the encoder gave, and what the score makes of it, from the cache where that has them."""
        kept = {} if context.cache is None else context.cache.source
        if slot not in kept:
            vectors = context.encoder.vectors
            keys = looking.alignment.score.keys(vectors)
            kept[slot] = (vectors,) if keys is vectors else (vectors, keys)
        return AlignedSource(kept[slot][0], kept[slot][-1], visible_source(context))

    def first(self, x: Tensor, context: Context) -> State:
        """Return the states before the first token; what is fed back begins at zero.

        Raises `InputError` where the batch does not hold what they begin from.
        """
        zeros = tuple(x.new_zeros(len(x), width) for width in self.widths)
        if self.config.start.kind == "zeros":
            return zeros
        if context.span.query_documents is not None:
            raise InputError("the decoder begins in what the encoder ended in, and a row holds several texts",
                             where="documents", remedy="give one text a row, or use start: {kind: zeros}")
        given = self.given_states(context)
        return (*given, *zeros[len(given):])

    def given_states(self, context: Context) -> State:
        """Return the states that the encoder gives. Shapes: [B, W] each."""
        if self.config.start.kind == "mean":
            visible = visible_source(context)
            return self.mapped(mean_vector(context.encoder.vectors,
                                           None if visible is None else visible[:, 0]))
        states = context.encoder.states
        if not states:
            raise InputError("the decoder begins in the encoder's last states, and only its output was given",
                             where="encoder_states", remedy="give input_ids, or encoder_states beside encoder_output")
        if self.config.start.kind == "last_layer":
            return self.mapped(states[-1][0])
        begin, context.states_read = context.states_read, context.states_read + self.config.layers
        return tuple(part for state in states[begin:context.states_read] for part in state)

    def mapped(self, vector: Tensor) -> State:
        """Return all states as maps of one vector. Shapes: [B, D] -> [B, W] each."""
        assert self.begin is not None, "built with the start"
        states: Tensor = torch.tanh(self.begin(vector))
        return tuple(torch.split(states, list(self.config.all_states(vector.shape[-1])), dim=-1))


def split_by_layer(states: State, config: c.Recurrent) -> list[State]:
    """Return the states of each layer, both directions side by side. Shapes: [B, W] each."""
    ways, found = len(config.ways), []
    each = len(config.states(1))
    for layer in range(config.layers):
        mine = states[layer * ways * each:(layer + 1) * ways * each]
        found.append(tuple(torch.cat(mine[part::each], dim=-1) if ways > 1 else mine[part] for part in range(each)))
    return found


def find_text_positions(x: Tensor, context: Context, steps: Steps) -> Tensor:
    """Return the place of each token in its text. Shapes: x [B, L, D] -> [B or 1, L]."""
    length, real = x.shape[1], context.real_keys()
    places = torch.arange(context.span.start, context.span.start + length, device=x.device)[None]
    if real is not None:
        places = (real.cumsum(1) - 1)[:, -length:]
    if steps.begins is None:
        return places
    return places - torch.where(steps.begins, places, 0).cummax(1).values


def visible_source(context: Context) -> Tensor | None:
    """Return which of the encoder's vectors each token may see. Shapes: -> [B, 1 or L, S]; None: all of them."""
    span, layout = context.encoder.span(context.span), context.encoder.layout
    real = span.padding if layout is None else layout.mask
    visible = None if real is None else real[:, None]
    if span.query_documents is None or span.key_documents is None:
        return visible
    same = span.query_documents[:, :, None] == span.key_documents[:, None]
    return same if visible is None else same & visible
