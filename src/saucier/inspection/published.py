"""What can be opened: the published layouts, their classes, and which fields of a config are expressed or refused."""

from __future__ import annotations

from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from saucier.checkpoints.keys import COMMON, Key, Layout
from saucier.errors import InputError, nearest
from saucier.families.layouts import LAYOUTS

HEAD = """# Published checkpoints

What `saucier.load` opens and `model.save` writes back, by the `model_type` of a folder's config.json. A class is what
the folder holds, or what `head=` asks for. A field that is not expressed is refused by its name, unless it is known to
change no number. Written by `saucier families --page`; a test holds this page current. How to use it:
[checkpoints.md](checkpoints.md).

"""


def layouts() -> list[Layout]:
    """Return all layouts, in the order they are listed."""
    return list(LAYOUTS.values())


def layout(model_type: str) -> Layout:
    """Return the layout of a `model_type`. Raises `InputError` with the nearest for an unknown one."""
    if model_type not in LAYOUTS:
        raise InputError(f"no published layout {model_type!r}", where="families",
                         remedy=nearest(model_type, list(LAYOUTS)))
    return LAYOUTS[model_type]


def field(key: Key) -> str:
    """Return a field with the values that it may have, where these are few."""
    return f"{key.foreign} ({', '.join(sorted({str(name) for name in key.names}))})" if key.names else key.foreign


def as_plain(one: Layout) -> dict[str, Any]:
    """Return a layout as plain values."""
    heads = [key for published in one.classes.values() for key in published.keys]
    expressed = {key.foreign: sorted(str(name) for name in key.names) for key in (*one.keys, *heads)}
    return {"model_type": one.model_type, "classes": list(one.classes), "fields": expressed, "only": dict(one.fixed),
            "without_effect": sorted(one.free - expressed.keys())}


def overview() -> Table:
    """Return the list of all layouts, for a person."""
    shown = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    shown.add_column("model_type", style="cyan", no_wrap=True)
    shown.add_column("classes", overflow="fold")
    for name, one in LAYOUTS.items():
        shown.add_row(name, ", ".join(one.classes))
    return shown


def details(one: Layout) -> Group:
    """Return everything about one layout, for a person."""
    shown = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    shown.add_column(style="bold", no_wrap=True)
    shown.add_column(overflow="fold")
    shown.add_row("classes", "\n".join(one.classes))
    shown.add_row("fields", "\n".join(field(key) for key in one.keys))
    shown.add_row("only", "\n".join(f"{name}: {value!r}" for name, value in one.fixed.items()) or "(no such field)")
    shown.add_row("change no number", ", ".join(sorted(one.free)) or "(only those of every family)")
    return Group(Text(one.model_type, style="cyan bold"), shown,
                 Text(f"and {len(COMMON)} fields that change no number in any family", style="dim"))


def page() -> str:
    """Return docs/published.md."""
    return HEAD + "\n".join(section(one) for one in LAYOUTS.values())


def section(one: Layout) -> str:
    """Return the part of the page about one layout."""
    only = "; ".join(f"`{name}` only {value!r}" for name, value in one.fixed.items())
    lines = [f"## {one.model_type}", "", "Classes: " + ", ".join(f"`{name}`" for name in one.classes) + ".", "",
             "Fields: " + ", ".join(f"`{key.foreign}`" for key in one.keys) + "."]
    return "\n".join([*lines, *(["", f"Restricted: {only}."] if only else [])]) + "\n"
