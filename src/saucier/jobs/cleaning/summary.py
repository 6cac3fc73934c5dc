"""What a cleaning did: the report as data, as a table on the screen, and as a page that needs nothing but a browser."""

from __future__ import annotations

from collections.abc import Iterator

import yaml

from saucier.config.base import Config
from saucier.plain import format_bytes, format_duration, format_quantity
from saucier.report.page import render_page
from saucier.result import Result
from saucier.table import Table
from saucier.text.cleaning.cleaner import Amount, RuleTally, Tally
from saucier.text.cleaning.config import Cleaning

ACTIONS = {"documents": "documents dropped", "lines": "lines removed", "changed": "lines changed",
           "sentences": "sentences removed"}
"""What a rule can take, as `RuleTally` names it, and in words."""


class CleaningCost(Config):
    """What the cleaning took."""

    seconds: float
    """From the start to the corpus; of the last run where it was stopped before."""
    workers: int
    """Processes."""


class CleaningReport(Config, Result):
    """All about one cleaning; everything but `cost` follows from the raw text and the rules."""

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

    def view(self) -> Table:
        """Return what `saucier clean` prints."""
        return render_cleaning(self)


def render_cleaning(report: CleaningReport) -> Table:
    """Make the table of what each rule took, and of what is left."""
    rows = [*((kind, *rule_columns(tally)) for kind, tally in report.tally.rules.items()), (),
            ("before", *format_amount(report.tally.before)), ("after", *format_amount(report.tally.after))]
    return Table(("rule", *ACTIONS.values()), rows, numbers=range(1, 5), folded=range(5), cut_words=True,
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
    tally = report.tally
    sizes = [(side, f"{found.documents:,}", f"{found.words:,}", format_bytes(found.bytes))
             for side, found in (("before", tally.before), ("after", tally.after))]
    return render_page("cleaning.html", title="Cleaning", report=report, remarks=cleaning_remarks(report),
                       heads=ACTIONS.values(), rule_columns=rule_columns,
                       most=max([1, *(rule.documents for rule in tally.rules.values())]),
                       sizes=Table(("", "documents", "words", "text"), sizes, numbers=(1, 2, 3)),
                       rules_text=yaml.safe_dump(report.cleaning.model_dump(mode="json"), sort_keys=False,
                                                 allow_unicode=True))
