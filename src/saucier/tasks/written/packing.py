"""Several texts in one row, kept apart: each has its number and its own places, so no attention crosses between them.

Axes: N texts, R rows, L positions.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from saucier.config.asked import packs_pairs
from saucier.errors import InputError
from saucier.objectives.base import IGNORED
from saucier.tasks.sheet import Ragged, Sheet
from saucier.tasks.task import Encoding
from saucier.text.rows import PADDING, Ints
from saucier.text.sharing import shared_bins


def next_tokens(ids: Sequence[int], learned: npt.NDArray[np.bool_]) -> tuple[list[int], list[int]]:
    """Return what a decoder reads of a text, and the next token at each place where that is to be learned."""
    return list(ids[:-1]), [number if wanted else IGNORED for number, wanted in zip(ids[1:], learned[1:], strict=True)]


def rows_alone(texts: Sequence[tuple[Sequence[int], Sequence[int]]], item: Ints, filler: int) -> Sheet:
    """Put each text (what is read, labels) into a row of its own."""
    wide = {"input_ids": Ragged.of([ids for ids, _ in texts], filler),
            "labels": Ragged.of([labels for _, labels in texts], IGNORED)}
    return Sheet(wide, item=item)


def rows_shared(texts: Sequence[tuple[Sequence[int], Sequence[int]]], item: Ints, filler: int, length: int) -> Sheet:
    """Put texts (what is read, labels) into as few rows of `length` as we find; a row is called by its first text.

    The rows carry the number of each text and its places from 0, so a model reads it as if it stood alone.
    """
    bins = shared_bins(np.array([[len(ids)] for ids, _ in texts], dtype=np.int64), length)
    joined = [[[value for text in row for value in texts[text][side]] for row in bins] for side in (0, 1)]
    numbers = [[number for number, text in enumerate(row) for _ in texts[text][0]] for row in bins]
    places = [[place for text in row for place in range(len(texts[text][0]))] for row in bins]
    wide = {"input_ids": Ragged.of(joined[0], filler), "labels": Ragged.of(joined[1], IGNORED),
            "documents": Ragged.of(numbers, PADDING), "places": Ragged.of(places, 0)}
    return Sheet(wide, item=item[[row[0] for row in bins]])


def pairs_shared(sheet: Sheet, encoding: Encoding) -> Sheet:
    """Put the pairs of an encoder-decoder into as few rows as we find; a row is called by its first pair.

    Source and target of a pair carry its number, and places from 0, so a model reads it as if it stood alone.
    Raises `InputError` for a model that would not keep pairs apart.
    """
    if not packs_pairs(encoding.body):
        raise InputError("only encoder-decoders with softmax attention keep pairs in one row apart",
                         where="task.packing", remedy="leave it out, or begin with a model such as T5 or BART")
    sides = {"": ("input_ids",), "decoder_": ("decoder_input_ids", "labels")}
    lengths = {before: sheet.wide[names[0]].lengths for before, names in sides.items()}
    bins = shared_bins(np.stack([*lengths.values()], axis=1), encoding.length)
    wide = {name: sheet.wide[name].joined(bins) for names in sides.values() for name in names}
    for before, side in lengths.items():
        alone = np.concatenate([[0], np.cumsum(side)])
        numbers = Ragged(np.repeat(np.arange(len(side)), side), alone, PADDING)
        places = Ragged(np.arange(alone[-1]) - np.repeat(alone[:-1], side), alone, 0)
        wide |= {f"{before}documents": numbers.joined(bins), f"{before}places": places.joined(bins)}
    return Sheet(wide, item=sheet.item[[row[0] for row in bins]], cut=sheet.cut)
