"""HTML pages from Python values: elements, tables, one style sheet, bars, curves. Text is escaped, unless it is `Html`.

A page needs nothing but a browser: no network, no script, no other file.
"""

from __future__ import annotations

import html
import io
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from saucier.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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


STYLE = """
:root {
  color-scheme: light dark;
  --paper: #fbf9f4; --raised: #fffefb; --ink: #26221d; --soft: #6f675c; --line: #e4ddd0; --track: #eee8dc;
  --accent: #a63a24; --accent-soft: #dba694; --second: #2f6b6a; --good: #33713f; --bad: #a63a24;
  --serif: "Iowan Old Style", "Palatino Linotype", Palatino, "Book Antiqua", "URW Palladio L", Georgia, "Noto Serif",
           "DejaVu Serif", serif;
  --sans: -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "Noto Sans", "Liberation Sans", Arial, system-ui,
          sans-serif;
  --mono: ui-monospace, "SF Mono", "Cascadia Code", Menlo, Consolas, "DejaVu Sans Mono", "Liberation Mono",
          monospace;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #181613; --raised: #201d19; --ink: #ece5d9; --soft: #a79d8e; --line: #38332b; --track: #2b2721;
    --accent: #ef8a6a; --accent-soft: #7d4a39; --second: #7cc0b8; --good: #8cc796; --bad: #ef8a6a;
  }
}
* { box-sizing: border-box; }
html { background: var(--paper); -webkit-text-size-adjust: 100%; }
body { margin: 0 auto; padding: 4rem 1.5rem 5rem; max-width: 54rem; color: var(--ink); background: var(--paper);
       font: 1rem/1.55 var(--sans); font-variant-numeric: lining-nums; text-rendering: optimizeLegibility; }
h1, h2 { font-family: var(--serif); font-weight: 600; line-height: 1.15; letter-spacing: -0.01em; }
h1 { margin: 0 0 .6rem; font-size: clamp(2.2rem, 6vw, 3.3rem); }
h2 { margin: 0 0 1.1rem; font-size: 1.45rem; }
h3 { margin: 1.8rem 0 .6rem; font-size: .95rem; font-weight: 600; }
p { margin: 0 0 .9rem; max-width: 40rem; }
a { color: var(--accent); }
section { margin-top: 3.4rem; padding-top: 1.5rem; border-top: 1px solid var(--line); }
.eyebrow { margin: 0 0 .8rem; color: var(--accent); font-size: .78rem; font-weight: 600; letter-spacing: .09em;
           text-transform: uppercase; }
.lead { color: var(--ink); font: 1.2rem/1.5 var(--serif); }
.soft, figcaption, .note { color: var(--soft); }
.note { font-size: .9rem; }
.key { margin-top: -.6rem; }
.scroll + .note { margin-top: .9rem; }
.good { color: var(--good); } .bad { color: var(--bad); }

.headline { display: grid; grid-template-columns: minmax(12rem, 17rem) 1fr; gap: 1.5rem 3rem; align-items: center;
            border-top: 0; margin-top: 2.2rem; padding: 2rem; background: var(--raised); border: 1px solid var(--line);
            border-radius: .6rem; }
.headline .value { font: 600 4rem/1 var(--serif); letter-spacing: -0.03em; color: var(--accent); }
.headline .unit { margin-top: .4rem; font-weight: 600; }
.headline .verdict { margin: .8rem 0 0; font-size: .92rem; line-height: 1.45; color: var(--soft); }
.headline.alone { grid-template-columns: 1fr; }

.bars { position: relative; display: grid; gap: .85rem; font-size: .92rem; }
.bar .name { display: flex; justify-content: space-between; gap: 1rem; align-items: baseline; }
.bar .name b { font-weight: 600; }
.bar .name span { font-variant-numeric: tabular-nums; }
.bar .track { position: relative; height: .8rem; margin-top: .25rem; background: var(--track); border-radius: 2px; }
.bar .fill { height: 100%; background: var(--soft); opacity: .55; border-radius: 2px; }
.bar.ours .fill { background: var(--accent); opacity: 1; }
.bar.ours .name { color: var(--accent); }
.bar .target { position: absolute; top: -.2rem; bottom: -.2rem; width: 0; border-left: 2px solid var(--ink); }
.bar .about { color: var(--soft); font-size: .8rem; line-height: 1.35; margin-top: .15rem; }

.facts { display: grid; grid-template-columns: repeat(auto-fit, minmax(7rem, 1fr)); gap: 1.2rem 1rem;
         margin: 2rem 0 0; padding: 0; }
.facts div { border-left: 2px solid var(--line); padding-left: .8rem; }
.facts dt { color: var(--soft); font-size: .8rem; }
.facts dd { margin: .1rem 0 0; font: 600 1.05rem/1.4 var(--serif); white-space: nowrap; }
.facts dd small { display: block; white-space: normal; font: .78rem/1.35 var(--sans); color: var(--soft); }

figure { margin: 0; }
figure svg { display: block; width: 100%; height: auto; }
figure svg text { font-family: var(--sans) !important; fill: var(--soft); }
figcaption { margin-top: .8rem; font-size: .9rem; max-width: 40rem; }

.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; font-variant-numeric: tabular-nums lining-nums; }
th, td { padding: .38rem 1.1rem .38rem 0; text-align: left; vertical-align: top; border-bottom: 1px solid var(--line); }
th { color: var(--soft); font-size: .8rem; font-weight: 500; border-bottom-color: var(--soft); white-space: nowrap; }
th.number, td.number { text-align: right; white-space: nowrap; }
th:last-child, td:last-child { padding-right: 0; }
table.narrow { max-width: 26rem; margin-bottom: 1.2rem; }
table.anatomy { font-size: .85rem; }
table.anatomy td { padding-top: .2rem; padding-bottom: .2rem; border-bottom: 0; }
table.anatomy td:first-child, table.anatomy td:nth-child(3) { white-space: nowrap; }
table.anatomy tbody tr:hover, table.plain tbody tr:hover { background: var(--track); }
.share { display: inline-block; width: 5rem; height: .5rem; background: var(--track); vertical-align: middle;
         border-radius: 2px; overflow: hidden; }
.share i { display: block; height: 100%; background: var(--second); }

.phases { display: flex; gap: 2px; height: 1.4rem; margin: .2rem 0 1rem; border-radius: 3px; overflow: hidden; }
.phases i { background: var(--second); min-width: 2px; }
.phases i:nth-child(even) { opacity: .55; }

blockquote { margin: 0 0 1.6rem; padding: 1.2rem 1.5rem; background: var(--raised); border: 1px solid var(--line);
             border-left: 3px solid var(--accent); border-radius: .3rem; }
blockquote header { margin-bottom: .7rem; color: var(--soft); font-size: .8rem; }
blockquote pre, pre { margin: 0; font: .84rem/1.55 var(--mono); white-space: pre-wrap; overflow-wrap: anywhere; }
blockquote .prompt { color: var(--soft); }
blockquote mark { background: none; color: var(--ink); }
blockquote footer { margin-top: .9rem; padding-top: .7rem; border-top: 1px solid var(--line); font-size: .86rem;
                    color: var(--soft); }

dl.record { display: grid; grid-template-columns: minmax(9rem, max-content) 1fr; gap: .3rem 1.6rem; margin: 0;
            font-size: .9rem; }
dl.record dt { color: var(--soft); }
dl.record dd { margin: 0; overflow-wrap: anywhere; }
dl.record dd dl.record { grid-template-columns: minmax(7rem, max-content) 1fr; }
code { font: .88em var(--mono); overflow-wrap: anywhere; }
details { margin-top: 1.5rem; }
summary { cursor: pointer; font-weight: 600; font-size: .95rem; }
details pre { margin-top: .9rem; padding: 1rem 1.2rem; background: var(--raised); border: 1px solid var(--line);
              border-radius: .3rem; }
body > footer { margin-top: 3.5rem; padding-top: 1.2rem; border-top: 1px solid var(--line); color: var(--soft);
                font-size: .85rem; }

@media (max-width: 44rem) {
  body { padding-top: 2rem; }
  .headline { grid-template-columns: 1fr; padding: 1.4rem; }
  dl.record, dl.record dd dl.record { grid-template-columns: 1fr; gap: .1rem; }
  dl.record dd { margin-bottom: .5rem; }
}
@media print {
  body { max-width: none; padding: 0; font-size: 10pt; }
  section { break-inside: avoid; } blockquote { break-inside: avoid; }
}
"""


def html_document(title: str, *content: Html) -> str:
    """Return a page of ours. It forbids every load from elsewhere: text in a report can never fetch anything."""
    policy = element("meta", http_equiv="Content-Security-Policy",
                     content="default-src 'none'; style-src 'unsafe-inline'")
    head = element("head", element("meta", charset="utf-8"), policy,
                   element("meta", name="viewport", content="width=device-width, initial-scale=1"),
                   element("title", f"{title} · Saucier"), element("style", Html(STYLE)))
    return f"<!DOCTYPE html>\n{element('html', head, element('body', *content), lang='en')}\n"


INK, SOFT, LINE, ACCENT, SECOND = "#010203", "#010204", "#010205", "#010206", "#010207"
"""Stand-ins: matplotlib draws with them, and each becomes the style sheet's colour, light or dark."""
VARIABLES = {INK: "var(--ink)", SOFT: "var(--soft)", LINE: "var(--line)", ACCENT: "var(--accent)",
             SECOND: "var(--second)"}
FIXED = {INK: "#5f6670", SOFT: "#7d858f", LINE: "#b5bbc2", ACCENT: "#c0503a", SECOND: "#2f7f7b"}
"""Colours of a picture that stands alone, which can be read on light and on dark paper."""
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
