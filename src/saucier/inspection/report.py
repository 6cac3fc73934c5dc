"""`report.html`: all about one run on a page that needs nothing but a browser: no network, no script, no other file."""

from __future__ import annotations

from pathlib import Path

from saucier.files import write_text
from saucier.inspection.html import Html, element, joined
from saucier.inspection.report_opening import curves_section, facts, headline, samples_section, title_block
from saucier.inspection.report_run import Run, read_run
from saucier.inspection.report_sections import (
    anatomy_section,
    cost_section,
    data_section,
    origin_section,
    plan_section,
    scores_section,
)
from saucier.inspection.report_style import STYLE

FILE_NAME = "report.html"


def write_report(folder: Path) -> Path:
    """Write `report.html` into a run folder from the other files there, and return its path.

    A part whose file is missing is left out; without matplotlib the page says how to get the curves.

    Errors: `InputError` where the folder holds no run or a file in it is damaged; `WorkError` for a full disk.
    """
    target = folder / FILE_NAME
    write_text(target, page(read_run(folder)))
    return target


def page(run: Run) -> str:
    """Return the whole page."""
    return document(run.recipe.name, *(part(run) for part in PARTS))


def document(title: str, *content: Html) -> str:
    """Return a page of ours. It forbids every load from elsewhere: text in a report can never fetch anything."""
    policy = element("meta", http_equiv="Content-Security-Policy",
                     content="default-src 'none'; style-src 'unsafe-inline'")
    head = element("head", element("meta", charset="utf-8"), policy,
                   element("meta", name="viewport", content="width=device-width, initial-scale=1"),
                   element("title", f"{title} · Saucier"), element("style", Html(STYLE)))
    return f"<!DOCTYPE html>\n{element('html', head, element('body', *content), lang='en')}\n"


def _footer(run: Run) -> Html:
    files = sorted(path.name + "/" * path.is_dir() for path in run.folder.iterdir() if not path.name.startswith("."))
    names = joined([element("code", name) for name in files if name != FILE_NAME], ", ")
    return element("footer", "This page is drawn from the files beside it: ", names, ".")


PARTS = (title_block, headline, facts, curves_section, samples_section, scores_section, data_section, plan_section,
         cost_section, anatomy_section, origin_section, _footer)
"""The page from top to bottom."""
