"""`report.html` of a run: the title, the result next to what it has to beat, curves, samples, and the other
sections.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from saucier.config import Node, anatomy, parameters
from saucier.cost.planning import Plan
from saucier.errors import InputError
from saucier.files import write_text
from saucier.plain import format_bytes, format_duration, format_quantity
from saucier.report.page import (
    Bar,
    Html,
    bars,
    curves,
    element,
    html_document,
    joined,
    record_table,
    section,
    table,
)
from saucier.report.results import DataCounts, LanguageCounts, Results, Run, RunCost, Sample, read_run
from saucier.table import Table
from saucier.tasks.language_baselines import Baseline
from saucier.tasks.metrics.texts import perplexity

BITS = 8
"""Bits of a byte that is not compressed at all."""
TIME_AIM, MEMORY_AIM = 0.20, 0.10
"""How far a plan may be from what is measured."""
SHOWN_ELSEWHERE = ("seconds",)
"""Parts of the passport that other sections show."""


def title_block(run: Run) -> Html:
    """Name the run."""
    paper = [element("p", run.recipe.paper, class_="note")] if run.recipe.paper else []
    return element("header", element("p", "Saucier · report of a run", class_="eyebrow"),
                   element("h1", run.recipe.name), element("p", run.recipe.about, class_="lead"), *paper)


def headline(run: Run) -> Html:
    """Show the result: bits per byte next to the baselines, else the first score, else the perplexity."""
    results = run.results
    if results is None:
        return element("section", element("p", "This run has not been evaluated yet."), class_="headline alone")
    if results.held_out.bits_per_byte is not None:
        return _likelihood(run, results, results.held_out.bits_per_byte)
    if results.scores:
        score = results.scores[0]
        return _alone(f"{score.value:.1f}", score.name, score.note)
    frequent = results.held_out.by_frequency
    baseline = "" if frequent is None else f" Each target by its frequency alone: {perplexity(frequent, 1):.1f}."
    return _alone(f"{perplexity(results.held_out.loss, 1):.1f}", "perplexity on held-out text",
                  f"{results.held_out.tokens:,} target tokens; lower is better, 1 is perfect.{baseline}")


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
        every = ["the baseline", "both baselines", "all three baselines"]
        count = len(baselines)
        beaten = every[count - 1] if count <= len(every) else f"all {count} baselines"
        parts.append(f"It does not beat {' and '.join(better)}." if better else f"It beats {beaten}.")
    if target is not None:
        reached = "reached" if ours <= target else "not reached"
        parts.append(f"The recipe claims at most {target:.2f} (the upright mark): {reached}.")
    return " ".join(parts)


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


def data_section(run: Run) -> Html:
    """Say what was read, what became of it, and what was left out."""
    if run.results is None:
        return Html()
    data = run.results.data
    rows = [(name, f"{one.documents:,}", f"{one.tokens:,}", format_bytes(one.bytes),
             f"{one.bytes / one.tokens:.2f}" if one.tokens else "–")
            for name, one in (("training", data.train), ("held out", data.held_out))]
    counts = table(Table(("", "documents", "tokens", "text", "bytes a token"), rows, numbers=range(1, 5)))
    return section("Data", element("p", data.source), counts,
                   languages_table(data, data.languages, ("language", "documents")),
                   languages_table(data, data.directions, ("direction", "pairs")),
                   element("p", describe_losses(data), class_="note"))


def languages_table(data: DataCounts, each: Sequence[LanguageCounts], called: tuple[str, str]) -> Html:
    """Show each language or direction: how much there is of it, how often it comes, and how much of it was seen."""
    if not each:
        return Html()
    rows = [[one.name, f"{one.train.documents:,}", f"{one.train.tokens:,}",
             f"{one.train.tokens / max(1, data.train.tokens):.1%}", f"{one.drawn:.1%}",
             "–" if one.seen is None else f"{one.seen:,}", f"{one.held_out.tokens:,}"] for one in each]
    head = [*called, "tokens", "of the text", "of the rows", "tokens seen", "tokens held out"]
    return table(Table(head, rows, numbers=range(1, 7)))


def describe_losses(data: DataCounts) -> str:
    """Say in a sentence what of the data the model never saw."""
    lost = [f"{count:,} {reason}" for reason, count in data.dropped.items() if count]
    parts = [f"Left out: {', '.join(lost)}."] if lost else ["No document was left out."]
    if data.truncated_rows:
        parts.append(f"{data.truncated_rows:,} rows were too long and lost {data.truncated_tokens:,} tokens.")
    else:
        parts.append("Nothing was cut.")
    if data.divided_documents:
        parts.append(f"{data.divided_documents:,} documents were longer than a row, and were divided among several.")
    if data.padding:
        parts.append(f"{data.padding:.1%} of the places in rows hold no token.")
    return " ".join(parts)


def plan_section(run: Run) -> Html:
    """Hold the plan against what was measured."""
    if run.plan is None or run.results is None:
        return Html()
    rows = []
    for what, planned, measured, ratio, aim in compare_plan(run.plan, run.results.cost):
        off = f"{100 * (ratio - 1):+.0f}%".replace("-", "−").replace("+0%", "0%").replace("−0%", "0%")
        rows.append((what, planned, measured, element("span", off, class_="good" if abs(ratio - 1) <= aim else "bad",
                                                      title=f"the aim is ±{100 * aim:.0f}%")))
    compared = table(Table(("", "planned", "measured", "difference"), rows, numbers=(1, 2, 3)))
    note = element("p", f"Assumed: {'; '.join(run.plan.notes)}.", class_="note") if run.plan.notes else Html()
    return section("Plan against measured", compared, note)


def compare_plan(plan: Plan, cost: RunCost) -> Iterator[tuple[str, str, str, float, float]]:
    """Yield (what, planned, measured, measured / planned, largest difference aimed at) where both sides are known."""
    pairs: list[tuple[str, float | None, float | None, Callable[[float], str], float]] = [
        ("training time", plan.seconds, cost.training_seconds, format_duration, TIME_AIM),
        ("speed", plan.tokens_per_second, cost.tokens_per_second, lambda speed: f"{speed:,.0f} tokens/s", TIME_AIM),
        ("peak memory", plan.peak_memory, cost.peak_memory, format_bytes, MEMORY_AIM),
        ("work", plan.flops, cost.training_flops, lambda flops: f"{format_quantity(flops)}FLOPs", MEMORY_AIM)]
    for what, planned, measured, words, aim in pairs:
        if planned and measured:
            yield what, words(planned), words(measured), measured / planned, aim


def cost_section(run: Run) -> Html:
    """Say where the time went and how much was computed."""
    if run.results is None:
        return Html()
    cost = run.results.cost
    facts = [("the whole job", format_duration(cost.seconds))]
    if cost.training_flops:
        speed = cost.training_flops / cost.training_seconds
        facts.append(("training work",
                      f"{format_quantity(cost.training_flops)}FLOPs, at {format_quantity(speed)}FLOP/s"))
    if cost.peak_memory:
        facts.append(("largest memory", format_bytes(cost.peak_memory)))
    return section("Cost", _phases(cost), record_table(dict(facts)))


def _phases(cost: RunCost) -> Html:
    if not cost.phases:
        return Html()
    total = sum(cost.phases.values()) or 1.0
    stripe = element("div", *(element("i", style=f"flex:{seconds / total:.5f}",
                                      title=f"{name}: {format_duration(seconds)}")
                              for name, seconds in cost.phases.items()), class_="phases", aria_hidden="true")
    rows = [[name, format_duration(seconds), f"{100 * seconds / total:.0f}%"] for name, seconds in cost.phases.items()]
    return joined([stripe, table(Table(("phase", "time", "share"), rows, numbers=(1, 2)), "plain narrow")])


def anatomy_section(run: Run) -> Html:
    """Draw the model's parts as a table, with their share of the parameters."""
    length = run.recipe.training.length
    root = anatomy(run.recipe.model_for(run.vocab), length)
    rows = [_part_row(depth, node, root.parameters) for depth, node in walk_parts(root)]
    head = ["part", "", "shape", "parameters", "share", "FLOPs a token"]
    note = (f"FLOPs are those of a forward pass at {length} tokens in a row, a multiplication and an addition counting "
            "two; training takes three times as many. Parts inside a repeated block are counted once.")
    return section("Anatomy", table(Table(head, rows, numbers=(3, 5)), "anatomy"), element("p", note, class_="note"))


def walk_parts(node: Node, depth: int = 0) -> Iterator[tuple[int, Node]]:
    """Yield every part with its depth in the tree, a parent before its children."""
    yield depth, node
    for child in node.children:
        yield from walk_parts(child, depth + 1)


def _part_row(depth: int, node: Node, total: int) -> list[object]:
    times = f" × {node.times}" if node.times > 1 else ""
    called = element("b", node.name) if node.children else node.name
    name = element("span", called, times, style=f"padding-left:{1.1 * depth:.1f}rem")
    kind = ", ".join(word for word in (node.kind if node.kind != node.name else "", node.detail) if word)
    fill = element("span", element("i", style=f"width:{100 * node.parameters / max(total, 1):.1f}%"), class_="share")
    return [name, element("span", kind, class_="soft"), node.shape, f"{node.parameters:,}" if node.parameters else "",
            fill if node.parameters else "", format_quantity(node.flops) if node.flops else ""]


def origin_section(run: Run) -> Html:
    """Show all that is needed to repeat the run."""
    shown = {name: value for name, value in (run.passport or {}).items() if name not in SHOWN_ELSEWHERE}
    recipe = element("details", element("summary", "The recipe, as it was cooked"), element("pre", run.recipe_text))
    return section("Passport", record_table(shown), recipe)


def scores_section(run: Run) -> Html:
    """Show the further scores."""
    results: Results | None = run.results
    if results is None or not results.scores:
        return Html()
    rows = [[score.name, f"{score.value:.2f}", f"{score.better} is better", score.note] for score in results.scores]
    return section("Scores", table(Table(("", "value", "", "how"), rows, numbers=(1,))))


REPORT_FILE = "report.html"


def write_report(folder: Path) -> Path:
    """Write `report.html` into a run folder from the other files there, and return its path.

    A part whose file is missing is left out; without matplotlib the page says how to get the curves.

    Errors: `InputError` where the folder holds no run or a file in it is damaged; `WorkError` for a full disk.
    """
    target, run = folder / REPORT_FILE, read_run(folder)
    write_text(target, html_document(run.recipe.name, *(part(run) for part in PAGE_PARTS)))
    return target


def _footer(run: Run) -> Html:
    files = sorted(path.name + "/" * path.is_dir() for path in run.folder.iterdir() if not path.name.startswith("."))
    names = joined([element("code", name) for name in files if name != REPORT_FILE], ", ")
    return element("footer", "This page is drawn from the files beside it: ", names, ".")


PAGE_PARTS = (title_block, headline, facts, curves_section, samples_section, scores_section, data_section, plan_section,
              cost_section, anatomy_section, origin_section, _footer)
"""The page from top to bottom."""
