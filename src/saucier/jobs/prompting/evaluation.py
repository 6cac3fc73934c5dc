"""The whole job of `saucier prompt`: a task, a model, and for each number of shots and draw what comes out.

In a folder: `results.jsonl` (every text as it was sent, in the form that `saucier score` reads) and `scores.json`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Group, RenderableType
from rich.text import Text

from saucier.errors import InputError
from saucier.files import refuse_taken, write_atomically, write_json
from saucier.generation.generate import generate
from saucier.jobs.prompting.prompted_model import AnswerLikelihoods, PromptedModel
from saucier.jobs.prompting.questions import (
    Likelihood,
    Normalization,
    PerByte,
    PerToken,
    PromptTask,
    Question,
    Unconditional,
    WholeSum,
    Writing,
    draw_shots,
    read_questions,
)
from saucier.jobs.score import figures_table, format_interval, format_score
from saucier.plain import json_value
from saucier.result import Result
from saucier.tasks.metrics.labels import accuracy
from saucier.tasks.metrics.metric import Mean, Measurement, Sums, full_value, interval
from saucier.tasks.prediction_files import PredictionRow, write_predictions
from saucier.tasks.scores import Score, metrics_for, score


@dataclass(frozen=True, slots=True)
class Prompt:
    """The exact text that a model was given."""

    text: str
    shots: tuple[str, ...]
    """Ids of the examples in it."""
    dropped: int = 0
    """Examples left out because they did not fit."""
    cut: int = 0
    """Letters at the front of the prompt itself that did not fit."""


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """What came back."""

    prediction: str
    scores: tuple[float, ...] = ()
    """By which the choices were compared, the larger the better."""
    nats: tuple[float, ...] = ()
    """Log-probability of each choice."""


def build_prompt(task: PromptTask, prompted_model: PromptedModel, question: Question,
                 shots: Sequence[Question]) -> Prompt:
    """Put examples before a question, as many as fit; whole ones are left out, the first ones first."""
    kept = list(shots)
    while kept and count_excess_tokens(task, prompted_model, question, join_prompt(task, question, kept)) > 0:
        kept.pop(0)
    text = join_prompt(task, question, kept)
    start = 0
    while start < len(text) and (over := count_excess_tokens(task, prompted_model, question, text[start:])) > 0:
        start += over  # a token has a letter at least; the question is at the end of a prompt, so its front goes
    return Prompt(text[start:], tuple(one.id for one in kept), len(shots) - len(kept), start)


def join_prompt(task: PromptTask, question: Question, shots: Sequence[Question]) -> str:
    """Write instruction, examples and prompt, one after the other."""
    first = [task.instruction] if task.instruction else []
    return task.separator.join([*first, *(one.solved for one in shots), question.prompt])


def count_excess_tokens(task: PromptTask, prompted_model: PromptedModel, question: Question, text: str) -> int:
    """Count the tokens that a text, and in a decoder the answer after it, have over what the model takes."""
    if prompted_model.room is None:
        return 0
    if prompted_model.opened.is_encoder_decoder:
        return len(prompted_model.encode(text)) - prompted_model.room
    match task.by:
        case Writing(tokens=tokens):
            return len(prompted_model.encode(text)) + tokens - prompted_model.room
        case Likelihood():
            return max(len(prompted_model.encode(text + one)) for one in question.answers) - prompted_model.room


def answer_prompt(task: PromptTask, prompted_model: PromptedModel, question: Question, text: str) -> ModelAnswer:
    """Answer a prompt, by the likelihood of the choices or by letting the model write."""
    if isinstance(task.by, Writing):
        return ModelAnswer(generate_answer(prompted_model, text, task.by.tokens, task.by.stop))
    found = prompted_model.likelihoods(text, question.answers)
    scores = normalize_likelihoods(task.by.normalization, found, prompted_model, question.answers)
    return ModelAnswer(question.names[max(range(len(scores)), key=scores.__getitem__)], scores, found.nats)


def normalize_likelihoods(normalization: Normalization, found: AnswerLikelihoods, prompted_model: PromptedModel,
                          answers: Sequence[str]) -> tuple[float, ...]:
    """Make likelihoods of answers of different length comparable."""
    match normalization:
        case WholeSum():
            return found.nats
        case PerToken():
            return tuple(nats / count for nats, count in zip(found.nats, found.tokens, strict=True))
        case PerByte():
            return tuple(nats / max(1, len(answer.encode())) for nats, answer in zip(found.nats, answers, strict=True))
        case Unconditional(prompt=prompt):
            without = prompted_model.likelihoods(prompt, answers)
            return tuple(nats - other for nats, other in zip(found.nats, without.nats, strict=True))


def generate_answer(prompted_model: PromptedModel, text: str, tokens: int, stop: Sequence[str]) -> str:
    """Let the model write the likeliest text, up to the first of the stop strings."""
    ids = prompted_model.tensor([prompted_model.encode(text)])
    own = prompted_model.opened.tokenizer.target
    special: dict[str, Any] = {name: value for name, value in (
        ("eos_token_id", own.eos_id), ("pad_token_id", own.pad_id)) if value is not None}
    found = generate(prompted_model.opened.model, ids, torch.ones_like(ids), max_new_tokens=tokens,
                     stop_strings=list(stop) or None, tokenizer=own, do_sample=False,
                     **{**special, **prompted_model.opened.model.provenance.generation})
    answer = own.decode(found[0, 1 if prompted_model.opened.is_encoder_decoder else ids.shape[1]:].tolist())
    for one in stop:
        answer = answer.split(one, 1)[0]
    return answer.strip()


PROMPT_RESULTS_FILE, PROMPT_SCORES_FILE = "results.jsonl", "scores.json"


@dataclass(frozen=True, slots=True)
class PromptPlan:
    """With how many examples, how often, and how many questions are evaluated."""

    shots: tuple[int, ...] = (0,)
    draws: int = 1
    """Times that the examples are drawn again; zero-shot is done once."""
    limit: int | None = None
    """Questions that are evaluated, the first ones; None: all."""
    seed: int = 0


@dataclass(frozen=True, slots=True)
class AnsweredQuestion:
    """One question, the prompt that was sent, and the answer."""

    question: Question
    sent: Prompt
    reply: ModelAnswer
    shots: int
    draw: int

    def as_prediction(self) -> PredictionRow:
        """Return the row of `results.jsonl`."""
        extras = {"question": self.question.id, "shots": self.shots, "draw": self.draw, "text": self.sent.text,
                  "examples": list(self.sent.shots), "dropped": self.sent.dropped, "cut": self.sent.cut,
                  "answers": list(self.question.answers), "scores": list(self.reply.scores),
                  "nats": list(self.reply.nats)}
        return PredictionRow(self.reply.prediction, self.question.gold, f"{self.question.id}/{self.shots}/{self.draw}",
                             extras, has_gold=True)


@dataclass(frozen=True, slots=True)
class ShotScores:
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
class PromptOutcome(Result):
    """What came out."""

    task: str
    model: str
    questions: int
    settings: tuple[ShotScores, ...]
    baselines: tuple[Score, ...]
    """What needs no model: chance, and the most frequent gold."""

    def view(self) -> RenderableType:
        """Return what `saucier prompt` prints."""
        return render_prompting(self)


def run_prompting(task: PromptTask, prompted_model: PromptedModel, plan: PromptPlan, *, model: str = "",
                  out: Path | None = None) -> PromptOutcome:
    """Answer every question with every number of shots, score, and write the results where `out` is given.

    Errors: `InputError` for files that do not fit the task, for shots without a file to draw them from, and for a
    folder that holds something.
    """
    if out is not None:
        refuse_taken(out)
    questions = read_questions(task, task.evaluate, plan.limit)
    train = read_questions(task, task.train) if task.train and max(plan.shots) else []
    check_shots(plan, train)
    check_golds(task, questions)
    answered = [one for shots in plan.shots for one in ask_all(task, prompted_model, plan, (questions, train), shots)]
    found = PromptOutcome(task.name, model, len(questions),
                          tuple(score_shots(task, answered, shots, plan) for shots in plan.shots),
                          prompt_baselines(task, questions, train, plan.seed))
    if out is not None:
        write_atomically(out, partial(write_results, answered, found))
    return found


def write_results(answered: Sequence[AnsweredQuestion], found: PromptOutcome, out: Path) -> None:
    """Write every text as it was sent and answered, and the scores, into a new folder."""
    write_predictions(out / PROMPT_RESULTS_FILE, [one.as_prediction() for one in answered])
    write_json(out / PROMPT_SCORES_FILE, json_value(found))


def check_shots(plan: PromptPlan, train: Sequence[Question]) -> None:
    """Raise `InputError` for more examples than there are."""
    if max(plan.shots) and not train:
        raise InputError(f"{max(plan.shots)} shots, and no file to draw them from", where="train",
                         remedy="add `train: FILE` to the task, or use --shots 0")
    if max(plan.shots) >= len(train) > 0:
        raise InputError(f"{max(plan.shots)} shots of {len(train)} examples", where="--shots", remedy="ask for fewer")


def check_golds(task: PromptTask, questions: Sequence[Question]) -> None:
    """Raise `InputError` for right answers that are no numbers, where numbers are scored."""
    if answer_kind(task) != "numbers":
        return
    if wrong := [one for one in questions if first_number(one.gold) is None]:
        raise InputError(f"{len(wrong):,} of {len(questions):,} right answers are no numbers, first "
                         f"{wrong[0].gold[:40]!r} of {wrong[0].id}", where=task.evaluate,
                         remedy=f"write numbers into the column {task.gold!r}, or scored_as: texts")


def ask_all(task: PromptTask, prompted_model: PromptedModel, plan: PromptPlan,
            known: tuple[Sequence[Question], Sequence[Question]], shots: int) -> Iterator[AnsweredQuestion]:
    """Answer every question with some number of shots, in every draw. `known`: the questions, and the examples."""
    for draw in range(plan.draws if shots else 1):
        for number, question in enumerate(known[0]):
            examples = draw_shots(known[1], question, shots, balanced=task.balanced, key=(plan.seed, draw, number))
            what = build_prompt(task, prompted_model, question, examples)
            yield AnsweredQuestion(question, what, answer_prompt(task, prompted_model, question, what.text), shots,
                                   draw)


def answer_kind(task: PromptTask) -> str:
    """Return the kind of task that the answers are scored as."""
    if isinstance(task.by, Writing):
        return task.by.scored_as
    return "classes" if isinstance(task.choices, tuple) else "choices"


def score_shots(task: PromptTask, answered: Sequence[AnsweredQuestion], shots: int, plan: PromptPlan) -> ShotScores:
    """Score the answers with one number of shots."""
    of_shots = [one for one in answered if one.shots == shots]
    draws = sorted({one.draw for one in of_shots})
    sides = [golds_and_predictions(task, [one for one in of_shots if one.draw == draw]) for draw in draws]
    golds = sides[0][0]
    scores, spread = [], None
    for metric in metrics_for(answer_kind(task), golds, *(predictions for _, predictions in sides)):
        measured = [metric.measure(golds, predictions) for _, predictions in sides]
        if spread is None and len(draws) > 1:
            spread = float(np.std([full_value(one) for one in measured], ddof=1))
        together = average_draws(measured)
        low, high = interval(together, seed=plan.seed)
        scores.append(Score(metric.name, float(np.mean([full_value(one) for one in measured])), low, high,
                            together.count, metric.unit))
    return ShotScores(shots, len(draws), tuple(scores), spread, sum(one.sent.dropped for one in of_shots),
                      sum(one.sent.cut > 0 for one in of_shots))


def golds_and_predictions(task: PromptTask, answered: Sequence[AnsweredQuestion]) -> tuple[list[Any], list[Any]]:
    """Return golds and predictions as their metrics want them."""
    golds: list[Any] = [one.question.gold for one in answered]
    predictions: list[Any] = [one.reply.prediction for one in answered]
    match answer_kind(task):
        case "spans" | "texts":
            return [[gold] for gold in golds], predictions
        case "numbers":
            return [first_number(gold) for gold in golds], [first_number(one) or 0.0 for one in predictions]
        case _:
            return golds, predictions


def first_number(text: str) -> float | None:
    """Read a number, the first word of a text; None for what is none: as a prediction that counts as 0."""
    try:
        found = float(text.split()[0]) if text.split() else math.nan
    except ValueError:
        return None
    return found if math.isfinite(found) else None


def average_draws(measured: Sequence[Measurement]) -> Measurement:
    """Average the draws question by question, so that a question counts once; ranks are those of the first draw."""
    match measured[0]:
        case Mean() as first:
            values = [one.values for one in measured if isinstance(one, Mean)]
            return replace(first, values=np.mean(values, axis=0))
        case Sums() as first:
            return replace(first, statistics=np.mean([one.statistics for one in measured if isinstance(one, Sums)],
                                                     axis=0))
        case first:
            return first


def prompt_baselines(task: PromptTask, questions: Sequence[Question], train: Sequence[Question], seed: int) \
        -> tuple[Score, ...]:
    """Score what needs no model: a choice at random (its expectation), and the most frequent gold of the examples."""
    golds = [question.gold for question in questions]
    most = Counter(question.gold for question in train or questions).most_common(1)[0][0]
    majority = replace(score(accuracy(), golds, [most] * len(golds), seed), name=f"always {most!r}")
    if not isinstance(task.by, Likelihood):
        return (majority,)
    chance = float(np.mean([1 / len(question.answers) for question in questions]))
    return Score("chance", chance, chance, chance, len(golds), "rows"), majority


def render_prompting(found: PromptOutcome) -> RenderableType:
    """Lay an outcome out for a person."""
    rows = []
    for one in found.settings:
        lost = ((one.dropped, "examples did not fit"), (one.cut, "questions were cut"))
        cuts = ", ".join(f"{count:,} {what}" for count, what in lost if count)
        rows += [(f"{one.shots}-shot {result.name}", format_score(result.value),
                  format_interval(result.low, result.high), str(one.draws),
                  "" if place or one.spread is None else format_score(one.spread), "" if place else cuts)
                 for place, result in enumerate(one.scores)]
    rows += [(result.name, format_score(result.value),
              "" if result.low == result.high else format_interval(result.low, result.high), "", "", "no model")
             for result in found.baselines]
    table = figures_table(("", "score", "95 % interval", "draws", "± draws", ""), rows)
    return Group(Text(f"{found.task}: {found.questions:,} questions, {found.model}", style="dim"), Text(), table)
