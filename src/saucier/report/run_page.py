"""`report.html` of a run: the title, the result next to what it has to beat, curves, samples, and the other
sections.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from markupsafe import Markup

from saucier.config import Node, anatomy, parameters
from saucier.cost.planning import Plan
from saucier.plain import format_bytes, format_duration, format_quantity
from saucier.report.page import REPORT_FILE, Bar, Curves, Picture, draw_or_explain, draw_run, write_page
from saucier.report.results import DataCounts, Results, Run, RunCost, read_run
from saucier.table import Table
from saucier.tasks.language_baselines import Baseline
from saucier.tasks.metrics.texts import perplexity

BITS = 8
"""Bits of a byte that is not compressed at all."""
TIME_AIM, MEMORY_AIM = 0.20, 0.10
"""How far a plan may be from what is measured."""
SHOWN_ELSEWHERE = ("seconds",)
"""Parts of the passport that other sections show."""


@dataclass(frozen=True, slots=True)
class Headline:
    """The result that a page begins with."""

    value: str
    unit: str
    verdict: str
    """What the value means."""
    bars: Sequence[Bar] = ()
    """The same next to simpler methods."""


def headline(run: Run, results: Results) -> Headline:
    """Return the result: bits per byte next to the baselines, else the first score, else the perplexity."""
    held_out, frequent = results.held_out, results.held_out.by_frequency
    if held_out.bits_per_byte is not None:
        about = f"this model, over {held_out.tokens:,} tokens, {format_bytes(held_out.bytes)}"
        drawn = [*(Bar(baseline.name, baseline.bits_per_byte, baseline.about) for baseline in results.baselines),
                 Bar(run.recipe.name, held_out.bits_per_byte, about, ours=True)]
        return Headline(f"{held_out.bits_per_byte:.2f}", "bits per byte, held-out text",
                        verdict(held_out.bits_per_byte, results.baselines, claimed_bits(run)),
                        sorted(drawn, key=lambda bar: -bar.value))
    if results.scores:
        score = results.scores[0]
        return Headline(f"{score.value:.1f}", score.name, score.note)
    baseline = "" if frequent is None else f" Each target by its frequency alone: {perplexity(frequent, 1):.1f}."
    return Headline(f"{perplexity(held_out.loss, 1):.1f}", "perplexity on held-out text",
                    f"{held_out.tokens:,} target tokens; lower is better, 1 is perfect.{baseline}")


DEFAULT_TEXT = "Python"
"""What the sentence of a recipe names that learns from Python's documentation where no text is given."""


def reads_other_text(run: Run) -> bool:
    """Say whether a run was given another text than the one that its recipe tells of, and claims a figure for."""
    return bool(run.recipe.data.files) and DEFAULT_TEXT in run.recipe.about


def describe_run(run: Run) -> str:
    """Return the sentence under the title: the recipe's own, unless it tells of another text."""
    if not reads_other_text(run):
        return run.recipe.about
    return f"The recipe {run.recipe.name}, on other text: {', '.join(run.recipe.data.files)}"


def claimed_bits(run: Run) -> float | None:
    """Return the bits per byte that a recipe claims, for its own text."""
    return None if reads_other_text(run) else run.recipe.claims.bits_per_byte


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


def facts(run: Run, results: Results) -> Iterator[tuple[str, str, str]]:
    """Yield the figures that a reader looks for next: (name, value, remark)."""
    held_out, cost = results.held_out, results.cost
    yield "parameters", format_quantity(parameters(run.recipe.model_for(run.vocab))), f"family {run.recipe.family}"
    yield "trained in", format_duration(cost.training_seconds), f"{results.steps:,} steps"
    if cost.tokens_per_second:
        yield "speed", format_quantity(cost.tokens_per_second), "tokens a second"
    yield "held-out loss", f"{held_out.loss:.3f}", f"nats a token, step {results.step:,}"
    if math.isfinite(perplexity(held_out.loss, 1)):
        yield "perplexity", f"{perplexity(held_out.loss, 1):.1f}", f"among {run.vocab:,} tokens"
    if held_out.accuracy is not None:
        yield "accuracy", f"{100 * held_out.accuracy:.1f}%", "first choice right"


def draw_training(curves: Curves) -> Picture | None:
    """Draw how training went; without matplotlib, say how to get it."""
    if not curves.train and not curves.held_out:
        return None
    caption = "Each training value is the mean of one batch."
    if curves.held_out:
        step, best = min(curves.held_out, key=lambda point: point[1])
        caption += f" The best held-out loss was {best:.3f}, after step {step:,.0f}."
    return draw_or_explain(partial(draw_run, run=curves), caption=caption)


def data_tables(data: DataCounts) -> Iterator[Table]:
    """Yield what was read: of both sides, and of each language and each direction where they are distinguished."""
    rows = [(name, f"{one.documents:,}", f"{one.tokens:,}", format_bytes(one.bytes),
             f"{one.bytes / one.tokens:.2f}" if one.tokens else "–")
            for name, one in (("training", data.train), ("held out", data.held_out))]
    yield Table(("", "documents", "tokens", "text", "bytes a token"), rows, numbers=range(1, 5))
    for each, called in ((data.languages, ("language", "documents")), (data.directions, ("direction", "pairs"))):
        shares = [[one.name, f"{one.train.documents:,}", f"{one.train.tokens:,}",
                   f"{one.train.tokens / max(1, data.train.tokens):.1%}", f"{one.drawn:.1%}",
                   "–" if one.seen is None else f"{one.seen:,}", f"{one.held_out.tokens:,}"] for one in each]
        if shares:
            yield Table([*called, "tokens", "of the text", "of the rows", "tokens seen", "tokens held out"], shares,
                        numbers=range(1, 7))


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


def plan_table(plan: Plan, cost: RunCost) -> Table:
    """Hold the plan against what was measured, where both sides are known."""
    pairs: list[tuple[str, float | None, float | None, Callable[[float], str], float]] = [
        ("training time", plan.seconds, cost.training_seconds, format_duration, TIME_AIM),
        ("speed", plan.tokens_per_second, cost.tokens_per_second, lambda speed: f"{speed:,.0f} tokens/s", TIME_AIM),
        ("peak memory", plan.peak_memory, cost.peak_memory, format_bytes, MEMORY_AIM),
        ("work", plan.flops, cost.training_flops, lambda flops: f"{format_quantity(flops)}FLOPs", MEMORY_AIM)]
    off = Markup('<span class="{}" title="the aim is ±{:.0f}%">{}</span>')
    rows = []
    for what, planned, measured, words, aim in pairs:
        if planned and measured:
            gap = measured / planned - 1
            percent = f"{100 * gap:+.0f}%".replace("-", "−").replace("+0%", "0%").replace("−0%", "0%")
            rows.append((what, words(planned), words(measured),
                         off.format("good" if abs(gap) <= aim else "bad", 100 * aim, percent)))
    return Table(("", "planned", "measured", "difference"), rows, numbers=(1, 2, 3))


def cost_lines(cost: RunCost) -> Iterator[tuple[str, str]]:
    """Yield how long it took and how much was computed: (what, how much)."""
    yield "the whole job", format_duration(cost.seconds)
    if cost.training_flops:
        speed = format_quantity(cost.training_flops / cost.training_seconds)
        yield "training work", f"{format_quantity(cost.training_flops)}FLOPs, at {speed}FLOP/s"
    if cost.peak_memory:
        yield "largest memory", format_bytes(cost.peak_memory)


def walk_parts(node: Node, depth: int = 0) -> Iterator[tuple[int, Node]]:
    """Yield every part with its depth in the tree, a parent before its children."""
    yield depth, node
    for child in node.children:
        yield from walk_parts(child, depth + 1)


def measured_values(run: Run, results: Results) -> dict[str, Any]:
    """Return what the page shows of an evaluated run."""
    scores = [[score.name, f"{score.value:.2f}", f"{score.better} is better", score.note] for score in results.scores]
    return {"headline": headline(run, results), "facts": facts(run, results),
            "scores": Table(("", "value", "", "how"), scores, numbers=(1,)), "data_tables": data_tables(results.data),
            "losses": describe_losses(results.data), "costs": dict(cost_lines(results.cost)),
            "compared": plan_table(run.plan, results.cost) if run.plan else None}


def write_report(folder: Path) -> Path:
    """Write `report.html` into a run folder from the other files there, and return its path.

    A part whose file is missing is left out; without matplotlib the page says how to get the curves.

    Errors: `InputError` where the folder holds no run or a file in it is damaged; `WorkError` for a full disk.
    """
    run = read_run(folder)
    measured = measured_values(run, run.results) if run.results else {}
    files = sorted(path.name + "/" * path.is_dir() for path in folder.iterdir() if not path.name.startswith("."))
    parts = [*walk_parts(anatomy(run.recipe.model_for(run.vocab), run.recipe.training.length))]
    return write_page(folder / REPORT_FILE, "run.html", title=run.recipe.name, run=run, about=describe_run(run),
                      claimed=claimed_bits(run), anatomy=parts,
                      curves=draw_training(run.curves), files=[name for name in files if name != REPORT_FILE],
                      passport={name: value for name, value in (run.passport or {}).items()
                                if name not in SHOWN_ELSEWHERE}, **measured)
