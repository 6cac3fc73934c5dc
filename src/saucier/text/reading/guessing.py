"""How a file of text or a table is written: the encoding of its letters, and the delimiter between its cells.

Both are guessed where a person does not say them. A guess follows from the file's first part alone, and says what
speaks against it.
"""

from __future__ import annotations

import codecs
import csv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from saucier.errors import InputError

MOST_BYTES = 1 << 24
"""Bytes of a file in which its encoding is looked for."""
MOST_LINES, MOST_LETTERS = 200, 1 << 18
"""Lines, and letters in them, in which the delimiter of a table is looked for."""
DELIMITERS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}
"""What may be between two cells, and the word for it; the usual one first."""
UTF_8 = ("utf-8", "utf-8-sig")
MARKS = {codecs.BOM_UTF32_LE: "utf-32", codecs.BOM_UTF32_BE: "utf-32", codecs.BOM_UTF8: "utf-8-sig",
         codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
"""Byte order marks; that of UTF-32 begins like that of UTF-16, and comes first."""
CONTROLS = bytes({*range(1, 32), 127} - {*b"\t\n\v\f\r\x1b"})
"""Bytes that no text in one byte a letter holds."""
MOSTLY_ZERO, HARDLY_ZERO = 0.3, 0.02
"""Shares of zero bytes among those that UTF-16 without a mark has at one side of each letter, and at the other."""


@dataclass(frozen=True, slots=True)
class Guess:
    """What was found of a file."""

    value: str
    doubt: str = ""
    """What speaks against it; empty where nothing does."""


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How files are read where a person says so. Raises `InputError` for what no file is written in."""

    delimiter: str | None = None
    """What is between two cells: a letter, or a word of `DELIMITERS`; None: guessed for each file."""
    encoding: str | None = None
    """A name that Python knows; None: guessed for each file."""

    def __post_init__(self) -> None:
        """Write both as they are used."""
        words = {word: mark for mark, word in DELIMITERS.items()} | {"\\t": "\t"}
        if self.delimiter is not None:
            found = words.get(self.delimiter, self.delimiter)
            if len(found) != 1 or found in '"\r\n\0':
                raise InputError(f"{self.delimiter!r} is no delimiter", where="--delimiter (data.delimiter)",
                                 remedy=f"give one letter, or {', '.join(words)}")
            object.__setattr__(self, "delimiter", found)
        if self.encoding is not None:
            object.__setattr__(self, "encoding", check_encoding(self.encoding))


def check_encoding(name: str) -> str:
    """Return the usual name of an encoding. Raises `InputError` for one that Python does not know."""
    try:
        codecs.getincrementaldecoder(name)().decode(b"")
        b"".decode(name)
        return codecs.lookup(name).name
    except (LookupError, ValueError) as error:
        raise InputError(f"{name!r} is no encoding of texts", where="--encoding (data.encoding)",
                         remedy="give one such as utf-8, cp1252, latin-1, utf-16, cp1251, shift_jis") from error


def guess_encoding(chunks: Iterable[bytes]) -> Guess:
    """Guess the encoding of a file from its chunks; the first one shows a byte order mark.

    Whatever is valid UTF-8 in its first `MOST_BYTES` is UTF-8, and so is what is no text in one byte a letter either
    (binary data, or UTF-8 with a few damaged bytes): its reader then names the first wrong byte.
    """
    decoder, read = codecs.getincrementaldecoder("utf-8")(), 0
    for chunk in chunks:
        if read == 0 and (mark := next((mark for mark in MARKS if chunk.startswith(mark)), None)) is not None:
            return Guess(MARKS[mark])
        if read == 0 and (wide := guess_wide(chunk)) is not None:
            return wide
        try:
            decoder.decode(chunk)
        except UnicodeDecodeError:
            return guess_narrow(chunk)
        read += len(chunk)
        if read >= MOST_BYTES:
            break
    return Guess("utf-8")


def guess_wide(start: bytes) -> Guess | None:
    """Return the encoding of a text in two bytes a letter that has no mark: every second byte is mostly zero."""
    start = start[:len(start) // 2 * 2]
    first, second = (part.count(0) / max(1, len(part)) for part in (start[::2], start[1::2]))
    doubt = "it has no byte order mark"
    if second > MOSTLY_ZERO and first < HARDLY_ZERO:
        return Guess("utf-16-le", doubt)
    return Guess("utf-16-be", doubt) if first > MOSTLY_ZERO and second < HARDLY_ZERO else None


def guess_narrow(chunk: bytes) -> Guess:
    """Return the encoding of a chunk that is not UTF-8: one of Western Europe in one byte a letter, if it is text."""
    letters = chunk.decode("utf-8", "replace")
    wrong = letters.count("\ufffd")
    valid = sum(letter > "\x7f" for letter in letters) - wrong
    if valid > wrong or b"\0" in chunk or chunk.translate(None, CONTROLS) != chunk:
        return Guess("utf-8")
    try:
        text, name = chunk.decode("cp1252"), "cp1252"
    except UnicodeDecodeError:
        text, name = chunk.decode("latin-1"), "latin-1"
    word = next((word for word in text.split() if not word.isascii()), "")
    return Guess(name, f"not UTF-8, read as {shorten_word(word)!r}" if word else "not UTF-8")


def shorten_word(word: str) -> str:
    """Cut a word that is too long to show, around its first letter that is not ASCII."""
    place = next(place for place, letter in enumerate(word) if letter > "\x7f")
    return word[max(0, place - 12):place + 12]


def guess_delimiter(lines: Sequence[str], usual: str, *, whole: bool) -> Guess:
    """Guess the delimiter of a table from its first lines: most rows have as many cells as the header has by it.

    The `usual` one is preferred; another one needs a header of two cells or more, and more than half of the rows.
    `whole`: these are all lines.
    """
    fits = {mark: share_of_whole_rows(lines, mark, whole=whole) for mark in dict.fromkeys((usual, *DELIMITERS))}
    likely = {mark: share for mark, share in fits.items() if share > (0 if mark == usual else 0.5)}
    best = max(likely, key=lambda mark: likely[mark], default=usual)
    others = [repr(mark) for mark, share in likely.items() if mark != best and share == likely[best]]
    if others:
        return Guess(best, f"{' and '.join(others)} would fit as well")
    return Guess(best, "some rows have another number of cells" if likely and likely[best] < 1 else "")


def share_of_whole_rows(lines: Sequence[str], delimiter: str, *, whole: bool) -> float:
    """Return the share of rows that have as many cells as the header; 0 where that has one cell only."""
    reader, rows = csv.reader((line + "\n" for line in lines), delimiter=delimiter), list[int]()
    try:
        rows = [len(row) for row in reader if row]
    except csv.Error:
        return 0.0
    if not whole and len(rows) > 1:
        rows.pop()  # which may be cut inside a quote
    if not rows or rows[0] < 2:
        return 0.0
    return rows.count(rows[0]) / len(rows)
