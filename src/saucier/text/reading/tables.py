"""Tables: rows of JSONL, JSON, CSV, TSV and parquet files, streamed; errors name file and line.

TSV has no quoting (a cell holds neither tab nor line end); CSV is quoted as RFC 4180 says, and what is between its
cells is guessed where nobody says it.
"""

from __future__ import annotations

import csv
import functools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import groupby, islice
from pathlib import Path
from typing import Any

from saucier.errors import InputError, suggest_name
from saucier.files import LARGEST_JSON, parse_json
from saucier.text.reading.guessing import MOST_LETTERS, MOST_LINES, UTF_8, Guess, guess_delimiter
from saucier.text.reading.sources import (
    LONGEST_LINE,
    SourceFile,
    file_stamp,
    find_encoding,
    read_blocks,
    read_lines,
)

PARQUET_ROWS = 64
"""Rows of a parquet file held at once."""


@dataclass(frozen=True, slots=True)
class TableRow:
    """One row: its cells by column name, and its line (its row number from 1, for parquet)."""

    cells: Mapping[str, Any]
    line: int


USUAL_DELIMITERS = {"csv": ",", "tsv": "\t"}


def read_rows(source: SourceFile, columns: Sequence[str] | None) -> Iterator[TableRow]:
    """Yield the rows of a table. `columns` says which are needed (none = all), so that parquet reads no others.

    Malformed JSON, a wrong number of cells and an unclosed quote are reported to the source. Errors: `InputError` with
    the line for those, unless the source collects them, and for a damaged file.
    """
    match source.format:
        case "jsonl":
            return _json_rows(source)
        case "csv" | "tsv":
            return _with_header(_split_cells(source), source)
        case "parquet":
            return _parquet(source, columns)
        case "txt":
            raise InputError("is plain text, but columns are needed", where=source.name,
                             remedy="give a .jsonl, .csv, .tsv or .parquet file, or say what divides its columns: "
                             "--delimiter tab")


def find_delimiter(source: SourceFile) -> Guess:
    """Return what is between two cells of a table of text: what a person says, or a guess."""
    if source.delimiter is not None:
        return Guess(source.delimiter)
    return _guess_delimiter(replace(source, collect=None), file_stamp(source))


@functools.lru_cache(maxsize=256)
def _guess_delimiter(source: SourceFile, stamp: tuple[int, int]) -> Guess:
    lines: list[str] = []
    letters, whole = 0, True
    for _, line in read_lines(source):
        if len(lines) >= MOST_LINES or letters >= MOST_LETTERS:
            whole = False
            break
        lines.append(line)
        letters += len(line)
    usual = USUAL_DELIMITERS[source.format]
    if source.format == "tsv" and lines and usual in lines[0]:
        return Guess(usual)  # whose cells are not quoted
    return guess_delimiter(lines, usual, whole=whole)


def describe_form(source: SourceFile) -> str:
    """Say how a file is read, where that is not what its name promises, or not certain; empty otherwise."""
    found: list[str] = []
    if source.format in USUAL_DELIMITERS:
        mark = find_delimiter(source)
        if mark.doubt or mark.value != USUAL_DELIMITERS[source.format]:
            found.append(_with_doubt(f"delimiter {mark.value!r}", mark))
    if source.format != "parquet":
        letters = find_encoding(source)
        if letters.doubt or letters.value not in UTF_8:
            found.append(_with_doubt(f"encoding {letters.value}", letters))
    return f"{Path(source.name).name}: {', '.join(found)}" if found else ""


def _with_doubt(what: str, guess: Guess) -> str:
    return f"{what} (guessed: {guess.doubt})" if guess.doubt else what


def _json_rows(source: SourceFile) -> Iterator[TableRow]:
    """Yield the objects of a file, one in a line, or those of the array that a .json file holds."""
    lines = ((number, line) for number, line in read_lines(source) if line.strip())
    for number, line in lines:
        if number == 1 and line.lstrip().startswith("[") and _is_json(source):
            yield from _json_array(source)
            return
        try:
            row = TableRow(_json_object(line, number, source), number)
        except InputError as fault:
            source.report(fault)
        else:
            yield row


def _is_json(source: SourceFile) -> bool:
    return ".json" in [suffix.lower() for suffix in Path(source.name).suffixes]


def _json_array(source: SourceFile) -> Iterator[TableRow]:
    """Yield the objects of a whole file that is one array, each with its number from 1."""
    text, size = list[str](), 0
    for block in read_blocks(source):
        text.append(block)
        size += len(block)
        if size > LARGEST_JSON:
            raise InputError("is one JSON array, too large to be read at once", where=source.name,
                             remedy="write one object per line (.jsonl)")
    try:
        values = parse_json("".join(text))
    except json.JSONDecodeError as error:
        raise InputError(f"not JSON: {error.msg} at column {error.colno}", where=f"{source.name}, line {error.lineno}",
                         remedy="write one JSON object per line, or one array of objects") from error
    for number, value in enumerate(values, start=1):
        if isinstance(value, dict):
            yield TableRow(value, number)
        else:
            source.report(no_object_error(value, f"{source.name}, item {number}"))


def list_columns(source: SourceFile, rows: int = 1) -> list[str]:
    """List the columns of a table; of JSONL, those of its first `rows`."""
    if source.format == "parquet":
        return _parquet_file(source)[1]
    first = list(islice(read_rows(source, None), rows if source.format == "jsonl" else 1))
    if not first:
        raise InputError("has no rows", where=source.name, remedy="leave it out")
    return list(dict.fromkeys(name for row in first for name in row.cells))


def read_text_cell(row: TableRow, column: str, source: SourceFile) -> str | None:
    """Give the text of a cell, or None for an empty one (null).

    Errors: `InputError` for a missing column (those that there are get listed) and for a cell that is not text.
    """
    if column not in row.cells:
        raise make_missing_column_error(column, list(row.cells), f"{source.name}, line {row.line}")
    value = row.cells[column]
    if value is not None and not isinstance(value, str):
        raise InputError(f"column {column!r} holds {type(value).__name__}, not text",
                         where=f"{source.name}, line {row.line}", remedy="choose a text column, or convert the file")
    return value


def make_missing_column_error(column: str, known: list[str], where: str) -> InputError:
    """Make the error for a column that is not there."""
    close = suggest_name(column, known)
    listed = f"; columns: {', '.join(known)}" if close.startswith("did") else ""
    return InputError(f"no column {column!r}{listed}", where=where, remedy=close.replace("known", "columns"))


def refuse_missing_column(column: str, known: list[str], where: str, role: str) -> None:
    """Raise `InputError` for a column that is not there; `role`: what a task calls it."""
    if column not in known:
        error = make_missing_column_error(column, known, where)
        raise InputError(error.what, where=where,
                         remedy=f"{error.remedy}; --column {role}=NAME says which one to read")


def read_column_blocks(source: SourceFile) -> Iterator[list[tuple[int, list[str]]]]:
    """Yield the runs of lines between empty ones (the sentences of CoNLL's files): line numbers, and columns."""
    for has_text, lines in groupby(read_lines(source), lambda line: bool(line[1].strip())):
        if has_text:
            yield [(number, split_columns(line)) for number, line in lines]


def split_columns(line: str) -> list[str]:
    """Return the columns of a line, which are divided by tabs, or by white space in a line without a tab."""
    return line.split("\t") if "\t" in line else line.split()


def _json_object(line: str, number: int, source: SourceFile) -> dict[str, Any]:
    where = f"{source.name}, line {number}"
    try:
        value = json.loads(line)
    except json.JSONDecodeError as error:
        raise InputError(f"not JSON: {error.msg} at column {error.colno}", where=where,
                         remedy="write one JSON object per line") from error
    except RecursionError as error:
        raise InputError("not readable JSON: nested too deeply", where=where, remedy="write flat objects") from error
    except ValueError as error:  # a number of thousands of digits
        raise InputError(f"not readable JSON: {error}", where=where, remedy="write such a number as a text") from error
    if not isinstance(value, dict):
        raise no_object_error(value, where)
    return value


def no_object_error(value: object, where: str) -> InputError:
    """Return the error for a JSON value that is no row."""
    kind = {list: "array", str: "string", bool: "true or false", type(None): "null"}.get(type(value), "number")
    return InputError(f"holds a JSON {kind}, not an object", where=where,
                      remedy='write one object per line, such as {"text": "..."}')


def _split_cells(source: SourceFile) -> Iterator[tuple[int, list[str]]]:
    """Yield the cells of each row that is not empty, after its line."""
    mark = find_delimiter(source).value
    if source.format == "tsv" and mark == "\t":
        return ((number, line.split("\t")) for number, line in read_lines(source) if line)
    return _csv_cells(source, mark)


def _csv_cells(source: SourceFile, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    csv.field_size_limit(max(csv.field_size_limit(), LONGEST_LINE))
    reader = csv.reader((line + "\n" for _, line in read_lines(source)), strict=True, delimiter=delimiter)
    start = 1
    while True:
        try:
            cells = next(reader, None)
        except csv.Error as error:
            source.report(InputError(f"not CSV: {error}", where=f"{source.name}, line {start}",
                                     remedy="check the quotes, or save it as .tsv or .jsonl"))
            cells = []
        if cells is None:
            return
        if cells:
            yield start, cells
        start = reader.line_num + 1


def _with_header(cells: Iterable[tuple[int, list[str]]], source: SourceFile) -> Iterator[TableRow]:
    """Name the cells by the first row; every other row must have as many."""
    rows = iter(cells)
    _, header = next(rows, (0, []))
    if twice := [name for name in header if header.count(name) > 1]:
        raise InputError(f"two columns are named {twice[0]!r}", where=f"{source.name}, line 1", remedy="rename one")
    for number, row in rows:
        if len(row) == len(header):
            yield TableRow(dict(zip(header, row, strict=True)), number)
        else:
            source.report(InputError(f"{len(row)} cells, but the header has {len(header)}",
                                     where=f"{source.name}, line {number}",
                                     remedy=f"the columns are {', '.join(header)}; check the separators"))


def _parquet_file(source: SourceFile) -> tuple[Any, list[str]]:
    """Open a file, and name its columns. Raises `InputError` for a damaged one."""
    import pyarrow
    import pyarrow.parquet

    if source.compression is not None:
        raise InputError("parquet is compressed already", where=source.name,
                         remedy=f"unpack the .{source.compression} first")
    with _whole(source):
        file = pyarrow.parquet.ParquetFile(source.path)
        return file, list(file.schema_arrow.names)


@contextmanager
def _whole(source: SourceFile) -> Iterator[None]:
    """Raise `InputError` for whatever a damaged parquet file makes the library raise."""
    import pyarrow

    try:
        yield
    except (pyarrow.ArrowException, OSError, ValueError, OverflowError) as error:
        raise InputError("is not a whole parquet file", where=source.name, remedy="fetch or write it again") from error


def _parquet(source: SourceFile, columns: Sequence[str] | None) -> Iterator[TableRow]:
    file, names = _parquet_file(source)
    for column in columns or []:
        if column not in names:
            raise make_missing_column_error(column, names, source.name)
    number, batches = 0, file.iter_batches(batch_size=PARQUET_ROWS, columns=list(columns) if columns else None)
    while True:
        with _whole(source):
            batch = next(batches, None)
            cells = None if batch is None else batch.to_pylist()
        if cells is None:
            return
        yield from map(TableRow, cells, range(number + 1, number + 1 + len(cells)))
        number += len(cells)
