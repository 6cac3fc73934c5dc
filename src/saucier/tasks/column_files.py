"""Column files as CoNLL's: a word in a line, its tag in one of the columns, an empty line behind each sentence.

Source: Tjong Kim Sang and De Meulder 2003, "Introduction to the CoNLL-2003 Shared Task", §2.1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from saucier.errors import InputError
from saucier.tasks.examples import Tally
from saucier.text.sources import Source, lines

DOCUMENT = "-DOCSTART-"
"""Begins a document in CoNLL's files; it is no word."""
SKIPPED = f"{DOCUMENT} lines skipped"


@dataclass(frozen=True, slots=True)
class Block:
    """One sentence: the line that it begins in, and the columns of each of its lines."""

    line: int
    rows: list[list[str]]


def blocks(source: Source, tally: Tally) -> Iterator[Block]:
    """Yield the sentences of a file. Columns stand between tabs, or between spaces in a line without a tab.

    Lines that only begin a document are counted. Raises `InputError` for a line with another number of columns than
    the first one.
    """
    rows: list[list[str]] = []
    begun = columns = 0
    for number, line in lines(source):
        cells = line.split("\t") if "\t" in line else line.split()
        marks = bool(cells) and cells[0] == DOCUMENT
        tally.update([SKIPPED] if marks else [])
        if marks or not line.strip():
            if rows:
                yield Block(begun, rows)
            rows = []
            continue
        columns = columns or len(cells)
        check_columns(cells, columns, f"{source.name}, line {number}")
        begun = begun if rows else number
        rows.append(cells)
    if rows:
        yield Block(begun, rows)


def check_columns(cells: list[str], columns: int, where: str) -> None:
    """Raise `InputError` for a line that is not like the first one, and for one without a word."""
    if len(cells) != columns:
        raise InputError(f"{len(cells)} columns, but the first line has {columns}", where=where,
                         remedy="write a word and its tag in every line, with a tab between")
    if not cells[0].strip():
        raise InputError("the word is empty", where=where, remedy="fill it, or take the line out")


def column(rows: list[list[str]], number: int | None, where: str) -> list[str]:
    """Return one column, counted from 1; None is the last. Raises `InputError` where there is none."""
    count = len(rows[0])
    if count < 2:
        raise InputError("has one column, and tags are needed", where=where, remedy="write the tag behind each word")
    if number is not None and not 1 < number <= count:
        raise InputError(f"column {number} of {count}, where the first holds the words", where=where,
                         remedy=f"give task.column from 2 to {count}")
    return [cells[count - 1 if number is None else number - 1].strip() for cells in rows]
