"""The corruptions: rows of ids in, batches out. Numpy only until the last line of each; no model here.

Randomness comes from one generator per row, seeded by the row's number, so that micro-batches and processes do not
change it. Letters: B batch, L length.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from saucier.config import sees_prefix
from saucier.errors import InputError
from saucier.objectives import config as c
from saucier.objectives.base import IGNORED, Batch, Given, required, tensor
from saucier.objectives.forms import MarkForm, PairForm, mark_form, placed
from saucier.text.rows import PairRows, Rows, generator

Ints = NDArray[np.int64]
MASKING, SPANS = 1, 2
"""Streams of random numbers, one for each purpose."""
FOR_EVER = 2**32
"""Stands for the step where a mask is the same at every step."""


@dataclass(frozen=True, slots=True)
class CausalCorruption:
    """Each token's label is the next token of its document. Source: Radford et al. 2018 (GPT), §3.1."""

    positions: c.EveryPosition | c.LastPosition = field(default_factory=c.EveryPosition)
    """Where the next token is learned."""
    prefix: bool = False
    """Whether the decoder must be told that no first tokens are seen by all."""
    overlap: ClassVar[int] = 1
    """The last token of a row is only a label there, and an input in the next."""

    def row_length(self, length: int) -> int:
        """The same."""
        return length

    def __call__(self, rows: Rows, *, seed: int, step: int) -> Batch:
        """Shift the rows by one. Shapes: rows [B, L+1] -> input_ids, labels [B, L]."""
        follows = rows.mask[:, 1:] & (rows.documents[:, 1:] == rows.documents[:, :-1])
        wanted = np.arange(1, rows.tokens.shape[1]) >= rows.context[:, None]
        if isinstance(self.positions, c.LastPosition):
            wanted = wanted & (np.arange(1, rows.tokens.shape[1]) == rows.mask.sum(axis=1, keepdims=True) - 1)
        labels = np.where(follows & wanted, rows.tokens[:, 1:], IGNORED)
        kept = Rows(rows.tokens[:, :-1], rows.documents[:, :-1], rows.positions[:, :-1], rows.segments[:, :-1],
                    rows.context, rows.sentence_label, rows.row, rows.item)
        batch = placed(kept, {"input_ids": tensor(kept.tokens), "labels": tensor(labels)})
        return batch | ({"prefix_length": tensor(np.zeros(len(rows)))} if self.prefix else {})


@dataclass(frozen=True, slots=True)
class MaskedCorruption:
    """Hides tokens for a model that sees both sides. Source: Devlin et al. 2019, §3.1 and appendix A.1,
    arXiv:1810.04805.

    As in the paper's code the number of targets of a row is fixed (rate times ordinary tokens, rounded, at least one).
    Random tokens are drawn from the ordinary ones; the paper's code may draw special ones too.
    """

    config: c.Masked
    mask_id: int
    special: Ints
    ordinary: Ints
    form: MarkForm
    overlap: ClassVar[int] = 0

    def row_length(self, length: int) -> int:
        """The same."""
        return length

    def __call__(self, rows: Rows, *, seed: int, step: int) -> Batch:
        """Hide tokens. Shapes: rows [B, L] -> input_ids, labels [B, L]; next_sentence [B], 1 = drawn at random."""
        wanted = np.arange(rows.tokens.shape[1]) >= rows.context[:, None]
        candidates = rows.mask & ~np.isin(rows.tokens, self.special) & wanted
        tokens, labels = rows.tokens.copy(), np.full_like(rows.tokens, IGNORED)
        for number in range(len(rows)):
            place = (step, int(rows.row[number])) if self.config.dynamic else (FOR_EVER, int(rows.item[number]))
            self.hide(tokens[number], labels[number], candidates[number].nonzero()[0], generator(seed, MASKING, *place))
        batch = self.form(rows, tokens, labels)
        if self.config.next_sentence is not None:
            batch["next_sentence"] = tensor(rows.sentence_label)
            batch["token_type_ids"] = tensor(rows.segments)
        return batch

    def hide(self, tokens: Ints, labels: Ints, candidates: Ints, random: np.random.Generator) -> None:
        """Hide some candidates of one row, in place."""
        if not len(candidates):
            return
        count = max(1, round(self.config.rate * len(candidates)))
        targets = random.permutation(candidates)[:count]
        labels[targets] = tokens[targets]
        fate = random.random(count)
        others = random.choice(self.ordinary, count)
        tokens[targets[fate < self.config.mask]] = self.mask_id
        swapped = (fate >= self.config.mask) & (fate < self.config.mask + self.config.random)
        tokens[targets[swapped]] = others[swapped]


@dataclass(frozen=True, slots=True)
class PairCorruption:
    """Nothing is changed: the target is written from its source."""

    form: PairForm
    overlap: ClassVar[int] = 0

    def row_length(self, length: int) -> int:
        """The same: the target's own length."""
        return length

    def __call__(self, rows: PairRows, *, seed: int, step: int) -> Batch:
        """Lay them out."""
        return self.form(rows)


def build_masked(config: c.Masked, given: Given) -> MaskedCorruption:
    """Check the shares, the tokenizer and the body. Raises `InputError`."""
    total = config.mask + config.random
    if total > 1:
        raise InputError(f"mask + random is {total:g}, more than 1", where="objective", remedy="lower one of them")
    ids, mask = given.ids, required(given.ids.mask, "mask", "masked")
    return MaskedCorruption(config, mask, np.array(ids.special, dtype=np.int64), ids.ordinary(), mark_form(given))


def build_causal(config: c.Causal, given: Given) -> CausalCorruption:
    """Look at the body."""
    return CausalCorruption(config.positions, prefix=given.body is not None and sees_prefix(given.body.decoder))
