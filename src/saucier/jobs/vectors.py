"""`embed`: a vector for each row of files and each text, written as an array, a table or JSON lines.

Files are read twice: first all rows are checked and counted, before the model is opened; then they are embedded and
written block by block, so that neither they nor their vectors need to fit into memory.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from saucier.errors import InputError
from saucier.files import refuse_existing, write_atomically
from saucier.jobs.finetuning.predict import EMPTY_LINES
from saucier.jobs.finetuning.predictions import to_column
from saucier.result import Result
from saucier.table import Table
from saucier.tasks.examples import Tally, describe_dropped, make_faults_error, read_each
from saucier.tasks.prediction_files import plain_value
from saucier.text.reading.documents import SURROGATE, find_text_column
from saucier.text.reading.guessing import ReadOptions
from saucier.text.reading.sources import AS_GUESSED, SourceFile, find_sources, read_lines
from saucier.text.reading.tables import TableRow, describe_form, read_rows, read_text_cell

if TYPE_CHECKING:
    import pyarrow

    from saucier.retrieval.encoder import ModelEncoder
    from saucier.retrieval.store import Floats

BLOCK = 1024
"""Texts that are held at a time; those of similar length among them go through the model together."""
SHOWN, LONGEST_SHOWN, NUMBERS_SHOWN = 20, 60, 3
"""Texts that a terminal shows, letters of each, and numbers of its vector."""
TEXT, VECTOR = "text", "vector"
"""Columns of what is written."""


@dataclass(frozen=True, slots=True)
class TextRow:
    """A text, and all that its row holds."""

    text: str
    cells: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TextFiles:
    """Where texts come from: lines of text files and rows of tables, and then texts that a person gives."""

    files: Sequence[str]
    texts: Sequence[str] = ()
    column: str | None = None
    """That of the text; None: `text`, or the only one."""
    read: ReadOptions = AS_GUESSED
    drop: bool = False
    """Whether rows without a text are left out, not refused."""


@dataclass(frozen=True, slots=True)
class CheckedFiles:
    """Files whose rows were checked and counted."""

    sources: Sequence[tuple[SourceFile, str]]
    """Each with the column of its text; "" for a text file."""
    texts: Sequence[str]
    count: int
    """Texts, all together."""
    counted: Tally
    faults: Sequence[InputError]
    """What is wrong with rows that are left out."""

    def read(self) -> Iterator[TextRow]:
        """Yield all texts, in order. What is wrong was reported when they were counted."""
        for source, column in self.sources:
            yield from read_texts(replace(source, collect=lambda fault: None), column, Tally())
        yield from (TextRow(text, {TEXT: text}) for text in self.texts)


def read_texts(source: SourceFile, column: str, counted: Tally) -> Iterator[TextRow]:
    """Yield the texts of a file; empty lines of a text file are counted, empty cells are faults of their rows."""
    if source.format == "txt":
        for _, line in read_lines(source):
            if text := line.strip():
                yield TextRow(text, {TEXT: text})
            else:
                counted[EMPTY_LINES] += 1
        return

    def read(row: TableRow) -> TextRow:
        text = read_text_cell(row, column, source)
        if text is None or not text.strip():
            raise InputError("the text is empty", where=f"{source.name}, line {row.line}, column {column!r}",
                             remedy="fill it in")
        if SURROGATE.search(json.dumps(plain_value(row.cells), ensure_ascii=False)):
            raise InputError("holds half of a surrogate pair, which is no text",
                             where=f"{source.name}, line {row.line}", remedy="replace it, for example by U+FFFD")
        return TextRow(text, row.cells)

    yield from read_each(read_rows(source, None), read, source)


def check_files(given: TextFiles, *, keeps_cells: bool) -> CheckedFiles:
    """Read all rows once. Raises `InputError` for files and rows that cannot be used, and for no texts at all.

    `keeps_cells`: all that a row holds is written beside its vector.
    """
    faults, counted = list[InputError](), Tally()
    sources = [(replace(one, collect=faults.append), "" if one.format == "txt" else
                find_text_column(one, given.column, "--column ")) for one in find_sources(given.files, given.read)]
    count = len(given.texts)
    for number, text in enumerate(given.texts, start=1):
        if not text.strip():
            raise InputError("is empty", where=f"--text, number {number}", remedy="give a text, or leave it out")
    for source, column in sources:
        for row in read_texts(source, column, counted):
            count += 1
            if keeps_cells and VECTOR in row.cells:
                raise InputError(f"has a column {VECTOR!r} already", where=source.name,
                                 remedy="rename it, or write the vectors alone: --out NAME.npy")
    if faults and not given.drop:
        raise make_faults_error(faults)
    if not count:
        raise InputError("there is no text", where="command line",
                         remedy="give a FILE, - for standard input, or --text TEXT")
    return CheckedFiles(sources, given.texts, count, counted, faults)


Blocks = Iterable[tuple[Sequence[TextRow], "Floats"]]
"""Some texts at a time, and their vectors. Shapes: [N, E]."""


def write_array(path: Path, blocks: Blocks, count: int, width: int) -> None:
    """Write vectors alone, as numpy reads them. Shapes: [count, width], float32."""
    with path.open("wb") as file:
        shape = {"descr": "<f4", "fortran_order": False, "shape": (count, width)}
        np.lib.format.write_array_header_1_0(file, shape)
        for _, vectors in blocks:
            file.write(np.ascontiguousarray(vectors, "<f4").data)


def write_lines(path: Path, blocks: Blocks, count: int, width: int) -> None:
    """Write each row with its vector as JSON, one a line."""
    with path.open("w", encoding="utf-8") as file:
        for rows, vectors in blocks:
            file.writelines(as_line(*pair) + "\n" for pair in zip(rows, vectors, strict=True))


def as_line(row: TextRow, vector: Floats) -> str:
    """Return a row with its vector as JSON; numbers have the digits that float32 needs, and no more."""
    cells = plain_value(row.cells) | {VECTOR: vector.astype(str).astype(float).tolist()}
    return json.dumps(cells, ensure_ascii=False)


def write_table(path: Path, blocks: Blocks, count: int, width: int) -> None:
    """Write all columns of the rows, and their vectors, as parquet.

    The first block says what a column holds. Raises `InputError` for a later row that does not fit to it.
    """
    import pyarrow
    from pyarrow.parquet import ParquetWriter

    made: ParquetWriter | None = None
    schema: pyarrow.Schema | None = None
    try:
        for rows, vectors in blocks:
            table = make_table([row.cells for row in rows], schema)
            lists = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(vectors.reshape(-1)), width)
            schema, table = table.schema, table.append_column(VECTOR, lists)
            made = made or ParquetWriter(path, table.schema)
            made.write_table(table)
    finally:
        if made is not None:
            made.close()


def make_table(rows: Sequence[Mapping[str, Any]], schema: pyarrow.Schema | None) -> pyarrow.Table:
    """Return rows as a table of Arrow, null where one has no such column; with `schema` as that one is."""
    import pyarrow

    if schema is None:
        names = dict.fromkeys(name for row in rows for name in row)
        found = {name: to_column([row.get(name) for row in rows]) for name in names}
        return pyarrow.table({name: one.cast("string") if pyarrow.types.is_null(one.type) else one
                              for name, one in found.items()})
    beyond = sorted({name for row in rows for name in row} - {*schema.names})
    try:
        if beyond:
            raise pyarrow.ArrowInvalid(f"a column {beyond[0]!r} that the first {BLOCK:,} rows have not")
        return pyarrow.table([to_column([row.get(field.name) for row in rows]).cast(field.type) for field in schema],
                             schema=schema)
    except pyarrow.ArrowException as error:
        raise InputError(f"rows are not alike: {error}", where="data",
                         remedy="write JSON lines: --out NAME.jsonl") from error


WRITERS: Mapping[str, Callable[[Path, Blocks, int, int], None]] = {
    ".npy": write_array, ".jsonl": write_lines, ".parquet": write_table}
"""What writes a file, by how its name ends."""


def find_writer(out: Path) -> Callable[[Path, Blocks, int, int], None]:
    """Return what writes a file. Raises `InputError` for one that is there, and for another ending."""
    refuse_existing(out)
    if out.suffix not in WRITERS:
        raise InputError(f"vectors are not written as {out.suffix or 'a file without ending'}", where=f"--out: {out}",
                         remedy=f"give a name that ends in {', '.join(WRITERS)}")
    return WRITERS[out.suffix]


@dataclass(frozen=True, slots=True)
class TextVectors(Result):
    """The vectors of texts, in the order of their rows."""

    count: int
    width: int
    cut: int = 0
    """Texts that were longer than the model reads."""
    left_out: int = 0
    """Their tokens that were not read."""
    counted: Mapping[str, int] = field(default_factory=dict)
    """What was skipped in the files."""
    faults: tuple[str, ...] = ()
    """What is wrong with rows that were left out: the first ones, and how many more."""
    forms: tuple[str, ...] = ()
    """How files were read, where that is not what their names promise."""
    path: Path | None = None
    """The file that all was written into."""
    rows: tuple[TextRow, ...] = ()
    """Without a file: the texts."""
    vectors: Floats | None = None
    """Without a file. Shapes: [count, width]."""

    def remarks(self) -> list[str]:
        """Return what a person should know of how the texts were read."""
        cut = [f"{self.cut:,} texts were too long and are cut; {self.left_out:,} tokens were not read"] \
            if self.cut else []
        counted = [f"{count:,} {what}" for what, count in self.counted.items()]
        return [*self.forms, *cut, *counted, *self.faults]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {"count": self.count, "width": self.width, "cut": self.cut, "left_out": self.left_out,
                "counted": dict(self.counted), "faults": list(self.faults), "read": list(self.forms),
                "path": None if self.path is None else str(self.path),
                "rows": [json.loads(line) for line in self.lines()]}

    def lines(self) -> Iterator[str]:
        """Yield the rows that are in memory, each with its vector as JSON."""
        if self.vectors is not None:
            yield from map(as_line, self.rows, self.vectors)

    def to_json(self) -> Any:
        """Return the rows as JSON, one a line; where they are in a file, what is known of it."""
        return self.to_dict() if self.path is not None else "".join(f"{line}\n" for line in self.lines())

    def view(self) -> Table | str:
        """Return where the vectors are, or the first texts, each with the other text that is nearest to it."""
        if self.vectors is None:
            return f"{self.count:,} vectors of {self.width:,} numbers in {self.path}"
        near, cosines = find_nearest_others(self.vectors, SHOWN)
        lines = [[shorten(row.text), " ".join(f"{one:+.3f}" for one in vector[:NUMBERS_SHOWN]) + " …",
                  *([shorten(self.rows[other].text), f"{cosine:.3f}"] if self.count > 1 else [])]
                 for row, vector, other, cosine in zip(self.rows, self.vectors, near, cosines, strict=False)]
        headings = ("text", "vector", "nearest other text", "cosine")[:len(lines[0])]
        told = f"the first {SHOWN} of {self.count:,} texts" if self.count > SHOWN else \
            f"{self.count} text{'s' * (self.count > 1)}"
        return Table(headings, lines, numbers=(3,), folded=(0, 2), caption=(
            f"{told}, {self.width:,} numbers each; all of them: --json, or --out FILE ({', '.join(WRITERS)})"))


def find_nearest_others(vectors: Floats, count: int) -> tuple[NDArray[np.int64], Floats]:
    """Return for each of the first vectors which other one has the largest cosine, and that. Shapes: [count] twice."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    ways = vectors / np.where(lengths > 0, lengths, 1)
    cosines = ways[:count] @ ways.T
    np.fill_diagonal(cosines, -np.inf)
    return cosines.argmax(1), cosines.max(1)


def shorten(text: str) -> str:
    """Return a text as a line that is not too long."""
    line = " ".join(text.split())
    return line if len(line) <= LONGEST_SHOWN else f"{line[:LONGEST_SHOWN - 1]}…"


@dataclass(slots=True)
class BlockEmbedder:
    """Embeds the texts of files block by block, and counts what it cuts."""

    files: CheckedFiles
    encoder: ModelEncoder
    batch: int
    cut: list[int] = field(default_factory=list)
    """Tokens of each text that were left out."""

    def blocks(self, show: Callable[[Sequence[int], str], Iterable[int]]) -> Iterator[tuple[list[TextRow], Floats]]:
        """Yield some texts at a time, and their vectors. Raises `InputError` where a file is not what it was."""
        from saucier.retrieval.embed import embed_texts

        rows = self.files.read()
        for start in show(range(0, self.files.count, BLOCK), "texts"):
            some = list(islice(rows, BLOCK))
            if len(some) < min(BLOCK, self.files.count - start):
                raise InputError("changed while it was read", where="data", remedy="try again")
            found, cut = embed_texts(self.encoder.model, self.encoder.tokenizer, [row.text for row in some],
                                      self.batch)
            self.cut += cut
            yield some, found


def embed_files(model: str, given: TextFiles, out: Path | None = None, *, number_format: str | None = None,
                device: str = "auto", batch: int = 32,
                show: Callable[[Sequence[int], str], Iterable[int]] = lambda items, what: items) -> TextVectors:
    """Give each text of files a vector, by a model with an embedding head; `show` yields blocks under a bar.

    Raises `InputError` for files, rows and an `out` that cannot be used, before the model is opened, and for a model
    without such a head.
    """
    write = None if out is None else find_writer(out)
    files = check_files(given, keeps_cells=write is not write_array)
    from saucier.retrieval.encoder import open_encoder

    work = BlockEmbedder(files, open_encoder(model, number_format, device=device), batch)
    width, rows, vectors = work.encoder.passport.width, tuple[TextRow, ...](), None
    blocks = work.blocks(show)
    if out is not None and write is not None:
        write_atomically(out, lambda path: write(path, blocks, files.count, width))
    else:
        found = list(blocks)
        rows, vectors = tuple(row for some, _ in found for row in some), np.concatenate([one for _, one in found])
    lost = [one for one in work.cut if one]
    return TextVectors(files.count, width, len(lost), sum(lost), dict(files.counted),
                       tuple(describe_dropped(files.faults)),
                       tuple(filter(None, (describe_form(one) for one, _ in files.sources))), out, rows, vectors)
