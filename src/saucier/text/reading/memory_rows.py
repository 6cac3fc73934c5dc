"""Rows in memory (mappings, texts, Arrow tables, dataframes) as a file of JSON lines, which every reader reads.

The file's name holds a digest of the rows: the same rows are the same file, and so the same run.
"""

from __future__ import annotations

import datetime
import decimal
import hashlib
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from saucier.errors import InputError
from saucier.files import flush_to_disk, report_disk_errors

ROWS_FOLDER = "rows"
"""The folder of such files in a run."""
DIGITS = 12
"""Letters of the digest in a name."""
REMEDY = "give a list of mappings or of texts, an Arrow table, or a dataframe"
TEXT = "text"
"""The column of rows that are texts."""


def rows_to_file(rows: object, folder: Path, name: str) -> Path:
    """Write rows into `folder`/rows/NAME-DIGEST.jsonl, and return its path; a file that is there stays.

    Raises `InputError` for what is no rows, for no rows, for columns without a name or with the same, and for values
    that no table of text holds.
    """
    place = folder / ROWS_FOLDER
    new = [one for one in (place, folder) if not one.exists()]
    temporary, digest = place / f".{name}.jsonl.{os.getpid()}.tmp", hashlib.sha256()
    with report_disk_errors(place / f"{name}.jsonl"):
        place.mkdir(parents=True, exist_ok=True)
        try:
            with temporary.open("wb") as file:
                for line in rows_to_lines(rows, name):
                    digest.update(line)
                    file.write(line)
            target = place / f"{name}-{digest.hexdigest()[:DIGITS]}.jsonl"
            if not target.is_file():
                flush_to_disk(temporary)
                os.replace(temporary, target)
                flush_to_disk(place)
        finally:
            temporary.unlink(missing_ok=True)
            remove_empty(new)
    return target


def remove_empty(folders: Iterable[Path]) -> None:
    """Remove folders that hold nothing, the inner ones first: rows that were refused leave none behind."""
    for folder in folders:
        if any(folder.iterdir()):
            return
        folder.rmdir()


def rows_to_lines(rows: object, name: str) -> Iterator[bytes]:
    """Yield each row as a line of JSON. Raises `InputError` as `rows_to_file`."""
    number = 0
    for number, row in enumerate(iterate_rows(rows, name), start=1):
        yield row_to_line(row, f"{name}, row {number}")
    if number == 0:
        raise InputError("has no rows", where=name, remedy=REMEDY)


def row_to_line(row: Mapping[Any, Any], where: str) -> bytes:
    """Return one row as a line of JSON."""
    if not row:
        raise InputError("has no columns", where=where, remedy=REMEDY)
    try:
        cells = {check_name(key, where): plain_cell(value, f"{where}, column {key!r}") for key, value in row.items()}
        line = json.dumps(cells, ensure_ascii=False)
    except (RecursionError, ValueError) as error:  # a list that holds itself, a number of thousands of digits
        raise InputError(f"cannot be written as JSON: {error}", where=where, remedy=REMEDY) from error
    try:
        return f"{line}\n".encode()
    except UnicodeEncodeError:  # halves of surrogate pairs, which a reader repairs and counts
        return f"{json.dumps(cells)}\n".encode()


def iterate_rows(rows: object, name: str) -> Iterator[Mapping[Any, Any]]:
    """Yield the rows of whatever holds some."""
    if isinstance(rows, str | bytes | os.PathLike):
        raise InputError(f"is {type(rows).__name__}, and no rows", where=name, remedy=REMEDY)
    if isinstance(rows, Mapping) or any(hasattr(rows, method) for method in TABLES):
        yield from iterate_table(rows, name)
    elif isinstance(rows, Iterable):
        names = dict.fromkeys(key for row in rows if isinstance(row, Mapping) for key in row) \
            if isinstance(rows, list | tuple) else {}
        for number, row in enumerate(rows, start=1):
            if not isinstance(row, Mapping | str):
                raise InputError(f"is {type(row).__name__}, and no mapping or text", where=f"{name}, row {number}",
                                 remedy=REMEDY)
            yield {TEXT: row} if isinstance(row, str) else {**names, **row} if row else row
    else:
        raise InputError(f"is {type(rows).__name__}, and no rows", where=name, remedy=REMEDY)


TABLES = ("__arrow_c_stream__", "__arrow_c_array__", "__dataframe__")
"""Methods of tables in memory: Arrow's PyCapsule interface, and the interchange protocol of dataframes."""


def iterate_table(table: Any, name: str) -> Iterator[Mapping[str, Any]]:
    """Yield the rows of a table, and of a mapping from names to columns."""
    import pyarrow

    try:
        reader = open_table(table)
        twice = [one for one in reader.schema.names if reader.schema.names.count(one) > 1]
        if twice or not reader.schema.names:
            raise InputError(f"has two columns {twice[0]!r}" if twice else "has no columns", where=name,
                             remedy="rename one" if twice else REMEDY)
        for batch in reader:
            yield from batch.to_pylist()
    except (pyarrow.ArrowException, TypeError, ValueError, NotImplementedError, OverflowError, AttributeError) as error:
        raise InputError(f"cannot be read as a table: {str(error).splitlines()[0] if str(error) else type(error)}",
                         where=name, remedy="give columns of texts, numbers, or lists of them") from error


def open_table(table: Any) -> Any:
    """Return Arrow's reader of the batches of a table."""
    import pyarrow
    from pyarrow import interchange

    if isinstance(table, Mapping):
        return pyarrow.table(dict(table)).to_reader()
    if hasattr(table, "__arrow_c_stream__"):
        return pyarrow.RecordBatchReader.from_stream(table)
    if hasattr(table, "__arrow_c_array__"):
        return pyarrow.Table.from_batches([pyarrow.record_batch(table)]).to_reader()
    return interchange.from_dataframe(table).to_reader()


def check_name(name: object, where: str) -> str:
    """Return the name of a column. Raises `InputError` for what is none."""
    if not isinstance(name, str) or not name.strip():
        raise InputError(f"{name!r} is no name of a column", where=where, remedy="name each column by a text")
    return name


MISSING = ("NaTType", "NAType")
"""What pandas has in place of a value."""


def plain_cell(value: Any, where: str) -> Any:
    """Return a value as JSON has it; null for a number that is not finite. Raises `InputError` for an object."""
    match value:
        case None | str() | bool() | int():
            return value
        case _ if type(value).__name__ in MISSING:
            return None
        case float():
            return value if math.isfinite(value) else None
        case datetime.date() | datetime.time() | decimal.Decimal():
            return str(value)
        case Mapping():
            return {check_name(name, where): plain_cell(one, where) for name, one in value.items()}
        case list() | tuple():
            return [plain_cell(one, where) for one in value]
        case _ if hasattr(value, "tolist"):  # numbers and arrays of numpy
            return plain_cell(value.tolist(), where)
        case _:
            raise InputError(f"is {type(value).__name__}, which no table of text holds", where=where,
                             remedy="give texts, numbers, truth values, or lists of them")
