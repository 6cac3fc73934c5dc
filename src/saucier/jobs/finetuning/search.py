"""A search for settings by successive halving: many combinations begin, the better half goes on where it stopped, and
the best of those that were trained to the end is the fine-tuning. Nothing is trained twice.

Source: Jamieson and Talwalkar 2016, "Non-stochastic Best Arm Identification", algorithm 1, arXiv:1502.07943.
"""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from saucier import config as c
from saucier.checkpoints.steps import FOLDER
from saucier.config.base import Config
from saucier.errors import InputError
from saucier.files import read_object, remove_path, write_json
from saucier.jobs.finetuning.chosen_metric import choose_metric, measure_metric
from saucier.jobs.finetuning.defaults import published_pick
from saucier.jobs.finetuning.job import FinetuningJob, prepare_model, train_task
from saucier.jobs.finetuning.results import prediction_row
from saucier.jobs.finetuning.settings import LOSS, Finetuning
from saucier.jobs.finetuning.task_folder import TaskFolder
from saucier.jobs.run.console import Console
from saucier.jobs.score import format_interval, format_score
from saucier.table import Table
from saucier.tasks.definitions import Texts
from saucier.tasks.metrics.metric import Metric
from saucier.tasks.prediction_files import read_predictions, write_predictions
from saucier.tasks.scores import metrics_for, score_difference
from saucier.tasks.task import Predictor
from saucier.training.progress import METRICS

SEARCH_FILE, SEARCH_FOLDER = "search.json", "search"
SMALLEST_SHARE = 1 / 8
"""Of its training, what every combination is given in the first round at least."""
RATE_RANGE = 4.0
"""The rate is drawn between that of the settings by this, and times this."""
EPOCHS = (2 / 3, 1.0, 5 / 3, 8 / 3)
BATCHES = (0.5, 1.0, 2.0)
"""Factors on the settings' epochs and batch."""


class Trial(Config):
    """One combination (`learning_rate`, `epochs`, `batch`), and how far it came."""

    learning_rate: float
    epochs: float
    batch: int
    pooling: str
    """Where the vector of a text is taken: mean, or as the family publishes it; empty where that is not searched."""
    scores: tuple[float | None, ...] = ()
    """On the held-out rows, after each round that it was in; None where it is not defined."""


class SearchState(Config):
    """What a search has found so far: `search.json`."""

    metric: str
    """What combinations are compared by."""
    higher: bool
    """Whether more of it is better."""
    trials: tuple[Trial, ...]
    """In the order in which they were drawn."""
    winner: int | None = None
    """Number of the best one, when all rounds are done."""

    def ranked(self, numbers: Sequence[int], rounds: int) -> list[int]:
        """Return trials by their scores after some rounds, the best first; of equals the first one drawn is first."""
        def key(number: int) -> tuple[bool, float, int]:
            score = self.trials[number].scores[rounds - 1]
            return score is None, 0.0 if score is None else -score if self.higher else score, number

        return sorted(numbers, key=key)

    def scored(self, number: int, score: float) -> SearchState:
        """Return the state with one more score of a trial."""
        trials, known = list(self.trials), None if math.isnan(score) else score
        trials[number] = trials[number].model_copy(update={"scores": (*trials[number].scores, known)})
        return self.model_copy(update={"trials": tuple(trials)})


def plan_rounds(trials: int) -> list[tuple[int, float]]:
    """Return how many go on in each round, and to what share of their training: half as many, twice as far."""
    counts = [trials]
    while counts[-1] > 2:
        counts.append(math.ceil(counts[-1] / 2))
    return [(count, max(SMALLEST_SHARE, 0.5 ** (len(counts) - 1 - place))) for place, count in enumerate(counts)]


def draw_trials(settings: Finetuning, trials: int) -> tuple[Trial, ...]:
    """Draw combinations: the settings themselves first, then evenly spread rates with epochs and batches at random."""
    draw, training = random.Random(settings.training.seed), settings.training
    base = training.optimizer.learning_rate
    poolings = free_poolings(settings)
    places = [place / max(1, trials - 2) for place in range(trials - 1)]
    draw.shuffle(places)
    drawn = [Trial(learning_rate=float(f"{base * RATE_RANGE ** (2 * place - 1):.2g}"),
                   epochs=max(1.0, round(training.epochs * draw.choice(EPOCHS))),
                   batch=max(1, round(training.batch * draw.choice(BATCHES))), pooling=draw.choice(poolings))
             for place in places]
    return (Trial(learning_rate=base, epochs=training.epochs, batch=training.batch, pooling=poolings[0]), *drawn)


def free_poolings(settings: Finetuning) -> list[str]:
    """Return the poolings that may be tried, that of the settings first; one empty name where a person chose it."""
    task = settings.task
    if not isinstance(task, Texts) or task.pick != published_pick(settings.model) or settings.mix is not None:
        return [""]
    return ["mean", "published"] if task.pick is not None else ["published", "mean"]


def trial_settings(settings: Finetuning, trial: Trial) -> Finetuning:
    """Return the settings of a combination: a fine-tuning of its own, without a search."""
    optimizer = settings.training.optimizer.model_copy(update={"learning_rate": trial.learning_rate})
    training = settings.training.model_copy(update={"optimizer": optimizer, "epochs": trial.epochs,
                                                    "batch": trial.batch})
    pick = {"mean": c.PickVector(kind="mean"), "published": None}
    task = settings.task.model_copy(update={"pick": pick[trial.pooling]}) if trial.pooling else settings.task
    return settings.model_copy(update={"training": training, "task": task, "search": None, "range_test": None})


def describe_budget(trials: Sequence[Trial], rounds: Sequence[tuple[int, float]]) -> str:
    """Say what a search costs, before it begins; which combinations go on is not known, so their mean counts."""
    mean = sum(one.epochs for one in trials) / len(trials)
    shares = [share for _, share in rounds]
    work = sum(count * (share - before) for (count, share), before in zip(rounds, [0.0, *shares], strict=False))
    steps = ", ".join(f"{count} to {share:.3g}" for count, share in rounds)
    return (f"search: {len(trials)} combinations of rate, epochs, batch and pooling, in {len(rounds)} rounds ({steps} "
            f"of their training); about {work * mean / trials[0].epochs:.1f} times the work of one training")


def search(job: FinetuningJob) -> tuple[Finetuning, Table]:
    """Search, or go on where that stopped; return the settings of the best one, whose training is then that of the job.

    Raises `InputError` under several processes, and for a damaged `search.json`.
    """
    assert job.settings.search is not None, "only then"
    if job.run.processes.world > 1:
        raise InputError("a search runs in one process", where="search", remedy="start it without torchrun")
    state = read_state(job.folder.path) or begin(job)
    rounds = plan_rounds(len(state.trials))
    job.run.console.say(describe_budget(state.trials, rounds))
    if state.winner is None:
        state = run_rounds(job, state, rounds)
    table = trials_table(job, state)
    job.run.console.show(table)
    assert state.winner is not None, "all rounds are done"
    adopt(job.folder.path, state.winner)
    return trial_settings(job.settings, state.trials[state.winner]), table


def run_rounds(job: FinetuningJob, state: SearchState, rounds: Sequence[tuple[int, float]]) -> SearchState:
    """Train and measure round after round; what a round leaves behind is removed."""
    alive = list(range(len(state.trials)))
    for place, (count, share) in enumerate(rounds):
        alive = state.ranked(alive, place)[:count] if place else alive
        for number in set(range(len(state.trials))) - set(alive):
            remove_path(trial_folder(job.folder.path, number).path / FOLDER)
        for number in alive:
            if len(state.trials[number].scores) <= place:
                state = state.scored(number, run_trial(job, state, number, share))
                write_json(job.folder.path / SEARCH_FILE, state.model_dump(mode="json"))
                one = state.trials[number]
                job.run.console.note(f"  {number + 1}: {', '.join(filter(None, describe_trial(one)))}: {state.metric} "
                                     f"{show_score(one)} after {share:.3g} of its training")
    state = state.model_copy(update={"winner": state.ranked(alive, len(rounds))[0]})
    write_json(job.folder.path / SEARCH_FILE, state.model_dump(mode="json"))
    return state


def begin(job: FinetuningJob) -> SearchState:
    """Draw the combinations, and choose what they are compared by: what training is stopped by, or the first score."""
    assert job.settings.search is not None, "only then"
    task, examples = job.splits.task, job.splits.held_out
    stop = job.settings.training.early_stop
    golds = task.group_for_scoring(examples, [task.gold(one) for one in examples])
    name = metrics_for(task.scored_as, golds, golds)[0].name if stop is None or stop.metric == LOSS else stop.metric
    metric = choose_metric(task, examples, name, where="search")
    state = SearchState(metric=name, higher=metric.better == "higher",
                        trials=draw_trials(job.settings, job.settings.search.trials))
    write_json(job.folder.path / SEARCH_FILE, state.model_dump(mode="json"))
    return state


def run_trial(job: FinetuningJob, state: SearchState, number: int, share: float) -> float:
    """Train one combination up to a share of its training, and return its score on the held-out rows."""
    trial = copy.copy(job)
    trial.settings = trial_settings(job.settings, state.trials[number])
    trial.folder = trial_folder(job.folder.path, number)
    trial.run = replace(job.run, console=Console(silent=True))
    trial.splits = replace(job.splits, task=chosen_task(job, trial.settings))
    prepare_model(trial)
    result = train_task(trial, share=share, reporters=[])
    reader: Any = Predictor(trial.model, trial.encoding, trial.settings.training.batch,
                            result.dtype)  # type: ignore[arg-type]
    answers = trial.splits.task.predict(reader, trial.splits.held_out, trial.encoded["held-out"])
    write_predictions(trial.folder.predictions("held-out"), (
        prediction_row(trial.splits.task, example, answer)
        for example, answer in zip(trial.splits.held_out, answers, strict=True)))
    return measure_metric(trial.splits.task, state.metric, trial.splits.held_out,
                          [one.prediction for one in answers])


def chosen_task(job: FinetuningJob, settings: Finetuning) -> Any:
    """Return the task of a job, with the pooling of a combination."""
    task = job.splits.task
    return task.with_config(pick=settings.task.pick) if isinstance(settings.task, Texts) else task


def trial_folder(out: Path, number: int) -> TaskFolder:
    """Return where a combination is trained."""
    return TaskFolder(out / SEARCH_FOLDER / f"{number + 1:02d}")


def adopt(out: Path, winner: int) -> None:
    """Make the training of the best combination that of the job, and remove what the others left; may be repeated."""
    place = trial_folder(out, winner).path
    for name in (METRICS, FOLDER):  # the checkpoints last: with them it is done
        if (place / name).exists():
            remove_path(out / name)
            (place / name).rename(out / name)
    for folder in (out / SEARCH_FOLDER).glob("*/*"):
        if folder.name != "predictions":
            remove_path(folder)


def read_state(out: Path) -> SearchState | None:
    """Read `search.json`; None where no search began. Raises `InputError` for a damaged one."""
    path = out / SEARCH_FILE
    if not path.is_file():
        return None
    try:
        return SearchState.model_validate(read_object(path))
    except ValidationError as error:
        raise InputError(f"is not the state of a search: {error.errors()[0]['msg']}", where=str(path),
                         remedy="give a new folder with --out") from error


def describe_trial(one: Trial) -> Iterator[str]:
    """Yield the settings of a combination in words; the last is empty where the pooling is not searched."""
    yield f"rate {one.learning_rate:g}"
    yield f"{one.epochs:g} epochs"
    yield f"batch {one.batch}"
    yield one.pooling and f"pooling {one.pooling}"


def show_score(one: Trial) -> str:
    """Write the last score of a combination."""
    return "not defined" if one.scores[-1] is None else format_score(one.scores[-1])


def trials_table(job: FinetuningJob, state: SearchState) -> Table:
    """Show every combination, the farthest trained and best first, each with how far it is below the winner.

    The interval is over held-out rows, by the paired bootstrap of `saucier score`; a combination that was trained less
    is compared as it was when it stopped.
    """
    assert state.winner is not None, "all rounds are done"
    task, examples = job.splits.task, job.splits.held_out
    golds = task.group_for_scoring(examples, [task.gold(one) for one in examples])
    metric = choose_metric(task, examples, state.metric, where="search")
    said = {number: task.group_for_scoring(examples, read_answers(job.folder.path, number))
            for number in range(len(state.trials))}
    rounds, rows = plan_rounds(len(state.trials)), []
    for number in list_by_rank(state):
        one = state.trials[number]
        apart = "chosen" if number == state.winner else difference(metric, golds, said[number], said[state.winner])
        rows.append([str(number + 1), f"{one.learning_rate:g}", f"{one.epochs:g}", str(one.batch), one.pooling,
                     f"{rounds[len(one.scores) - 1][1]:.3g}", show_score(one), apart])
    headings = ("", "rate", "epochs", "batch", "pooling", "trained", state.metric, "to the chosen one (95 % interval)")
    return Table(headings, rows, numbers=range(1, 7), bold=(0,))


def list_by_rank(state: SearchState) -> Iterator[int]:
    """Yield all combinations: those that came farthest first, and of these the best."""
    numbers = range(len(state.trials))
    for rounds in sorted({len(one.scores) for one in state.trials}, reverse=True):
        yield from state.ranked([number for number in numbers if len(state.trials[number].scores) == rounds], rounds)


def read_answers(out: Path, number: int) -> list[Any]:
    """Read what a combination last predicted for the held-out rows."""
    return [row.prediction for row in read_predictions(str(trial_folder(out, number).predictions("held-out")))]


def difference(metric: Metric, golds: Sequence[Any], one: Sequence[Any], winner: Sequence[Any]) -> str:
    """Say how far a combination is from the winner."""
    found = score_difference(metric, golds, (one, winner))
    return f"{format_score(found.value, signed=True)} ({format_interval(found.low, found.high, signed=True)})"
