"""Reading `vocab.txt`, `vocab.json` and `merges.txt`, with errors that name the line."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from saucier.errors import InputError
from saucier.files import read_object

LARGEST_ID = 100_000_000


def read_lines(path: Path) -> list[str]:
    """Read the lines of a UTF-8 file; only a line feed ends a line. Raises `InputError` that names the byte."""
    if not path.is_file():
        raise InputError(f"has no {path.name}", where=str(path.parent), remedy="fetch the whole folder")
    try:
        text = path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError("not UTF-8 text", where=f"{path}, byte {error.start}", remedy="fetch it again") from error
    lines = text.split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def read_vocab_lines(path: Path) -> dict[str, int]:
    """Read a vocabulary with one token a line, whose id is the number of the line."""
    vocab = {line.rstrip(): number for number, line in enumerate(read_lines(path))}
    if not vocab:
        raise InputError("is empty", where=str(path), remedy="fetch it again")
    return vocab


def read_vocab(path: Path) -> dict[str, int]:
    """Read a vocabulary of the form {token: id}. Raises `InputError` for an id that is none, or is given twice."""
    if not path.is_file():
        raise InputError(f"has no {path.name}", where=str(path.parent), remedy="fetch the whole folder")
    vocab, seen = read_object(path), dict[int, str]()
    for token, number in vocab.items():
        if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= LARGEST_ID:
            raise InputError(f"the id of {token!r} is {str(number)[:40]!r}", where=str(path), remedy="fetch it again")
        if number in seen:
            raise InputError(f"{seen[number]!r} and {token!r} both have the id {number}", where=str(path),
                             remedy="fetch it again")
        seen[number] = token
    if not vocab:
        raise InputError("is empty", where=str(path), remedy="fetch it again")
    return vocab


def read_merges(path: Path, vocab: Mapping[str, int]) -> list[tuple[str, str]]:
    """Read the merges in their order. Raises `InputError` for a line that is no pair of known tokens."""
    merges = []
    for number, line in enumerate(read_lines(path), start=1):
        if line.startswith("#version") or not line.strip():
            continue
        merges.append(read_pair(line.rstrip("\r").split(" "), line, f"{path}:{number}"))
        for token in (*merges[-1], "".join(merges[-1])):
            if token not in vocab:
                raise InputError(f"{token!r} is not in vocab.json", where=f"{path}:{number}",
                                 remedy="vocab.json and merges.txt must belong together")
    return merges


def read_codes(path: Path, *, heading: bool) -> list[tuple[str, str]]:
    """Read merges as fastBPE writes them, whose products need not be tokens.

    `heading`: the first line is none of them (CTRL); else how often a pair was seen may stand behind it (XLM). Of a
    pair that stands twice the last place counts. Raises `InputError` for a line that is no pair.
    """
    lines = [*enumerate(read_lines(path), start=1)][heading:]
    return [read_pair(line.split()[:None if heading else 2], line, f"{path}:{number}")
            for number, line in lines if line.strip()]


def read_pair(parts: list[str], line: str, where: str) -> tuple[str, str]:
    """Return the two parts of a merge. Raises `InputError` for another number of them."""
    if len(parts) != 2:
        raise InputError(f"{line[:60]!r} is no pair", where=where, remedy="fetch it again")
    return parts[0], parts[1]
