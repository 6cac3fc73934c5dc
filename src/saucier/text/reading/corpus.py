"""`TextCorpus` and `PairCorpus`: the data of a recipe, split into training data and held-out data.

What is held out is decided by numbers and lengths only: single documents drawn by number, or everything after a
cut. Both parts can be read any number of times and stream every time; nothing of the text is kept in memory.
"""

from __future__ import annotations

import functools
import hashlib
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cached_property
from itertools import islice
from typing import Generic, Literal, TypeVar

from saucier.errors import InputError
from saucier.text.config import OWN_COLUMNS, Fraction, HeldOutFiles, PairData, SyntheticPairs, Tail, TextData
from saucier.text.reading.documents import Counts, Document, Pair, read_documents, read_pairs, read_table_languages
from saucier.text.reading.python_texts import read_python_documentation, read_python_heads
from saucier.text.reading.sources import find_sources, is_standard_input
from saucier.text.reading.tables import list_columns
from saucier.text.rows.batch import make_generator

FEWEST = 20
"""With fewer documents than this (and than 1 / fraction), a fraction is taken from the end of the text."""
Part = Literal["train", "held_out"]
HeldOutTest = Callable[[int], bool]
"""Tells whether document (or pair) number n is held out."""
Split = int | HeldOutTest
"""The place (in characters, or pairs) after which everything is held out, or what is held out by its number."""


def cut_documents(documents: Iterator[Document], at: int, part: Part) -> Iterator[Document]:
    """Give the documents before or after a place (in characters); one that it is inside of is parted at a line end.

    Without a line end it is parted at a blank, and without a blank at the very place.
    """
    end = 0
    renumber = 0
    for document in documents:
        start, end = end, end + len(document.text)
        renumber = 0 if document.part == 0 else renumber
        if end <= at:
            if part == "train":
                yield document
            continue
        cut, text = max(at - start, 0), document.text
        place = text.rfind("\n", 0, cut) + 1 or text.rfind(" ", 0, cut) + 1 or cut
        if part == "train":
            if place:
                yield replace(document, text=document.text[:place])
            return
        if place < len(document.text):
            yield replace(document, text=document.text[place:], part=renumber)
            renumber += 1


def choose_split(held_out: Fraction | Tail | HeldOutFiles, sizes: Iterable[tuple[bool, int]],
                 seed: int) -> tuple[Split, str]:
    """Decide once how the data is cut, and say so in words. Errors: `InputError` where there is too little to cut.

    `sizes`: of each piece of text, whether it starts a document, and its characters (a pair is a document of one);
    they are read until it is clear that there are enough documents.
    """
    if isinstance(held_out, HeldOutFiles):
        return _never, f"files of their own: {', '.join(held_out.files)}"
    enough = max(FEWEST, round(1 / held_out.fraction))
    documents = total = 0
    for starts, size in sizes:
        documents += starts
        total += size
        if isinstance(held_out, Fraction) and documents > enough:
            break
    if isinstance(held_out, Fraction) and documents >= enough:
        drawn = _draw_strata(held_out.fraction, seed if held_out.seed is None else held_out.seed)
        return drawn, f"{held_out.fraction:.1%} of the documents, drawn evenly"
    cut = total - round(total * held_out.fraction)
    if not 0 < cut < total:
        raise InputError(f"is too little to hold out {held_out.fraction:.1%}", where="data",
                         remedy="give more text, or data.held_out.kind=files")
    why = f" (fewer than {enough} documents)" if isinstance(held_out, Fraction) else ""
    return cut, f"the last {held_out.fraction:.1%}{why}"


def _never(number: int) -> bool:
    return False


def _draw_strata(fraction: float, seed: int) -> HeldOutTest:
    """Draw one document from each run of 1/fraction, so that any number of documents can stream by.

    Stratum s spans the documents from s / fraction to (s + 1) / fraction; it holds out the one at a random place in
    that span.
    """
    @functools.lru_cache(maxsize=8)
    def place(stratum: int) -> int:
        return int((stratum + make_generator(seed, stratum).random()) / fraction)

    def is_held_out(number: int) -> bool:
        strata = range(int(number * fraction), int((number + 1) * fraction) + 1)
        return any(place(stratum) == number for stratum in strata)

    return is_held_out


def select_documents(documents: Iterator[Document], is_held_out: HeldOutTest, part: Part) -> Iterator[Document]:
    """Give the documents that belong to a part, all parts of a document together."""
    number, belongs = -1, False
    for document in documents:
        if document.part == 0:
            number += 1
            belongs = is_held_out(number) == (part == "held_out")
        if belongs:
            yield document


T = TypeVar("T")
BuiltinReader = Callable[[Counts], Iterator[Document]]
"""Reads text that every machine has."""


class View(Generic[T]):
    """An iterable that is read again from the start each time; `counts` is of the last complete reading."""

    def __init__(self, read: Callable[[Counts], Iterator[T]]) -> None:
        """`read` starts a new reading, which fills the counts that it is given."""
        self._read = read
        self.counts = Counts()

    def __iter__(self) -> Iterator[T]:
        self.counts = Counts()
        return self._read(self.counts)


class SplitData(Generic[T]):
    """Data that is split into a part that is trained on and one that is held out. `how` says in words which."""

    def __init__(self, data: TextData | PairData, sizes: Iterable[tuple[bool, int]], seed: int) -> None:
        """Decide how the data is cut; `sizes`: see `choose_split`. Errors: those of `choose_split`."""
        _refuse_shared_files(data)
        self._split, self.how = choose_split(data.held_out, sizes, seed)
        self.train: View[T] = View(functools.partial(self._part, "train"))
        self.held_out: View[T] = View(functools.partial(self._part, "held_out"))

    @abstractmethod
    def _part(self, part: Part, counts: Counts) -> Iterator[T]:
        """Start a reading of a part, which fills `counts`."""

    def part(self, part: Part) -> View[T]:
        """Return one of both."""
        return self.train if part == "train" else self.held_out


class TextCorpus(SplitData[Document]):
    """The documents of a `TextData`. `train` and `held_out` are read separately and never share a document.

    `texts` is the text of `train`, for a tokenizer; `how` says in words what is held out.
    """

    def __init__(self, data: TextData, *, seed: int = 0, builtin: BuiltinReader = read_python_documentation) -> None:
        """Look at the data once, to see how it is to be cut. `seed` draws the documents that are held out.

        `builtin` reads the text that is taken where the data names no files.
        Errors: those of reading; `InputError` where there is too little text to hold some out.
        """
        self.data, self._builtin = data, builtin
        sizes = ((one.part == 0, len(one.text)) for one in _read_data_documents(data, data.files, builtin, Counts()))
        super().__init__(data, sizes, seed)
        self.texts: View[str] = View(lambda counts: (document.text for document in self._part("train", counts)))

    def _part(self, part: Part, counts: Counts) -> Iterator[Document]:
        held_out, read = self.data.held_out, Counts()
        files = held_out.files if isinstance(held_out, HeldOutFiles) and part == "held_out" else self.data.files
        documents = _read_data_documents(self.data, files, self._builtin, read)
        if isinstance(self._split, int):
            documents = cut_documents(documents, self._split, part)
        elif not isinstance(held_out, HeldOutFiles):
            documents = select_documents(documents, self._split, part)
        for document in documents:
            counts.add(document.text, starts=document.part == 0)
            yield document
        _copy_counts(counts, read)


class PairCorpus(SplitData[Pair]):
    """The pairs of a `PairData`. `train` and `held_out` are read separately and never share a pair.

    `texts` is the text of `train`, sources and targets in turn, for a tokenizer, `sources` and `targets` are those
    of one side; `how` says in words what is held out. Where languages are named, `train` and `held_out` have each
    pair in both directions (as the data says), and no text of a held-out pair is in a pair of `train`, whatever its
    table.
    """

    def __init__(self, data: PairData, *, seed: int = 0, whole: bool = False) -> None:
        """Look at the data once, to see how it is to be cut. `seed` draws the pairs that are held out.

        `whole`: a row that lacks a side is an error; else it is left out and counted.
        Errors: those of reading; `InputError` where there are too few pairs to hold some out.
        """
        self.data, self._whole = data, whole
        sizes = ((True, 1) for _ in _read_data_pairs(data, data.files, Counts(), whole))
        super().__init__(data, sizes, seed)
        self.texts: View[str] = View(lambda counts: (text for pair in self._part("train", counts, both_ways=False)
                                                     for text in (pair.source, pair.target)))
        self.sources: View[str] = View(lambda counts: (pair.source for pair in self._part("train", counts)))
        self.targets: View[str] = View(lambda counts: (pair.target for pair in self._part("train", counts)))

    def languages(self, part: Part) -> tuple[str, ...]:
        """Return the languages of the tables of a part, as their columns are named; none where they are not."""
        if self.data.languages is None:
            return ()
        held_out = self.data.held_out
        if part == "held_out" and isinstance(held_out, HeldOutFiles):
            return read_table_languages(held_out.files, self.data.read_options)
        real = read_table_languages(self.data.files, self.data.read_options) if self.data.files else OWN_COLUMNS
        synthetic = read_table_languages(self.data.synthetic.files) if self.data.synthetic else ()
        return tuple(dict.fromkeys((*real, *synthetic)))

    def _part(self, part: Part, counts: Counts, *, both_ways: bool = True) -> Iterator[Pair]:
        synthetic = self.data.synthetic if part == "train" else None
        for _ in range(1 if synthetic is None else synthetic.real):
            yield from self._real_pairs(part, counts, both_ways=both_ways)
        if synthetic is not None:
            yield from _read_synthetic(self.data, synthetic, counts, self._is_held_out_elsewhere)

    def _real_pairs(self, part: Part, counts: Counts, *, both_ways: bool = True) -> Iterator[Pair]:
        held_out, read = self.data.held_out, Counts()
        separate = isinstance(held_out, HeldOutFiles)
        files = held_out.files if isinstance(held_out, HeldOutFiles) and part == "held_out" else self.data.files
        for number, pair in enumerate(_read_data_pairs(self.data, files, read, self._whole)):
            is_held_out = number >= self._split if isinstance(self._split, int) else self._split(number)
            if not separate and is_held_out != (part == "held_out"):
                continue
            if part == "train" and self._is_held_out_elsewhere(pair):
                read.shared += 1
                continue
            for one in add_reverse_pair(pair, self.data) if both_ways else (pair,):
                counts.add(one.source, one.target)
                yield one
        _copy_counts(counts, read)

    @cached_property
    def _held_out_texts(self) -> frozenset[bytes]:
        """The texts that are held out, where languages are named: other tables may hold them, too."""
        if self.data.languages is None:
            return frozenset()
        return frozenset(_fingerprint(text) for pair in self._real_pairs("held_out", Counts(), both_ways=False)
                         for text in (pair.source, pair.target))

    def _is_held_out_elsewhere(self, pair: Pair) -> bool:
        return bool(self._held_out_texts) and not self._held_out_texts.isdisjoint(
            (_fingerprint(pair.source), _fingerprint(pair.target)))


def _read_data_documents(data: TextData, files: tuple[str, ...], builtin: BuiltinReader,
                         counts: Counts) -> Iterator[Document]:
    """Read what the recipe names; whole parts of a document stay together when `limit` or a duplicate stops it."""
    read = read_documents(files, column=data.column, unit=data.document, counts=counts,
                          options=data.read_options) if files else builtin(counts)
    seen: set[bytes] | None = set() if data.deduplicate and files else None
    number, last = 0, None
    for document in read:
        # A part is given out when the next shows whether the document is whole: only whole documents are compared.
        if last is not None and not (document.part == 0 and _is_duplicate(last.text, last.part, seen, counts)):
            yield last
        if document.part == 0:
            number += 1
            if data.limit is not None and number > data.limit:
                return
        last = document
    if last is not None and not _is_duplicate(last.text, last.part, seen, counts):
        yield last


def add_reverse_pair(pair: Pair, data: PairData) -> tuple[Pair, ...]:
    """Return a pair, and its reverse where both directions are trained."""
    languages = data.languages
    return (pair, pair.reverse) if languages is not None and languages.both_ways else (pair,)


def _read_data_pairs(data: PairData, files: tuple[str, ...], counts: Counts, whole: bool) -> Iterator[Pair]:
    """Read what the recipe names. `limit` stops all of it, or each table of a language by itself."""
    seen: set[bytes] | None = set() if data.deduplicate else None
    each = data.languages is not None and bool(files)
    for some in [(file.name,) for file in find_sources(files)] if each else [files]:
        fresh = (pair for pair in _read(data, some, counts, whole)
                 if not _is_duplicate(f"{pair.source}\t{pair.target}", 0, seen, counts))
        yield from islice(fresh, data.limit)


def _read(data: PairData, files: tuple[str, ...], counts: Counts, whole: bool) -> Iterator[Pair]:
    with_languages = data.languages is not None
    if files:
        return read_pairs(files, source=data.source, target=data.target, counts=counts, whole=whole,
                          with_languages=with_languages, options=data.read_options)
    pairs = read_python_heads(counts)
    return (replace(pair, languages=OWN_COLUMNS) for pair in pairs) if with_languages else pairs


def _read_synthetic(data: PairData, synthetic: SyntheticPairs, counts: Counts,
                    skip: Callable[[Pair], bool]) -> Iterator[Pair]:
    """Read synthetic pairs, each source after the tag where there is one. Their columns may have other names."""
    named = data.source is not None and set(list_columns(find_sources(synthetic.files)[0])) >= {data.source,
                                                                                                data.target}
    source, target = (data.source, data.target) if named else (None, None)
    read = Counts()
    for pair in read_pairs(synthetic.files, source=source, target=target, counts=read,
                           with_languages=data.languages is not None):
        if skip(pair):
            counts.shared += 1
            continue
        tagged = replace(pair, source=f"{synthetic.tag} {pair.source}") if synthetic.tag else pair
        counts.add(tagged.source, tagged.target)
        yield tagged
    counts.files, counts.names = counts.files + read.files, [*counts.names, *read.names]
    counts.empty, counts.repaired = counts.empty + read.empty, counts.repaired + read.repaired


def _is_duplicate(text: str, part: int, seen: set[bytes] | None, counts: Counts) -> bool:
    """Tell whether a text was seen before. Documents of several parts (longer than a block) are always kept."""
    if seen is None or part:
        return False
    mark = _fingerprint(text)
    if mark in seen:
        counts.duplicates += 1
        return True
    seen.add(mark)
    return False


def _fingerprint(text: str) -> bytes:
    """Return the hash by which equal texts are found."""
    return hashlib.blake2b(text.encode("utf-8"), digest_size=16).digest()


def _refuse_shared_files(data: TextData | PairData) -> None:
    """Refuse a file that is both trained on and held out."""
    if isinstance(data.held_out, HeldOutFiles):
        synthetic = data.synthetic.files if isinstance(data, PairData) and data.synthetic else ()
        trained = {source.path.resolve() for source in find_sources((*data.files, *synthetic))}
        for source in find_sources(data.held_out.files):
            if source.path.resolve() in trained:
                raise InputError("is both trained on and held out", where=source.name,
                                 remedy="take it out of data.files or of data.held_out.files")


def _copy_counts(counts: Counts, read: Counts) -> None:
    """Copy what the whole reading skipped to the counts of a part."""
    counts.files, counts.names = read.files, read.names
    counts.empty, counts.duplicates = read.empty, read.duplicates
    counts.repaired, counts.unreadable, counts.shared = read.repaired, read.unreadable, read.shared


def check_first_row(data: TextData | PairData) -> None:
    """Read the first document or pair of each file, so that a wrong name or column is said before work begins.

    Standard input, which is read once, is left alone. Raises `InputError` as reading does.
    """
    held_out = data.held_out.files if isinstance(data.held_out, HeldOutFiles) else ()
    for name in (*data.files, *held_out):
        for source in [] if is_standard_input(name) else find_sources([name]):
            rows: Iterator[object] = _read_data_documents(data, (source.name,), _no_documents, Counts()) \
                if isinstance(data, TextData) else _read_data_pairs(data, (source.name,), Counts(), whole=False)
            next(rows, None)


def _no_documents(counts: Counts) -> Iterator[Document]:
    yield from ()
