"""The errors that a person reads: one line that names what is wrong, where, and the remedy.

Everything else (a bug of ours) keeps its traceback. The command line turns these into exit codes.
"""

from __future__ import annotations


class SaucierError(Exception):
    """Base of the errors that are shown as one line; `exit_code` is what the command line returns."""

    exit_code = 1

    def __init__(self, what: str, *, where: str | None = None, remedy: str | None = None) -> None:
        """`where` is a file, line, byte offset or key path; `remedy` is what the person can do."""
        self.what, self.where, self.remedy = what, where, remedy
        head = f"{where}: {what}" if where else what
        super().__init__(f"{head}; {remedy}" if remedy else head)


class InputError(SaucierError):
    """What was given is wrong: a file, a recipe, an option, a combination. Exit code 2."""

    exit_code = 2


class WorkError(SaucierError):
    """The input was right and the work failed: disk full, loss not finite, interrupted. Exit code 1."""


def nearest(name: str, known: list[str]) -> str:
    """Return the remedy for a wrong name: the closest known one, or the whole list when none is close."""
    import difflib

    close = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known)}"
