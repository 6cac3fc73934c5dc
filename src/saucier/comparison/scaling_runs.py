"""Finished runs as points of a scaling law, and the fit on the screen and on a page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from pydantic import TypeAdapter, ValidationError
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from saucier.comparison.budget import step_cost
from saucier.comparison.curves import PALETTE
from saucier.comparison.rehearsal import performed
from saucier.comparison.scaling import Fit, Law, Point
from saucier.config import parameters
from saucier.errors import InputError, nearest
from saucier.files import write_text
from saucier.inspection.html import element, table
from saucier.inspection.report import document
from saucier.inspection.report_charts import INK, SOFT, drawing
from saucier.inspection.report_sections import section
from saucier.inspection.results import FILE_NAME, read_results
from saucier.inspection.units import quantity
from saucier.plain import first_difference
from saucier.runs.folder import RunFolder
from saucier.runs.opened import find_run
from saucier.runs.passport import read_passport

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SYMBOLS = {"parameters": "N", "tokens": "D", "flops": "C"}
LETTERS = {"parameters": ("A", "a"), "tokens": ("B", "b"), "flops": ("G", "g")}
PAGE = "scaling.html"


def finished_runs(folders: Sequence[Path]) -> list[Path]:
    """Return the run folders among these, and below them. Raises `InputError` for one that holds none."""
    found: list[Path] = []
    for folder in folders:
        here = [folder] if RunFolder(folder).is_run else sorted(
            path.parent for path in folder.rglob(FILE_NAME) if RunFolder(path.parent).is_run)
        if not here or not all(RunFolder(run).is_finished for run in here):
            raise InputError("no such folder" if not folder.exists() else "holds no finished run", where=str(folder),
                             remedy="give run folders, or the folder of a comparison")
        found += here
    return list(dict.fromkeys(found))


def points(runs: Sequence[Path]) -> list[Point]:
    """Read runs. Raises `InputError` where their losses are not of the same text, tokens and objective."""
    alike(runs)
    return [point(run) for run in runs]


def alike(runs: Sequence[Path]) -> None:
    """Refuse runs whose losses have no common yardstick."""
    seen = []
    for run in runs:
        data = read_passport(run).data
        seen.append({"objective": find_run(run).recipe().objective.model_dump(mode="json"),
                     "held-out text": data.get("held_out"), "tokenizer": data.get("tokenizer")})
        found = first_difference(seen[0], seen[-1])
        if found is not None:
            raise InputError(f"has another {found[0].split('.')[0]} than {runs[0]}", where=str(run),
                             remedy="leave it out; losses of one text, one tokenizer and one objective go together")


def point(run: Path) -> Point:
    """Read one run."""
    recipe, results = find_run(run).recipe(), read_results(run)
    vocab = results.vocab or recipe.vocab
    work = performed(find_run(run), recipe, vocab)
    count, tokens = parameters(recipe.model_for(vocab)), round(results.steps * step_cost(recipe, work).tokens)
    return Point(name=str(run), parameters=count, tokens=tokens, flops=results.cost.training_flops or 0.0,
                 six=6.0 * count * tokens, loss=results.held_out.loss)


def largest(found: Sequence[Point]) -> list[Point]:
    """Return the runs of the most work: all seeds of the largest size and data."""
    top = max(found, key=lambda one: one.six)
    return [one for one in found if (one.parameters, one.tokens) == (top.parameters, top.tokens)]


def law_text(found: Fit) -> str:
    """Write a fitted law as a formula."""
    terms = " + ".join(f"{term.factor:.3g} / {SYMBOLS[term.quantity]}^{term.exponent:.3f}" for term in found.terms)
    names = ", ".join(SYMBOLS[term.quantity] for term in found.terms)
    return f"L({names}) = {found.irreducible:.3f} + {terms}"


def exponents_text(found: Fit) -> list[str]:
    """Say each exponent with its interval."""
    return [f"{LETTERS[term.quantity][1]} = {term.exponent:.3f}, 95 % of the fits to other draws of the runs between "
            f"{term.low:.3f} and {term.high:.3f}" for term in found.terms]


HEADINGS = ["", "parameters", "tokens", "FLOPs", "6·N·D", "6·N·D / FLOPs", "loss", "law", "off by"]


def rows(found: Fit) -> list[list[str]]:
    """Return a line for each run: those fitted, then those predicted."""
    shown = [[short(one), f"{one.parameters:,}", quantity(one.tokens), quantity(one.flops), quantity(one.six),
              f"{one.six / one.flops:.2f}" if one.flops else "", f"{one.loss:.4f}", "", ""] for one in found.runs]
    for one in found.predictions:
        run = one.run
        shown.append([f"{short(run)} (left out)", f"{run.parameters:,}", quantity(run.tokens), quantity(run.flops),
                      quantity(run.six), f"{run.six / run.flops:.2f}" if run.flops else "", f"{run.loss:.4f}",
                      f"{one.predicted:.4f} ({one.low:.4f} … {one.high:.4f})",
                      f"{100 * (one.predicted / run.loss - 1):+.1f} %".replace("-", "−")])
    return shown


def short(run: Point) -> str:
    """Return the end of a run's path, which tells it from the others of its comparison."""
    return "/".join(Path(run.name).parts[-2:])


def render(found: Fit) -> RenderableType:
    """Lay a fit out for a person."""
    shown = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for heading in HEADINGS:
        shown.add_column(heading, justify="right" if heading else "left", no_wrap=bool(heading))
    for row in rows(found):
        shown.add_row(*row)
    lines = [Text(line) for line in exponents_text(found)]
    return Group(shown, Text(), Text(law_text(found), style="bold"), *lines,
                 Text(f"the fitted runs are off by {100 * found.error:.1f} % (root mean square)", style="dim"))


def write_page(found: Fit, folder: Path) -> Path:
    """Write `scaling.html`, and return its path. Raises `InputError` where matplotlib is missing."""
    caption = "Dots were fitted, crosses were left out; lines are the law, at the tokens (parameters) of each series."
    content = [element("header", element("p", "Saucier · report of a scaling law", class_="eyebrow"),
                       element("h1", law_text(found)), *(element("p", line) for line in exponents_text(found))),
               section("Loss", element("figure", drawing(lambda figure: draw_law(figure, found)),
                                       element("figcaption", caption))),
               section("Runs", table(HEADINGS, rows(found), numbers=range(1, len(HEADINGS)), class_="plain"))]
    write_text(folder / PAGE, document("scaling", *content))
    return folder / PAGE


def draw_law(figure: Figure, found: Fit) -> None:
    """Draw runs and law against the first quantity, a line for each value of the others."""
    axes = figure.subplots()
    runs = [*found.runs, *(one.run for one in found.predictions)]
    first, others = found.law.quantities[0], found.law.quantities[1:]
    series = sorted({tuple(getattr(run, name) for name in others) for run in runs})
    for number, values in enumerate(series):
        colour = PALETTE[number % len(PALETTE)]
        label = ", ".join(f"{SYMBOLS[name]} = {quantity(value)}" for name, value in zip(others, values, strict=True))
        for marker, group in (("o", found.runs), ("x", [one.run for one in found.predictions])):
            mine = [run for run in group if tuple(getattr(run, name) for name in others) == values]
            axes.plot([getattr(run, first) for run in mine], [run.loss for run in mine], marker, color=colour)
        places = np.geomspace(min(getattr(run, first) for run in runs), max(getattr(run, first) for run in runs), 60)
        axes.plot(places, [_law_at(found, (place, *values)) for place in places], color=colour, linewidth=1.3,
                  label=label or None)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_title(f"held-out loss, nats a token, against {first}", loc="left", fontsize=10, color=INK)
    axes.grid(color=SOFT, alpha=0.25)
    if others:
        axes.legend(frameon=False)


def _law_at(found: Fit, values: Sequence[float]) -> float:
    pairs = zip(found.terms, values, strict=True)
    return found.irreducible + sum(term.factor / math.pow(value, term.exponent) for term, value in pairs)


def law_of(name: str) -> Law:
    """Return the law of a name. Raises `InputError` for an unknown one."""
    try:
        found: Law = TypeAdapter(Law).validate_python({"kind": name})
    except ValidationError:
        known = ["both", "parameters", "tokens", "flops"]
        raise InputError(f"no law is called {name!r}", where="--by", remedy=nearest(name, known)) from None
    return found

