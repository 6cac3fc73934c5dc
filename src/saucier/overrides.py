"""Words `key.sub=value` of a command line, told from other words; `saucier.recipes.source` reads their values.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from saucier.errors import InputError

OVERRIDE = re.compile(r"^([A-Za-z_]\w*(?:\.\w+)*)=(.*)$", re.DOTALL)
"""The key, and the value as YAML."""
COMMAND_LINE = "command line"
"""Where such a word was written, in errors."""


def is_override(text: str) -> bool:
    """Tell an override from the name of a file; `./a=b.txt` is a file."""
    return OVERRIDE.match(text) is not None


def split_overrides(words: Sequence[str], files: Sequence[str], *, wrong: str, remedy: str) -> tuple[list[str],
                                                                                                   list[str]]:
    """Tell `key.sub=value` from more of the files that an option was given, as a shell unfolds `--data *.txt`.

    Returns (overrides, files). Raises `InputError` for a word that is neither; `wrong` says what it is not.
    """
    overrides = [word for word in words if is_override(word)]
    others = [word for word in words if not is_override(word)]
    if others and not files:
        raise InputError(f"{others[0]!r} is {wrong}", where=COMMAND_LINE, remedy=remedy)
    return overrides, [*files, *others]


def format_overrides(changes: dict[str, Any], before: str = "") -> Iterator[str]:
    """Yield `key.sub=value` words for nested values; a `kind` comes first, since it begins its section again."""
    for key, value in sorted(changes.items(), key=lambda item: item[0] != "kind"):
        if isinstance(value, dict) and value:
            yield from format_overrides(value, f"{before}{key}.")
        else:
            yield f"{before}{key}={json.dumps(value)}"
