"""The sections of a report about scores, data, plan, cost, model and origin: each makes HTML of a `Run`, or nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from saucier.config import Node, anatomy
from saucier.cost.planning import Plan
from saucier.plain import format_bytes, format_duration, format_quantity
from saucier.report.page import Html, element, joined, table
from saucier.report.results import DataCounts, LanguageCounts, Results, Run, RunCost, TextCounts

TIME_AIM, MEMORY_AIM = 0.20, 0.10
"""How far a plan may be from what is measured."""
SHOWN_ELSEWHERE = ("seconds",)
"""Parts of the passport that other sections show."""


def section(title: str, *content: object) -> Html:
    """Make a section with its heading."""
    return element("section", element("h2", title), *content)


def data_section(run: Run) -> Html:
    """Say what was read, what became of it, and what was left out."""
    if run.results is None:
        return Html()
    data = run.results.data
    sides = [("training", data.train), ("held out", data.held_out)]
    counts = table(["", "documents", "tokens", "text", "bytes a token"],
                   [_counts_row(name, counts) for name, counts in sides], numbers=range(1, 5), class_="plain")
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
    return table(head, rows, numbers=range(1, 7), class_="plain")


def _counts_row(name: str, counts: TextCounts) -> list[str]:
    ratio = f"{counts.bytes / counts.tokens:.2f}" if counts.tokens else "–"
    return [name, f"{counts.documents:,}", f"{counts.tokens:,}", format_bytes(counts.bytes), ratio]


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
    rows = [[what, planned, measured, _deviation(ratio, aim)]
            for what, planned, measured, ratio, aim in compare_plan(run.plan, run.results.cost)]
    compared = table(["", "planned", "measured", "difference"], rows, numbers=(1, 2, 3), class_="plain")
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


def _deviation(ratio: float, aim: float) -> Html:
    good = abs(ratio - 1) <= aim
    text = f"{100 * (ratio - 1):+.0f}%".replace("-", "−").replace("+0%", "0%").replace("−0%", "0%")
    return element("span", text, class_="good" if good else "bad", title=f"the aim is ±{100 * aim:.0f}%")


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
    return joined([stripe, table(["phase", "time", "share"], rows, numbers=(1, 2), class_="plain narrow")])


def anatomy_section(run: Run) -> Html:
    """Draw the model's parts as a table, with their share of the parameters."""
    length = run.recipe.training.length
    root = anatomy(run.recipe.model_for(run.vocab), length)
    rows = [_part_row(depth, node, root.parameters) for depth, node in walk_parts(root)]
    head = ["part", "", "shape", "parameters", "share", "FLOPs a token"]
    note = (f"FLOPs are those of a forward pass at {length} tokens in a row, a multiplication and an addition counting "
            "two; training takes three times as many. Parts inside a repeated block are counted once.")
    return section("Anatomy", table(head, rows, numbers=(3, 5), class_="anatomy"), element("p", note, class_="note"))


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


def record_table(values: Mapping[str, Any]) -> Html:
    """Show named values, one within another."""
    pairs = ((element("dt", str(name).replace("_", " ")), element("dd", _value(value)))
             for name, value in values.items())
    return element("dl", *(part for pair in pairs for part in pair), class_="record")


def _value(value: Any) -> Html:
    match value:
        case dict() if value:
            return record_table(value)
        case list() | tuple() if value and not isinstance(value, str):
            return _list(value)
        case None | {} | []:
            return element("span", "none", class_="soft")
        case bool():
            return element("span", "yes" if value else "no")
        case int():
            return element("span", f"{value:,}" if abs(value) < 1e15 else str(value))
        case float():
            return element("span", f"{value:,.6g}")
        case _:
            return element("span", str(value))


def _list(values: Sequence[Any]) -> Html:
    if any(isinstance(value, dict | list) for value in values):
        return joined(_value(value) for value in values)
    return element("span", ", ".join(str(value) for value in values))


def scores_section(run: Run) -> Html:
    """Show the further scores."""
    results: Results | None = run.results
    if results is None or not results.scores:
        return Html()
    rows = [[score.name, f"{score.value:.2f}", f"{score.better} is better", score.note] for score in results.scores]
    return section("Scores", table(["", "value", "", "how"], rows, numbers=(1,), class_="plain"))
