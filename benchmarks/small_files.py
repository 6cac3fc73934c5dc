"""MiniLM fine-tuned with the defaults against TF-IDF with a linear model, on the first rows of every labelled file of
`../shared/data/classification`: the same rows for both, three seeds, paired intervals.

`python -m benchmarks small_files`. What is finished is kept in `runs/small_files`, and is not done again.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.cooking import needed
from benchmarks.finetuning import weights
from benchmarks.section import Row, Section

RUNS = Path("runs/small_files")
SEEDS = (0, 1, 2)
LEARNED, MEASURED = 400, 400
"""Rows of each file that both methods learn from, and that they are measured on, drawn once."""
DRAWS = 2_000


@dataclass(frozen=True, slots=True)
class Case:
    """One labelled file: where it is, what tells its columns, and how long its rows may be."""

    folder: str
    words: tuple[str, ...] = ()
    length: int = 48
    metric: str = "accuracy"
    task: str = "classification"


PAIR = ("task.text=sentence1", "task.pair=sentence2")
CASES = (Case("trec", ("task.label=coarse",)), Case("cola"), Case("sst2"), Case("sst5"), Case("snli_small", PAIR),
         Case("stsb", (*PAIR, "task.score=score"), metric="Spearman", task="regression"), Case("mrpc", PAIR, 64),
         Case("rte", PAIR, 64), Case("ag_news", (), 64), Case("movie_reviews_long", (), 64))


@dataclass(frozen=True, slots=True)
class Contest:
    """One file: what is right, what each seed of ours says, and what TF-IDF says."""

    golds: Sequence[Any]
    ours: tuple[Sequence[Any], ...]
    theirs: Sequence[Any]


def measure(quick: bool) -> Section:
    """Fine-tune on each file, seed after seed, and compare with TF-IDF on the same rows."""
    cases, seeds = (CASES[:1], SEEDS[:1]) if quick else (CASES, SEEDS)
    for seed in seeds:  # every file once before any comes again
        for case in cases:
            learn(case, seed, quick)
    rows = [compare(case, read_contest(case, seeds, quick)) for case in cases]
    about = (f"The published MiniLM weights (22.7 M parameters), `saucier finetune` with its defaults, against TF-IDF "
             f"with logistic regression (ridge for numbers). Both learn from the same {LEARNED} rows of each file "
             f"and are measured on the same rows of its test file (of dev where there is none), {MEASURED} at most, "
             "read once; rows are cut to 48 or 64 tokens for MiniLM, to fit the machine. Mean of three seeds; "
             "in brackets the 95 % interval of the difference, by a paired bootstrap over rows.")
    good = sum(row.reached is True for row in rows)
    return Section("Small files", about, rows, [
        f"Not worse (the interval is not all below 0) on {good} of {len(rows)} files.",
        "`runs/small_files` holds every run with its settings, predictions and report."])


def learn(case: Case, seed: int, quick: bool) -> None:
    """Fine-tune once, unless that is done."""
    from saucier.jobs.finetuning.finetune import finetune

    begin, folder = time.perf_counter(), run_folder(case, seed, quick)
    finetune(settings_of(case, seed, quick), folder, quiet=True)
    print(f"  {case.folder}, seed {seed}: {time.perf_counter() - begin:.0f} s", file=sys.stderr, flush=True)


def run_folder(case: Case, seed: int, quick: bool) -> Path:
    """Return the folder of one run."""
    return RUNS / ("quick-" * quick + f"{case.folder}-{seed}")


def settings_of(case: Case, seed: int, quick: bool) -> Any:
    """Return the settings of one run: the defaults, on the drawn rows."""
    from saucier.jobs.finetuning.settings import read_finetuning_words

    train, test = draw_files(case, 32 if quick else LEARNED, 32 if quick else MEASURED)
    words = [f"training.seed={seed}", f"training.length={case.length}", *case.words]
    return read_finetuning_words(case.task, words, weights(), {"train": [str(train)], "held_out": [str(test)]})[0]


def draw_files(case: Case, learned: int, measured: int) -> tuple[Path, Path]:
    """Write the rows that are learned from and measured on, unless they are there; return both files."""
    place = needed("classification", case.folder)
    ends = ".jsonl" if (place / "train.jsonl").is_file() else ".tsv"
    test = place / f"test{ends}" if (place / f"test{ends}").is_file() else place / f"dev{ends}"
    files = []
    for source, count in ((place / f"train{ends}", learned), (test, measured)):
        target = RUNS / "data" / f"{case.folder}-{source.stem}-{count}{ends}"
        if not target.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text("".join(drawn_lines(source, count)), encoding="utf-8")
        files.append(target)
    return files[0], files[1]


def drawn_lines(source: Path, count: int) -> Iterator[str]:
    """Yield the header of a file, where it has one, and some of its rows."""
    with source.open(encoding="utf-8") as file:
        if source.suffix == ".tsv":
            yield next(file)
        rows = list(file)
    random.Random(0).shuffle(rows)
    yield from rows[:count]


def read_contest(case: Case, seeds: Sequence[int], quick: bool) -> Contest:
    """Read what each seed predicted, and let TF-IDF predict the same rows."""
    from saucier.jobs.finetuning.data import read_splits
    from saucier.tasks.build import build_task, predict_simple_baselines
    from saucier.tasks.prediction_files import read_predictions

    settings = settings_of(case, seeds[0], quick)
    splits = read_splits(build_task(settings.task), settings.data)
    simple = predict_simple_baselines(splits.task, splits.train, splits.held_out)[-1]
    said = [[row.prediction for row in
             read_predictions(str(run_folder(case, seed, quick) / "predictions" / "held-out.jsonl"))]
            for seed in seeds]
    return Contest([splits.task.gold(one) for one in splits.held_out], tuple(said), simple.predictions)


def compare(case: Case, found: Contest) -> Row:
    """Lay out one file: both scores, and the interval of their difference."""
    from saucier.tasks.metrics.metric import full_value
    from saucier.tasks.metrics.statistics import resampling_weights
    from saucier.tasks.scores import metrics_for

    kind = "numbers" if case.task == "regression" else "classes"
    metric = next(one for one in metrics_for(kind, found.golds, found.theirs, *found.ours) if one.name == case.metric)
    theirs = metric.measure(found.golds, found.theirs)
    ours = [metric.measure(found.golds, one) for one in found.ours]
    drawn = np.concatenate([np.mean([one.resampled(counts) for one in ours], axis=0) - theirs.resampled(counts)
                            for counts in resampling_weights(len(found.golds), seed=0, draws=DRAWS)])
    low, high = np.quantile(drawn, [0.025, 0.975])
    values, simple = [full_value(one) for one in ours], full_value(theirs)
    mean, seeds = float(np.mean(values)), ", ".join(f"{value:.3f}" for value in values)
    return Row(f"{case.folder}: {case.metric}, {len(found.golds)} rows", f"{mean:.3f} ({seeds})",
               f"{simple:.3f}; difference {mean - simple:+.3f} ({low:+.3f} … {high:+.3f})",
               target="not worse", reached=bool(high >= 0))
