"""The corruptions that change nothing: rows of ids in, batches with their labels out. Letters: B batch, L length."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from saucier.config import sees_prefix
from saucier.objectives import config as c
from saucier.objectives.base import IGNORED, Batch, Given, tensor
from saucier.objectives.forms import PairForm, placed
from saucier.text.rows import PairRows, Rows


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


def build_causal(config: c.Causal, given: Given) -> CausalCorruption:
    """Look at the body."""
    return CausalCorruption(config.positions, prefix=given.body is not None and sees_prefix(given.body.decoder))
