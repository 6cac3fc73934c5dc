"""`TextCorpus` and `PairCorpus`: the data of a recipe, cut into what is trained on and what is held out.

Both parts can be read any number of times and stream every time; nothing of the text is kept in memory.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property
from itertools import islice
from typing import Generic, TypeVar

from saucier.errors import InputError
from saucier.text.config import OWN_COLUMNS, HeldOutFiles, PairData, SyntheticPairs, TextData
from saucier.text.documentation import python_documentation
from saucier.text.heads import python_heads
from saucier.text.read import Counts, Document, Pair, languages_in, read_documents, read_pairs
from saucier.text.sources import find_sources
from saucier.text.split import Cut, Part, choose, drawn_documents
from saucier.text.tables import columns_of

T = TypeVar("T")
Own = Callable[[Counts], Iterator[Document]]
"""Reads text that lies on every machine."""


class View(Generic[T]):
    """Something to iterate over again and again; `counts` tells what the last complete reading met."""

    def __init__(self, read: Callable[[Counts], Iterator[T]]) -> None:
        """`read` starts a new reading, which fills the counts that it is given."""
        self._read = read
        self.counts = Counts()

    def __iter__(self) -> Iterator[T]:
        self.counts = Counts()
        return self._read(self.counts)


class Parted(Generic[T]):
    """What is cut into a part that is trained on and one that is held out."""

    train: View[T]
    held_out: View[T]

    def part(self, part: Part) -> View[T]:
        """Return one of both."""
        return self.train if part == "train" else self.held_out


class TextCorpus(Parted[Document]):
    """The documents of a `TextData`. `train` and `held_out` are read separately and never share a document.

    `texts` is the text of `train`, for a tokenizer; `how` says in words what is held out.
    """

    def __init__(self, data: TextData, *, seed: int = 0, own: Own = python_documentation) -> None:
        """Look at the data once, to see how it is to be cut. `seed` draws the documents that are held out.

        `own` reads the text that is taken where the data names no files.

        Errors: `InputError` as told in `read`; where there is too little text to hold some out.
        """
        self.data, self._own = data, own
        _check_apart(data)
        self._chosen, self.how = choose(data.held_out, self._measure, seed)
        self.train: View[Document] = View(lambda counts: self._part("train", counts))
        self.held_out: View[Document] = View(lambda counts: self._part("held_out", counts))
        self.texts: View[str] = View(lambda counts: (document.text for document in self._part("train", counts)))

    def _measure(self, most: int | None) -> tuple[int, int]:
        """Count documents (stopping behind `most`) and characters."""
        documents = characters = 0
        for document in _documents(self.data, self.data.files, self._own, Counts()):
            documents += document.part == 0
            characters += len(document.text)
            if most is not None and documents > most:
                break
        return documents, characters

    def _part(self, part: Part, counts: Counts) -> Iterator[Document]:
        read = Counts()
        documents = self._cut(part, read)
        for document in documents:
            counts.add(document.text, starts=document.part == 0)
            yield document
        _take_over(counts, read)

    def _cut(self, part: Part, counts: Counts) -> Iterator[Document]:
        held_out = self.data.held_out
        if isinstance(held_out, HeldOutFiles):
            return _documents(self.data, self.data.files if part == "train" else held_out.files, self._own, counts)
        documents = _documents(self.data, self.data.files, self._own, counts)
        if isinstance(self._chosen, Cut):
            return self._chosen.documents(documents, part)
        return drawn_documents(documents, self._chosen, part)


class PairCorpus(Parted[Pair]):
    """The pairs of a `PairData`. `train` and `held_out` are read separately and never share a pair.

    `texts` is the text of `train`, sources and targets in turn, for a tokenizer, `sources` and `targets` are those of
    one side; `how` says in words what is held out. Where languages are told, `train` and `held_out` have each pair both
    ways (as the data says), and no text of a held-out pair stands in a pair of `train`, whatever its table.
    """

    def __init__(self, data: PairData, *, seed: int = 0, whole: bool = False) -> None:
        """Look at the data once, to see how it is to be cut. `seed` draws the pairs that are held out.

        `whole`: a row that lacks a side is an error; else it is left out and counted.
        Errors: `InputError` as told in `read`; where there are too few pairs to hold some out.
        """
        self.data, self._whole = data, whole
        _check_apart(data)
        self._chosen, self.how = choose(data.held_out, self._measure, seed)
        self.train: View[Pair] = View(lambda counts: self._part("train", counts))
        self.held_out: View[Pair] = View(lambda counts: self._part("held_out", counts))
        self.texts: View[str] = View(lambda counts: (text for pair in self._part("train", counts, ways=False)
                                                     for text in (pair.source, pair.target)))
        self.sources: View[str] = View(lambda counts: (pair.source for pair in self._part("train", counts)))
        self.targets: View[str] = View(lambda counts: (pair.target for pair in self._part("train", counts)))

    def _measure(self, most: int | None) -> tuple[int, int]:
        pairs = 0
        for pairs, _ in enumerate(_pairs(self.data, self.data.files, Counts(), self._whole), start=1):
            if most is not None and pairs > most:
                break
        return pairs, pairs

    def languages(self, part: Part) -> tuple[str, ...]:
        """Return the languages of the tables of a part, as their columns are called; none where they are not told."""
        if self.data.languages is None:
            return ()
        held_out = self.data.held_out
        if part == "held_out" and isinstance(held_out, HeldOutFiles):
            return languages_in(held_out.files)
        own = languages_in(self.data.files) if self.data.files else OWN_COLUMNS
        made = languages_in(self.data.synthetic.files) if self.data.synthetic else ()
        return tuple(dict.fromkeys((*own, *made)))

    def _part(self, part: Part, counts: Counts, *, ways: bool = True) -> Iterator[Pair]:
        synthetic = self.data.synthetic if part == "train" else None
        for _ in range(1 if synthetic is None else synthetic.real):
            yield from self._own(part, counts, ways=ways)
        if synthetic is not None:
            yield from _made(self.data, synthetic, counts, self._is_measured)

    def _own(self, part: Part, counts: Counts, *, ways: bool = True) -> Iterator[Pair]:
        held_out, read = self.data.held_out, Counts()
        separate = isinstance(held_out, HeldOutFiles)
        files = held_out.files if isinstance(held_out, HeldOutFiles) and part == "held_out" else self.data.files
        for number, pair in enumerate(_pairs(self.data, files, read, self._whole)):
            if not separate and not self._belongs(number, part):
                continue
            if part == "train" and self._is_measured(pair):
                read.shared += 1
                continue
            for one in both_ways(pair, self.data) if ways else (pair,):
                counts.add(one.source, one.target)
                yield one
        _take_over(counts, read)

    @cached_property
    def _measured(self) -> frozenset[bytes]:
        """The texts that are held out, where languages are told: other tables may hold them, too."""
        if self.data.languages is None:
            return frozenset()
        return frozenset(_mark(text) for pair in self._own("held_out", Counts(), ways=False)
                         for text in (pair.source, pair.target))

    def _is_measured(self, pair: Pair) -> bool:
        return bool(self._measured) and not self._measured.isdisjoint((_mark(pair.source), _mark(pair.target)))

    def _belongs(self, number: int, part: Part) -> bool:
        held = number >= self._chosen.at if isinstance(self._chosen, Cut) else self._chosen(number)
        return held == (part == "held_out")


def _documents(data: TextData, files: tuple[str, ...], own: Own, counts: Counts) -> Iterator[Document]:
    """Read what the recipe names; whole parts of a document stay together when `limit` or a duplicate stops it."""
    read = read_documents(files, column=data.column, unit=data.document, counts=counts) if files \
        else own(counts)
    seen: set[bytes] | None = set() if data.deduplicate and files else None
    number, held = 0, None
    for document in read:
        # A part is given out when the next shows whether the document is whole: only whole documents are compared.
        if held is not None and not (document.part == 0 and _is_duplicate(held.text, held.part, seen, counts)):
            yield held
        if document.part == 0:
            number += 1
            if data.limit is not None and number > data.limit:
                return
        held = document
    if held is not None and not _is_duplicate(held.text, held.part, seen, counts):
        yield held


def both_ways(pair: Pair, data: PairData) -> tuple[Pair, ...]:
    """Return a pair, and its other way round where that is learned, too."""
    told = data.languages
    return (pair, pair.turned) if told is not None and told.both_ways else (pair,)


def _pairs(data: PairData, files: tuple[str, ...], counts: Counts, whole: bool) -> Iterator[Pair]:
    """Read what the recipe names. `limit` stops all of it, or each table of a language by itself."""
    seen: set[bytes] | None = set() if data.deduplicate else None
    each = data.languages is not None and bool(files)
    for some in [(file.name,) for file in find_sources(files)] if each else [files]:
        fresh = (pair for pair in _read(data, some, counts, whole)
                 if not _is_duplicate(f"{pair.source}\t{pair.target}", 0, seen, counts))
        yield from islice(fresh, data.limit)


def _read(data: PairData, files: tuple[str, ...], counts: Counts, whole: bool) -> Iterator[Pair]:
    told = data.languages is not None
    if files:
        return read_pairs(files, source=data.source, target=data.target, counts=counts, whole=whole, told=told)
    pairs = python_heads(counts)
    return (replace(pair, languages=OWN_COLUMNS) for pair in pairs) if told else pairs


def _made(data: PairData, synthetic: SyntheticPairs, counts: Counts, skip: Callable[[Pair], bool]) -> Iterator[Pair]:
    """Read synthetic pairs, each source behind the tag where there is one. Their columns may be called otherwise."""
    named = data.source is not None and set(columns_of(find_sources(synthetic.files)[0])) >= {data.source, data.target}
    source, target = (data.source, data.target) if named else (None, None)
    read = Counts()
    for pair in read_pairs(synthetic.files, source=source, target=target, counts=read,
                           told=data.languages is not None):
        if skip(pair):
            counts.shared += 1
            continue
        made = replace(pair, source=f"{synthetic.tag} {pair.source}") if synthetic.tag else pair
        counts.add(made.source, made.target)
        yield made
    counts.files, counts.names = counts.files + read.files, [*counts.names, *read.names]
    counts.empty, counts.repaired = counts.empty + read.empty, counts.repaired + read.repaired


def _is_duplicate(text: str, part: int, seen: set[bytes] | None, counts: Counts) -> bool:
    """Tell whether a text was seen before. Documents of several parts (longer than a block) are always kept."""
    if seen is None or part:
        return False
    mark = _mark(text)
    if mark in seen:
        counts.duplicates += 1
        return True
    seen.add(mark)
    return False


def _mark(text: str) -> bytes:
    """Return what a text is known by."""
    return hashlib.blake2b(text.encode("utf-8"), digest_size=16).digest()


def _check_apart(data: TextData | PairData) -> None:
    """Refuse a file that is both trained on and held out."""
    if isinstance(data.held_out, HeldOutFiles):
        made = data.synthetic.files if isinstance(data, PairData) and data.synthetic else ()
        trained = {source.path.resolve() for source in find_sources((*data.files, *made))}
        for source in find_sources(data.held_out.files):
            if source.path.resolve() in trained:
                raise InputError("is both trained on and held out", where=source.name,
                                 remedy="take it out of data.files or of data.held_out.files")


def _take_over(counts: Counts, read: Counts) -> None:
    """Copy what was skipped over the whole reading to the counts of a part."""
    counts.files, counts.names = read.files, read.names
    counts.empty, counts.duplicates = read.empty, read.duplicates
    counts.repaired, counts.unreadable, counts.shared = read.repaired, read.unreadable, read.shared
