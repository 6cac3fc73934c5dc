"""The errors that a person reads: one line that names what is wrong, where, and the remedy.

Everything else (a bug of ours) keeps its traceback. The command line turns these into exit codes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

LONGEST_PART = 1200
"""Letters of each part of an error: names from a damaged file may have any number."""


class SaucierError(Exception):
    """Base of the errors that are shown as one line; `exit_code` is what the command line returns."""

    exit_code = 1

    def __init__(self, what: str, *, where: str | None = None, remedy: str | None = None,
                 more: Sequence[str] = ()) -> None:
        """`where` is a file, line, byte offset or key path; `remedy` is what the person can do.

        `more`: further faults, each shown in a line of its own. Names from a hostile file may hold line ends and
        control characters: they are shown escaped, so that a fault stays one line and a terminal obeys nothing. A place
        whose name is empty or blank is shown in quotes.
        """
        where = repr(where) if where is not None and not where.strip() else where
        self.what, self.where, self.remedy = what, where, remedy
        what, where, remedy = shorten_text(what), shorten_text(where or ""), shorten_text(remedy or "")
        head = f"{where}: {what}" if where else what
        super().__init__("\n".join(map(escape_text,
                                       (f"{head}; {remedy}" if remedy else head, *map(shorten_text, more)))))


class InputError(SaucierError):
    """What was given is wrong: a file, a recipe, an option, a combination. Exit code 2."""

    exit_code = 2


class WorkError(SaucierError):
    """The input was right and the work failed: disk full, loss not finite, interrupted. Exit code 1."""


@contextmanager
def report_missing(what: str, *, remedy: str, where: str | None = None) -> Iterator[None]:
    """Raise `InputError` where an optional package that is imported inside is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise InputError(what, where=where, remedy=remedy) from error


def expect(value: object, kinds: type | tuple[type, ...], name: str, remedy: str) -> None:
    """Raise `InputError` for an argument of a Python function that is of another kind."""
    if not isinstance(value, kinds):
        raise InputError(f"is {type(value).__name__} {shorten_text(repr(value))[:80]}", where=name, remedy=remedy)


def expect_texts(values: object, name: str) -> None:
    """Raise `InputError` for an argument that is no list of texts."""
    expect(values, (list, tuple), name, "give a list of texts")
    texts = values if isinstance(values, list | tuple) else ()
    if wrong := [(place, one) for place, one in enumerate(texts, start=1) if not isinstance(one, str)]:
        raise InputError(f"text {wrong[0][0]} of {len(texts)} is {type(wrong[0][1]).__name__}", where=name,
                         remedy="give a list of texts")


def shorten_text(text: str) -> str:
    """Return a text without its middle where it is longer than a person reads."""
    return text if len(text) <= LONGEST_PART else f"{text[:LONGEST_PART // 2]} ... {text[-LONGEST_PART // 2:]}"


def escape_text(text: str) -> str:
    """Return a text with everything escaped that no terminal should be given."""
    return text if text.isprintable() else "".join(
        one if one.isprintable() else ascii(one)[1:-1] for one in text)


def suggest_name(name: str, known: list[str]) -> str:
    """Return the remedy for a wrong name: the closest known one, or the whole list when none is close."""
    import difflib

    close = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known)}"


DIRECTION_MARK = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Marks that turn the direction of what comes after them, on a screen also that of our own words."""


def escape_direction_marks(text: str) -> str:
    """Return a text with such marks written out, for a line that a person reads."""
    return DIRECTION_MARK.sub(lambda mark: f"\\u{ord(mark[0]):04x}", text)
