"""Regular expressions that come from files and words of others: matched in time that grows with the text alone.

Python's own engine tries again and again where an expression repeats what repeats, so that one of ten letters can keep
it busy for years. RE2 (pyarrow brings it) never does; what it lacks, looking around and back-references, is refused.
"""

from __future__ import annotations

from collections.abc import Callable

from saucier.errors import InputError

LONGEST = 1000
"""Letters of an expression."""
SHOWN = 80
"""Letters of one that an error shows."""


def expression(text: str, where: str) -> Callable[[str], bool]:
    """Return the test whether an expression is found in a name. Raises `InputError` for one that cannot be used."""
    import pyarrow
    from pyarrow import compute

    def found(name: str) -> bool:
        return bool(compute.match_substring_regex(pyarrow.array([name]), pattern=text)[0].as_py())

    try:
        if len(text) > LONGEST:
            raise ValueError(f"it has {len(text):,} letters")
        found("")
    except ValueError as error:  # pyarrow's is one, too
        raise InputError(f"the expression {text[:SHOWN]!r} cannot be used ({str(error)[:200]})", where=where,
                         remedy="write another expression, without looking around and back-references") from error
    return found
