"""A plan at work: room for one pass, the cache, and rows of any length in it.

Letters: R rows, S sources, T tokens of a call, P places, V vocab, D dim, G key heads, E head width.
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
    TOGETHER,
    CSession,
    count_threads,
    load_library,
)
from saucier.native.matrices import CODES, Array, aligned_zeros, make_tiles
from saucier.native.plan import SCORES, STREAM, Plan, count_inputs, count_values

Places = NDArray[np.int32]


def cache_bytes(plan: Plan, rows: int) -> int:
    """Return the bytes of the cache for some rows."""
    return 2 * plan.cache_type.itemsize * rows * find_capacity(plan) * count_values(plan.key_widths)


def source_bytes(plan: Plan, lengths: Array) -> int:
    """Return the bytes of the keys and values of sources of these lengths [S]."""
    return 2 * plan.cache_type.itemsize * int(fill_blocks(lengths).sum()) * count_values(plan.source_key_widths)


def fill_blocks(lengths: Array) -> NDArray[np.int64]:
    """Return the places that these lengths take: whole blocks of keys. Shapes: [S] -> [S]."""
    return -(-lengths.astype(np.int64) // KEYS_AT_ONCE) * KEYS_AT_ONCE


def find_capacity(plan: Plan) -> int:
    """Return the places of a row in the cache: whole blocks of keys."""
    return -(-plan.places // KEYS_AT_ONCE) * KEYS_AT_ONCE


def log_softmax(scores: NDArray[np.float32], threads: int, path: str | None = None) -> NDArray[np.float32]:
    """Make log probabilities of scores, where they are, and return them. Shapes: [R, V] -> [R, V].

    `path`: the instruction set; None: the fastest one.
    """
    assert scores.flags.c_contiguous, "rows lie one after the other"
    library = load_library()
    chosen = path.encode() if path else library.saucier_best_path()
    library.saucier_log_softmax(chosen, scores.ctypes.data, *scores.shape, threads)
    return scores


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
        self.keys, self.values = (aligned_zeros((rows * self.capacity * count_values(plan.key_widths),),
                                                plan.cache_type) for _ in range(2))
        widths = [0 if buffer == SCORES else width for buffer, width in enumerate(plan.widths)]
        self.buffers = [np.zeros((MOST_TOKENS, width), np.float32) for width in widths]
        steps = (*plan.steps, *plan.source_steps)
        self.tiles, self.token_scales = make_tiles(MOST_TOKENS, count_inputs(steps))
        self.struct = CSession(most=MOST_TOKENS, rows=rows, capacity=self.capacity, stored=CODES[plan.stored])
        self.make_scores(self.capacity)
        for name in ("keys", "values", "tiles", "token_scales"):
            setattr(self.struct, name, getattr(self, name).ctypes.data)
        for buffer in range(BUFFERS):
            self.struct.buffers[buffer] = self.buffers[buffer].ctypes.data
            self.struct.strides[buffer] = plan.widths[buffer]
        self.slots = np.arange(rows, dtype=np.int32)
        """Where each row lies in the cache."""
        self.sources = np.zeros(rows, np.int32)
        """The source of what lies in each slot."""
        self.source_lengths = np.zeros(0, np.int32)
        self.source_keys, self.source_values = (np.zeros(0, np.float32) for _ in range(2))

    @property
    def bytes(self) -> int:
        """Size of the cache, that of the sources with it."""
        return sum(one.nbytes for one in (self.keys, self.values, self.source_keys, self.source_values))

    def read_sources(self, vectors: NDArray[np.float32], lengths: Places, sources: Places) -> None:
        """Make keys and values of what an encoder gave, once for each source.

        Shapes: vectors [T, D], source after source without padding; lengths [S]; sources [R], the source of each row.
        """
        room = fill_blocks(lengths)
        self.source_lengths = np.ascontiguousarray(lengths, np.int32)
        self.sources[self.slots] = sources
        self.source_starts = room.cumsum() - room
        values = int(room.sum()) * count_values(self.plan.source_key_widths)
        self.source_keys, self.source_values = (aligned_zeros((values,), self.plan.cache_type) for _ in range(2))
        longest = int(room.max(initial=0))
        self.make_scores(max(self.capacity, longest))
        for name in ("sources", "source_lengths", "source_starts", "source_keys", "source_values"):
            setattr(self.struct, name, getattr(self, name).ctypes.data)
        self.struct.source_places, self.struct.longest_source = int(room.sum()), longest
        rows = np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)
        places = np.arange(len(rows), dtype=np.int32) - np.repeat(lengths.cumsum() - lengths, lengths).astype(np.int32)
        run, none = load_library().saucier_run, np.zeros(0, np.int32)
        for start in range(0, len(rows), MOST_TOKENS):
            part = slice(start, start + MOST_TOKENS)
            row, place = (np.ascontiguousarray(one[part]) for one in (rows, places))
            self.buffers[STREAM][:len(row), :self.plan.source_width] = vectors[part]
            run(self.path, byref(self.plan.source_struct), byref(self.struct), len(row), row.ctypes.data,
                row.ctypes.data, place.ctypes.data, none.ctypes.data, 0, self.threads)

    def make_scores(self, keys: int) -> None:
        """Make room for the scores of this number of keys."""
        pair = 2 * KEYS_AT_ONCE
        self.scores = np.zeros((MOST_THREADS, TOGETHER * -(-keys // pair) * pair), np.float32)
        self.struct.scores, self.struct.score_stride = self.scores.ctypes.data, self.scores.shape[1]

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
            one, row, place = (np.ascontiguousarray(array[part]) for array in (tokens, self.slots[rows], places))
            self.struct.buffers[SCORES] = found[first:].ctypes.data
            run(self.path, byref(self.plan.struct), byref(self.struct), len(one), one.ctypes.data, row.ctypes.data,
                place.ctypes.data, asked.ctypes.data, len(asked), self.threads)
        return found

    def move(self, sources: Array, lengths: Places) -> None:
        """Let each row go on from another one. Shapes: sources [R], lengths [R] before.

        The first row that goes on from one takes its place in the cache; others get copies, in the places of those
        that end.
        """
        going, first = np.unique(sources, return_index=True)
        others = np.delete(np.arange(self.rows), first)
        slots, ending = self.slots[sources], np.delete(self.slots, going)
        for row, target in zip(others, ending, strict=True):
            self.sources[target] = self.sources[slots[row]]
            for view in self.list_blocks(int(lengths[sources[row]])):
                view[target] = view[slots[row]]
        slots[others] = ending
        self.slots = slots

    def list_row(self, row: int, length: int) -> list[Array]:
        """Return views of a row's keys, then values, of each attention, as `list_blocks` does: [groups, ...] each."""
        return [view[self.slots[row]] for view in self.list_blocks(length)]

    def list_blocks(self, length: int) -> list[Array]:
        """Return views of keys, then values, of each attention, as far as rows of this length fill them, by `slots`.

        Shapes: -> [R, groups, ⌈length / 16⌉, 16 * head width] each.
        """
        filled, start, views = -(-length // KEYS_AT_ONCE), 0, []
        for groups, head in self.plan.key_widths:
            end = start + self.rows * self.capacity * groups * head
            views += [stored[start:end].reshape(self.rows, groups, -1, KEYS_AT_ONCE * head)[:, :, :filled]
                      for stored in (self.keys, self.values)]
            start = end
        return views
