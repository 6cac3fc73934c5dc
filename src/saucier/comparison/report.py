"""`report.html` of a comparison: verdicts, figures and curves on a page that needs nothing but a browser."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from saucier.comparison.curves import curves_of, curves_picture
from saucier.comparison.outcome import Outcome
from saucier.comparison.table import arm_headings, arm_row, footnote, pair_headings, pair_row, ranked, score_text
from saucier.comparison.trials import Done
from saucier.errors import InputError
from saucier.files import write_text
from saucier.inspection.html import Html, element, table
from saucier.inspection.report import FILE_NAME, document
from saucier.inspection.report_charts import Bar, bars
from saucier.inspection.report_sections import record, section


def write_report(found: Outcome, done: Sequence[Done], folder: Path) -> Path:
    """Write `report.html`, and return its path; without matplotlib it says how to get the curves."""
    target = folder / FILE_NAME
    write_text(target, document(found.experiment.name, title_block(found), standing(found), verdicts(found),
                                spent(found), pictures(found, done), origin(found)))
    return target


def title_block(found: Outcome) -> Html:
    """Name the comparison and what it asks."""
    about = [element("p", found.experiment.about, class_="lead")] if found.experiment.about else []
    repeats = found.experiment.published
    paper = [element("p", f"After {repeats.paper}.", class_="note")] if repeats else []
    return element("header", element("p", "Saucier · report of a comparison", class_="eyebrow"),
                   element("h1", found.experiment.name), *about, *paper)


def standing(found: Outcome) -> Html:
    """Draw the scores, the best first."""
    best = ranked(found)[0].name if found.pairs else ""
    drawn = [Bar(arm.name, arm.mean, ", ".join(score_text(found, score) for score in arm.scores),
                 ours=arm.name == best) for arm in ranked(found)]
    label = f"{found.measure.name}, {found.measure.better} is better"
    return section(label, bars(drawn, label=label), *(element("p", note, class_="note") for note in found.notes))


def verdicts(found: Outcome) -> Html:
    """Show what may be said about each pair."""
    if not found.pairs:
        return Html()
    rows = [pair_row(found, pair) for pair in found.pairs]
    return section("Differences", table(pair_headings(found), rows, numbers=range(1, 5), class_="plain"),
                   element("p", footnote(found), class_="note"))


def spent(found: Outcome) -> Html:
    """Show what each arm spent."""
    rows, headings = [arm_row(found, arm) for arm in ranked(found)], arm_headings(found)
    note = "FLOPs are counted part by part; 6·N·D is the rule of thumb, six for each parameter and token."
    return section("What each one spent", table(headings, rows, numbers=range(1, len(headings)), class_="plain"),
                   element("p", note, class_="note"))


def pictures(found: Outcome, done: Sequence[Done]) -> Html:
    """Draw the curves, or say what is missing for them."""
    note = ("Loss on part of the held-out text, nats a target. Lines are means over seeds, bands reach from the lowest "
            "to the highest.")
    try:
        drawn = curves_picture(curves_of(found.arms, done))
    except InputError as error:
        return section("Held-out loss", element("p", str(error), class_="note"))
    return section("Held-out loss", element("figure", drawn, element("figcaption", note)))


def origin(found: Outcome) -> Html:
    """Show all that was asked."""
    return section("What was compared", record(found.experiment.model_dump(mode="json")))
