"""What occurs in a corpus more than once: equal documents, similar documents, runs of sentences. Axes: D documents.

In memory are 8 bytes a document and rule, one bucket of keys, and 16 bytes for each repeated run of sentences.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import accumulate
from pathlib import Path
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from saucier.text.cleaning.cleaner import Tally
from saucier.text.cleaning.config import Cleaning, Duplicates, ExactDuplicates, NearDuplicates, RepeatedSpans
from saucier.text.cleaning.page import Page
from saucier.text.cleaning.pieces import (
    DOCUMENTS,
    OFFSETS,
    TALLY,
    KeyPart,
    Keys,
    compute_jaccard,
    find_run_starts,
    find_shingles,
    name_key_file,
    read_sorted_buckets,
)
from saucier.text.rows.batch import Hashes


@dataclass(frozen=True)
class Survivors:
    """The pieces of a corpus, in the order of the files."""

    pieces: Sequence[Path]

    @cached_property
    def tallies(self) -> list[Tally]:
        """What each piece counted."""
        return [Tally.model_validate_json((piece / TALLY).read_bytes()) for piece in self.pieces]

    @cached_property
    def raw_first(self) -> list[int]:
        """How many raw documents are before each piece."""
        return [0, *accumulate(tally.before.documents for tally in self.tallies)]

    @cached_property
    def first(self) -> list[int]:
        """How many survivors are before each piece; the last one counts all."""
        return [0, *accumulate((piece / OFFSETS).stat().st_size // 8 for piece in self.pieces)]

    def __len__(self) -> int:
        return self.first[-1]

    def keys(self, kind: str) -> list[KeyPart]:
        """Return the keys of a rule."""
        return [KeyPart(piece / name_key_file(kind), first)
                for piece, first in zip(self.pieces, self.first[:-1], strict=True)]

    def record(self, number: int) -> dict[str, Any]:
        """Read one document."""
        place = int(np.searchsorted(self.first, number, side="right")) - 1
        with (self.pieces[place] / OFFSETS).open("rb") as file:
            file.seek(8 * (number - self.first[place]))
            offset = int.from_bytes(file.read(8), "little")
        with (self.pieces[place] / DOCUMENTS).open("rb") as file:
            file.seek(offset)
            return self._numbered(file.readline(), place)

    def records(self, name: str = DOCUMENTS) -> Iterator[dict[str, Any]]:
        """Read all documents in order, or what is known (in the files of another name) of those that were dropped."""
        for place, piece in enumerate(self.pieces):
            with (piece / name).open("rb") as file:
                for line in file:
                    yield self._numbered(line, place)

    def _numbered(self, line: bytes, place: int) -> dict[str, Any]:
        """Parse a line, and number its document through from 1."""
        record: dict[str, Any] = json.loads(line)
        record["document"] += self.raw_first[place] + 1
        return record


CANDIDATES = 50
"""A document is compared with at most this number of others that agree with it in one band."""
REMEMBERED = 4096
"""Documents whose runs of words are kept for comparing."""


@dataclass(slots=True)
class Repetition:
    """What is to be dropped. Shapes: original [D]; spans [runs, 2]."""

    original: NDArray[np.int64]
    """The earlier document that this one duplicates, or -1."""
    rule: dict[int, str] = field(default_factory=dict)
    """Which rule dropped a document, by its number."""
    spans: NDArray[np.int64] = field(default_factory=lambda: np.empty((0, 2), np.int64))
    """Document and first sentence of each repeated run, sorted."""
    unchecked: int = 0
    """Documents that had more candidates than were compared."""

    def drop(self, documents: NDArray[np.int64], originals: NDArray[np.int64], kind: str) -> None:
        """Drop documents."""
        self.original[documents] = originals
        self.rule |= dict.fromkeys(documents.tolist(), kind)


def find_repetition(survivors: Survivors, cleaning: Cleaning, scratch: Path) -> Repetition:
    """Apply the rules about duplicates: equal documents first, then similar ones, then runs of sentences."""
    found = Repetition(np.full(len(survivors), -1, np.int64))
    rules = [rule for rule in cleaning.rules if isinstance(rule, Duplicates)]
    for rule in sorted(rules, key=lambda rule: get_args(Duplicates).index(type(rule))):
        buckets = read_sorted_buckets(survivors.keys(rule.kind), found.original, scratch / rule.kind)
        match rule:
            case ExactDuplicates():
                for keys in buckets:
                    first = find_run_starts(keys)
                    repeats = first != np.arange(len(keys))
                    found.drop(keys["document"][repeats], keys["document"][first[repeats]], rule.kind)
            case NearDuplicates():
                _find_near_duplicates(rule, found, survivors, buckets)
            case RepeatedSpans():
                _find_repeated_spans(found, buckets)
    return found


def _find_repeated_spans(found: Repetition, buckets: Iterator[Keys]) -> None:
    """Note every run of sentences but the first of its kind."""
    spans = [found.spans]
    for keys in buckets:
        repeats = keys[find_run_starts(keys) != np.arange(len(keys))]
        spans.append(np.stack([repeats["document"], repeats["place"].astype(np.int64)], axis=1))
    together = np.concatenate(spans)
    found.spans = together[np.lexsort((together[:, 1], together[:, 0]))]


def _find_near_duplicates(rule: NearDuplicates, found: Repetition, survivors: Survivors,
                          buckets: Iterator[Keys]) -> None:
    """Join similar candidates into clusters, and drop all but the first of each."""
    clusters, shingled = Clusters(len(survivors)), build_shingle_reader(survivors, rule.words)
    unchecked: set[int] = set()
    for keys in buckets:
        edges = np.append(np.flatnonzero(find_run_starts(keys) == np.arange(len(keys))), len(keys))
        for place in np.flatnonzero(np.diff(edges) > 1):  # documents of keys that occur more than once
            group = keys["document"][edges[place]:edges[place + 1]].tolist()
            unchecked |= join_clusters(group, clusters, lambda left,
                                  right: compute_jaccard(shingled(left), shingled(right)) >= rule.similarity)
    first = np.fromiter(map(clusters.first, range(len(survivors))), np.int64, len(survivors))
    later = np.flatnonzero(first != np.arange(len(first)))
    found.drop(later, first[later], rule.kind)
    found.unchecked = len(unchecked)


def build_shingle_reader(survivors: Survivors, words: int) -> Callable[[int], Hashes]:
    """Return the function that reads the runs of words of a document, with a cache of the latest."""
    @lru_cache(REMEMBERED)
    def shingled(number: int) -> Hashes:
        return find_shingles(Page(survivors.record(number)["text"]), words)

    return shingled


def join_clusters(group: list[int], clusters: Clusters, similar: Callable[[int, int], bool]) -> set[int]:
    """Join each document of a group with the first cluster of the group that it is similar to.

    Returns those that were not compared with all.
    """
    firsts: list[int] = []
    unchecked = set()
    for document in group:
        if any(clusters.first(document) == clusters.first(other) for other in firsts):
            continue
        close = next((other for other in firsts[:CANDIDATES] if similar(document, other)), None)
        if close is not None:
            clusters.join(document, close)
            continue
        if len(firsts) > CANDIDATES:
            unchecked.add(document)
        firsts.append(document)
    return unchecked


class Clusters:
    """Documents joined into clusters, each known by its first one (union-find)."""

    def __init__(self, count: int) -> None:
        """Start with every document alone."""
        self._parent = np.arange(count)

    def first(self, document: int) -> int:
        """Return the first document of a cluster."""
        while (parent := int(self._parent[document])) != document:
            self._parent[document] = document = int(self._parent[parent])
        return document

    def join(self, left: int, right: int) -> None:
        """Make one cluster of two."""
        left, right = sorted((self.first(left), self.first(right)))
        self._parent[right] = left
