"""Which keys a stretch of queries may see at most, from the algebra alone: intervals of places, and single places.

What is found here may be too much, never too little; the exact mask of a tile is the visibility itself, evaluated at
the tile's places.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product

from saucier import config as c
from saucier.parts.masks import Draw
from saucier.parts.visibility import resolve_length

Interval = tuple[int, int]
"""Places from the first up to, and without, the second."""
Conjunction = tuple[c.Visibility, ...]
"""Terms that must all allow."""


@dataclass(frozen=True, slots=True)
class RowShape:
    """What is known of one row of a batch before its tensors are looked at: all that its candidates depend on."""

    visibility: c.Visibility
    queries: int
    keys: int
    start: int = 0
    """Place of the first query."""
    memory: int = 0
    """Keys before the text that come from earlier segments."""
    first: int = 0
    """Place of the first real key."""
    end: int = 0
    """Place after the last real key."""
    prefix: int | None = None
    """Length of the prefix that all may see."""
    globals: tuple[int, ...] = ()
    """Places of the global tokens."""
    draw: Draw | None = None
    """For whom random blocks are drawn; None outside training."""
    related: c.GlobalLocal | c.T5Bias | None = None
    """Positions that tell pairs by labels."""
    slopes: tuple[float, ...] = ()
    """What a place of distance takes off a score, of each head (ALiBi)."""


def list_conjunctions(visibility: c.Visibility, keys: int) -> list[Conjunction]:
    """Return a visibility as alternatives of terms that must all allow; how often a key counts is left out."""
    match visibility:
        case c.Combined(kind="or" | "plus", terms=terms):
            return [found for term in terms for found in list_conjunctions(term, keys)]
        case c.Combined(kind="and", terms=terms):
            every = (list_conjunctions(term, keys) for term in terms)
            return [tuple(term for part in parts for term in part) for parts in product(*every)]
        case c.Beyond():
            return list_conjunctions(resolve_length(visibility, keys), keys)
        case _:
            return [(visibility,)]


def select_head(visibility: c.Visibility, head: int, heads: int) -> c.Visibility:
    """Return what one of a number of heads sees."""
    match visibility:
        case c.Combined(kind="by_head"):
            return select_head(visibility.of_head(head, heads), head, heads)
        case c.Combined(terms=terms):
            return visibility.model_copy(update={"terms": tuple(select_head(term, head, heads) for term in terms)})
        case c.Beyond(inner=inner):
            return visibility.model_copy(update={"inner": select_head(inner, head, heads)})
        case _:
            return visibility


@dataclass(frozen=True, slots=True)
class StepGroup:
    """Alternatives whose queries and keys have a multiple of `step` between them."""

    step: int
    alternatives: tuple[Conjunction, ...]

    @property
    def visibility(self) -> c.Visibility:
        """The alternatives as a visibility again."""
        return c.Combined(kind="or", terms=tuple(c.Combined(kind="and", terms=terms) for terms in self.alternatives))


def find_step(terms: Conjunction) -> int:
    """Return the least distance between what is seen; tokens named global, or drawn, may be anywhere."""
    if any(isinstance(term, c.Global | c.RandomBlocks) for term in terms):
        return 1
    return math.lcm(*(term.dilation if isinstance(term, c.Dilated) else term.stride for term in terms
                      if isinstance(term, c.Dilated | c.Strided)))


def group_by_step(visibility: c.Visibility, keys: int) -> list[StepGroup]:
    """Return the alternatives of a visibility by step, those without gaps first."""
    found: dict[int, list[Conjunction]] = {}
    for terms in list_conjunctions(visibility, keys):
        found.setdefault(find_step(terms), []).append(terms)
    return [StepGroup(step, tuple(found[step])) for step in sorted(found)]


def unite_intervals(intervals: list[Interval]) -> list[Interval]:
    """Return the same places as intervals in order that do not touch."""
    found: list[Interval] = []
    for begin, end in sorted(one for one in intervals if one[0] < one[1]):
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((begin, end))
    return found


def find_seen(term: c.Visibility, first: int, last: int, row: RowShape) -> list[Interval]:
    """Return the places that some query from `first` to `last` may see by one term.

    Global tokens and drawn blocks are not among them. Raises `TypeError` for a term that says nothing of places.
    """
    match term:
        case c.Full():
            return [(0, row.keys)]
        case c.Causal():
            return [(0, last + 1)]
        case c.Prefix():
            return [(0, max(last + 1, row.prefix or 0))]
        case c.Window(size=size):
            return [(first - size + 1, last + size)]
        case c.SameLength():
            return [(first - row.memory, row.keys)]
        case c.Global():
            return []
        case c.RandomBlocks() if row.draw:
            return []
        case c.Dilated(size=size, dilation=step):
            return [(first - (size - 1) * step, last + (size - 1) * step + 1)]
        case c.Strided():
            return [(0, row.keys)]
        case c.Columns(stride=step, count=count):
            return [(end - min(count, step), end) for end in range(step, row.keys + step, step)]
        case c.BlockWindow(size=size, reach=reach):
            return [((first // size - reach) * size, (last // size + reach + 1) * size)]
        case c.GlobalBlocks(size=size):
            ends = [(0, size), ((row.keys - 1) // size * size, row.keys)]
            return [(0, row.keys)] if first < size or last >= ends[1][0] else ends
        case c.RandomBlocks(size=size):
            return [(0, size)]
    raise TypeError(term.kind)


def find_candidates(alternatives: tuple[Conjunction, ...], first: int, last: int, row: RowShape) -> list[Interval]:
    """Return the real places that some query from `first` to `last` may see by some alternative."""
    found: list[Interval] = []
    for terms in alternatives:
        kept = [(row.first, row.end)]
        for term in terms:
            seen = find_seen(term, first, last, row)
            kept = [(max(a, x), min(b, y)) for a, b in kept for x, y in seen if max(a, x) < min(b, y)]
        found += kept
    return unite_intervals(found)
