"""The whole job of `saucier compare`: check, train, score, compare, report."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from saucier.comparison.config import Classification, Experiment, Judge, Tagging
from saucier.comparison.outcome import Outcome, outcome, write_outcome
from saucier.comparison.preparation import Trial, prepare
from saucier.comparison.report import write_report
from saucier.comparison.trials import Done, conducted, threads_of_a_run
from saucier.errors import InputError
from saucier.inspection.calibration import calibrate
from saucier.inspection.units import duration, quantity
from saucier.inspection.workload import Workload
from saucier.recipes import Recipe
from saucier.runs.voice import Voice


def compare(wanted: Experiment, out: Path, *, workers: int = 1, threads: int | None = None,
            quiet: bool = False) -> Outcome:
    """Compare, or go on where it stopped; what was found is in `comparison.json` and `report.html`.

    Raises `InputError` for what cannot be compared, before anything is trained; `WorkError` as `cook`.
    """
    if out.is_file():
        raise InputError("is a file", where=str(out), remedy="give a folder with --out")
    voice = Voice(silent=quiet)
    voice.heading(f"{wanted.name}: {', '.join(arm.name for arm in wanted.arms)} → {out}")
    check_rows(wanted.judge)
    with voice.stage("tokenizer"):
        trials = prepare(wanted, out, partial(seconds_a_step, threads=threads_of_a_run(workers, threads)), voice.say)
    say_plan(voice, trials)
    done: list[Done] = []
    for one in conducted(trials, workers=workers, threads=threads):
        done.append(one)
        say_done(voice, one, len(done), len(trials))
    found = outcome(wanted, done)
    write_outcome(found, out)
    with voice.stage("report"):
        voice.say(str(write_report(found, done, out)))
    return found


def check_rows(judge: Judge) -> None:
    """Raise `InputError` where a judge cannot use its files."""
    match judge:
        case Classification():
            from saucier.comparison.transfer import check_labelled

            check_labelled(judge)
        case Tagging():
            from saucier.comparison.tagging import check_tagged

            check_tagged(judge)


def seconds_a_step(recipe: Recipe, work: Workload, *, threads: int) -> float:
    """Measure one update on this machine, with the threads of a run. Raises `WorkError` when that fails."""
    rows = max(len(batch) for batch in work.batches)
    measured = calibrate(recipe, work, threads=threads)
    return -(-rows // (recipe.training.micro_batch or rows)) * measured.micro_seconds + measured.update_seconds


def say_plan(voice: Voice, trials: list[Trial]) -> None:
    """Say what each arm will do."""
    with voice.stage("plan"):
        for trial in trials:
            if trial.seed == 0:
                training = trial.recipe.training
                most = "" if training.seconds is None else f"{duration(training.seconds)}, at most "
                voice.say(f"{trial.arm}: {most}{quantity(training.steps)} steps of {training.batch} × "
                          f"{training.length}, {trial.recipe.objective.kind}")


def say_done(voice: Voice, one: Done, number: int, total: int) -> None:
    """Say how a run ended."""
    with voice.stage(f"{number}/{total}"):
        took = duration(one.seconds) if one.seconds else "finished before"
        voice.say(f"{one.trial.arm}, seed {one.trial.seed}: {one.scores.whole:.4f} {one.scores.measure.name} ({took})")
