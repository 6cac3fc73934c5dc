"""What the layers of a stack share during one forward pass: masks, tables, cache, shared weights, and what to record.

Everything here is made at most once a pass and reused by all layers.

Letters: B batch, L length, H heads, E head width, D dim, K mixtures, N longest text.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from saucier import config as c
from saucier.config.questions import differs_by_head
from saucier.errors import InputError
from saucier.parts.inputs import EncoderMemory, Inputs
from saucier.parts.masks import Draw, Mask, Ragged, Span, refuse_split_documents
from saucier.parts.output import Cache
from saucier.parts.segment_memory import Segment
from saucier.parts.visibility import build_mask

T = TypeVar("T")

Observe = Callable[[Tensor, Tensor, Tensor], None]
"""Is given queries [B, H, Q, E], keys [B, G, K, E] and the scores of their pairs before the softmax [B, H, Q, K]."""
LEAST_LENGTH = 512
"""Keys below which dense attention is taken: its one call costs less there than a plan."""


@dataclass(slots=True)
class Context:
    """One pass through one stack."""

    span: Span
    positions: Tensor
    """[B or 1, L] position of each query, for tables that are looked up by position."""
    layout: Ragged | None = None
    """Set when rows are packed: x is then [1, T, D]."""
    cache: Cache | None = None
    memory: EncoderMemory | None = None
    """What an encoder gave, where there is one to read."""
    states_read: int = 0
    """Of how many layers the encoder's last states have been read."""
    final_states: list[tuple[Tensor, ...]] = field(default_factory=list)
    """[B, W] each, in which the recurrent layers of this pass ended."""
    shared: Tensor | None = None
    """The table of the positions that the stack's layers share: T5's [N, H], or vectors of distances."""
    bias: Tensor | None = None
    """[1, H, Q, K], T5's bias of all pairs; None where every layer adds it tile by tile."""
    read: Tensor | None = None
    """What an attention reads in place of its residual's stream, inside a bottleneck."""
    key_rows: Tensor | None = None
    """[B, K, D], what keys and values are made of, where they are not made of the same rows as queries."""
    layout_state: Any = None
    """What the stack's layout knows of the rows that run now, for positions that go with it."""
    maps: nn.Module | None = None
    """The maps to queries, keys and values of the attention that runs now, for positions that share them."""
    biases: RelativeBiases | None = None
    """The biases of Transformer-XL's positions, where the stack's layers share them."""
    mixtures: Mixtures | None = None
    """The map along the text, where the stack's layers share it."""
    segment: Segment | None = None
    """The memory of earlier segments and the second stream, where the stack has one of them."""
    inputs: Inputs = field(default_factory=Inputs)
    """Everything that was given by name."""
    want_weights: bool = False
    observe: Observe | None = None
    """Set by a lens on the attention that runs; its weights are then recorded as [B, H, Q, K], also where they are
    published in another form."""
    attentions: list[Tensor] = field(default_factory=list)
    cross_attentions: list[Tensor] = field(default_factory=list)
    router_logits: list[Tensor] = field(default_factory=list)
    """[B·L, E], the scores of each layer with experts, where they are recorded."""
    global_attentions: list[Tensor] = field(default_factory=list)
    """Weights of the global tokens of sliding windows, in their published form."""
    multiple: int = 1
    """What published weights of global tokens are padded to a multiple of: the stack's widest window."""
    rows: int = 1
    """Rows of the batch, also where they are packed into one."""
    slots: dict[str, int] = field(default_factory=dict)
    """Kind of sublayer -> how many of it this pass has come by; a shared block counts each time."""
    made: dict[Hashable, object] = field(default_factory=dict)
    choices: list[Tensor] | None = None
    """Where choices (buckets) of this part of the pass are kept; None: they are not needed again."""
    replayed: Iterator[Tensor] | None = None
    """The choices of a part that is computed again, so that nothing is chosen otherwise."""
    reads_memory: bool = field(init=False)
    """Whether there is an encoder's output to read, as vectors or in the cache."""
    plans: bool = field(init=False)
    """Whether attention may be computed by a plan of tiles (`sparse.dispatch`): the pass is long, and hides no pair."""

    def __post_init__(self) -> None:
        """See what there is to read, and how long it is; while compiling, an example's length would be compiled in."""
        self.plans = (not torch.compiler.is_compiling() and not self.want_weights and self.span.keys >= LEAST_LENGTH
                      and self.span.visible is None and self.span.targets is None)
        self.reads_memory = self.memory is not None or (self.cache is not None and bool(self.cache.cross))

    def copied(self) -> Context:
        """Return a context that goes on from here: what it counts, makes and records does not reach this one."""
        return replace(self, made=dict(self.made), slots=dict(self.slots), attentions=[], cross_attentions=[],
                       global_attentions=[], router_logits=[], final_states=[],
                       segment=None if self.segment is None else self.segment.copied())

    def choose(self, make: Callable[[], Tensor]) -> Tensor:
        """Return what `make` chooses, or what it chose where this part of the pass is computed again."""
        if self.replayed is not None:
            return next(self.replayed)
        chosen = make()
        if self.choices is not None:
            self.choices.append(chosen)
        return chosen

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return what `make` gave the first time this key was used in this pass."""
        if torch.compiler.is_compiling():  # the tracer cannot hash configs, and merges equal operations itself
            return make()
        if key not in self.made:
            self.made[key] = make()
        return self.made[key]  # type: ignore[return-value]  # a key is always used with one type

    def next_slot(self, kind: str) -> int:
        """Return the number of the sublayer that runs among those of its kind: its place in the cache."""
        number = self.slots.get(kind, 0)
        self.slots[kind] = number + 1
        return number

    def mask(self, visibility: c.Visibility, draw: Draw | None = None, heads: int = 1) -> Mask:
        """Return the mask of a visibility over this pass's queries and keys; what is drawn is the caller's alone.

        `heads`: those of the attention, where they see differently.
        """
        def make() -> Mask:
            return build_mask(visibility, replace(restore_padding(self.span, self.layout), draw=draw, heads=heads))

        return make() if draw is not None else self.once(("mask", visibility, heads), make)

    def unpacked(self, function: Callable[..., Tensor], *heads: Tensor) -> Tensor:
        """Apply a function to [B, H, L, E] tensors, packed rows padded again for it. Shapes: -> as the first."""
        layout = self.layout
        return function(*heads) if layout is None else layout.pack_heads(function(*map(layout.unpack_heads, heads)))

    def by_rows(self, function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        """Apply a function to vectors [B, L, D], packed rows padded with zeros for it. Shapes: -> as x."""
        layout = self.layout
        return function(x) if layout is None else layout.pack(function(layout.unpack(x)))

    @property
    def encoder(self) -> EncoderMemory:
        """What an encoder gave, for parts that run only where there is one."""
        assert self.memory is not None, "check() and Block leave out what has nothing to read"
        return self.memory

    def real_keys(self) -> Tensor | None:
        """Return which keys are no padding, packed away or not; None when all are. Shapes: -> [B, K]."""
        return self.span.padding if self.layout is None else self.layout.mask

    def texts(self, make: Callable[[Tensor, Tensor | None], T]) -> T | None:
        """Return what is made once of which tokens are real, and of which document; None where a row is one whole text.

        Shapes: [B, L] each. Raises `InputError` for documents in pieces.
        """
        def find() -> T | None:
            real, document = self.real_keys(), self.span.query_documents
            if document is not None:
                refuse_split_documents(document)
                return make(torch.ones_like(document, dtype=torch.bool) if real is None else real.bool(), document)
            return None if real is None or bool(real.all()) else make(real.bool(), None)

        return self.once(("texts", make), find)

    def memory_mask(self) -> Mask:
        """Return the mask of the encoder output for the decoder's queries."""
        def make() -> Mask:
            return build_mask(c.Full(), restore_padding(self.encoder.span(self.span), self.encoder.layout))

        return self.once("memory_mask", make)


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

    @property
    def kernel(self) -> Any:
        """The kernel's config, of the class that the table names."""
        return self.config.kernel

    def allowed(self) -> Tensor:
        """Return which keys a query may see, by visibility, padding and documents. Shapes: -> [B or 1, H or 1, Q, K].

        A query at padding may see none.
        """
        visibility, span, real = self.config.visibility, self.context.span, self.context.real_keys()
        found = self.context.mask(visibility, heads=self.config.projection.heads if differs_by_head(visibility) else 1)
        seen = found.allowed
        if seen is None:
            seen = torch.ones(1, 1, span.queries, span.keys, dtype=torch.bool, device=span.device)
            seen = seen.tril(span.keys - span.queries) if found.causal else seen
        return seen if real is None else seen & real[:, None, None, :]

    def refuse_cache(self) -> None:
        """Raise `InputError` where a cache brings texts in pieces to a kernel that reads them whole."""
        if self.context.cache is not None:
            raise InputError(f"kernel {self.kernel.kind} reads whole texts, and a cache brings them in pieces",
                             where="cache", remedy="call without a cache")


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
