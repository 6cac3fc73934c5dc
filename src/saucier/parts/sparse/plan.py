"""The plan of a sparse attention: which keys are read for which queries together, and what masks them.

Every allowed pair of a query and a key is in exactly one tile. Letters: H heads, Q queries and W keys of a tile.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

import torch
from torch import Tensor

from saucier import config as c
from saucier.config.questions import counts_repeats, list_terms
from saucier.parts.masks import ANY_DOCUMENT, Draw, Span, within_documents
from saucier.parts.positions import find_t5_bucket
from saucier.parts.relative_positions import label_pairs
from saucier.parts.sparse.candidates import Interval, RowShape, find_candidates, group_by_step
from saucier.parts.visibility import allowed_pairs, count_random_blocks, counted_pairs

TILE = 128
"""Queries of a tile where nothing else decides: forward and backward together the fastest of 32, 64, 128 and 256 for a
window of 512 in both number formats (torch 2.13, one thread)."""
KEYS = 4096
"""The most keys of a tile; more are read in several."""
LONG = 32
"""Fewer keys in a row than these are gathered one by one."""
PLANS = 64
"""How many plans are kept from one pass to the next."""

Places = slice | Tensor
"""Places of a row: a slice, an index [W], or one for each head [H, W]."""


@dataclass(frozen=True, slots=True)
class Tile:
    """Queries that read the same keys."""

    queries: Places
    """Counted from the first query of the pass."""
    keys: tuple[Places, ...]
    addend: Tensor | None
    """[1 or H, 1 or Q, W], added to the scores: the logarithm of how often a key counts; None for zeros."""
    labels: Tensor | None
    """[1 or H, Q, W], int16: the label of each pair, where positions have labels."""
    fresh: bool
    """Whether these queries have read nothing before."""


@dataclass(frozen=True, slots=True)
class KeyRun:
    """Keys one after another in a tile."""

    places: Places
    valid: Tensor | None = None
    """[H, W], False where another run has the place already; None where all are this run's own."""


@dataclass(slots=True)
class RowFacts:
    """What only tensors tell of a row."""

    real: Tensor | None = None
    """[K], False where padding is among real keys; None without such padding."""
    query_documents: Tensor | None = None
    """[Q]."""
    key_documents: Tensor | None = None
    """[K]."""


def plan_row(row: RowShape, facts: RowFacts, device: torch.device, *, rows: bool) -> list[Tile]:
    """Return the tiles of a row, remembered where the batch's tensors do not matter.

    `rows` False leaves out what global tokens see beyond what others would see in their place.
    """
    if facts.real is None and facts.key_documents is None:
        return plan_cached_row(row, device, rows)
    return list(Planner(row, facts, device).tiles(rows=rows))


@lru_cache(maxsize=PLANS)
def plan_cached_row(row: RowShape, device: torch.device, rows: bool) -> list[Tile]:
    """Return the tiles of a row of real tokens."""
    return list(Planner(row, RowFacts(), device).tiles(rows=rows))


class Planner:
    """Makes the tiles of one row."""

    def __init__(self, row: RowShape, facts: RowFacts, device: torch.device) -> None:
        """Resolve the visibility for this row's length."""
        self.row, self.facts, self.device = row, facts, device
        self.groups = group_by_step(row.visibility, row.keys)
        self.seen = [row.visibility] if len(self.groups) == 1 else [group.visibility for group in self.groups]
        """What each group shows; its tiles leave out what those before it have shown."""
        self.length = tile_length(row)
        self.columns = torch.tensor(row.globals, dtype=torch.long, device=device)
        named = torch.zeros(1, row.keys, dtype=torch.bool, device=device)
        named[:, self.columns] = True
        prefix = None if row.prefix is None else torch.tensor([row.prefix], device=device)
        self.span = Span(row.queries, row.keys, row.start, device, prefix=prefix, named=named, draw=row.draw,
                         memory=row.memory)
        self.extents = document_extents(facts.key_documents)
        self.last: Tensor | None = None
        self.known: Tensor | None = None

    def tiles(self, *, rows: bool) -> Iterator[Tile]:
        """Yield all tiles: stretches of queries in order, what global queries see beyond them, and what has gaps."""
        first, end = max(self.row.start, self.row.first), min(self.row.start + self.row.queries, self.row.end)
        if first >= end:
            return  # no real query
        if self.groups[0].step == 1:
            yield from self.near(first, end, rows=rows)
        for number, group in enumerate(self.groups):
            if group.step > 1:
                for residue in range(min(group.step, end - first)):
                    yield from self.gapped(number, range(first + residue, end, group.step))

    def gapped(self, number: int, places: range) -> Iterator[Tile]:
        """Yield the tiles of a group's queries, one in each step, which see keys one in each step."""
        group, step = self.groups[number], self.groups[number].step
        for begin in range(0, len(places), TILE):
            asking = places[begin:begin + TILE]
            stretch = slice(asking[0], asking[-1] + 1, step)
            found = find_candidates(group.alternatives, asking[0], asking[-1], self.within(stretch))
            aligned = ((one + (asking[0] - one) % step, end) for one, end in found)
            keys = [KeyRun(slice(*one, step)) for interval in aligned for one in split_interval(interval, step)]
            yield from self.tile(stretch, keys, number)

    def near(self, first: int, end: int, *, rows: bool) -> Iterator[Tile]:
        """Yield the tiles of what has no gaps, from one place up to, and without, another."""
        beyond: list[tuple[list[int], list[KeyRun]]] = []
        for begin in range(first - first % self.length, end, self.length):
            stretch = slice(max(begin, first), min(begin + self.length, end))
            keys = self.runs(stretch)
            yield from self.tile(stretch, keys, 0)
            among = [place for place in self.row.globals if stretch.start <= place < stretch.stop] if rows else []
            if among:
                beyond.append((among, keys))
        for among, keys in beyond:
            yield from self.rest(among, keys)

    def runs(self, stretch: slice) -> list[KeyRun]:
        """Return the keys that a stretch of queries reads, each once."""
        intervals = find_candidates(self.groups[0].alternatives, stretch.start, stretch.stop - 1, self.within(stretch))
        long = [one for one in intervals if one[1] - one[0] >= LONG]
        found = [KeyRun(slice(*one)) for interval in long for one in split_interval(interval)]
        short = [torch.arange(*one, device=self.device) for one in intervals if one[1] - one[0] < LONG]
        single = torch.cat([*short, self.columns[~is_inside(self.columns, intervals)]])
        if len(single):
            found.append(KeyRun(single))
        return found if self.row.draw is None else [*found, self.drawn(self.row.draw, stretch, intervals)]

    def within(self, stretch: slice) -> RowShape:
        """Return the row cut to the documents of a stretch."""
        if self.extents is None:
            return self.row
        begin, end = self.extents[0][stretch].min(), self.extents[1][stretch].max()
        return replace(self.row, first=max(self.row.first, int(begin)), end=min(self.row.end, int(end) + 1))

    def drawn(self, draw: Draw, stretch: slice, intervals: list[Interval]) -> KeyRun:
        """Return the keys of the blocks that are drawn for the block of a stretch; heads with fewer are filled up."""
        term = next(term for term in list_terms(self.row.visibility) if isinstance(term, c.RandomBlocks))
        counts = count_random_blocks(term, -(-self.row.keys // term.size), draw)[:, stretch.start // term.size]
        most = max(1, int((counts > 0).sum(1).max()))
        chosen = counts.argsort(dim=1, descending=True, stable=True)[:, :most, None]
        places = (chosen * term.size + torch.arange(term.size)).flatten(1).to(self.device)
        valid = (counts.gather(1, chosen[..., 0]) > 0).repeat_interleave(term.size, dim=1).to(self.device)
        valid &= (places >= self.row.first) & (places < self.row.end)
        valid &= ~is_inside(places, intervals) & ~torch.isin(places, self.columns)
        return KeyRun(places.clamp(self.row.first, max(self.row.first, self.row.end - 1)), valid)

    def tile(self, stretch: slice, keys: list[KeyRun], number: int) -> Iterator[Tile]:
        """Yield the tiles of one stretch in a group."""
        asking = torch.arange(stretch.start, stretch.stop, stretch.step or 1, device=self.device)
        queries = slice(stretch.start - self.row.start, stretch.stop - self.row.start, stretch.step)
        fresh = number == 0
        for part in join_runs(keys):
            addend = self.shared_addend(self.addend(self.counts(asking, part, number), asking, part))
            yield Tile(queries, tuple(run.places for run in part), addend, self.labels(asking, part), fresh)
            fresh = False

    def rest(self, among: list[int], keys: list[KeyRun]) -> Iterator[Tile]:
        """Yield what global queries read beyond the tile that they are in."""
        asking = torch.tensor(among, device=self.device)
        covered = self.covered(keys)
        for interval in split_interval((self.row.first, self.row.end)):
            run = KeyRun(slice(*interval))
            counts = self.counts(asking, [run], 0) * ~covered[:, None, run.places]
            if bool(counts.any()):
                yield Tile(asking - self.row.start, (run.places,), self.addend(counts, asking, [run]),
                           self.labels(asking, [run]), fresh=False)

    def covered(self, keys: list[KeyRun]) -> Tensor:
        """Return which keys the runs of a tile hold, by head where they differ. Shapes: -> [1 or H, K]."""
        heads = max((len(run.valid) for run in keys if run.valid is not None), default=1)
        found = torch.zeros(heads, self.row.keys, dtype=torch.bool, device=self.device)
        for run in keys:
            if isinstance(run.places, slice) or run.valid is None:
                found[:, run.places] = True
            else:
                head, column = run.valid.nonzero(as_tuple=True)
                found[head, run.places[head, column]] = True
        return found

    def counts(self, asking: Tensor, keys: list[KeyRun], number: int) -> Tensor:
        """Return how often each key counts for each query in a group. Shapes: asking [Q] -> [1 or H, Q, W], int16."""
        places, valid = list_places(keys, self.device)
        visibility, *earlier = self.seen[number::-1]
        seen = counted_pairs if counts_repeats(visibility) else allowed_pairs
        found = seen(visibility, asking[:, None], places[..., None, :], self.span)[0].to(torch.int16)
        found = found.expand(*found.shape[:-2], len(asking), places.shape[-1])
        for shown in earlier:
            found = found * ~allowed_pairs(shown, asking[:, None], places[..., None, :], self.span)[0]
        if self.facts.real is not None:
            found = found * self.facts.real[places][..., None, :]
        if self.facts.query_documents is not None and self.facts.key_documents is not None:
            found = found * within_documents(self.facts.query_documents[asking - self.row.start][:, None],
                                             self.facts.key_documents[places][..., None, :])
        return found if valid is None else found * valid[:, None]

    def labels(self, asking: Tensor, keys: list[KeyRun]) -> Tensor | None:
        """Return the labels of pairs, the same tensor as that of the tile before where they are equal."""
        positions = self.row.related
        if positions is None:
            return None
        queries, places = asking[:, None], list_places(keys, self.device)[0][..., None, :]
        found = (find_t5_bucket(positions, places - queries) if isinstance(positions, c.T5Bias) else
                 label_pairs(positions, queries, places)).to(torch.int16)
        found = found if found.dim() == 3 else found[None]
        if self.known is None or not torch.equal(found, self.known):
            self.known = found
        return self.known

    def addend(self, counts: Tensor, asking: Tensor, keys: list[KeyRun]) -> Tensor | None:
        """Return what is added to the scores of a tile. Shapes: counts [1 or H, Q, W] -> [1 or H, 1 or Q, W]."""
        found = log_counts(counts)
        if not self.row.slopes:
            return found
        places, _ = list_places(keys, self.device)
        slopes = torch.tensor(self.row.slopes, device=self.device)[:, None, None]
        far = -slopes * (places[..., None, :] - asking[:, None]).abs()
        return far if found is None else far + found

    def shared_addend(self, found: Tensor | None) -> Tensor | None:
        """Return the addend, the same tensor as that of the tile before where they are equal."""
        if found is not None and self.last is not None and torch.equal(found, self.last):
            return self.last
        self.last = found
        return found


def tile_length(row: RowShape) -> int:
    """Return how many queries a tile has: whole blocks where the visibility has blocks, one where they are drawn."""
    sizes = [term.size for term in list_terms(row.visibility)
             if isinstance(term, c.BlockWindow | c.GlobalBlocks | c.RandomBlocks)]
    if not sizes:
        return TILE
    return max(sizes) * (1 if row.draw else max(1, TILE // max(sizes)))


def count_places(places: Places) -> int:
    """Return how many places there are."""
    return len(range(places.start, places.stop, places.step or 1)) if isinstance(places, slice) else places.shape[-1]


def split_interval(interval: Interval, step: int = 1) -> Iterator[Interval]:
    """Cut an interval into parts that a tile can hold, of every so-manieth key."""
    for begin in range(interval[0], interval[1], KEYS * step):
        yield begin, min(begin + KEYS * step, interval[1])


def join_runs(keys: list[KeyRun]) -> Iterator[list[KeyRun]]:
    """Put runs together up to the most keys of a tile."""
    held: list[KeyRun] = []
    for run in keys:
        if held and sum(count_places(one.places) for one in held) + count_places(run.places) > KEYS:
            yield held
            held = []
        held = [*held, run]
    if held:
        yield held


def is_inside(places: Tensor, intervals: list[Interval]) -> Tensor:
    """Say which places are in one of the intervals. Shapes: [N] -> [N]."""
    found = torch.zeros_like(places, dtype=torch.bool)
    for begin, end in intervals:
        found |= (places >= begin) & (places < end)
    return found


def list_places(keys: list[KeyRun], device: torch.device) -> tuple[Tensor, Tensor | None]:
    """Return the places of all runs one after another, and which are valid. Shapes: -> [W], or [H, W] twice."""
    found = [torch.arange(run.places.start, run.places.stop, run.places.step or 1, device=device)
             if isinstance(run.places, slice) else run.places for run in keys]
    heads = max((len(run) for run in found if run.dim() == 2), default=0)
    if not heads:
        return torch.cat(found), None
    every = [torch.ones_like(places, dtype=torch.bool) if run.valid is None else run.valid
             for places, run in zip(found, keys, strict=True)]
    return (torch.cat([one.expand(heads, -1) for one in found], dim=1),
            torch.cat([one.expand(heads, -1) for one in every], dim=1))


def document_extents(documents: Tensor | None) -> tuple[Tensor, Tensor] | None:
    """Return the first and the last place of the document of each key; None where they do not narrow what is seen.

    Shapes: [K] -> [K] twice.
    """
    if documents is None or bool((documents == ANY_DOCUMENT).any()):
        return None
    _, number = documents.unique(return_inverse=True)
    places = torch.arange(len(documents), device=documents.device)
    ends = torch.zeros(int(number.max()) + 1, dtype=torch.long, device=documents.device)
    return (ends.scatter_reduce(0, number, places, "amin", include_self=False)[number],
            ends.scatter_reduce(0, number, places, "amax", include_self=False)[number])


def log_counts(counts: Tensor) -> Tensor | None:
    """Return the logarithm of counts, one row or one head for all where they are equal; None for ones."""
    if bool((counts == 1).all()):
        return None
    for axis in (0, 1):
        one = counts.narrow(axis, 0, 1)
        counts = one if bool((counts == one).all()) else counts
    return counts.float().log()
