"""Text files: names and globs, standard input, compression, and bytes decoded to checked text.

Everything streams in blocks of about `BLOCK` bytes. Errors name the file and the byte offset.
"""

from __future__ import annotations

import atexit
import codecs
import functools
import glob
import gzip
import lzma
import os
import shutil
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any, Literal, cast

from saucier.errors import InputError, suggest_name
from saucier.files import is_folder, path_exists
from saucier.text.reading.guessing import MOST_BYTES, UTF_8, Guess, ReadOptions, guess_encoding

BLOCK = 1 << 16
"""Bytes read at a time. Small, because the tokenizer trainer holds a few hundred pieces of text at once."""
LONGEST_LINE = 1 << 28
"""Bytes after which a line without end is taken for a fault of the file."""
Format = Literal["txt", "jsonl", "csv", "tsv", "parquet"]
Compression = Literal["gz", "xz", "zst"]
FORMATS: dict[str, Format] = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".csv": "csv", ".tsv": "tsv",
                              ".tab": "tsv", ".parquet": "parquet"}
COMPRESSIONS: dict[str, Compression] = {".gz": "gz", ".xz": "xz", ".zst": "zst"}
OPENERS: Mapping[Compression | None, Callable[[Path, str], Any]] = {None: open, "gz": gzip.open, "xz": lzma.open}
DAMAGED = (EOFError, zlib.error, lzma.LZMAError, OSError)
"""What reading a damaged archive raises."""


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One file to read: `name` as a person wrote it, `path` where the bytes are, and how they are to be read."""

    name: str
    path: Path
    format: Format
    compression: Compression | None
    delimiter: str | None = None
    """What is between two cells of a table; None: guessed."""
    encoding: str | None = None
    """None: guessed."""
    collect: Callable[[InputError], object] | None = field(default=None, compare=False)
    """Takes what is wrong with a single row, after which the next one is read; None: it is raised."""

    def report(self, fault: InputError) -> None:
        """Give away, or raise, what is wrong with a single row."""
        if self.collect is None:
            raise fault
        self.collect(fault)


AS_GUESSED = ReadOptions()


def find_sources(patterns: Sequence[str], options: ReadOptions = AS_GUESSED) -> list[SourceFile]:
    """Turn paths, globs and `-` (standard input; `-.jsonl` tells its format) into files, in the order given.

    With a delimiter in the options, a text file is a table. Errors: `InputError` for a missing or empty file, a
    folder, and a glob that matches nothing.
    """
    return [_make_source(name, options) for pattern in patterns for name in _expand(pattern)]


def make_absolute(name: str) -> str:
    """Return a path that means the same from everywhere; `-` is standard input."""
    return name if is_standard_input(name) else str(Path(name).absolute())


def _expand(pattern: str) -> list[str]:
    if path_exists(pattern) or not glob.has_magic(pattern):
        return [pattern]
    found = sorted(name for name in glob.glob(pattern, recursive=True) if Path(name).is_file())
    if not found:
        raise InputError("no file matches this pattern", where=pattern, remedy="check the folder and the ending")
    return found


def _make_source(name: str, options: ReadOptions) -> SourceFile:
    suffixes = [suffix.lower() for suffix in Path("stdin" + name[1:] if is_standard_input(name) else name).suffixes]
    compression = COMPRESSIONS.get(suffixes.pop()) if suffixes and suffixes[-1] in COMPRESSIONS else None
    path = _spooled_input() if is_standard_input(name) else Path(name)
    _check_file(path, name)
    form = FORMATS.get(suffixes[-1], "txt") if suffixes else "txt"
    if form == "txt" and options.delimiter is not None:
        form = "tsv" if options.delimiter == "\t" else "csv"
    return SourceFile(name, path, form, compression, options.delimiter, options.encoding)


def is_standard_input(name: str) -> bool:
    """Whether a name among the data means standard input: `-`, or `-.jsonl` and the like."""
    return name == "-" or name.startswith("-.")


@functools.cache
def _spooled_input() -> Path:
    """Copy standard input to a temporary file, because the text is read more than once (tokenizer, then tokens)."""
    if sys.stdin.isatty():
        raise InputError("standard input is a terminal", where="-", remedy="pipe text into it, or name a file")
    descriptor, name = tempfile.mkstemp(prefix="saucier-stdin-")
    atexit.register(Path(name).unlink, missing_ok=True)
    with os.fdopen(descriptor, "wb") as file:
        shutil.copyfileobj(sys.stdin.buffer, file)
    return Path(name)


def _check_file(path: Path, name: str) -> None:
    if is_folder(path):
        raise InputError("is a folder", where=name, remedy=f"name its files, for example {name.rstrip('/')}/*.txt")
    if not path_exists(path):
        known = sorted(entry.name for entry in path.parent.iterdir()) if is_folder(path.parent) else []
        close = suggest_name(path.name, known) if known else ""
        raise InputError("no such file", where=name, remedy=close if close.startswith("did") else "check the path")
    if not os.access(path, os.R_OK):
        raise InputError("may not be read", where=name, remedy="change its permissions")
    if path.stat().st_size == 0:
        raise InputError("is empty", where=name, remedy="leave it out")


@contextmanager
def open_bytes(source: SourceFile) -> Iterator[IO[bytes]]:
    """Open a file for reading its uncompressed bytes; a damaged archive becomes one `InputError`."""
    try:
        with _open_source(source) as stream:
            yield stream
    except DAMAGED as error:
        if source.compression is None:
            raise
        raise InputError(f"is not a whole {source.compression} file ({str(error).rstrip('.')})", where=source.name,
                         remedy="fetch or compress it again") from error


def _open_source(source: SourceFile) -> IO[bytes]:
    if source.compression == "zst":
        import pyarrow

        return cast("IO[bytes]", pyarrow.input_stream(str(source.path), compression="zstd"))
    return cast("IO[bytes]", OPENERS[source.compression](source.path, "rb"))


def file_stamp(source: SourceFile) -> tuple[int, int]:
    """Return what changes when a file is written again, by which a guess about it is kept."""
    status = source.path.stat()
    return status.st_size, status.st_mtime_ns


def find_encoding(source: SourceFile) -> Guess:
    """Return the encoding of a file: the one that a person says, or a guess."""
    if source.encoding is not None:
        return Guess(source.encoding)
    return _guess_encoding(replace(source, collect=None), file_stamp(source))


@functools.lru_cache(maxsize=256)
def _guess_encoding(source: SourceFile, stamp: tuple[int, int]) -> Guess:
    with open_bytes(source) as stream:
        return guess_encoding(iter(lambda: stream.read(BLOCK), b""))


def read_blocks(source: SourceFile) -> Iterator[str]:
    """Yield the text in blocks of at most about `BLOCK` bytes that end at a line end wherever one is in reach.

    A byte order mark is dropped and `\\r\\n` becomes `\\n`.
    Errors: `InputError` with the byte offset (in the uncompressed text) for binary data and for bytes that are not
    of the file's encoding.
    """
    encoding = find_encoding(source).value
    if encoding not in UTF_8:
        yield from _decoded_blocks(source, encoding)
        return
    for offset, block in _byte_blocks(source):
        yield _decode(block, offset, source).replace("\r\n", "\n")


def _decoded_blocks(source: SourceFile, encoding: str) -> Iterator[str]:
    """Yield the text of a file that is not UTF-8, cut after a line end wherever one is in reach."""
    decoder = codecs.getincrementaldecoder(encoding)()
    with open_bytes(source) as stream:
        offset, rest, chunk = 0, "", stream.read(BLOCK)
        while chunk:
            following = stream.read(BLOCK)
            try:
                text = rest + decoder.decode(chunk, not following)
            except UnicodeError as error:
                place = offset + getattr(error, "start", 0)
                raise InputError(f"about byte {place}: is not {encoding}", where=source.name,
                                 remedy="give another --encoding, or convert the file") from error
            text = text.removeprefix("\ufeff") if offset == 0 else text
            if "\0" in text:
                raise InputError(f"holds a zero character in {encoding}, so this is binary data, not text",
                                 where=source.name, remedy="give text, or another --encoding")
            cut = len(text) if not following else text.rfind("\n") + 1 or len(text) - text.endswith("\r")
            if cut:
                yield text[:cut].replace("\r\n", "\n")
            offset, rest, chunk = offset + len(chunk), text[cut:], following


def _byte_blocks(source: SourceFile) -> Iterator[tuple[int, bytes]]:
    """Yield (offset, bytes), cut after a line end, or else before the last unfinished UTF-8 character."""
    with open_bytes(source) as stream:
        offset, rest, chunk = 0, b"", stream.read(BLOCK)
        while chunk:
            following = stream.read(BLOCK)
            block = rest + chunk
            cut = len(block) if not following else block.rfind(b"\n") + 1 or _whole_characters(block)
            if cut:
                yield offset, block[:cut]
            offset, rest, chunk = offset + cut, block[cut:], following


def _whole_characters(block: bytes) -> int:
    """Count the bytes before a UTF-8 character (or a `\\r\\n`) that may go on in the next block."""
    for back in range(1, min(4, len(block) + 1)):
        byte = block[-back]
        if byte >= 0xC0:
            return len(block) - back
        if byte < 0x80:
            break
    return len(block) - block.endswith(b"\r")


def _decode(block: bytes, offset: int, source: SourceFile) -> str:
    block = block.removeprefix(codecs.BOM_UTF8) if offset == 0 else block
    if (zero := block.find(b"\0")) >= 0:
        raise InputError(f"byte {offset + zero}: holds a zero byte, so this is binary data, not text",
                         where=source.name, remedy="give text")
    try:
        return block.decode("utf-8")
    except UnicodeDecodeError as error:
        late = f", though the first {MOST_BYTES >> 20} MiB are" if offset >= MOST_BYTES and not source.encoding else ""
        raise InputError(f"byte {offset + error.start}: 0x{block[error.start]:02x} is not UTF-8 here{late}",
                         where=source.name, remedy="convert the file, for example: iconv -f latin1 -t utf-8; or say "
                         "its encoding: --encoding cp1252") from error


def read_lines(source: SourceFile) -> Iterator[tuple[int, str]]:
    """Yield (line number from 1, line without its end). Only `\\n` and `\\r\\n` end a line.

    Errors: those of `read_blocks`; `InputError` for a line of more than `LONGEST_LINE` characters.
    """
    number, rest, size = 1, [""], 0
    for block in read_blocks(source):
        first, *others = block.split("\n")
        rest.append(first)
        size += len(first)
        if size > LONGEST_LINE:
            raise InputError(f"line {number} has no end within {LONGEST_LINE} characters", where=source.name,
                             remedy="check that this is the right kind of file")
        for other in others:
            yield number, "".join(rest)
            number, rest, size = number + 1, [other], len(other)
    if size:
        yield number, "".join(rest)
