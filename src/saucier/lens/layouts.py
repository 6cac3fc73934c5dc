"""What can be opened: the published layouts, their classes, and which fields of a config are expressed or refused."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from typing import Any

from rich.console import Group
from rich.text import Text

from saucier.checkpoints.fields import COMMON, GENERATION, NEUTRAL, SPECIAL_IDS, Key
from saucier.checkpoints.layout import Layout
from saucier.errors import InputError, suggest_name
from saucier.families import LAYOUTS
from saucier.result import Result
from saucier.table import Table


def find_layout(model_type: str) -> Layout:
    """Return the layout of a `model_type`. Raises `InputError` with the nearest for an unknown one."""
    if model_type not in LAYOUTS:
        raise InputError(f"no published layout {model_type!r}", where="families",
                         remedy=suggest_name(model_type, list(LAYOUTS)))
    return LAYOUTS[model_type]


ANY = "any value that makes a model"


@dataclass(frozen=True, slots=True)
class Ruling:
    """What becomes of one field of a config."""

    name: str
    values: tuple[Any, ...] | None = None
    """The values that are obeyed, all others are refused; None: every value that makes a model."""
    acts: bool = True
    """Whether it changes a number."""
    newer: str = ""
    """The field that it says something of, where it is another spelling."""
    words: str = ""
    """What is obeyed, where a list of values does not say it."""
    classes: tuple[str, ...] = ()
    """The classes that read it; none: all."""

    @property
    def obeyed(self) -> str:
        """What is obeyed, in words."""
        if self.newer:
            return f"another spelling of {self.newer}"
        if self.words:
            return self.words
        if not self.acts:
            return "changes no number"
        return ANY if self.values is None else ", ".join(map(str, self.values))

    @property
    def refused(self) -> str:
        """What is refused, in words."""
        return "" if self.values is None and self.words in ("", ANY) else "any other"

    def as_plain(self) -> dict[str, Any]:
        """Return it as plain values."""
        values = None if self.values is None else [value for value in self.values if value is not None]
        return {"field": self.name, "obeyed": self.words or values, "changes_numbers": self.acts,
                "older_name_of": self.newer or None, "classes": list(self.classes)}


def rule_fields(one: Layout, published: str | None = None) -> list[Ruling]:
    """Return what becomes of every field that a layout knows, for one of its classes or for all; others are refused."""
    found = own_rulings(one, published)
    return [*found, *shared_rulings(one, {ruled.name for ruled in found})]


def shared_rulings(one: Layout, ruled: Set[str]) -> list[Ruling]:
    """Return what becomes of the fields of every family that a layout's own tables do not rule."""
    return [*(Ruling(name, (value,)) for name, value in NEUTRAL.items() if name not in one.known_fields | ruled),
            *(Ruling(name, acts=False) for name in sorted(COMMON - ruled))]


def own_rulings(one: Layout, published: str | None = None) -> list[Ruling]:
    """Return what becomes of the fields that a layout's own tables know, for one of its classes or for all."""
    names = list(one.classes) if published is None else [published]
    found = {key.foreign: rule_key(key) for key in one.keys}
    for name in names:
        for key in one.classes[name].keys:
            before = found.get(key.foreign)
            if before is None or (before.classes and name not in before.classes):
                found[key.foreign] = rule_key(key, (*(before.classes if before else ()), name))
    found |= {name: Ruling(name, (value,)) for name, value in one.fixed.items()}
    found |= {name: Ruling(name, words=words) for name, words in one.obeyed.items()}
    older = {name: Ruling(name, newer=newer) for name, newer in one.older.items()}
    older |= {name: Ruling(name, newer=key.foreign) for known in names for key in (*one.keys, *one.classes[known].keys)
              for name in key.instead}
    free = {name: Ruling(name, acts=False) for name in sorted(one.free)}
    return list({**found, **{name: ruling for name, ruling in {**free, **older}.items() if name not in found}}.values())


def rule_key(key: Key, classes: tuple[str, ...] = ()) -> Ruling:
    """Return what becomes of the field of a key."""
    return Ruling(key.foreign, tuple(key.names) or None, classes=classes)


@dataclass(frozen=True, slots=True)
class Layouts(Result):
    """Published layouts: an overview, or all about one."""

    found: tuple[Layout, ...]
    whole: bool = False
    """Show all about each."""

    def view(self) -> Table | Group:
        """Return what `saucier families` prints."""
        if self.whole:
            return Group(*map(layout_details, self.found))
        return Table(("model_type", "classes"), [(one.model_type, ", ".join(one.classes)) for one in self.found],
                     folded=(1,), colours={0: "cyan"})

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {"layouts": self.to_json()}

    def to_json(self) -> list[dict[str, Any]]:
        """Return the layouts alone."""
        return [layout_as_json(one) for one in self.found]


def layout_as_json(one: Layout) -> dict[str, Any]:
    """Return a layout as plain values."""
    heads = [key for published in one.classes.values() for key in published.keys]
    expressed = {key.foreign: sorted(str(name) for name in key.names) for key in (*one.keys, *heads)}
    return {"model_type": one.model_type, "classes": list(one.classes), "fields": expressed, "only": dict(one.fixed),
            "without_effect": sorted(one.free - expressed.keys()),
            "rulings": [found.as_plain() for found in rule_fields(one)], "other_fields": "refused"}


def layout_details(one: Layout) -> Group:
    """Return everything about one layout, for a person: its classes, and what becomes of each field."""
    own = own_rulings(one)
    acting = [found for found in own if found.acts]
    rows = [(found.name, found.obeyed + (f" (in {', '.join(found.classes)})" if found.classes else ""), found.refused)
            for found in acting]
    single = [found for found in shared_rulings(one, {found.name for found in own}) if found.acts]
    shared = Text("in every family one value alone: " + ", ".join(f"{found.name} {found.obeyed}" for found in single))
    shared_idle = f"{len(COMMON)} fields of every family, of which only generation reads"
    idle = [*sorted(one.free - {found.name for found in acting}), shared_idle]
    free = Text(f"changes no number: {', '.join(idle)} {', '.join((*SPECIAL_IDS, *GENERATION))}, and refuses by name "
                "what it cannot follow", style="dim")
    return Group(Text(one.model_type, style="cyan bold"), Text("classes: " + ", ".join(one.classes)),
                 Table(("field", "obeyed", "refused"), rows, folded=(1,), colours={0: "cyan"}), shared, free,
                 Text("any other field is refused by its name"))
