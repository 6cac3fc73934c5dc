"""Runs of whole sentences: where units (sentences, long ones cut) start, and how they fill rows.

Axes: U units, C chunks (runs of units that fill a row).
"""

from __future__ import annotations

import numpy as np

from saucier.text.rows import Ints
from saucier.text.store import TokenStore


def units_of(store: TokenStore, longest: int) -> Ints:
    """Give where units start: at documents and sentences, and inside sentences longer than `longest`. Gives [U + 1]."""
    marks = np.union1d(store.offsets, store.sentences)
    sizes = np.diff(marks)
    pieces = -(-sizes // longest)
    within = np.arange(int(pieces.sum())) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    return np.append(np.repeat(marks[:-1], pieces) + within * longest, marks[-1])


def chunks_of(units: Ints, document_units: Ints, room: int) -> Ints:
    """Fill rows greedily with the units of one document after another. Gives (first, last) units, [C, 2]."""
    chunks = []
    for first, last in zip(document_units[:-1].tolist(), document_units[1:].tolist(), strict=True):
        while first < last:
            end = last_unit(units, first, last, room)
            chunks.append((first, end))
            first = end
    return np.array(chunks, dtype=np.int64).reshape(-1, 2)


def couples_of(document_units: Ints) -> Ints:
    """Take the units of each document two by two; a last one may stay alone. Gives (first, last) units, [C, 2]."""
    couples = [(first, min(first + 2, last))
               for begin, last in zip(document_units[:-1].tolist(), document_units[1:].tolist(), strict=True)
               for first in range(begin, last, 2)]
    return np.array(couples, dtype=np.int64).reshape(-1, 2)


def last_unit(units: Ints, first: int, last: int, room: int) -> int:
    """Find the end of the units from `first` on that fit into `room`: one unit at least, and none from `last` on."""
    return min(max(int(np.searchsorted(units, units[first] + room, side="right")) - 1, first + 1), last)


def more_rows(batch: int, length: int, tokens: int, rows: int) -> int:
    """Return how many rows hold about as many tokens as `batch` full ones of `length`, by the mean of all `rows`."""
    return max(1, round(batch * length * rows / max(1, tokens)))
