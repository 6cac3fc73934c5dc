"""Which rules a person means: a built-in set or a file, changed by `rule.key=value`, `rule=off` and a few options."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, get_args

import yaml

from saucier.errors import InputError, nearest
from saucier.recipes.catalogue import file_text
from saucier.recipes.faults import validated
from saucier.recipes.overrides import COMMAND_LINE, apply_overrides
from saucier.recipes.reading import Source, read_yaml
from saucier.text.cleaning.config import SETS, Cleaning, Duplicates, LineRule, PageRule

KINDS = tuple(rule.model_fields["kind"].default for rule in get_args(LineRule | PageRule | Duplicates))
OFF = "off"


def cleaning(name_or_file: str, changes: Iterable[str] = ()) -> Cleaning:
    """Return the rules of a name or a file, with changes.

    `kind.key=value` changes a rule, or adds it at the end with that value; `kind=off` takes it away; any other
    `key=value` is about the cleaning as a whole. Raises `InputError` with a line for each fault.
    """
    source = _source(name_or_file)
    for change in changes:
        _apply(source, change)
    return validated(source, Cleaning)


def _source(name_or_file: str) -> Source:
    if name_or_file in SETS:
        return Source(name_or_file, as_values(Cleaning(rules=SETS[name_or_file])))
    if name_or_file.endswith((".yaml", ".yml")):
        return read_yaml(file_text(Path(name_or_file)), name_or_file)
    raise InputError(f"no set of rules has the name {name_or_file!r}", where="--rules",
                     remedy=f"{nearest(name_or_file, list(SETS))}; a file of yours ends in .yaml")


def _apply(source: Source, change: str) -> None:
    """Set one value. A rule is found by its kind."""
    kind, _, rest = change.partition(".") if "." in change.partition("=")[0] else change.partition("=")
    if kind not in KINDS:
        apply_overrides(source, [change])
        return
    rules: Any = source.values.setdefault("rules", [])
    if not isinstance(rules, list):
        raise InputError("is no list of rules", where=source.where(("rules",)), remedy="write one")
    place = next((number for number, rule in enumerate(rules) if isinstance(rule, dict) and rule.get("kind") == kind),
                 None)
    if change == f"{kind}={OFF}":
        if place is None:
            raise InputError(f"there is no rule {kind} to leave out", where=COMMAND_LINE, remedy="remove this change")
        del rules[place]
    elif change.startswith(f"{kind}="):
        raise InputError(f"{change!r} is no change to a rule", where=COMMAND_LINE,
                         remedy=f"write {kind}.key=value, or {kind}=off")
    else:
        if place is None:
            place = len(rules)
            rules.append({"kind": kind})
        apply_overrides(source, [f"rules.{place}.{rest}"])


def as_values(found: Cleaning) -> dict[str, Any]:
    """Return all values, as they stand in a file."""
    return found.model_dump(mode="json")


def as_text(found: Cleaning) -> str:
    """Return the rules as the text of a file that gives the same again."""
    text: str = yaml.safe_dump(as_values(found), sort_keys=False, allow_unicode=True, width=100)
    return text
