"""Regular expressions from files and other people, matched in time linear in the text.

Python's own engine backtracks: an expression that repeats a repetition can keep it busy for years on ten letters.
RE2
(which pyarrow brings) never does; what it lacks, lookaround and back-references, is refused.
"""

from __future__ import annotations

from collections.abc import Callable

from saucier.errors import InputError

LONGEST_EXPRESSION = 1000
"""Letters of an expression."""
SHOWN_LETTERS = 80
"""Letters of one that an error shows."""


def compile_expression(text: str, where: str) -> Callable[[str], bool]:
    """Return the test whether an expression is found in a name. Raises `InputError` for one that cannot be used."""
    import pyarrow
    from pyarrow import compute

    def found(name: str) -> bool:
        return bool(compute.match_substring_regex(pyarrow.array([name]), pattern=text)[0].as_py())

    try:
        if len(text) > LONGEST_EXPRESSION:
            raise ValueError(f"it has {len(text):,} letters")
        found("")
    except ValueError as error:  # pyarrow's is one, too
        raise InputError(f"the expression {text[:SHOWN_LETTERS]!r} cannot be used ({str(error)[:200]})", where=where,
                         remedy="write another expression, without looking around and back-references") from error
    return found
