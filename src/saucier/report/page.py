"""HTML pages: templates that are filled in with Jinja, and the drawings in them. All text is escaped.

A page needs nothing but a browser: no network, no script, no other file.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from saucier.errors import InputError, report_missing
from saucier.files import write_text
from saucier.plain import format_duration, format_quantity

if TYPE_CHECKING:
    from jinja2 import Environment
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TEMPLATES = Path(__file__).with_name("templates")
"""A file for each kind of report, what they share (`base.html`, `parts.html`), and their style sheet."""
REPORT_FILE = "report.html"


@cache
def environment() -> Environment:
    """Return what fills in templates: it escapes all text but `Markup`, and fails for a name that is not given."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    made = Environment(loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined,
                       trim_blocks=True, lstrip_blocks=True)
    made.filters |= {"duration": format_duration, "quantity": format_quantity}
    return made


def render_page(template: str, **values: object) -> str:
    """Fill in the template of a report. It needs `title`, and what its file names."""
    return environment().get_template(template).render(values)


def write_page(target: Path, template: str, **values: object) -> Path:
    """Write a report, atomically, and return its path. Raises `WorkError` for a full disk."""
    write_text(target, render_page(template, **values))
    return target


def embed_page(path: Path) -> str:
    """Return a page for a notebook: in a frame of its own, so that its styles stay there."""
    return str(Markup('<iframe srcdoc="{}" style="width:100%;height:640px;border:0" sandbox></iframe>').format(
        path.read_text(encoding="utf-8")))


INK, SOFT, LINE, ACCENT, SECOND = "#010203", "#010204", "#010205", "#010206", "#010207"
"""Placeholders: matplotlib draws with them, and each becomes the style sheet's colour, light or dark."""
VARIABLES = {INK: "var(--ink)", SOFT: "var(--soft)", LINE: "var(--line)", ACCENT: "var(--accent)",
             SECOND: "var(--second)"}
FIXED = {INK: "#5f6670", SOFT: "#7d858f", LINE: "#b5bbc2", ACCENT: "#c0503a", SECOND: "#2f7f7b"}
"""Colours of a picture in a file of its own, which can be read on light and on dark paper."""
DRAWING: dict[Any, Any] = {
    "svg.fonttype": "none", "svg.hashsalt": "saucier", "font.size": 9.5, "axes.edgecolor": LINE,
    "text.color": SOFT, "axes.labelcolor": SOFT, "xtick.color": SOFT, "ytick.color": SOFT,
    "axes.spines.top": False, "axes.spines.right": False, "axes.spines.left": False,
    "xtick.major.size": 0, "ytick.major.size": 0, "grid.color": LINE, "grid.linewidth": 0.8}
"""Text stays text, in the page's own fonts; the same numbers always give the same file."""
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


@dataclass(frozen=True, slots=True)
class Picture:
    """A drawing for a page, and what is said under it; where it cannot be drawn, why."""

    svg: str = ""
    caption: str = ""
    fault: str = ""


def draw_run(figure: Figure, run: Curves) -> None:
    """Draw the losses, and the learning rate below them."""
    loss, rate = figure.subplots(2, 1, sharex=True, height_ratios=(3.4, 1), gridspec_kw={"hspace": 0.3})
    _draw_loss(loss, run)
    _draw_rate(rate, run)


def draw_inline(draw: Callable[[Figure], None], height: float = HEIGHT) -> Markup:
    """Let matplotlib draw a figure, and return it as part of a page, in the page's colours and without fixed size.

    Errors: `InputError` where matplotlib is missing.
    """
    svg = _recolour_svg(_plot_svg(draw, height), VARIABLES)
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg[svg.index("<svg"):], flags=re.DOTALL)
    for size in ("width", "height"):
        svg = re.sub(rf'(<svg[^>]*?) {size}="[^"]*"', r"\1", svg, count=1)
    return Markup(svg.strip())


def draw_or_explain(draw: Callable[[Figure], None], height: float = HEIGHT, *, caption: str = "") -> Picture:
    """Let matplotlib draw a figure with its caption; where it is missing, say how to get it."""
    try:
        return Picture(draw_inline(draw, height), caption)
    except InputError as error:
        return Picture(fault=str(error))


def draw_svg(draw: Callable[[Figure], None], height: float = HEIGHT) -> str:
    """Let matplotlib draw a figure, and return it as an SVG file that needs no style sheet.

    Errors: `InputError` where matplotlib is missing.
    """
    return _recolour_svg(_plot_svg(draw, height), FIXED)


def _plot_svg(draw: Callable[[Figure], None], height: float) -> str:
    with report_missing("the curves need matplotlib, which is not installed", remedy="pip install 'saucier[report]'"):
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    with rc_context(DRAWING):
        figure = Figure(figsize=(WIDTH, height))
        draw(figure)
        file = io.StringIO()
        figure.savefig(file, format="svg", transparent=True, bbox_inches="tight", pad_inches=0.04,
                       metadata={"Date": None})
    return file.getvalue()


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


def _recolour_svg(svg: str, colours: Mapping[str, str]) -> str:
    for placeholder, colour in colours.items():
        svg = svg.replace(placeholder, colour)
    return svg
