"""A table of weights drawn as a heat map, to a picture file or for a terminal: which row looks at which column.

Knows nothing of models: attention maps and patterns of attention are drawn with it alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.text import Text

from saucier.errors import InputError, report_missing
from saucier.result import Result
from saucier.table import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SUFFIXES = (".svg", ".png", ".pdf")
SHADES = " ·░▒▓█"
"""From no weight to all of it."""
CELL = 0.34
"""Inches of a cell's side."""


@dataclass(frozen=True, slots=True)
class HeatMap(Result):
    """Weights from 0 to 1, and what their rows and columns are."""

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    weights: tuple[tuple[float, ...], ...]
    """One tuple for each row."""
    title: str = ""
    file: Path | None = None
    """Where it was drawn."""

    def view(self) -> Table | str:
        """Return the map in shades; of one that was drawn into a file, where."""
        shape = f"{len(self.rows)} × {len(self.columns)}"
        return render_heat_map(self) if self.file is None else f"{self.file}: {shape}"

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {"rows": list(self.rows), "columns": list(self.columns), "weights": list(map(list, self.weights))}


def save_picture(found: HeatMap, path: Path) -> HeatMap:
    """Draw a heat map into a file, and return it with its place: the darker a cell the more weight.

    Columns are named above, and rows at the left.

    Errors: `InputError` for another kind of file than SVG, PNG and PDF, and where matplotlib is missing.
    """
    with figure_file(path, (CELL * len(found.columns) + 1.6, CELL * len(found.rows) + 1.4)) as figure:
        axes = figure.subplots()
        axes.pcolormesh(found.weights, cmap="Greys", vmin=0, vmax=1, edgecolors="#dddddd", linewidth=0.4)
        axes.set_xticks([place + 0.5 for place in range(len(found.columns))], found.columns, rotation=90)
        axes.set_yticks([place + 0.5 for place in range(len(found.rows))], found.rows)
        axes.xaxis.tick_top()
        axes.invert_yaxis()
        axes.set_aspect("equal")
        axes.tick_params(length=0)
        for spine in axes.spines.values():
            spine.set_visible(False)
        if found.title:
            axes.set_xlabel(found.title)
    return replace(found, file=path)


@contextmanager
def figure_file(path: Path, inches: tuple[float, float]) -> Iterator[Figure]:
    """Give a figure to be drawn, and write it into a file; the same drawing gives the same bytes.

    Errors: `InputError` for another kind of file than SVG, PNG and PDF, and where matplotlib is missing.
    """
    if path.suffix not in SUFFIXES:
        raise InputError(f"cannot draw a {path.suffix or 'file without suffix'}", where=str(path),
                         remedy=f"use {', '.join(SUFFIXES)}")
    with report_missing("a picture needs matplotlib, which is not installed",
                        remedy="pip install 'saucier[report]', or leave out --out"):
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "saucier", "font.size": 9}):
        figure = Figure(figsize=inches)
        yield figure
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, bbox_inches="tight", metadata={"Date": None} if path.suffix == ".svg" else None, dpi=150)


def render_heat_map(found: HeatMap) -> Table:
    """Return the map as a table of shades, with the heaviest column of each row and its weight."""
    rows = []
    for name, weights in zip(found.rows, found.weights, strict=True):
        best = max(range(len(weights)), key=weights.__getitem__)
        shades = [2 * SHADES[min(len(SHADES) - 1, round(weight * (len(SHADES) - 1)))] for weight in weights]
        rows.append((name, *shades, f"{found.columns[best]} {weights[best]:.2f}"))
    count = len(found.columns)
    return Table(("", *(number % 10 for number in range(count)), "looks at"), rows, numbers=(0,), cut_words=True,
                 folded=(0, count + 1), title=Text(found.title, style="italic", justify="center"), gap=1)


def clean_labels(pieces: Sequence[str]) -> tuple[str, ...]:
    """Return pieces of text as names of rows or columns: the marks of tokenizers for a space become one, or nothing."""
    return tuple(piece.replace("Ġ", "▁").replace("</w>", "").removeprefix("▁") or piece for piece in pieces)
