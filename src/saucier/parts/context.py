"""What the layers of a stack share during one forward pass: masks, tables, cache, shared weights, and what to record.

Everything here is made at most once a pass and reused by all layers.

Letters: B batch, L length, H heads, E head width, D dim, K mixtures, N longest text.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import torch
from torch import Tensor, nn

from saucier import config as c
from saucier.config.questions import differs_by_head
from saucier.parts.inputs import Inputs
from saucier.parts.masks import Draw, Mask, Ragged, Span
from saucier.parts.output import Cache
from saucier.parts.visibility import build_mask

T = TypeVar("T")


@dataclass(slots=True)
class Choices:
    """What was chosen in a part of a pass (buckets), so that it is not chosen otherwise when it is computed again."""

    made: list[Tensor] = field(default_factory=list)
    replayed: Iterator[Tensor] | None = None

    def again(self) -> Choices:
        """Return the same choices, to be given out one after the other."""
        return Choices(replayed=iter(self.made))

    def choose(self, make: Callable[[], Tensor]) -> Tensor:
        """Return what `make` chooses, or what it chose the first time."""
        if self.replayed is not None:
            return next(self.replayed)
        self.made.append(make())
        return self.made[-1]


@dataclass(slots=True)
class Context:
    """One pass through one stack."""

    span: Span
    positions: Tensor
    """[B or 1, L] position of each query, for tables that are looked up by position."""
    layout: Ragged | None = None
    """Set when rows are packed: x is then [1, T, D]."""
    cache: Cache | None = None
    memory: Tensor | None = None
    """[B, S, D] encoder output, [1, T, D] when packed."""
    memory_span: Span | None = None
    memory_layout: Ragged | None = None
    memory_states: Sequence[tuple[Tensor, ...]] = ()
    """[B, W] each, in which the encoder's recurrent layers ended."""
    states_read: int = 0
    """How many layers' of them have been read."""
    final_states: list[tuple[Tensor, ...]] = field(default_factory=list)
    """Likewise of this pass."""
    shared: Tensor | None = None
    """The table of the positions that the stack's layers share: T5's [N, H], or vectors of distances."""
    bias: Tensor | None = None
    """[1, H, Q, K], T5's bias of all pairs; None where every layer adds it tile by tile."""
    read: Tensor | None = None
    """What an attention reads in place of its residual's stream, inside a bottleneck."""
    key_rows: Tensor | None = None
    """[B, K, D], what keys and values are made of, where they are not made of the same rows as queries."""
    layout_state: object = None
    """What the stack's layout knows of the rows that run now, for positions that go with it."""
    maps: nn.Module | None = None
    """The maps to queries, keys and values of the attention that runs now, for positions that share them."""
    biases: RelativeBiases | None = None
    """The biases of Transformer-XL's positions, where the stack's layers share them."""
    mixtures: Mixtures | None = None
    """The map along the text, where the stack's layers share it."""
    recalled: tuple[Tensor, ...] | None = None
    """[B, M, D] for each block: the memory of earlier segments."""
    past: Tensor | None = None
    """[B, M, D], the memory of the block that runs."""
    remembered: list[Tensor] | None = None
    """[M, B, D] for each block: what the next segment is to remember; None where nobody asks."""
    asked: Tensor | None = None
    """[B, P], the places that the second stream asks about."""
    inputs: Inputs = field(default_factory=Inputs)
    """Everything that was given by name."""
    want_weights: bool = False
    attentions: list[Tensor] = field(default_factory=list)
    cross_attentions: list[Tensor] = field(default_factory=list)
    router_logits: list[Tensor] = field(default_factory=list)
    """[B·L, E], the scores of each layer with experts, where they are wanted."""
    global_attentions: list[Tensor] = field(default_factory=list)
    """Weights of the global tokens of sliding windows, in their published form."""
    multiple: int = 1
    """What published weights of global tokens are padded to a multiple of: the stack's widest window."""
    rows: int = 1
    """Rows of the batch, also where they are packed into one."""
    self_attentions: int = 0
    """Self-attentions of this pass so far; a shared block counts each time."""
    cross_attentions_read: int = 0
    """Likewise for cross-attention."""
    recurrent: int = 0
    """Likewise for recurrent sublayers."""
    made: dict[Hashable, object] = field(default_factory=dict)
    choices: Choices | None = None
    """Where choices are kept; None: they are not needed again."""

    def copied(self) -> Context:
        """Return a context that goes on from here: what it counts, makes and records does not reach this one."""
        return replace(self, made=dict(self.made), attentions=[], cross_attentions=[], global_attentions=[],
                       router_logits=[], final_states=[], remembered=None if self.remembered is None else [])

    def choose(self, make: Callable[[], Tensor]) -> Tensor:
        """Return what `make` chooses, kept where this part of the pass is computed again."""
        return make() if self.choices is None else self.choices.choose(make)

    @property
    def asking(self) -> int:
        """Rows of the second stream, which come after the text."""
        return 0 if self.asked is None else self.asked.shape[1]

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return what `make` gave the first time this key was used in this pass."""
        if torch.compiler.is_compiling():  # the tracer cannot hash configs, and merges equal operations itself
            return make()
        if key not in self.made:
            self.made[key] = make()
        return self.made[key]  # type: ignore[return-value]  # a key is always used with one type

    @property
    def reads_memory(self) -> bool:
        """Whether there is an encoder's output to read, as vectors or in the cache."""
        return self.memory is not None or (self.cache is not None and bool(self.cache.cross))

    def self_slot(self) -> int:
        """Return the number of the self-attention that asks, in the order of computation: its place in the cache."""
        self.self_attentions += 1
        return self.self_attentions - 1

    def cross_slot(self) -> int:
        """Return the cache's place for the cross-attention that asks."""
        self.cross_attentions_read += 1
        return self.cross_attentions_read - 1

    def recurrent_slot(self) -> int:
        """Return the cache's place for the recurrent sublayer that asks."""
        self.recurrent += 1
        return self.recurrent - 1

    def mask(self, visibility: c.Visibility, draw: Draw | None = None, heads: int = 1) -> Mask:
        """Return the mask of a visibility over this pass's queries and keys; what is drawn is the caller's alone."""
        span = replace(restore_padding(self.span, self.layout), draw=draw,
                       heads=heads if differs_by_head(visibility) else 1)
        if draw is not None:
            return build_mask(visibility, span)
        return self.once(("mask", visibility, span.heads), lambda: build_mask(visibility, span))

    def real_keys(self) -> Tensor | None:
        """Return which keys are no padding, packed away or not; None when all are. Shapes: -> [B, K]."""
        return self.span.padding if self.layout is None else self.layout.mask

    def memory_mask(self) -> Mask:
        """Return the mask of the encoder output for the decoder's queries."""
        span = self.memory_span
        assert span is not None, "cross-attention runs only where the model gave a memory"
        return self.once("memory_mask", lambda: build_mask(c.Full(), restore_padding(span, self.memory_layout)))


@dataclass(frozen=True, slots=True)
class KernelCall:
    """What a kernel gets in addition to queries, keys and values."""

    config: c.SelfAttention
    """The attention that it is a part of."""
    weights: nn.Module | None
    """The kernel's own weights in this attention, if it has any."""
    scale: float
    """Factor on the scores."""
    rate: float
    """Dropout on the weights; 0 outside training."""
    context: Context


def restore_padding(span: Span, layout: Ragged | None) -> Span:
    """Return the span with the padding that short packed rows get back for their attention."""
    return replace(span, padding=layout.mask, starts_real=True) if layout is not None and layout.short else span


class Mixtures(nn.Module):
    """Maps along the text, without a bias, as in the published code."""

    def __init__(self, kernel: c.LowRank, maps: int) -> None:
        """Make one map for keys and values, or one for each."""
        super().__init__()
        self.keys = nn.Parameter(torch.empty(kernel.rank, kernel.length))
        """[K, N]"""
        self.values = nn.Parameter(torch.empty(kernel.rank, kernel.length)) if maps > 1 else None
        """[K, N]; None: that of the keys."""


class RelativeBiases(nn.Module):
    """The two biases of Transformer-XL, u for content and v for places. Source: Dai et al. 2019, §3.3."""

    def __init__(self, heads: int, head_dim: int) -> None:
        """Build both [H, E]."""
        super().__init__()
        self.content = nn.Parameter(torch.empty(heads, head_dim))
        self.place = nn.Parameter(torch.empty(heads, head_dim))
