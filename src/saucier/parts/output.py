"""What a forward pass gives and what generation carries on: `Output`, with published field names, and `Cache`.

The cache holds keys and values, preallocated and written in place, the encoder's computed once, and recurrent
states.

Letters: B batch, K key-value heads, L length, S source length, E head width, W width of a state, A of an alignment.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from operator import attrgetter

import torch
from torch import Tensor

from saucier.errors import InputError


@dataclass(slots=True)
class Cache:
    """Keys and values of every decoder block for up to `capacity` positions.

    Source: Shazeer 2019, §2.4, arXiv:1911.02150.
    """

    keys: list[Tensor]
    """One [B, K, capacity, E] for each self-attention, in the order they are computed."""
    values: list[Tensor]
    capacity: int
    length: int = 0
    """Positions that are filled: those of the longest row."""
    cross: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)
    """Number of the cross-attention -> the encoder output's keys and values [B, K, S, E]."""
    states: dict[int, tuple[Tensor, ...]] = field(default_factory=dict)
    """Number of the recurrent sublayer -> its states [B, W]."""
    source: dict[int, tuple[Tensor, ...]] = field(default_factory=dict)
    """Number of the recurrent sublayer -> the encoder's output [B, S, D], and what its score makes of it [B, S, A]."""
    offset: int = 0
    """Where the first of them is stored; not 0 where longer rows have left."""
    lengths: Tensor | None = None
    """[B], tokens of each row where they differ: its last ones are the last of `length`, and 0 is a free row."""

    @classmethod
    def empty(cls, widths: list[tuple[int, int]], *, batch: int, capacity: int, dtype: torch.dtype,
              device: torch.device) -> Cache:
        """Allocate for self-attentions of the given (key-value heads, head width)."""
        def allocate() -> list[Tensor]:
            return [torch.zeros(batch, heads, capacity, head, dtype=dtype, device=device) for heads, head in widths]

        return cls(allocate(), allocate(), capacity)

    def extend(self, slot: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Write new keys and values [B, K, L, E] after the filled ones; return views of all of them."""
        start = self.offset + self.length
        end = start + key.shape[2]
        keys, values = self.keys[slot], self.values[slot]
        keys[:, :, start:end] = key
        values[:, :, start:end] = value
        return keys[:, :, self.offset:end], values[:, :, self.offset:end]

    def advance(self, count: int) -> None:
        """Count new positions, written by every layer; a free row stays free."""
        self.length += count
        if self.lengths is not None:
            self.lengths = torch.where(self.lengths > 0, self.lengths + count, 0)

    def admit(self, row: int, other: Cache) -> None:
        """Put the only row of another cache into a free row. Raises `InputError` where it is longer than the capacity.

        All rows end at the same position, so that one slice takes the next token of each, and distances are right.
        """
        assert self.lengths is not None, "a cache of rows that come and go"
        if other.length > self.capacity:
            raise InputError(f"{other.length} tokens, and the cache holds {self.capacity}", where="input_ids",
                             remedy="give a larger capacity, or a shorter prompt")
        if (missing := other.length - self.length) > 0:
            if self.offset < missing:
                self.move(missing)
            self.offset, self.length = self.offset - missing, other.length
        end = self.offset + self.length
        for stored, new in zip((*self.keys, *self.values), (*other.keys, *other.values), strict=True):
            stored[row, :, end - other.length:end] = new[0, :, :other.length]
        self.lengths = self.lengths.index_fill(0, torch.tensor(row, device=self.lengths.device), other.length)

    def release(self, row: int) -> None:
        """Free a row; what only it was long enough for is given back."""
        assert self.lengths is not None, "a cache of rows that come and go"
        self.lengths = self.lengths.index_fill(0, torch.tensor(row, device=self.lengths.device), 0)
        longest = int(self.lengths.max())
        self.offset, self.length = self.offset + self.length - longest, longest

    def make_room(self, count: int) -> None:
        """Move what is stored to the beginning where new positions would not fit after it. Raises `InputError`."""
        if self.length + count > self.capacity:
            raise InputError(f"{self.length + count} tokens, and the cache holds {self.capacity}", where="capacity",
                             remedy="release the longest row, or give a larger capacity")
        if self.offset + self.length + count > self.capacity:
            self.move(0)

    def move(self, offset: int) -> None:
        """Store the filled positions from another place on."""
        for stored in (*self.keys, *self.values):
            stored[:, :, offset:offset + self.length] = stored[:, :, self.offset:self.offset + self.length].clone()
        self.offset = offset

    def reorder(self, rows: Tensor, *, same_source: bool = False) -> None:
        """Replace row i by row `rows[i]` (beam search); the number of rows may change. Shapes: rows [B'].

        `same_source` promises as many rows, each from the same encoder output as before: its keys and values then stay.
        """
        self.keys = [self._moved(key, rows) for key in self.keys]
        self.values = [self._moved(value, rows) for value in self.values]
        self.states = {slot: tuple(part.index_select(0, rows) for part in state) for slot, state in self.states.items()}
        if same_source:
            return
        self.source = {slot: tuple(part.index_select(0, rows) for part in parts) for slot, parts in self.source.items()}
        self.cross = {slot: (key.index_select(0, rows), value.index_select(0, rows))
                      for slot, (key, value) in self.cross.items()}

    def _moved(self, stored: Tensor, rows: Tensor) -> Tensor:
        """Copy the filled positions of the chosen rows; what is not filled yet need not be copied."""
        filled = stored[:, :, self.offset:self.offset + self.length].index_select(0, rows)
        if rows.shape[0] != stored.shape[0]:
            stored = stored.new_zeros(rows.shape[0], *stored.shape[1:])
        stored[:, :, self.offset:self.offset + self.length] = filled
        return stored

    @property
    def bytes(self) -> int:
        """Size of everything held."""
        held = [self.keys, self.values, *self.cross.values(), *self.states.values(), *self.source.values()]
        return sum(tensor.nbytes for tensors in held for tensor in tensors)


@dataclass(slots=True)
class Output:
    """What a forward pass gives; a field is None where the model or the call has no such thing.

    For one stack the records are `hidden_states` and `attentions`; an encoder-decoder has `encoder_…` and `decoder_…`.
    `hidden_states[0]` is the embedding, the last is the stack's output; `attentions[i]` is [B, H, Q, K].
    """

    logits: Tensor | None = None
    backward_logits: Tensor | None = None
    """[B, L, V], of the token before each, by a bidirectional head."""
    last_hidden_state: Tensor | None = None
    pooler_output: Tensor | None = None
    sentence_logits: Tensor | None = None
    """[B, C], of a pretraining head."""
    length_logits: Tensor | None = None
    """[B, longest + 1], of a head that predicts how long the target is."""
    start_logits: Tensor | None = None
    """[B, L], of a span head."""
    end_logits: Tensor | None = None
    mc_logits: Tensor | None = None
    """[B, N], of a double head."""
    embeddings: Tensor | None = None
    """[B, E], of a head that gives one vector for each text."""
    span_logits: Tensor | None = None
    """[B, L, W], of a head that scores the span from each token on to each of the next W."""
    relevance_logits: Tensor | None = None
    """[B], of a reader: the text holds the answer."""
    candidate_embeddings: Tensor | None = None
    """[B, N, E], of the candidates that the batch holds."""
    relevance_score: Tensor | None = None
    """[B, N], the inner product of each candidate's vector with the text's."""
    more: dict[str, Tensor] = field(default_factory=dict)
    """What a head from outside gives under names of its own."""
    cache: Cache | None = None
    mems: list[Tensor] | None = None
    """[M, B, D] for each block: the memory for the next segment."""
    hidden_states: tuple[Tensor, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None
    global_attentions: tuple[Tensor, ...] | None = None
    """Of sliding windows with global tokens: what these give to every key, [B, H, K, most global tokens of a row];
    `attentions` then holds what the others give to global keys and to their neighbours (see `parts.global_attention`).
    """
    router_logits: tuple[Tensor, ...] | None = None
    """[B·L, experts] for each layer with experts, before the softmax (see `parts.feed_forward.measure_imbalance`)."""
    encoder_last_hidden_state: Tensor | None = None
    encoder_hidden_states: tuple[Tensor, ...] | None = None
    encoder_attentions: tuple[Tensor, ...] | None = None
    encoder_global_attentions: tuple[Tensor, ...] | None = None
    encoder_router_logits: tuple[Tensor, ...] | None = None
    encoder_states: tuple[tuple[Tensor, ...], ...] | None = None
    """[B, W] each: for every recurrent layer of the encoder its last output, and an LSTM's memory after it."""
    decoder_hidden_states: tuple[Tensor, ...] | None = None
    decoder_attentions: tuple[Tensor, ...] | None = None
    cross_attentions: tuple[Tensor, ...] | None = None
    decoder_router_logits: tuple[Tensor, ...] | None = None

    prediction_scores = property(attrgetter("logits"))
    """The log probabilities of an adaptive head, under the name that Transformer-XL's class has for them."""
    prediction_logits = property(attrgetter("logits"))
    """The token logits, under the name that BERT's pretraining class has for them."""
    seq_relationship_logits = property(attrgetter("sentence_logits"))
    """The sentence logits, likewise."""
    sop_logits = property(attrgetter("sentence_logits"))
    """The sentence logits, under ALBERT's name."""
    projected_score = property(attrgetter("embeddings"))
    """The text's vector, under REALM's name."""
    query_score = property(attrgetter("embeddings"))
    """The same, where there are candidates."""
    candidate_score = property(attrgetter("candidate_embeddings"))
    """The candidates' vectors, under REALM's name."""
