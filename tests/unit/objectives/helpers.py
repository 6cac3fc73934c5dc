"""Rows and ids for the objective tests."""

from __future__ import annotations

import numpy as np

from saucier.objectives.base import TokenIds
from saucier.text.rows.batch import PADDING, PairRows, Rows

IDS = TokenIds(vocab=100, pad=0, bos=1, eos=2, mask=3, special=(0, 1, 2, 3, 98, 99), sentinels=(99, 98, 97, 96))


def rows(tokens: list[list[int]], documents: list[list[int]] | None = None, context: int = 0, first: int = 0) -> Rows:
    """Make rows; id 0 is padding unless `documents` says otherwise."""
    ids = np.array(tokens, dtype=np.int64)
    marks = np.where(ids == 0, PADDING, 0) if documents is None else np.array(documents, dtype=np.int64)
    zeros, flat = np.zeros_like(ids), np.zeros(len(ids), dtype=np.int64)
    numbers = np.arange(first, first + len(ids))
    return Rows(ids, marks, np.broadcast_to(np.arange(ids.shape[1]), ids.shape).copy(), zeros, flat + context, flat,
                numbers, numbers + 1000)


def pairs(source: list[list[int]], target: list[list[int]]) -> PairRows:
    """Make pairs; id 0 is padding."""
    left, right = np.array(source, dtype=np.int64), np.array(target, dtype=np.int64)
    numbers = np.arange(len(left))
    return PairRows(left, right, (left != 0).sum(axis=1), (right != 0).sum(axis=1), numbers, numbers)
