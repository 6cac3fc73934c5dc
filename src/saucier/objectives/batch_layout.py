"""How what is learned is laid out as a batch for an encoder, a decoder, or both.

A *source and target* goes to the two sides of an encoder-decoder, or one after the other into a decoder. *Hidden
tokens in place* stay where they are in a model that sees both sides; an encoder-decoder reads them and writes the
whole text. Letters: B batch, L length, S source, T target.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from saucier.config import sees_prefix
from saucier.objectives.base import IGNORED, Batch, ObjectiveInputs, TokenIds, to_int_tensor
from saucier.text.rows.batch import PADDING, PackedTexts, PairRows, Rows, pack_texts, pad_ids

Ints = NDArray[np.int64]


class PairLayout(Protocol):
    """A source and a target to a batch."""

    def __call__(self, rows: PairRows) -> Batch:
        """Lay them out."""

    def length(self, source: int, target: int) -> int:
        """Return how many tokens the model's longer side sees of a row."""


class MaskLayout(Protocol):
    """Tokens with some of them changed, and what they were, to a batch."""

    def __call__(self, rows: Rows, tokens: Ints, labels: Ints) -> Batch:
        """Lay them out. Shapes: tokens, labels [B, L]."""


@dataclass(frozen=True, slots=True)
class EncoderDecoderLayout:
    """The encoder reads the source; the decoder the target shifted by one (teacher forcing).

    Source: Vaswani et al. 2017, §3.1.
    """

    ids: TokenIds

    def __call__(self, rows: PairRows) -> Batch:
        """Shift the targets. Shapes: source [B, S], target [B, T] -> input_ids [B, S], the rest [B, T]."""
        start = np.full_like(rows.target[:, :1], self.ids.decoder_start) if rows.start is None else rows.start[:, None]
        shifted = np.concatenate([start, rows.target[:, :-1]], axis=1)
        batch = {"input_ids": to_int_tensor(rows.source), "decoder_input_ids": to_int_tensor(shifted),
                 "labels": to_int_tensor(np.where(rows.target_mask, rows.target, IGNORED))}
        if not rows.source_mask.all():
            batch["attention_mask"] = to_int_tensor(rows.source_mask)
        if not rows.target_mask.all():
            batch["decoder_attention_mask"] = to_int_tensor(rows.target_mask)
        return batch

    def length(self, source: int, target: int) -> int:
        """The longer side."""
        return max(source, target)


@dataclass(frozen=True, slots=True)
class PackedPairLayout:
    """As `EncoderDecoderLayout`, several pairs in one row: a target reads its own source, and places begin again."""

    sides: EncoderDecoderLayout
    room: int
    """Tokens of a row on either side; more where a single text has more."""

    def __call__(self, rows: PairRows) -> Batch:
        """Lay pairs out. Shapes: source [B, S], target [B, T] -> a source's side [R, S'], a target's [R, T']."""
        alone = {name: one.numpy() for name, one in self.sides(rows).items()}
        lengths = rows.source_lengths, rows.target_lengths
        bins = pack_texts(np.stack(lengths, axis=1), self.room)
        source, target = (PackedTexts.of(bins, one) for one in lengths)
        batch = {"input_ids": source.gather(alone["input_ids"], 0),
                 "decoder_input_ids": target.gather(alone["decoder_input_ids"], 0),
                 "labels": target.gather(alone["labels"], IGNORED)}
        for before, side in (("", source), ("decoder_", target)):
            batch |= {f"{before}documents": side.text, f"{before}places": side.place}
            if not side.mask.all():
                batch[f"{before}attention_mask"] = side.mask.astype(np.int64)
        return {name: to_int_tensor(one) for name, one in batch.items()}

    def length(self, source: int, target: int) -> int:
        """The longer side."""
        return self.sides.length(source, target)


@dataclass(frozen=True, slots=True)
class DecoderLayout:
    """A decoder reads the source and then the target; only the target is learned.

    Source: Raffel et al. 2020, §3.2.1, arXiv:1910.10683.
    """

    filler: int
    prefix: bool
    """Whether the decoder lets the source see all of itself, and must be given its length."""

    def __call__(self, rows: PairRows) -> Batch:
        """Join source and target. Shapes: source [B, S], target [B, T] -> all [B, S + T - 1]."""
        pairs = zip(rows.source, rows.source_lengths, rows.target, rows.target_lengths, strict=True)
        whole, lengths = pad_ids([np.concatenate([source[:first], target[:second]])
                                  for source, first, target, second in pairs], self.filler)
        place = np.arange(whole.shape[1])
        real = place < lengths[:, None]
        learned = real & (place >= rows.source_lengths[:, None])
        batch = {"input_ids": to_int_tensor(whole[:, :-1]),
                 "labels": to_int_tensor(np.where(learned, whole, IGNORED)[:, 1:])}
        if not real[:, :-1].all():
            batch["attention_mask"] = to_int_tensor(real[:, :-1])
        if self.prefix:
            batch["prefix_length"] = to_int_tensor(rows.source_lengths)
        return batch

    def length(self, source: int, target: int) -> int:
        """Both together, but for the last token, which is only a target."""
        return source + target - 1


@dataclass(frozen=True, slots=True)
class InPlaceLayout:
    """A model that sees both sides reads the changed tokens, and tells what they were."""

    prefix: bool
    """Whether the model is a decoder that needs a prefix length to see the whole row."""

    def __call__(self, rows: Rows, tokens: Ints, labels: Ints) -> Batch:
        """Leave all in its place. Shapes: tokens, labels [B, L] -> input_ids, labels [B, L]."""
        batch = add_row_inputs(rows, {"input_ids": to_int_tensor(tokens), "labels": to_int_tensor(labels)})
        if self.prefix:
            batch["prefix_length"] = to_int_tensor(rows.mask.sum(axis=1))
        return batch


@dataclass(frozen=True, slots=True)
class ReconstructionLayout:
    """An encoder reads the changed tokens; a decoder writes the whole text as it was.

    Source: Raffel et al. 2020, §3.3.1, "BERT-style", arXiv:1910.10683. A row is one text here, also where it holds
    several documents.
    """

    sides: EncoderDecoderLayout

    def __call__(self, rows: Rows, tokens: Ints, labels: Ints) -> Batch:
        """Make pairs. Shapes: tokens, labels [B, L] -> input_ids, decoder_input_ids, labels [B, L]."""
        lengths = rows.mask.sum(axis=1)
        return self.sides(PairRows(tokens, rows.tokens, lengths, lengths, rows.row, rows.item))


def add_row_inputs(rows: Rows, batch: Batch) -> Batch:
    """Add to a batch what a model must know of its rows: padding, several documents in one row, places, languages."""
    documents = rows.documents
    if (documents == PADDING).any():
        batch["attention_mask"] = to_int_tensor(documents != PADDING)
    real = np.where(documents == PADDING, documents[:, :1], documents)
    several = bool((real != documents[:, :1]).any())
    if several:
        batch["documents"] = to_int_tensor(documents)
    if several or (rows.mask & (rows.positions != np.arange(documents.shape[1]))).any():
        batch["places"] = to_int_tensor(rows.positions)
    if rows.languages is not None:
        batch["langs"] = to_int_tensor(rows.languages)
    return batch


def choose_pair_layout(given: ObjectiveInputs) -> PairLayout:
    """Return how a source and a target are laid out for a body that writes."""
    body = given.body
    if body is None or (body.encoder and body.decoder):
        return EncoderDecoderLayout(given.ids)
    assert body.decoder is not None, "check_body refuses an encoder alone"
    return DecoderLayout(given.ids.filler, sees_prefix(body.decoder))


def choose_mask_layout(given: ObjectiveInputs) -> MaskLayout:
    """Return how hidden tokens are laid out for a body that does not only look back."""
    body = given.body
    if body is None or body.decoder is None:
        return InPlaceLayout(prefix=body is not None and sees_prefix(body.encoder))
    if body.encoder is not None:
        return ReconstructionLayout(EncoderDecoderLayout(given.ids))
    assert sees_prefix(body.decoder), "check_body refuses a decoder that only looks back"
    return InPlaceLayout(prefix=True)
