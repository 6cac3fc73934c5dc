"""HTML pages from Python values: elements, tables, records, bars, curves. Text is escaped, unless it is `Html`.

A page needs nothing but a browser: no network, no script, no other file.
"""

from __future__ import annotations

import html
import io
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from saucier.errors import InputError
from saucier.table import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STYLE = Path(__file__).with_name("style.css")
VOID = {"br", "col", "hr", "meta"}
"""Elements without content."""


class Html(str):
    """A piece of finished HTML, which is not escaped again."""

    __slots__ = ()


def escaped(value: object) -> Html:
    """Return a value as HTML: finished pieces as they are, all else as escaped text."""
    return value if isinstance(value, Html) else Html(html.escape(str(value)))


def joined(parts: Iterable[object], between: str = "") -> Html:
    """Join parts, with escaped text in between."""
    return Html(escaped(between).join(escaped(part) for part in parts))


def element(name: str, /, *content: object, **attributes: str | None) -> Html:
    """Make an element. Attributes: `class_` is class, `aria_label` for aria-label; None leaves one out."""
    given = {key.rstrip("_").replace("_", "-"): value for key, value in attributes.items() if value is not None}
    opening = "".join(f' {key}="{html.escape(value)}"' for key, value in given.items())
    return Html(f"<{name}{opening}>") if name in VOID else Html(f"<{name}{opening}>{joined(content)}</{name}>")


def table(shown: Table, class_: str | None = "plain") -> Html:
    """Make a table inside a box that scrolls where the window is narrow."""
    def line(name: str, cells: Iterable[object]) -> Html:
        return element("tr", *(element(name, cell, class_="number" if place in shown.numbers else None)
                               for place, cell in enumerate(cells)))

    heading = [element("thead", line("th", shown.headings))] if any(shown.headings) else []
    body = element("tbody", *(line("td", cells) for cells in shown.rows))
    return element("div", element("table", *heading, body, class_=class_), class_="scroll")


def section(title: str, *content: object) -> Html:
    """Make a section with its heading."""
    return element("section", element("h2", title), *content)


def record_table(values: Mapping[str, Any]) -> Html:
    """Show named values, one within another."""
    pairs = ((element("dt", str(name).replace("_", " ")), element("dd", _format_value(value)))
             for name, value in values.items())
    return element("dl", *(part for pair in pairs for part in pair), class_="record")


def _format_value(value: Any) -> Html:
    match value:
        case dict() if value:
            return record_table(value)
        case [*items] if any(isinstance(one, dict | list) for one in items):
            return joined(map(_format_value, items))
        case [_, *_] as items:
            return element("span", ", ".join(map(str, items)))
        case None | {} | []:
            return element("span", "none", class_="soft")
        case bool():
            return element("span", "yes" if value else "no")
        case int():
            return element("span", f"{value:,}" if abs(value) < 1e15 else str(value))
        case float():
            return element("span", f"{value:,.6g}")
        case _:
            return element("span", str(value))


def html_document(title: str, *content: Html) -> str:
    """Return a page of ours. It forbids every load from elsewhere: text in a report can never fetch anything."""
    policy = element("meta", http_equiv="Content-Security-Policy",
                     content="default-src 'none'; style-src 'unsafe-inline'")
    head = element("head", element("meta", charset="utf-8"), policy,
                   element("meta", name="viewport", content="width=device-width, initial-scale=1"),
                   element("title", f"{title} · Saucier"),
                   element("style", Html("\n" + STYLE.read_text(encoding="utf-8"))))
    return f"<!DOCTYPE html>\n{element('html', head, element('body', *content), lang='en')}\n"


INK, SOFT, LINE, ACCENT, SECOND = "#010203", "#010204", "#010205", "#010206", "#010207"
"""Stand-ins: matplotlib draws with them, and each becomes the style sheet's colour, light or dark."""
VARIABLES = {INK: "var(--ink)", SOFT: "var(--soft)", LINE: "var(--line)", ACCENT: "var(--accent)",
             SECOND: "var(--second)"}
FIXED = {INK: "#5f6670", SOFT: "#7d858f", LINE: "#b5bbc2", ACCENT: "#c0503a", SECOND: "#2f7f7b"}
"""Colours of a picture in a file of its own, which can be read on light and on dark paper."""
Points = Sequence[tuple[float, float]]
WIDTH, HEIGHT = 8.2, 4.6
"""Inches; the page scales the drawing."""


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar: a name, a value, and a phrase under it."""

    name: str
    value: float
    about: str = ""
    ours: bool = False
    """The bar that the picture is about."""


@dataclass(frozen=True, slots=True)
class Curves:
    """What is drawn of a training run: (step, value) pairs."""

    train: Points
    held_out: Points
    rate: Points


def bars(values: Sequence[Bar], *, target: float | None = None, label: str) -> Html:
    """Draw bars from zero, with a mark at `target`."""
    top = max([bar.value for bar in values] + ([target] if target else [])) or 1.0
    return element("div", *(_bar(bar, top, target) for bar in values), class_="bars", role="img",
                   aria_label=f"{label}: " + ", ".join(f"{bar.name} {bar.value:.2f}" for bar in values))


def _bar(bar: Bar, top: float, target: float | None) -> Html:
    line = [element("div", class_="target", style=f"left:{100 * target / top:.2f}%")] if target else []
    fill = element("div", class_="fill", style=f"width:{100 * bar.value / top:.2f}%")
    about = [element("div", bar.about, class_="about")] if bar.about else []
    name = element("div", element("b", bar.name), element("span", f"{bar.value:.2f}"), class_="name")
    track = element("div", fill, *line, class_="track")
    return element("div", name, track, *about, class_="bar ours" if bar.ours else "bar")


def curves(run: Curves) -> Html:
    """Draw the losses, and the learning rate below them.

    Errors: `InputError` where matplotlib is missing.
    """
    def draw(figure: Figure) -> None:
        loss, rate = figure.subplots(2, 1, sharex=True, height_ratios=(3.4, 1), gridspec_kw={"hspace": 0.3})
        _draw_loss(loss, run)
        _draw_rate(rate, run)

    return draw_inline(draw)


def draw_inline(draw: Callable[[Figure], None], height: float = HEIGHT) -> Html:
    """Let matplotlib draw a figure, and return it as part of a page.

    Errors: `InputError` where matplotlib is missing.
    """
    return _inline(_plotted(draw, height))


def draw_svg(draw: Callable[[Figure], None], height: float = HEIGHT) -> str:
    """Let matplotlib draw a figure, and return it as an SVG file that needs no style sheet.

    Errors: `InputError` where matplotlib is missing.
    """
    return _coloured(_plotted(draw, height), FIXED)


def _plotted(draw: Callable[[Figure], None], height: float) -> str:
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        raise InputError("the curves need matplotlib, which is not installed",
                         remedy="pip install 'saucier[report]'") from None
    with rc_context(_settings()):
        figure = Figure(figsize=(WIDTH, height))
        draw(figure)
        file = io.StringIO()
        figure.savefig(file, format="svg", transparent=True, bbox_inches="tight", pad_inches=0.04,
                       metadata={"Date": None})
    return file.getvalue()


def _settings() -> dict[Any, Any]:
    """Text stays text, in the page's own fonts; the same numbers always give the same file."""
    return {"svg.fonttype": "none", "svg.hashsalt": "saucier", "font.size": 9.5, "axes.edgecolor": LINE,
            "text.color": SOFT, "axes.labelcolor": SOFT, "xtick.color": SOFT, "ytick.color": SOFT,
            "axes.spines.top": False, "axes.spines.right": False, "axes.spines.left": False,
            "xtick.major.size": 0, "ytick.major.size": 0, "grid.color": LINE, "grid.linewidth": 0.8}


def _draw_loss(axes: Axes, run: Curves) -> None:
    if run.train:
        axes.plot(*zip(*run.train, strict=True), color=ACCENT, linewidth=1.1, alpha=0.55, label="training")
    if run.held_out:
        axes.plot(*zip(*run.held_out, strict=True), color=SECOND, linewidth=1.8, marker="o", markersize=4,
                  label="held-out")
    axes.set_title("loss, nats a token", loc="left", fontsize=10, color=INK)
    axes.grid(axis="y")
    axes.margins(x=0.01)
    if run.train or run.held_out:
        axes.legend(loc="upper right", frameon=False, ncols=2)


def _draw_rate(axes: Axes, run: Curves) -> None:
    if run.rate:
        steps, rates = zip(*run.rate, strict=True)
        axes.fill_between(steps, rates, color=SOFT, alpha=0.25, linewidth=0)
        axes.plot(steps, rates, color=SOFT, linewidth=1.2)
        axes.set_ylim(0, max(rates) * 1.15 or 1)
    axes.set_title("learning rate", loc="left", fontsize=10, color=INK)
    axes.ticklabel_format(axis="y", style="plain", useOffset=False)
    axes.locator_params(axis="y", nbins=2)
    axes.grid(axis="y")
    axes.set_xlabel("step")


def _inline(svg: str) -> Html:
    """Keep the element alone, without fixed size, in the page's colours."""
    svg = svg[svg.index("<svg"):]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1)
    return Html(_coloured(svg, VARIABLES).strip())


def _coloured(svg: str, colours: Mapping[str, str]) -> str:
    for stand_in, colour in colours.items():
        svg = svg.replace(stand_in, colour)
    return svg
