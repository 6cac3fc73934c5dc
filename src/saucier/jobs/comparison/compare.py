"""The whole job of `saucier compare`: check, train, score, compare, report.

Trials are done one after the other, or several at a time on Ray. What is finished is not done again.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import shutil
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from saucier.cost.calibration import calibrate
from saucier.cost.workload import Workload
from saucier.errors import InputError, SaucierError
from saucier.files import write_atomically, write_text
from saucier.jobs.comparison.experiment import Classification, Experiment, Judge, Tagging
from saucier.jobs.comparison.judging import FinishedTrial, judge_files, read_scores, score_trial
from saucier.jobs.comparison.outcome import OUTCOME_FILE, Outcome, summarize_trials
from saucier.jobs.comparison.preparation import Trial, prepare_trials
from saucier.jobs.comparison.report import write_comparison_report
from saucier.jobs.comparison.transfer import check_labelled
from saucier.jobs.finetuning.data import read_splits
from saucier.jobs.pretraining.cook import JobOptions, cook
from saucier.jobs.run.console import Console
from saucier.jobs.run.folder import open_run
from saucier.machine import count_cores
from saucier.opened import RunFolder
from saucier.plain import format_duration, format_quantity
from saucier.recipes import Recipe
from saucier.tasks import definitions as tasks
from saucier.tasks.build import build_task
from saucier.text.tokenizer.tokenizer import load_tokenizer


def run_trial(trial: Trial, threads: int) -> FinishedTrial:
    """Train and score one run, or go on where it stopped. Raises as `cook` does."""
    import torch

    found = read_scores(trial.folder, trial.judge)
    folder, _ = open_run(trial.folder, trial.recipe)  # refuses another run
    if found is not None:
        return FinishedTrial(trial, found, 0.0)
    torch.set_num_threads(threads)
    begin = time.perf_counter()
    if trial.tokenizer is not None and not (folder.tokenizer / "tokenizer_config.json").is_file():
        load_tokenizer(trial.tokenizer).save(folder.tokenizer)
    first, own = RunFolder(folder.path.parent / "seed-0"), folder.data_file.parent
    if first.data_file.is_file() and not own.exists():  # seeds change nothing of the packed text
        write_atomically(own, partial(shutil.copytree, first.data_file.parent))
    cook(trial.recipe, trial.folder, JobOptions(calibrate=False, quiet=True))
    found = score_trial(trial)
    found.write(trial.folder)
    return FinishedTrial(trial, found, time.perf_counter() - begin)


def run_on_ray(trials: list[Trial], workers: int, threads: int) -> Iterator[FinishedTrial]:
    """Let Ray do `workers` trials at a time, on this machine or on the cluster that RAY_ADDRESS names.

    The machines of a cluster must see the same folders.
    """
    if importlib.util.find_spec("ray") is None:
        raise InputError("runs side by side need Ray, which is not installed", where="--workers",
                         remedy="pip install 'saucier[ray]', or leave it out")
    import ray

    ray.init(include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR,
             num_cpus=None if "RAY_ADDRESS" in os.environ else workers)
    remote, left = ray.remote(num_cpus=1)(run_trial), list(reversed(trials))
    waiting: list[Any] = []
    try:
        while left or waiting:
            while left and len(waiting) < workers:
                waiting.append(remote.remote(left.pop(), threads))
            ready, waiting = ray.wait(waiting)
            yield from ray.get(ready)
    except ray.exceptions.RayTaskError as error:
        raise (error.cause if isinstance(error.cause, SaucierError) else error) from error
    finally:
        ray.shutdown()


def compare(experiment: Experiment, out: Path, *, workers: int = 1, threads: int | None = None,
            quiet: bool = False) -> Outcome:
    """Compare, or go on where it stopped; what was found is in `comparison.json` and `report.html`.

    `threads` are those of one run; None: all cores, shared by the workers.
    Raises `InputError` for what cannot be compared, before anything is trained; `WorkError` as `cook`.
    """
    if out.is_file():
        raise InputError("is a file", where=str(out), remedy="give a folder with --out")
    threads = threads or max(1, count_cores() // workers)
    console = Console(silent=quiet)
    console.heading(f"{experiment.name}: {', '.join(arm.name for arm in experiment.arms)} → {out}")
    check_judge_files(experiment.judge)
    with console.stage("tokenizer"):
        trials = prepare_trials(experiment, out, partial(measure_step_seconds, threads=threads), console.say)
    print_trials(console, trials)
    finished = run_on_ray(trials, workers, threads) if workers > 1 else (run_trial(one, threads) for one in trials)
    done: list[FinishedTrial] = []
    for one in finished:
        done.append(one)
        print_finished_trial(console, one, len(done), len(trials))
    found = summarize_trials(experiment, done)
    write_text(out / OUTCOME_FILE, found.model_dump_json(indent=2) + "\n")
    with console.stage("report"):
        console.say(str(write_comparison_report(found, done, out)))
    return found


def check_judge_files(judge: Judge) -> None:
    """Raise `InputError` where a judge cannot use its files."""
    match judge:
        case Classification():
            check_labelled(judge)
        case Tagging():
            read_splits(build_task(tasks.Tagging()), judge_files(judge))


def measure_step_seconds(recipe: Recipe, work: Workload, *, threads: int) -> float:
    """Measure one update on this machine, with the threads of a run. Raises `WorkError` when that fails."""
    return calibrate(recipe, work, threads=threads).step_seconds(recipe, work)


def print_trials(console: Console, trials: list[Trial]) -> None:
    """Say what each arm will do."""
    with console.stage("plan"):
        for trial in (one for one in trials if one.seed == 0):
            training = trial.recipe.training
            most = "" if training.seconds is None else f"{format_duration(training.seconds)}, at most "
            console.say(f"{trial.arm}: {most}{format_quantity(training.steps)} steps of {training.batch} × "
                        f"{training.length}, {trial.recipe.objective.kind}")


def print_finished_trial(console: Console, one: FinishedTrial, number: int, total: int) -> None:
    """Say how a run ended."""
    with console.stage(f"{number}/{total}"):
        took = format_duration(one.seconds) if one.seconds else "finished before"
        console.say(f"{one.trial.arm}, seed {one.trial.seed}: {one.scores.whole:.4f} {one.scores.measure.name} "
                        f"({took})")
