"""HTML from Python values: every text is escaped, unless it is already `Html`. Nothing here knows what is reported."""

from __future__ import annotations

import html
from collections.abc import Iterable

VOID = {"br", "col", "hr", "meta"}
"""Elements without content."""


class Html(str):
    """A piece of finished HTML, which is not escaped again."""

    __slots__ = ()


def escaped(value: object) -> Html:
    """Return a value as HTML: finished pieces as they are, all else as escaped text."""
    return value if isinstance(value, Html) else Html(html.escape(str(value)))


def joined(parts: Iterable[object], between: str = "") -> Html:
    """Put parts one behind another, with escaped text in between."""
    return Html(escaped(between).join(escaped(part) for part in parts))


def element(name: str, /, *content: object, **attributes: str | None) -> Html:
    """Make an element. Attributes: `class_` stands for class, `aria_label` for aria-label; None leaves one out."""
    given = {key.rstrip("_").replace("_", "-"): value for key, value in attributes.items() if value is not None}
    opening = "".join(f' {key}="{html.escape(value)}"' for key, value in given.items())
    return Html(f"<{name}{opening}>") if name in VOID else Html(f"<{name}{opening}>{joined(content)}</{name}>")


def table(head: Iterable[object], rows: Iterable[Iterable[object]], *, numbers: Iterable[int] = (),
          class_: str | None = None) -> Html:
    """Make a table inside a box that scrolls where the window is narrow; columns in `numbers` are set to the right."""
    right = set(numbers)

    def line(name: str, cells: Iterable[object]) -> Html:
        return element("tr", *(element(name, cell, class_="number" if place in right else None)
                               for place, cell in enumerate(cells)))

    titles = list(head)
    heading = [element("thead", line("th", titles))] if any(titles) else []
    body = element("tbody", *(line("td", cells) for cells in rows))
    return element("div", element("table", *heading, body, class_=class_), class_="scroll")
