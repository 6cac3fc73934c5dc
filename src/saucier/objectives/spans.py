"""Span corruption: runs of tokens are dropped, and the decoder gives them back.

Letters: B batch, L length, S source, T target.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from saucier.errors import InputError
from saucier.objectives import config as c
from saucier.objectives.base import Batch, TokenIds
from saucier.objectives.corruptions import SPANS, PairCorruption
from saucier.text.rows import PairRows, Rows, generator

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class SpanCorruption:
    """Replaces spans by sentinels; the target lists each sentinel and its span.

    The source ends with eos, and so does the target, as in the paper's code; its closing sentinel is there too. A row
    is one text here, also where it holds several documents.
    Source: Raffel et al. 2020, §3.1.4 and fig. 2, arXiv:1910.10683.
    """

    config: c.SpanCorruption
    ids: TokenIds
    overlap: ClassVar[int] = 0

    def row_length(self, length: int) -> int:
        """The longest row whose source, with one sentinel a span and eos, is not longer than `length`."""
        kept = 1 - self.config.rate + self.config.rate / self.config.mean_span
        return max(2, int((length - 2) / kept))

    def __call__(self, rows: Rows, *, seed: int, step: int) -> Batch:
        """Drop spans. Shapes: rows [B, L] -> input_ids [B, S], decoder_input_ids, labels [B, T]."""
        random = [generator(seed, SPANS, step, int(row)) for row in rows.row]
        pairs = [self.drop(rows.tokens[i][rows.mask[i]], random[i]) for i in range(len(rows))]
        source, source_lengths = padded([source for source, _ in pairs], self.ids.filler)
        target, target_lengths = padded([target for _, target in pairs], self.ids.filler)
        made = PairRows(source, target, source_lengths, target_lengths, rows.row, rows.item)
        return PairCorruption(self.ids)(made, seed=seed, step=step)

    def drop(self, tokens: Ints, random: np.random.Generator) -> tuple[Ints, Ints]:
        """Split one row into (source, target)."""
        end = [] if self.ids.eos is None else [self.ids.eos]
        tokens = tokens[:-1] if len(tokens) and tokens[-1] in end else tokens
        count = max(1, round(self.config.rate * len(tokens)))
        spans = min(max(1, round(count / self.config.mean_span)), len(tokens) - count, len(self.ids.sentinels) - 1)
        if spans < 1:
            return array([*tokens, *end]), array([self.ids.sentinels[0], *end])
        kept, dropped = pieces(len(tokens) - count, spans, random), pieces(count, spans, random)
        source: list[int] = []
        target: list[int] = []
        place = 0
        for sentinel, keep, lost in zip(self.ids.sentinels, kept, dropped, strict=False):
            source += [*tokens[place:place + keep], sentinel]
            target += [sentinel, *tokens[place + keep:place + keep + lost]]
            place += keep + lost
        return array([*source, *end]), array([*target, self.ids.sentinels[spans], *end])


def array(ids: list[int]) -> Ints:
    """Make an int64 array."""
    return np.array(ids, dtype=np.int64)


def pieces(total: int, count: int, random: np.random.Generator) -> Ints:
    """Cut `total` into `count` positive lengths, all cuts equally likely."""
    cuts = np.sort(random.choice(total - 1, count - 1, replace=False)) + 1
    return np.diff(np.concatenate([[0], cuts, [total]])).astype(np.int64)


def padded(rows: list[Ints], filler: int) -> tuple[Ints, Ints]:
    """Put rows of unequal length into one array. Shapes: -> [B, longest], [B] lengths."""
    lengths = np.array([len(row) for row in rows], dtype=np.int64)
    out = np.full((len(rows), int(lengths.max(initial=1))), filler, dtype=np.int64)
    for number, row in enumerate(rows):
        out[number, :len(row)] = row
    return out, lengths


def build_spans(config: c.SpanCorruption, ids: TokenIds) -> SpanCorruption:
    """Check the tokenizer. Raises `InputError` when it has too few sentinels."""
    if len(ids.sentinels) < 2:
        raise InputError("the tokenizer has no sentinel tokens, which span corruption needs",
                         where="tokenizer.special.sentinels",
                         remedy="set sentinels: 100")
    return SpanCorruption(config, ids)
