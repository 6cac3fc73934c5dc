"""What a cleaning did: the report as data, as a table on the screen, and as a page that needs nothing but a browser."""

from __future__ import annotations

from collections.abc import Iterator

import yaml
from pydantic import BaseModel, ConfigDict

from saucier.plain import format_bytes, format_duration, format_quantity
from saucier.report.page import Html, element, html_document, joined, section, table
from saucier.table import Table
from saucier.text.cleaning.cleaner import Amount, RuleTally, Tally
from saucier.text.cleaning.config import Cleaning

ACTIONS = ("documents", "lines", "changed", "sentences")
"""What a rule can take, as `RuleTally` names it."""
HEADS = ("documents dropped", "lines removed", "lines changed", "sentences removed")


class CleaningCost(BaseModel):
    """What the cleaning took."""

    model_config = ConfigDict(use_attribute_docstrings=True)
    seconds: float
    """From the start to the corpus; of the last run where it was stopped before."""
    workers: int
    """Processes."""


class CleaningReport(BaseModel):
    """All about one cleaning; everything but `cost` follows from the raw text and the rules."""

    model_config = ConfigDict(use_attribute_docstrings=True)
    cleaning: Cleaning
    """The rules."""
    sources: list[str]
    """The raw files."""
    tally: Tally
    """What was counted."""
    shards: list[str]
    """The files of the corpus."""
    cost: CleaningCost
    """What it took."""


def render_cleaning(report: CleaningReport) -> Table:
    """Make the table of what each rule took, and of what is left."""
    rows = [*((kind, *rule_columns(tally)) for kind, tally in report.tally.rules.items()), (),
            ("before", *format_amount(report.tally.before)), ("after", *format_amount(report.tally.after))]
    return Table(("rule", *HEADS), rows, numbers=range(1, 5), folded=range(5), cut_words=True,
                 caption=" ".join(cleaning_remarks(report)))


def rule_columns(tally: RuleTally) -> list[str]:
    """Return the columns of a rule; what it did not do is left empty."""
    return [f"{count:,}" if (count := getattr(tally, action)) else "" for action in ACTIONS]


def format_amount(found: Amount) -> list[str]:
    """Say how much text there is."""
    return [f"{found.documents:,} documents", f"{format_quantity(found.words)} words", format_bytes(found.bytes)]


def cleaning_remarks(report: CleaningReport) -> Iterator[str]:
    """Say how fast it was, and what else was counted."""
    tally, cost = report.tally, report.cost
    yield f"{format_duration(cost.seconds)}, {tally.before.bytes / 1e6 / max(cost.seconds, 1e-9):.1f} MB/s."
    for count, what in ((tally.empty, "rows, lines or paragraphs held no text"),
                        (tally.emptied, "dropped documents had no line left"),
                        (tally.cut, "times a document was too long to be held whole, and went on as another"),
                        (tally.repaired, "broken characters were replaced"),
                        (tally.unchecked, "documents had more near candidates than were compared")):
        if count:
            yield f"{count:,} {what}."


def cleaning_page(report: CleaningReport) -> str:
    """Return the whole page."""
    blocks = [part for kind, tally in report.tally.rules.items() if tally.examples
              for part in (element("h3", kind), *_quotes(tally))]
    examples = section("Examples", *blocks) if blocks else Html()
    text = yaml.safe_dump(report.cleaning.model_dump(mode="json"), sort_keys=False, allow_unicode=True)
    origin = section("Rules", element("details", element("summary", "All rules, as rules.yaml has them"),
                                      element("pre", text)))
    return html_document("Cleaning", _headline(report), _rules(report), examples, origin)


def _headline(report: CleaningReport) -> Html:
    before, after = report.tally.before, report.tally.after
    title = element("header", element("p", "Saucier · report of a cleaning", class_="eyebrow"),
                    element("h1", f"{before.documents:,} documents in, {after.documents:,} out"),
                    element("p", ", ".join(report.sources[:5]) + (", …" if len(report.sources) > 5 else ""),
                            class_="lead"))
    share = element("div", element("div", f"{100 * after.bytes / max(1, before.bytes):.1f}%", class_="value"),
                    element("div", "of the bytes were kept", class_="unit"),
                    element("p", " ".join(cleaning_remarks(report)), class_="verdict"))
    rows = [["before", *_cells(before)], ["after", *_cells(after)]]
    sizes = table(Table(("", "documents", "words", "text"), rows, numbers=(1, 2, 3)))
    return joined([title, element("section", share, sizes, class_="headline")])


def _cells(found: Amount) -> list[str]:
    return [f"{found.documents:,}", f"{found.words:,}", format_bytes(found.bytes)]


def _rules(report: CleaningReport) -> Html:
    most = max([1, *(tally.documents for tally in report.tally.rules.values())])
    rows = [[kind, *rule_columns(tally),
             element("span", element("i", style=f"width:{100 * tally.documents / most:.1f}%"), class_="share")]
            for kind, tally in report.tally.rules.items()]
    note = "Rules of lines and documents run from top to bottom, each on what those above it left."
    return section("What each rule took", table(Table(("rule", *HEADS, ""), rows, numbers=range(1, 5))),
                   element("p", note, class_="note"))


def _quotes(tally: RuleTally) -> Iterator[Html]:
    for example in tally.examples:
        reason = [element("footer", example.reason)] if example.reason else []
        yield element("blockquote", element("header", f"{example.source}, line {example.line}"),
                      element("pre", example.text), *reason)
