"""`Recurrent`, the sublayer of recurrent layers: over padding and packed texts, from a cache, beside an encoder.

Cells and layers are in `cells`, attention in `alignment` and `aligned`.
Letters: B batch, L length, S source length, D dim, W width of a state.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from saucier import config as c
from saucier.errors import InputError
from saucier.parts.aligned import Target, build_looking
from saucier.parts.alignment import Source
from saucier.parts.cells import Layers, State, Steps, steps_of
from saucier.parts.context import Context
from saucier.parts.linear import Linear


class Recurrent(nn.Module):
    """Recurrent layers, how their states begin, and how they look at the encoder."""

    def __init__(self, config: c.Recurrent, dim: int) -> None:
        """Build the layers, the map of the start, and the attention."""
        super().__init__()
        self.config, self.widths = config, config.kept(dim)
        self.layers = Layers(config, dim)
        mapped = isinstance(config.start, c.FromLastLayer | c.FromMean)
        self.begin = Linear(dim, sum(config.all_states(dim))) if mapped else None
        self.looking = build_looking(config.attention, dim) if config.attention else None

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """Shapes: x [B, L, D], or [1, T, D] when packed -> the same."""
        layout = context.layout
        return self.read(x, context) if layout is None else layout.pack(self.read(layout.unpack(x), context))

    def read(self, x: Tensor, context: Context) -> Tensor:
        """Read rows from the states that they begin with, and keep those that they end in. Shapes: [B, L, D]."""
        steps = steps_of(real_tokens(x, context), context.span.query_documents)
        cache, slot = context.cache, context.recurrent_slot()
        states = self.first(x, context) if cache is None or slot not in cache.states else cache.states[slot]
        if self.looking is None:
            x, states = self.layers(x, states, steps)
        else:
            done = self.looking(self.layers, states, Target(x, text_places(x, context, steps), steps),
                                self.source(context, slot))
            x, states = done.outputs, done.states
            if context.want_weights:
                context.cross_attentions.append(done.weights[:, None])
        if cache is not None:
            cache.states[slot] = states
        context.final_states += by_layer(states, self.config)
        return x

    def source(self, context: Context, slot: int) -> Source:
        """Return what the encoder gave, and what the score makes of it, from the cache where that has them."""
        assert self.looking is not None, "read() asks only then"
        score, cache = self.looking.alignment.score, context.cache
        if cache is not None and slot in cache.source:
            kept = cache.source[slot]
            return Source(kept[0], kept[-1], seen_source(context))
        vectors = encoder_output(context)
        keys = score.keys(vectors)
        if cache is not None:
            cache.source[slot] = (vectors,) if keys is vectors else (vectors, keys)
        return Source(vectors, keys, seen_source(context))

    def first(self, x: Tensor, context: Context) -> State:
        """Return the states before the first token; what is fed back begins at zero.

        Raises `InputError` where the batch does not hold what they begin from.
        """
        zeros = tuple(x.new_zeros(len(x), width) for width in self.widths)
        if isinstance(self.config.start, c.FromZero):
            return zeros
        if context.span.query_documents is not None:
            raise InputError("the decoder begins in what the encoder ended in, and a row holds several texts",
                             where="documents", remedy="give one text a row, or use start: {kind: zeros}")
        began = self.begun(context)
        return (*began, *zeros[len(began):])

    def begun(self, context: Context) -> State:
        """Return the states that the encoder gives. Shapes: [B, W] each."""
        if isinstance(self.config.start, c.FromMean):
            return self.mapped(mean_of(encoder_output(context), seen_source(context)))
        if not context.memory_states:
            raise InputError("the decoder begins in the encoder's last states, and only its output was given",
                             where="encoder_states", remedy="give input_ids, or encoder_states beside encoder_output")
        if isinstance(self.config.start, c.FromLastLayer):
            return self.mapped(context.memory_states[-1][0])
        begin, context.states_read = context.states_read, context.states_read + self.config.layers
        return tuple(part for state in context.memory_states[begin:context.states_read] for part in state)

    def mapped(self, vector: Tensor) -> State:
        """Return all states as maps of one vector. Shapes: [B, D] -> [B, W] each."""
        assert self.begin is not None, "built with the start"
        begun: Tensor = torch.tanh(self.begin(vector))
        return tuple(torch.split(begun, list(self.config.all_states(vector.shape[-1])), dim=-1))


def by_layer(states: State, config: c.Recurrent) -> list[State]:
    """Return the states of each layer, both directions side by side. Shapes: [B, W] each."""
    ways, found = len(config.ways), []
    each = len(config.states(1))
    for layer in range(config.layers):
        mine = states[layer * ways * each:(layer + 1) * ways * each]
        found.append(tuple(torch.cat(mine[part::each], dim=-1) if ways > 1 else mine[part] for part in range(each)))
    return found


def real_tokens(x: Tensor, context: Context) -> Tensor | None:
    """Return which of these positions are no padding; None when all are. Shapes: x [B, L, D] -> [B, L]."""
    real = context.real_keys()
    return None if real is None else real[:, real.shape[1] - x.shape[1]:]


def text_places(x: Tensor, context: Context, steps: Steps) -> Tensor:
    """Return the place of each token in its text. Shapes: x [B, L, D] -> [B or 1, L]."""
    length, real = x.shape[1], context.real_keys()
    places = torch.arange(context.span.start, context.span.start + length, device=x.device)[None]
    if real is not None:
        places = (real.cumsum(1) - 1)[:, -length:]
    if steps.begins is None:
        return places
    return places - torch.where(steps.begins, places, 0).cummax(1).values


def encoder_output(context: Context) -> Tensor:
    """Return the encoder's vectors without packing. Shapes: -> [B, S, D]."""
    assert context.memory is not None, "check() refuses such a decoder without an encoder"
    return context.memory if context.memory_layout is None else context.memory_layout.unpack(context.memory)


def seen_source(context: Context) -> Tensor | None:
    """Return which of the encoder's vectors each token may see. Shapes: -> [B, 1 or L, S]; None: all of them."""
    span, layout = context.memory_span, context.memory_layout
    assert span is not None, "likewise"
    real = span.padding if layout is None else layout.mask
    visible = None if real is None else real[:, None]
    if span.query_documents is None or span.key_documents is None:
        return visible
    same = span.query_documents[:, :, None] == span.key_documents[:, None]
    return same if visible is None else same & visible


def mean_of(vectors: Tensor, visible: Tensor | None) -> Tensor:
    """Return the mean of the visible vectors. Shapes: [B, S, D], [B, 1, S] -> [B, D]."""
    if visible is None:
        return vectors.mean(1)
    real = visible[:, 0, :, None].to(vectors.dtype)
    return (vectors * real).sum(1) / real.sum(1).clamp(min=1)
