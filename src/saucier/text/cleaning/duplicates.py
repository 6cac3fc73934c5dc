"""What stands in a corpus more than once: equal documents, similar documents, runs of sentences. Axes: D documents.

In memory are 8 bytes a document and rule, one bucket of keys, and 16 bytes for each repeated run of sentences.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from saucier.text.cleaning.config import Cleaning, Duplicates, ExactDuplicates, NearDuplicates, RepeatedSpans
from saucier.text.cleaning.keys import Keys, sorted_buckets, starts
from saucier.text.cleaning.minhash import jaccard, shingles
from saucier.text.cleaning.page import Page
from saucier.text.cleaning.survivors import Survivors
from saucier.text.cleaning.words import Hashes

Shingled = Callable[[int], Hashes]
Alike = Callable[[int, int], bool]
CANDIDATES = 50
"""A document is compared with at most so many others that agree with it in one band."""
REMEMBERED = 4096
"""Documents whose runs of words are kept for comparing."""


@dataclass(slots=True)
class Repetition:
    """What is to go. Shapes: original [D]; spans [runs, 2]."""

    original: NDArray[np.int64]
    """The earlier document that stands for this one, or -1."""
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
    """Find what the rules about duplicates say: equal documents first, then similar ones, then runs of sentences."""
    found = Repetition(np.full(len(survivors), -1, np.int64))
    rules: dict[str, Duplicates] = {rule.kind: rule for rule in cleaning.rules if isinstance(rule, Duplicates)}
    for kind in (ExactDuplicates, NearDuplicates, RepeatedSpans):
        rule = rules.get(kind.model_fields["kind"].default)
        if rule is not None:
            _apply(rule, found, survivors, scratch / rule.kind)
    return found


def _apply(rule: Duplicates, found: Repetition, survivors: Survivors, scratch: Path) -> None:
    buckets = sorted_buckets(survivors.keys(rule.kind), found.original, scratch)
    match rule:
        case ExactDuplicates():
            for keys in buckets:
                first = starts(keys)
                again = first != np.arange(len(keys))
                found.drop(keys["document"][again], keys["document"][first[again]], rule.kind)
        case NearDuplicates():
            _near(rule, found, survivors, buckets)
        case RepeatedSpans():
            _spans(found, buckets)


def _spans(found: Repetition, buckets: Iterator[Keys]) -> None:
    """Note every run of sentences but the first of its kind."""
    spans = [found.spans]
    for keys in buckets:
        again = keys[starts(keys) != np.arange(len(keys))]
        spans.append(np.stack([again["document"], again["place"].astype(np.int64)], axis=1))
    together = np.concatenate(spans)
    found.spans = together[np.lexsort((together[:, 1], together[:, 0]))]


def _near(rule: NearDuplicates, found: Repetition, survivors: Survivors, buckets: Iterator[Keys]) -> None:
    """Join similar candidates into clusters, and drop all but the first of each."""
    clusters, shingled = Clusters(len(survivors)), shingled_documents(survivors, rule.words)
    more: set[int] = set()
    for keys in buckets:
        for group in groups(keys):
            more |= join(group, clusters, lambda left, right: jaccard(shingled(left), shingled(right)) >=
                         rule.similarity)
    first = clusters.all_first()
    later = np.flatnonzero(first != np.arange(len(first)))
    found.drop(later, first[later], rule.kind)
    found.unchecked = len(more)


def groups(keys: Keys) -> Iterator[list[int]]:
    """Yield the documents of keys that occur more than once."""
    edges = np.append(np.flatnonzero(starts(keys) == np.arange(len(keys))), len(keys))
    for place in np.flatnonzero(np.diff(edges) > 1):
        yield keys["document"][edges[place]:edges[place + 1]].tolist()


def shingled_documents(survivors: Survivors, words: int) -> Shingled:
    """Return what reads the runs of words of a document, and remembers the latest."""
    @lru_cache(REMEMBERED)
    def shingled(number: int) -> Hashes:
        return shingles(Page(survivors.record(number)["text"]), words)

    return shingled


def join(group: list[int], clusters: Clusters, similar: Alike) -> set[int]:
    """Join each document of a group with the first cluster of the group that it is similar to.

    Returns those that were not compared with all.
    """
    met: list[int] = []
    more = set()
    for document in group:
        if any(clusters.first(document) == clusters.first(other) for other in met):
            continue
        close = next((other for other in met[:CANDIDATES] if similar(document, other)), None)
        if close is not None:
            clusters.join(document, close)
            continue
        if len(met) > CANDIDATES:
            more.add(document)
        met.append(document)
    return more


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

    def all_first(self) -> NDArray[np.int64]:
        """Return the first document of every document's cluster. Shapes: [D]."""
        return np.fromiter(map(self.first, range(len(self._parent))), np.int64, len(self._parent))
