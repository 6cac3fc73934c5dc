"""Documents and pairs from files, streaming: never more than a few blocks of text in memory, whatever the file's size.

What is skipped is counted in `Counts`, never dropped silently.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import dropwhile
from typing import Literal

from saucier.errors import InputError
from saucier.text.reading.guessing import ReadOptions
from saucier.text.reading.sources import AS_GUESSED, BLOCK, SourceFile, find_sources, read_blocks, read_lines
from saucier.text.reading.tables import TableRow, list_columns, make_missing_column_error, read_rows, read_text_cell

Unit = Literal["file", "paragraph", "line"]
SURROGATE = re.compile("[\ud800-\udfff]")
SHOWN = 10
"""Lines that an error names one by one."""


@dataclass(frozen=True, slots=True)
class Document:
    """A text, or a part of one: a document longer than about `BLOCK` characters comes in several parts."""

    text: str
    source: str
    """The file (or the name of the module, for Python's documentation)."""
    line: int = 1
    """The line (of a table: the row's line) where the document starts."""
    part: int = 0
    """0 starts a document; 1, 2, ... continue the one before."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A source text and its target."""

    source: str
    target: str
    where: str
    """File and line."""
    languages: tuple[str, str] | None = None
    """Of source and target, where they are named."""

    @property
    def direction(self) -> str:
        """The names of its languages; "" where the languages are not named."""
        return "" if self.languages is None else " → ".join(self.languages)

    @property
    def reverse(self) -> Pair:
        """The pair with source and target exchanged."""
        return Pair(self.target, self.source, self.where, self.languages and self.languages[::-1])


@dataclass(slots=True)
class Counts:
    """What reading met, filled while a reader is consumed; `parts` of one document count as one document."""

    files: int = 0
    """Files read."""
    documents: int = 0
    """Documents (or pairs) given out."""
    characters: int = 0
    """Characters given out (source and target together, for pairs)."""
    bytes: int = 0
    """The same text in UTF-8 bytes."""
    empty: int = 0
    """Rows, lines and paragraphs skipped because they hold no text."""
    duplicates: int = 0
    """Documents (or pairs) skipped because they were seen before."""
    shared: int = 0
    """Pairs that are not learned since a text of theirs is held out (where languages are named)."""
    repaired: int = 0
    """Lone halves of surrogate pairs (from JSON escapes) replaced by U+FFFD."""
    unreadable: int = 0
    """Modules skipped because this Python cannot parse them (its own documentation only)."""
    names: list[str] = field(default_factory=list)
    """The files, in the order read."""

    def add(self, *texts: str, starts: bool = True) -> None:
        """Count texts that are given out."""
        self.documents += starts
        self.characters += sum(map(len, texts))
        self.bytes += sum(len(text.encode("utf-8")) for text in texts)


def read_documents(files: Sequence[str], *, column: str | None = None, unit: Unit = "file",
                   counts: Counts | None = None, options: ReadOptions = AS_GUESSED) -> Iterator[Document]:
    """Yield the documents of files, globs and standard input, in order. `column`, `unit`: see `TextData`.

    Errors: those of `sources` and `tables`; `InputError` for a file that holds no text at all.
    """
    counts = counts if counts is not None else Counts()
    for source in find_sources(files, options):
        yield from read_source_documents(source, column=column, unit=unit, counts=counts)


def read_source_documents(source: SourceFile, *, column: str | None, unit: Unit, counts: Counts) -> Iterator[Document]:
    """Yield the documents of one file, as `read_documents` does."""
    counts.files += 1
    counts.names.append(source.name)
    before = counts.documents
    documents = _table_documents(source, column, counts) if source.format != "txt" else UNITS[unit](source, counts)
    for document in documents:
        counts.add(document.text, starts=document.part == 0)
        yield document
    if counts.documents == before:
        raise InputError("holds no text", where=source.name, remedy="leave it out")


def _file_document(source: SourceFile, _: Counts) -> Iterator[Document]:
    blocks = dropwhile(lambda block: not block.strip(), read_blocks(source))
    yield from (Document(block, source.name, part=part) for part, block in enumerate(blocks))


def _line_documents(source: SourceFile, counts: Counts) -> Iterator[Document]:
    for number, line in read_lines(source):
        if line.strip():
            yield from split_parts(line, source.name, number)
        else:
            counts.empty += 1


def _read_paragraphs(source: SourceFile, counts: Counts) -> Iterator[Document]:
    """Join lines until an empty one; a paragraph that grows beyond a block goes out in parts."""
    lines: list[str] = []
    size, start, part = 0, 1, 0
    for number, line in read_lines(source):
        ends = not line.strip()
        if lines and (ends or size > BLOCK):
            yield Document("\n".join(lines) + "\n" * (not ends), source.name, start, part)
            lines, size, part = [], 0, part + 1
        if ends:
            part = 0
            continue
        start = start if lines or part else number
        lines.append(line)
        size += len(line)
    if lines:
        yield Document("\n".join(lines), source.name, start, part)


UNITS: Mapping[Unit, Callable[[SourceFile, Counts], Iterator[Document]]] = {
    "file": _file_document, "paragraph": _read_paragraphs, "line": _line_documents,
}
"""What one document is in a .txt file."""


def _table_documents(source: SourceFile, column: str | None, counts: Counts) -> Iterator[Document]:
    column = column or find_text_column(source, None, "data.column=")
    for row in read_rows(source, [column]):
        text = _clean_cell(row, column, source, counts)
        if text:
            yield from split_parts(text, source.name, row.line)


def find_text_column(source: SourceFile, column: str | None, said_by: str) -> str:
    """Return the column of the text: one that is named, or else `text`, or the only one.

    `said_by`: by what a person names one. Raises `InputError` where it is not there, or nobody knows which it is.
    """
    known = list_columns(source)
    if column is not None and column not in known:
        raise make_missing_column_error(column, known, source.name)
    if column is None and "text" not in known and len(known) > 1:
        raise InputError(f"which column holds the text? There are {', '.join(known)}", where=source.name,
                         remedy=f"say which, for example {said_by}{known[-1]}")
    return column or ("text" if "text" in known else known[0])


def _clean_cell(row: TableRow, column: str, source: SourceFile, counts: Counts) -> str:
    """Give the text of a cell, repaired, or "" where there is none (which is counted)."""
    text = read_text_cell(row, column, source) or ""
    if not text.strip():
        counts.empty += 1
        return ""
    if SURROGATE.search(text):
        text, repaired = SURROGATE.subn("\ufffd", text)
        counts.repaired += repaired
    return text


def split_parts(text: str, source: str, line: int) -> Iterator[Document]:
    """Yield one text as a document, in parts of at most `BLOCK` characters that end at white space if there is some."""
    start, part = 0, 0
    while start < len(text):
        end = min(start + BLOCK, len(text))
        if end < len(text):
            end = max(text.rfind("\n", start, end), text.rfind(" ", start, end)) + 1 or end
        yield Document(text[start:end], source, line, part)
        start, part = end, part + 1


def read_pairs(files: Sequence[str], *, source: str | None = None, target: str | None = None,
               counts: Counts | None = None, whole: bool = False, with_languages: bool = False,
               options: ReadOptions = AS_GUESSED) -> Iterator[Pair]:
    """Yield (source, target) texts from two columns of tables, in order. `source`, `target`: see `PairData`.

    `with_languages`: the names of the columns are languages.
    Errors: those of `sources` and `tables`; `InputError` for a file that holds no pair at all, and, with `whole`, for a
    row that lacks a side (otherwise it is left out and counted).
    """
    counts = counts if counts is not None else Counts()
    for file in find_sources(files, options):
        counts.files += 1
        counts.names.append(file.name)
        before = counts.documents
        columns = find_language_columns(file) if with_languages else find_pair_columns(file, source, target)
        languages = (columns[0], columns[1]) if with_languages else None
        all_rows = read_rows(file, columns)
        for row in all_rows:
            texts = [_clean_cell(row, column, file, counts) for column in columns]
            if all(texts):
                counts.add(*texts)
                yield Pair(texts[0], texts[1], f"{file.name}, line {row.line}", languages)
            elif whole:
                raise make_half_pair_error(file, row.line, columns, texts,
                                           [other.line for other in all_rows
                                            if not all(_clean_cell(other, one, file, counts) for one in columns)])
        if counts.documents == before:
            raise InputError("holds no pair of texts", where=file.name, remedy="leave it out")


def make_half_pair_error(file: SourceFile, line: int, columns: Sequence[str], texts: Sequence[str],
                         others: Sequence[int]) -> InputError:
    """Return the error for a row that is no pair, with the lines of the other such rows of its file."""
    lacking = " and ".join(column for column, text in zip(columns, texts, strict=True) if not text)
    shown = ", ".join(map(str, others[:SHOWN])) + (f" and {len(others) - SHOWN:,} more" if len(others) > SHOWN else "")
    also = f", and so in line{'s' * (len(others) > 1)} {shown}" if others else ""
    return InputError(f"is no pair: {lacking} is empty{also}", where=f"{file.name}, line {line}",
                      remedy="fill it, or take the row out")


def find_pair_columns(file: SourceFile, source: str | None, target: str | None) -> list[str]:
    """Give the names of the source and the target column: those requested, or the only two."""
    known = list_columns(file)
    if source is None and target is None and len(known) == 2:
        return known
    if source is None or target is None:
        raise InputError(f"which columns are source and target? There are {', '.join(known)}", where=file.name,
                         remedy=f"say which, for example data.source={known[0]} data.target={known[-1]}")
    for column in (source, target):
        if column not in known:
            raise make_missing_column_error(column, known, file.name)
    return [source, target]


def find_language_columns(file: SourceFile) -> list[str]:
    """Give the names of a table's two columns, its languages. Raises `InputError` for another number of them."""
    known = list_columns(file)
    if len(known) != 2:
        raise InputError(f"has the columns {', '.join(known)}, and two that are called by languages are wanted",
                         where=file.name, remedy="make a table of two columns for each pair of languages")
    return known


def read_table_languages(files: Sequence[str], options: ReadOptions = AS_GUESSED) -> tuple[str, ...]:
    """Return the languages of tables whose columns are named by them, each once, as they come."""
    return tuple(dict.fromkeys(name for file in find_sources(files, options)
                               for name in find_language_columns(file)))
