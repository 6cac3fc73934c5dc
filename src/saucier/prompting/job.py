"""The whole job of `saucier prompt`: a task, a model, and for each number of shots and draw what comes out.

In a folder: `results.jsonl` (every text as it was sent, in the form that `saucier score` reads) and `scores.json`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from saucier.errors import InputError
from saucier.files import refuse_taken, write_atomically, write_json
from saucier.prompting.asking import Reply, Sent, reply, sent
from saucier.prompting.config import Likelihood, PromptTask, Writing
from saucier.prompting.likelihood import Speaker
from saucier.prompting.questions import Question, read_questions
from saucier.prompting.shots import drawn
from saucier.tasks.metrics.classes import accuracy
from saucier.tasks.metrics.intervals import Mean, Measured, Sums, interval, whole
from saucier.tasks.scores.predictions import Predicted, write_predictions
from saucier.tasks.scores.scored import Score, metrics_for, score

RESULTS, SCORES = "results.jsonl", "scores.json"


@dataclass(frozen=True, slots=True)
class Plan:
    """How often is asked, and with how many examples."""

    shots: tuple[int, ...] = (0,)
    draws: int = 1
    """Times that the examples are drawn anew; zero-shot is asked once."""
    limit: int | None = None
    """Questions that are asked; None: all."""
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Asked:
    """One question, as it was asked and answered."""

    question: Question
    sent: Sent
    reply: Reply
    shots: int
    draw: int

    def as_prediction(self) -> Predicted:
        """Return the row of `results.jsonl`."""
        extras = {"question": self.question.id, "shots": self.shots, "draw": self.draw, "text": self.sent.text,
                  "examples": list(self.sent.shots), "dropped": self.sent.dropped, "cut": self.sent.cut,
                  "answers": list(self.question.answers), "scores": list(self.reply.scores),
                  "nats": list(self.reply.nats)}
        return Predicted(self.reply.prediction, self.question.gold, f"{self.question.id}/{self.shots}/{self.draw}",
                         extras, has_gold=True)


@dataclass(frozen=True, slots=True)
class Setting:
    """All answers with one number of shots."""

    shots: int
    draws: int
    scores: tuple[Score, ...]
    """Means over the draws; the interval is over questions."""
    spread: float | None
    """Standard deviation of the first score over draws; None for one draw."""
    dropped: int
    """Examples left out because they did not fit, over all questions and draws."""
    cut: int
    """Questions whose own prompt was cut at its front."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came out."""

    task: str
    model: str
    questions: int
    settings: tuple[Setting, ...]
    baselines: tuple[Score, ...]
    """What needs no model: chance, and the most frequent gold."""

    def as_json(self) -> dict[str, Any]:
        """Give everything."""
        found = asdict(self)
        found["baselines"] = [one.as_json() for one in self.baselines]
        for setting, shown in zip(self.settings, found["settings"], strict=True):
            shown["scores"] = [one.as_json() for one in setting.scores]
        return found


def run(task: PromptTask, speaker: Speaker, plan: Plan, *, model: str = "", out: Path | None = None) -> Outcome:
    """Ask every question with every number of shots, score, and write the results where `out` is given.

    Errors: `InputError` for files that do not fit the task, for shots without a file to draw them from, and for a
    folder that holds something.
    """
    if out is not None:
        refuse_taken(out)
    questions = read_questions(task, task.evaluate, plan.limit)
    train = read_questions(task, task.train) if task.train and max(plan.shots) else []
    check_shots(plan, train)
    check_golds(task, questions)
    asked = [one for shots in plan.shots for one in ask_all(task, speaker, plan, (questions, train), shots)]
    found = Outcome(task.name, model, len(questions), tuple(setting(task, asked, shots, plan) for shots in plan.shots),
                    baselines(task, questions, train, plan.seed))
    if out is not None:
        write_atomically(out, partial(write_results, asked, found))
    return found


def write_results(asked: Sequence[Asked], found: Outcome, out: Path) -> None:
    """Write every text as it was sent and answered, and the scores, into a new folder."""
    write_predictions(out / RESULTS, [one.as_prediction() for one in asked])
    write_json(out / SCORES, found.as_json())


def check_shots(plan: Plan, train: Sequence[Question]) -> None:
    """Raise `InputError` for more examples than there are."""
    if max(plan.shots) and not train:
        raise InputError(f"{max(plan.shots)} shots, and no file to draw them from", where="train",
                         remedy="add `train: FILE` to the task, or use --shots 0")
    if max(plan.shots) >= len(train) > 0:
        raise InputError(f"{max(plan.shots)} shots of {len(train)} examples", where="--shots", remedy="ask for fewer")


def check_golds(task: PromptTask, questions: Sequence[Question]) -> None:
    """Raise `InputError` for right answers that are no numbers, where numbers are scored."""
    if kind_of(task) != "numbers":
        return
    if wrong := [one for one in questions if first_number(one.gold) is None]:
        raise InputError(f"{len(wrong):,} of {len(questions):,} right answers are no numbers, first "
                         f"{wrong[0].gold[:40]!r} of {wrong[0].id}", where=task.evaluate,
                         remedy=f"write numbers into the column {task.gold!r}, or scored_as: texts")


def ask_all(task: PromptTask, speaker: Speaker, plan: Plan, known: tuple[Sequence[Question], Sequence[Question]],
            shots: int) -> Iterator[Asked]:
    """Ask every question with some number of shots, in every draw. `known`: the questions, and the examples."""
    for draw in range(plan.draws if shots else 1):
        for number, question in enumerate(known[0]):
            examples = drawn(known[1], question, shots, balanced=task.balanced, key=(plan.seed, draw, number))
            what = sent(task, speaker, question, examples)
            yield Asked(question, what, reply(task, speaker, question, what.text), shots, draw)


def kind_of(task: PromptTask) -> str:
    """Return the kind of task that the answers are scored as."""
    if isinstance(task.by, Writing):
        return task.by.scored_as
    return "classes" if isinstance(task.choices, tuple) else "choices"


def setting(task: PromptTask, asked: Sequence[Asked], shots: int, plan: Plan) -> Setting:
    """Score the answers with one number of shots."""
    mine = [one for one in asked if one.shots == shots]
    draws = sorted({one.draw for one in mine})
    sides = [sides_of(task, [one for one in mine if one.draw == draw]) for draw in draws]
    golds = sides[0][0]
    scores, spread = [], None
    for metric in metrics_for(kind_of(task), golds, *(predictions for _, predictions in sides)):
        measured = [metric.measure(golds, predictions) for _, predictions in sides]
        if spread is None and len(draws) > 1:
            spread = float(np.std([whole(one) for one in measured], ddof=1))
        together = averaged(measured)
        low, high = interval(together, seed=plan.seed)
        scores.append(Score(metric.name, float(np.mean([whole(one) for one in measured])), low, high, together.count,
                            metric.unit))
    return Setting(shots, len(draws), tuple(scores), spread, sum(one.sent.dropped for one in mine),
                   sum(one.sent.cut > 0 for one in mine))


def sides_of(task: PromptTask, asked: Sequence[Asked]) -> tuple[list[Any], list[Any]]:
    """Return golds and predictions as their metrics want them."""
    golds: list[Any] = [one.question.gold for one in asked]
    predictions: list[Any] = [one.reply.prediction for one in asked]
    match kind_of(task):
        case "spans" | "texts":
            return [[gold] for gold in golds], predictions
        case "numbers":
            return [first_number(gold) for gold in golds], [first_number(said) or 0.0 for said in predictions]
        case _:
            return golds, predictions


def first_number(text: str) -> float | None:
    """Read a number, the first word of a text; None for what is none: as a prediction that counts as 0."""
    try:
        found = float(text.split()[0]) if text.split() else math.nan
    except ValueError:
        return None
    return found if math.isfinite(found) else None


def averaged(measured: Sequence[Measured]) -> Measured:
    """Average the draws question by question, so that a question counts once; ranks are those of the first draw."""
    first = measured[0]
    match first:
        case Mean():
            values = [one.values for one in measured if isinstance(one, Mean)]
            return replace(first, values=np.mean(values, axis=0))
        case Sums():
            return replace(first, statistics=np.mean([one.statistics for one in measured if isinstance(one, Sums)],
                                                     axis=0))
        case _:
            return first


def baselines(task: PromptTask, questions: Sequence[Question], train: Sequence[Question], seed: int) \
        -> tuple[Score, ...]:
    """Score what needs no model: a choice at random (its expectation), and the most frequent gold of the examples."""
    golds = [question.gold for question in questions]
    most = Counter(question.gold for question in train or questions).most_common(1)[0][0]
    majority = replace(score(accuracy(), golds, [most] * len(golds), seed), name=f"always {most!r}")
    if not isinstance(task.by, Likelihood):
        return (majority,)
    chance = float(np.mean([1 / len(question.answers) for question in questions]))
    return Score("chance", chance, chance, chance, len(golds), "rows"), majority
