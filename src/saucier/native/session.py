"""A plan at work: room for one pass, the cache, and rows of any length in it.

Letters: R rows, T tokens of a call, P places, V vocab, G key heads, E head width.
"""

from __future__ import annotations

from ctypes import byref

import numpy as np
from numpy.typing import NDArray

from saucier.native.library import (
    BUFFERS,
    KEYS_AT_ONCE,
    MOST_THREADS,
    MOST_TOKENS,
    CSession,
    count_threads,
    load_library,
)
from saucier.native.matrices import Array
from saucier.native.plan import SCORES, Plan, count_values

Places = NDArray[np.int32]


def cache_bytes(plan: Plan, rows: int) -> int:
    """Return the bytes of the cache for some rows."""
    return 2 * 4 * rows * find_capacity(plan) * count_values(plan.key_widths)


def find_capacity(plan: Plan) -> int:
    """Return the places of a row in the cache: whole blocks of keys."""
    return -(-plan.places // KEYS_AT_ONCE) * KEYS_AT_ONCE


class Session:
    """Rows that are written together; each has its own length, which the caller counts."""

    def __init__(self, plan: Plan, rows: int, *, threads: int | None = None, path: str | None = None) -> None:
        """Make room for rows of up to `plan.places` tokens.

        `threads`: None: all cores of this process; `path`: the instruction set; None: the fastest one.
        """
        self.plan, self.rows = plan, rows
        self.threads = threads or count_threads()
        self.path = path.encode() if path else load_library().saucier_best_path()
        self.capacity = find_capacity(plan)
        self.keys, self.values = (np.zeros(rows * self.capacity * count_values(plan.key_widths), np.float32)
                                  for _ in range(2))
        widths = [0 if buffer == SCORES else width for buffer, width in enumerate(plan.widths)]
        self.buffers = [np.zeros((MOST_TOKENS, width), np.float32) for width in widths]
        inputs = max((step.matrix.inputs for step in plan.steps if step.matrix is not None), default=0)
        room = -(-inputs // 32) * 32 + 256  # as many blocks as there are units of 32, in whole eights
        self.codes = np.zeros(MOST_TOKENS * room, np.int8)
        self.scales, self.sums = (np.zeros(MOST_TOKENS * (room // 32 + 8), np.float32) for _ in range(2))
        self.scores = np.zeros((MOST_THREADS, plan.sharing * self.capacity), np.float32)
        self.struct = CSession(most=MOST_TOKENS, rows=rows, capacity=self.capacity, score_stride=self.scores.shape[1])
        for name in ("keys", "values", "codes", "scales", "sums", "scores"):
            setattr(self.struct, name, getattr(self, name).ctypes.data)
        for buffer in range(BUFFERS):
            self.struct.buffers[buffer] = self.buffers[buffer].ctypes.data
            self.struct.strides[buffer] = plan.widths[buffer]

    @property
    def bytes(self) -> int:
        """Size of the cache."""
        return self.keys.nbytes + self.values.nbytes

    def read(self, tokens: Places, rows: Places, places: Places, wanted: Places) -> NDArray[np.float32]:
        """Read tokens, each at its place of its row; tokens of one row come in rising order.

        Shapes: tokens, rows, places [T], wanted [N], rising numbers of tokens -> scores of what follows these [N, V].
        """
        run, width = load_library().saucier_run, self.plan.widths[SCORES]
        found = np.empty((len(wanted), width), np.float32)
        for start in range(0, len(tokens), MOST_TOKENS):
            part = slice(start, start + MOST_TOKENS)
            first, last = np.searchsorted(wanted, (start, start + MOST_TOKENS))
            asked = wanted[first:last] - np.int32(start)
            one, row, place = (np.ascontiguousarray(array[part]) for array in (tokens, rows, places))
            self.struct.buffers[SCORES] = found[first:].ctypes.data
            run(self.path, byref(self.plan.struct), byref(self.struct), len(one), one.ctypes.data, row.ctypes.data,
                place.ctypes.data, asked.ctypes.data, len(asked), self.threads)
        return found

    def move(self, sources: Array, lengths: Places) -> None:
        """Let each row go on from another one. Shapes: sources [R], lengths [R] of the sources."""
        targets = np.flatnonzero(sources != np.arange(self.rows))
        if not len(targets):
            return
        for view in self.list_blocks(int(lengths.max())):
            view[targets] = view[sources[targets]]

    def list_blocks(self, length: int) -> list[Array]:
        """Return views of keys, then values, of each attention, as far as rows of this length fill them.

        Shapes: -> [R, groups, ⌈length / 8⌉, 8 * head width] each.
        """
        filled, start, views = -(-length // KEYS_AT_ONCE), 0, []
        for groups, head in self.plan.key_widths:
            end = start + self.rows * self.capacity * groups * head
            views += [stored[start:end].reshape(self.rows, groups, -1, KEYS_AT_ONCE * head)[:, :, :filled]
                      for stored in (self.keys, self.values)]
            start = end
        return views
