"""`report.html` of a run: the title, the result next to what it has to beat, curves, samples, and the other
sections.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

from saucier.config import parameters
from saucier.errors import InputError
from saucier.files import write_text
from saucier.plain import format_bytes, format_duration, format_quantity
from saucier.report.page import Bar, Html, bars, curves, element, html_document, joined
from saucier.report.results import Results, Run, Sample, read_run
from saucier.report.sections import (
    anatomy_section,
    cost_section,
    data_section,
    origin_section,
    plan_section,
    scores_section,
    section,
)
from saucier.tasks.language_baselines import Baseline
from saucier.tasks.metrics.texts import perplexity

BITS = 8
"""Bits of a byte that is not compressed at all."""


def title_block(run: Run) -> Html:
    """Name the run."""
    paper = [element("p", run.recipe.paper, class_="note")] if run.recipe.paper else []
    return element("header", element("p", "Saucier · report of a run", class_="eyebrow"),
                   element("h1", run.recipe.name), element("p", run.recipe.about, class_="lead"), *paper)


def headline(run: Run) -> Html:
    """Show the result: bits per byte beside the baselines, else the first score, else the perplexity."""
    results = run.results
    if results is None:
        return element("section", element("p", "This run has not been evaluated yet."), class_="headline alone")
    if results.held_out.bits_per_byte is not None:
        return _likelihood(run, results, results.held_out.bits_per_byte)
    if results.scores:
        score = results.scores[0]
        return _alone(f"{score.value:.1f}", score.name, score.note)
    frequent = results.held_out.by_frequency
    beside = "" if frequent is None else f" Each target by its frequency alone: {perplexity(frequent, 1):.1f}."
    return _alone(f"{perplexity(results.held_out.loss, 1):.1f}", "perplexity on held-out text",
                  f"{results.held_out.tokens:,} target tokens; lower is better, 1 is perfect.{beside}")


def _alone(value: str, unit: str, verdict: str) -> Html:
    return element("section", element("div", value, class_="value"), element("div", unit, class_="unit"),
                   element("p", verdict, class_="verdict"), class_="headline alone")


def _likelihood(run: Run, results: Results, ours: float) -> Html:
    target = run.recipe.claims.bits_per_byte
    figure = element("div", element("div", f"{ours:.2f}", class_="value"),
                     element("div", "bits per byte, held-out text", class_="unit"),
                     element("p", verdict(ours, results.baselines, target), class_="verdict"))
    drawn = [Bar(baseline.name, baseline.bits_per_byte, baseline.about) for baseline in results.baselines]
    about = f"this model, over {results.held_out.tokens:,} tokens, {format_bytes(results.held_out.bytes)}"
    drawn.append(Bar(run.recipe.name, ours, about, ours=True))
    drawn.sort(key=lambda bar: -bar.value)
    picture = bars(drawn, target=target, label="Bits per byte, lower is better")
    return element("section", figure, picture, class_="headline")


def verdict(ours: float, baselines: tuple[Baseline, ...], target: float | None) -> str:
    """Say in words what the number means: against no compression, the baselines, and the recipe's claim."""
    parts = [f"Lower is better: as a compressor, the model would make unseen text {BITS / ours:.1f} times smaller."]
    better = [baseline.name for baseline in baselines if baseline.bits_per_byte <= ours]
    if baselines:
        parts.append(f"It does not beat {' and '.join(better)}." if better else f"It beats {_all(len(baselines))}.")
    if target is not None:
        reached = "reached" if ours <= target else "not reached"
        parts.append(f"The recipe claims at most {target:.2f} (the upright mark): {reached}.")
    return " ".join(parts)


def _all(count: int) -> str:
    return {1: "the baseline", 2: "both baselines", 3: "all three baselines"}.get(count, f"all {count} baselines")


def facts(run: Run) -> Html:
    """Give the figures that a reader asks for next."""
    if run.results is None:
        return Html()
    shown = [*_work_facts(run, run.results), *_quality_facts(run, run.results)]
    return element("dl", *(element("div", element("dt", name), element("dd", value, element("small", remark)))
                           for name, value, remark in shown), class_="facts")


def _work_facts(run: Run, results: Results) -> Iterator[tuple[str, str, str]]:
    yield "parameters", format_quantity(parameters(run.recipe.model_for(run.vocab))), f"family {run.recipe.family}"
    yield "trained in", format_duration(results.cost.training_seconds), f"{results.steps:,} steps"
    if results.cost.tokens_per_second:
        yield "speed", format_quantity(results.cost.tokens_per_second), "tokens a second"


def _quality_facts(run: Run, results: Results) -> Iterator[tuple[str, str, str]]:
    held_out = results.held_out
    yield "held-out loss", f"{held_out.loss:.3f}", f"nats a token, step {results.step:,}"
    if math.isfinite(perplexity(held_out.loss, 1)):
        yield "perplexity", f"{perplexity(held_out.loss, 1):.1f}", f"among {run.vocab:,} tokens"
    if held_out.accuracy is not None:
        yield "accuracy", f"{100 * held_out.accuracy:.1f}%", "first choice right"


def curves_section(run: Run) -> Html:
    """Draw how training went; without matplotlib, say how to get it."""
    drawn = run.curves
    if not drawn.train and not drawn.held_out:
        return Html()
    try:
        picture = curves(drawn)
    except InputError as error:
        return section("Training", element("p", f"{error}.", class_="note"))
    caption = "Each training value is the mean of one batch."
    if drawn.held_out:
        step, best = min(drawn.held_out, key=lambda point: point[1])
        caption += f" The best held-out loss was {best:.3f}, after step {step:,.0f}."
    return section("Training", element("figure", picture, element("figcaption", caption)))


def samples_section(run: Run) -> Html:
    """Show what the model writes."""
    if run.results and run.results.samples:
        key = element("p", "Pale is what the model was given; the rest it wrote.", class_="note key")
        return section("Samples", key, *(_sample(sample) for sample in run.results.samples))
    if run.samples_text.strip():
        return section("Samples", element("blockquote", element("pre", run.samples_text.strip("\n"))))
    return Html()


def _sample(sample: Sample) -> Html:
    given = [element("span", sample.prompt, class_="prompt")] if sample.prompt else []
    between = "\n\n" if sample.reference else ""
    source = [element("header", sample.source)] if sample.source else []
    reference = [element("footer", joined(["A person wrote: ", sample.reference]))] if sample.reference else []
    written = element("pre", *given, between, element("mark", sample.text.rstrip()))
    return element("blockquote", *source, written, *reference)


REPORT_FILE = "report.html"


def write_report(folder: Path) -> Path:
    """Write `report.html` into a run folder from the other files there, and return its path.

    A part whose file is missing is left out; without matplotlib the page says how to get the curves.

    Errors: `InputError` where the folder holds no run or a file in it is damaged; `WorkError` for a full disk.
    """
    target = folder / REPORT_FILE
    write_text(target, run_page(read_run(folder)))
    return target


def run_page(run: Run) -> str:
    """Return the whole page."""
    return html_document(run.recipe.name, *(part(run) for part in PAGE_PARTS))


def _footer(run: Run) -> Html:
    files = sorted(path.name + "/" * path.is_dir() for path in run.folder.iterdir() if not path.name.startswith("."))
    names = joined([element("code", name) for name in files if name != REPORT_FILE], ", ")
    return element("footer", "This page is drawn from the files beside it: ", names, ".")


PAGE_PARTS = (title_block, headline, facts, curves_section, samples_section, scores_section, data_section, plan_section,
              cost_section, anatomy_section, origin_section, _footer)
"""The page from top to bottom."""
