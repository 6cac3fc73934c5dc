"""What came out of a fine-tuning: answers beside what is right, scores with intervals, the hardest errors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from saucier.tasks.baselines.simple import simple_methods
from saucier.tasks.scores.predictions import Predicted
from saucier.tasks.scores.scored import Score, metrics_for, scored
from saucier.tasks.task import Answer, Json, Part, Task

HARDEST = 5
"""Errors that are shown."""
MOST_PARTS = 12
"""Parts of a mixture whose scores are said one by one."""
WIDEST = 160
"""Characters of a text that are shown."""


@dataclass(frozen=True, slots=True)
class Measured:
    """The answers to one split, and what they are worth."""

    split: str
    examples: Sequence[Any]
    answers: Sequence[Answer]
    scores: tuple[Score, ...]
    beside: tuple[tuple[str, tuple[Score, ...]], ...] = ()
    """Simple methods, by name."""
    whole: tuple[Score, ...] = ()
    """Those of the scores that are about all parts together."""
    parts: int = 1
    """Parts that are scored by themselves."""

    def said(self) -> Iterator[str]:
        """Yield what a person hears of the scores; of many parts only those of all together."""
        many = self.parts > MOST_PARTS and bool(self.whole)
        yield say_scores(self.whole if many else self.scores)
        if many:
            yield f"  {self.parts} tasks, each by itself in scores.json and report.html"
        else:
            yield from (f"  {method}: {say_scores(scores)}" for method, scores in self.beside)

    def pairs(self) -> Iterator[tuple[Any, Answer]]:
        """Yield each example with its answer."""
        yield from zip(self.examples, self.answers, strict=True)

    def as_json(self) -> dict[str, Any]:
        """Return it without the answers."""
        return {"rows": len(self.examples), "scores": [one.as_json() for one in self.scores],
                "baselines": {name: [one.as_json() for one in scores] for name, scores in self.beside}}


def measure(task: Task[Any], split: str, examples: Sequence[Any], answers: Sequence[Answer],
            train: Sequence[Any] = ()) -> Measured:
    """Score answers on one split, and those of simple methods that learn from the training rows, by task."""
    learned = {part.name: part.examples for part in task.parts(train)} if train else {}
    parts = task.parts(examples)
    found = [measured_part(part, [answers[number] for number in part.numbers], learned.get(part.name))
             for part in parts]
    whole = measured_whole(task, parts, examples, answers)
    return Measured(split, examples, answers, (*whole, *(score for own, _ in found for score in own)),
                    tuple(method for _, beside in found for method in beside), whole, len(parts))


def measured_whole(task: Task[Any], parts: Sequence[Part], examples: Sequence[Any],
                   answers: Sequence[Answer]) -> tuple[Score, ...]:
    """Score several parts together, where they are all of one kind."""
    kinds = {part.task.scored_as for part in parts}
    if len(parts) < 2 or len(kinds) > 1:
        return ()
    golds = task.gathered(examples, [task.gold(one) for one in examples])
    said = task.gathered(examples, [one.prediction for one in answers])
    return tuple(replace(score, name=f"all: {score.name}")
                 for score in scored(metrics_for(kinds.pop(), golds, said), golds, said))


def measured_part(part: Part, answers: Sequence[Answer], train: Sequence[Any] | None) -> tuple[
        tuple[Score, ...], list[tuple[str, tuple[Score, ...]]]]:
    """Score the answers to one part, and those of simple methods; a part's name stands before its metrics'."""
    golds = part.task.gathered(part.examples, [part.task.gold(one) for one in part.examples])
    simple = simple_methods(part.task, train, part.examples) if train is not None else []
    told: list[list[Json]] = [[one.prediction for one in answers], *(one.predictions for one in simple)]
    said = [part.task.gathered(part.examples, one) for one in told]
    metrics = metrics_for(part.task.scored_as, golds, *said)
    before = f"{part.name}: " if part.name else ""
    own, *others = ([replace(score, name=before + score.name) for score in scored(metrics, golds, one)] for one in said)
    return tuple(own), [(before + method.name, tuple(scores)) for method, scores in zip(simple, others, strict=True)]


def say_scores(scores: Sequence[Score]) -> str:
    """Write scores in one line, each with its 95 % interval."""
    return ", ".join(f"{one.name} {one.value:.4g} ({one.low:.4g}–{one.high:.4g})" for one in scores)


def predicted(task: Task[Any], example: Any, answer: Answer) -> Predicted:
    """Return one answer as a row of a file of predictions: what is right where it is known, confidence, texts."""
    sure = {} if answer.confidence is None else {"confidence": round(answer.confidence, 4)}
    return Predicted(answer.prediction, task.gold(example), example.name,
                     sure | answer.more | {"texts": task.texts(example)})


def say_answer(task: Task[Any], example: Any, answer: Answer) -> str:
    """Write one answer for a person."""
    sure = "" if answer.confidence is None else f" ({answer.confidence:.0%})"
    return f"{shortened(told(task, example, answer))}{sure}\t{shortened(' ‖ '.join(task.texts(example)))}"


def told(task: Task[Any], example: Any, answer: Answer) -> str:
    """Write what was said for a person; what was written is no class where none is known by it."""
    if answer.prediction is None and "text" in answer.more:
        return f"{answer.more['text']} (no class)".strip()
    return task.told(example, answer.prediction)


def hardest(task: Task[Any], found: Measured) -> Iterator[str]:
    """Yield the errors that the model was surest of (of numbers: the farthest off)."""
    rows = [(wrongness(answer, task.gold(example)), number)
            for number, (example, answer) in enumerate(zip(found.examples, found.answers, strict=True))]
    for wrong, number in sorted(rows, key=lambda row: (-row[0], row[1]))[:HARDEST]:
        if wrong > 0:
            example, answer = found.examples[number], found.answers[number]
            said, right = map(shortened, (told(task, example, answer), task.told(example, task.gold(example))))
            yield (f"{example.name}: {said}, not {right}: "
                   f"{shortened(' ‖ '.join(task.texts(example)))}")


def wrongness(answer: Answer, gold: Any) -> float:
    """Return how wrong an answer is: 0 where it is right."""
    if isinstance(answer.prediction, float) and isinstance(gold, int | float):
        return abs(answer.prediction - gold)
    right = answer.prediction in (gold or [""]) if isinstance(gold, list) and isinstance(answer.prediction, str) \
        else answer.prediction == gold
    return 0.0 if right else answer.confidence if answer.confidence is not None else 1.0


def shortened(text: str) -> str:
    """Cut a text that is too long for a line."""
    one = " ".join(text.split())
    return one if len(one) <= WIDEST else one[:WIDEST - 1] + "…"
