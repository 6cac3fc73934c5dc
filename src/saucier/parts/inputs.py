"""What a batch may hold in addition to ids and mask, and what one stack reads of it.

`Inputs` are the named inputs, `Side` the input of one stack, `Memory` what a decoder reads of an encoder.

Letters: B batch, N choices, L length, S source length, D dim, T tokens of packed rows, W width of a state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypedDict

import torch
from torch import Tensor

from saucier import config as c
from saucier.devices import is_traced
from saucier.errors import InputError
from saucier.parts.masks import ANY_DOCUMENT, Ragged, Span, pad_start
from saucier.parts.output import Cache
from saucier.parts.segment_memory import Segment


class Inputs(TypedDict, total=False):
    """The optional inputs of `Transformer.forward`. A part reads its own from the pass's context."""

    token_type_ids: Tensor | None
    """[B, L], the segment of each token."""
    position_ids: Tensor | None
    """[B, L], counted as the published classes do (RoBERTa's begin after the padding id)."""
    places: Tensor | None
    """[B, L], the place of each token in its text, from 0 in every model; instead of `position_ids`."""
    documents: Tensor | None
    """[B, L]; tokens attend only within equal numbers."""
    prefix_length: Tensor | None
    """[B], how many first tokens all may see."""
    global_attention_mask: Tensor | None
    """[B, L], 1 = a token that sees all and is seen by all, where the model has such tokens (of the encoder's side)."""
    global_input_ids: Tensor | None
    """[B, G], tokens of their own before the text, where the first G positions are global (ETC)."""
    inputs_embeds: Tensor | None
    """[B, L, width of the token table], in place of the token vectors of `input_ids`."""
    characters: Tensor | None
    """[B, L, C], of which characters each token is made, in place of `input_ids` in a model that reads them."""
    decoder_input_ids: Tensor | None
    """[B, T], what the decoder of an encoder-decoder reads."""
    decoder_attention_mask: Tensor | None
    """[B, T]."""
    decoder_position_ids: Tensor | None
    """[B, T]."""
    decoder_places: Tensor | None
    """[B, T], likewise, instead of `decoder_position_ids`."""
    decoder_documents: Tensor | None
    """[B, T]."""
    encoder_output: Tensor | None
    """[B, S, D]; the encoder is skipped."""
    encoder_states: Sequence[tuple[Tensor, ...]] | None
    """[B, W] each, in which the recurrent layers of a skipped encoder ended, as `Output.encoder_states` has them."""
    encoder_hidden_states: Tensor | None
    """[B, S, D], what another model's encoder gave, for a decoder alone with cross-attention."""
    encoder_attention_mask: Tensor | None
    """[B, S]."""
    mc_token_ids: Tensor | None
    """[B, N], the position that a double head reads in each choice."""
    langs: Tensor | None
    """[B, L], the language of each token."""
    lengths: Tensor | None
    """[B], real tokens in each row, in place of attention_mask."""
    input_mask: Tensor | None
    """[B, L], 1 = padding, in place of attention_mask."""
    perm_mask: Tensor | None
    """[B, L, L], 1 = this query does not see this key."""
    target_mapping: Tensor | None
    """[B, P, L], a single 1 in each row: the place that a row of the second stream asks about."""
    mems: Sequence[Tensor] | None
    """[M, B, D] for each block, from an earlier pass."""
    use_mems: bool | None
    """Whether the pass gives a memory; None: as the config says."""
    question_lengths: Tensor | None
    """[B] or [B, 1], the tokens of each row's question, its separator included; None: the head looks for it."""
    output_router_logits: bool
    """Record the scores that experts were chosen by."""
    num_hashes: int | None
    """Rounds of an attention by hashes in this pass; None: as the config says."""
    candidate_input_ids: Tensor | None
    """[B, N, L], texts to compare with each row, by a head that gives one vector for a text."""
    candidate_attention_mask: Tensor | None
    """[B, N, L]."""
    candidate_token_type_ids: Tensor | None
    """[B, N, L]."""
    relevance_score: Tensor | None
    """Not read by any model, like what follows: how likely each candidate is, for a loss over all of them."""
    mlm_mask: Tensor | None
    """Likewise: the tokens whose loss counts."""
    labels: Tensor | None
    """Not read by any model: what objectives learn from, accepted so that a whole batch can be given."""
    start_positions: Tensor | None
    """Likewise."""
    end_positions: Tensor | None
    """Likewise."""
    next_sentence_label: Tensor | None
    """Likewise."""
    sentence_order_label: Tensor | None
    """Likewise."""
    mc_labels: Tensor | None
    """Likewise."""


@dataclass(slots=True)
class Side:
    """The input of one stack."""

    ids: Tensor
    mask: Tensor | None = None
    """[B, keys], True where a token is real; None when all are."""
    positions: Tensor | None = None
    documents: Tensor | None = None
    segments: Tensor | None = None
    prefix: Tensor | None = None
    cache: Cache | None = None
    layout: Ragged | None = None
    segment: Segment | None = None
    """The memory of earlier segments and the second stream, where the stack has one of them."""
    vectors: Tensor | None = None
    """[B, L, width] in place of the token vectors of `ids`."""
    inputs: Inputs = field(default_factory=Inputs)
    """Everything that was given by name, for parts that read more."""
    named: Tensor | None = None
    """[B, keys], True where the batch names a token global."""
    ahead: int = 0
    """Positions before the text, which the mask covers."""
    before: int = 0
    """Those of them that are keys alone: a prefix."""
    prompt: int = 0
    """Those of them that are vectors before those of the text, in this pass."""
    text: Tensor | None = None
    """[B, L], the ids of a text with a prompt before it."""

    @property
    def memory(self) -> int:
        """Positions that earlier segments left in the memory."""
        return 0 if self.segment is None else self.segment.length

    @property
    def text_mask(self) -> Tensor | None:
        """[B, L], True where a token of the text is real; None when all are."""
        return None if self.mask is None else self.mask[:, self.ahead:]

    @property
    def start(self) -> int:
        """Positions that the cache or the memory holds already."""
        return self.cache.length if self.cache is not None else self.memory

    def span(self) -> Span:
        """Say where queries and keys are; packed rows have no padding left to mask."""
        length, hidden = self.ids.shape[1], self.inputs.get("perm_mask")
        padding = None if self.layout is not None else self.mask
        if self.memory:
            padding = pad_start(padding, self.memory, 1)
        known = self.documents if not self.before else pad_start(self.documents, self.before, ANY_DOCUMENT)
        return Span(length, self.start + length, self.start, self.ids.device, padding, self.documents, known,
                    self.prefix, ids=self.ids if self.vectors is None else None, named=self.named, memory=self.memory,
                    visible=None if hidden is None else hidden == 0,
                    targets=None if self.segment is None else self.segment.targets(length))

    def make_room(self, length: int) -> None:
        """Let the mask cover positions before the text, and places move on by them."""
        self.ahead, self.mask = length, pad_start(self.mask, length, 1)
        if self.positions is not None:
            self.positions = self.positions + length
        if self.prefix is not None:
            self.prefix = self.prefix + length

    def put_before(self, ids: Tensor) -> None:
        """Put rows before those of the text, of its first segment and seen from any document. Shapes: [B, P]."""
        self.text, self.prompt = known_ids(self), ids.shape[1]
        self.ids, self.segments = torch.cat([ids, self.ids], dim=1), pad_start(self.segments, self.prompt)
        self.documents = pad_start(self.documents, self.prompt, ANY_DOCUMENT)
        if self.positions is not None:
            first = torch.arange(self.prompt, device=ids.device).expand(len(self.positions), -1)
            self.positions = torch.cat([first, self.positions], dim=1)

    def placed(self) -> Tensor:
        """Return the positions [B or 1, L] that rotations read: those given, or counted from the cache's end."""
        if self.positions is not None:
            return self.positions
        start = self.start
        return torch.arange(start, start + self.ids.shape[1], device=self.ids.device)[None]

    def rows(self, places: c.Places) -> Tensor:
        """Return the rows [B or 1, L] of a position table."""
        match places:
            case c.SkipPadding(padding=padding):
                return self.positions_after_padding(padding) if self.positions is None else self.positions
            case c.CountedPlaces(kind="real_tokens", offset=offset):
                return self.real_tokens() + offset
            case c.CountedPlaces(offset=offset):
                return self.placed() + offset if offset else self.placed()

    def positions_after_padding(self, padding: int) -> Tensor:
        """Count the tokens that are not padding. Source: Liu et al. 2019, code release. Shapes: -> [B or 1, L]."""
        if self.vectors is not None:
            return self.placed() + padding + 1
        real = self.ids != padding
        return (real.cumsum(1) + self.start) * real + padding

    def real_tokens(self) -> Tensor:
        """Count the tokens that the mask shows; padding has -1. Shapes: -> [B or 1, L]."""
        if self.positions is not None or self.mask is None:
            return self.placed()
        real = self.mask.long()
        return (real.cumsum(1) * real - 1)[:, self.start:]

    def packed(self, x: Tensor) -> Tensor:
        """Drop the padding of ids or positions, where the rows are packed."""
        return x if self.layout is None else self.layout.pack(x.expand(*self.ids.shape, *x.shape[2:]))

    def unpacked(self, x: Tensor) -> Tensor:
        """Give vectors their padding back, where the rows are packed."""
        return x if self.layout is None else self.layout.unpack(x)


def as_boolean_mask(mask: Tensor | None) -> Tensor | None:
    """Return a mask of 0 and 1 as a boolean one, and None for a mask that hides nothing."""
    if mask is None or (not is_traced() and bool(mask.all())):
        return None
    return mask.bool()


def resolve_mask(mask: Tensor | None, ids: Tensor | None, inputs: Inputs) -> Tensor | None:
    """Return the mask of real tokens [B, L], however it is given. Raises `InputError` where it is given twice."""
    lengths, padding = inputs.get("lengths"), inputs.get("input_mask")
    if sum(one is not None for one in (mask, lengths, padding)) > 1:
        raise InputError("padding is said in more than one way", where="attention_mask",
                         remedy="give one of attention_mask, lengths and input_mask")
    if padding is not None:
        return padding == 0
    if lengths is None or ids is None:
        return mask
    return torch.arange(ids.shape[1], device=ids.device) < lengths[:, None]


@dataclass(slots=True)
class EncoderMemory:
    """What the decoder reads of the encoder."""

    hidden: Tensor | None
    """[B, S, D], or [1, T, D] when packed."""
    mask: Tensor | None
    documents: Tensor | None
    layout: Ragged | None = None
    states: tuple[tuple[Tensor, ...], ...] = ()
    """[B, W] each, in which its recurrent layers ended."""

    def make_room(self, length: int) -> None:
        """Let the mask cover vectors before the source's text."""
        self.mask, self.documents = pad_start(self.mask, length, 1), pad_start(self.documents, length, ANY_DOCUMENT)

    @property
    def vectors(self) -> Tensor:
        """The hidden vectors without packing, [B, S, D]."""
        assert self.hidden is not None, "two_stacks fills it"
        return self.hidden if self.layout is None else self.layout.unpack(self.hidden)

    def span(self, target: Span) -> Span:
        """Say which of the encoder's tokens the decoder's queries may see."""
        assert self.hidden is not None, "likewise"
        keys = self.hidden.shape[1] if self.layout is None else self.layout.shape[1]
        padding = None if self.layout is not None else self.mask
        return Span(target.queries, keys, 0, target.device, padding, target.query_documents, self.documents)


def derive_target(target: c.ShiftedSource | c.RotatedSource, source: Tensor) -> Tensor:
    """Return the ids of the decoder, made of the source's. Shapes: [B, S] -> [B, S]."""
    match target:
        case c.ShiftedSource(start=start):
            first = torch.full_like(source[:, :1], start)
        case c.RotatedSource(padding=padding):
            first = source.gather(1, (source != padding).sum(1, keepdim=True) - 1)
    return torch.cat([first, source[:, :-1]], dim=1)


def find_question(ids: Tensor | None, inputs: Inputs | None, separator: int) -> Tensor | None:
    """Say which tokens belong to a row's question, up to its first separator; the first token where there is none.

    None where neither the ids nor `question_lengths` are known. Shapes: ids [B, L] -> [B, L].
    """
    lengths = (inputs or {}).get("question_lengths")
    if ids is None:
        return None
    ends = (ids == separator).long().argmax(-1) + 1 if lengths is None else lengths.flatten()
    return torch.arange(ids.shape[1], device=ids.device) < ends[:, None]


def build_first_side(ids: Tensor | None, mask: Tensor | None, inputs: Inputs, first: int) -> Side | None:
    """Return the input of the first stack, or None where nothing was given for it. `first`: where positions begin."""
    vectors = inputs.get("inputs_embeds")
    positions = absolute_positions(inputs.get("position_ids"), inputs.get("places"), first)
    if ids is None and vectors is not None:
        ids = torch.zeros(vectors.shape[:2], dtype=torch.long, device=vectors.device)
    if ids is None:
        return None
    named = inputs.get("global_attention_mask")
    return Side(ids, as_boolean_mask(mask), positions, inputs.get("documents"), inputs.get("token_type_ids"),
                inputs.get("prefix_length"), vectors=vectors, inputs=inputs,
                named=None if named is None else named.bool())


def absolute_positions(positions: Tensor | None, places: Tensor | None, first: int) -> Tensor | None:
    """Return positions as the published classes count them; `first`: that of a text's first token. Shapes: [B, L]."""
    return places + first if positions is None and places is not None else positions


def build_second_side(inputs: Inputs, cache: Cache | None, first: int) -> Side | None:
    """Return the input of an encoder-decoder's decoder, if one was given. `first`: as in `build_first_side`."""
    ids = inputs.get("decoder_input_ids")
    if ids is None:
        return None
    positions = absolute_positions(inputs.get("decoder_position_ids"), inputs.get("decoder_places"), first)
    return Side(ids, as_boolean_mask(inputs.get("decoder_attention_mask")), positions, inputs.get("decoder_documents"),
                prefix=inputs.get("prefix_length"), cache=cache, inputs=inputs)


def known_ids(side: Side) -> Tensor | None:
    """Return a side's ids, or None where vectors stand in for them."""
    return side.ids if side.vectors is None else side.text


def flatten_choices(ids: Tensor, mask: Tensor | None, inputs: Inputs) -> tuple[Tensor, Tensor | None, Inputs]:
    """Make one batch of all choices. Shapes: [B, N, L] -> [B·N, L], for all that has a place for each token."""
    shape = ids.shape
    flat = {name: value.flatten(0, 1) if isinstance(value, Tensor) and value.shape[:3] == shape else value
            for name, value in inputs.items()}
    return ids.flatten(0, 1), None if mask is None else mask.flatten(0, 1), flat  # type: ignore[return-value]
