"""Fine-tuning results: the published MiniLM weights on every labelled file of `../shared/data`, beside what each must
beat.

`python -m benchmarks tasks` takes an hour or two. What is finished is kept in `runs/tasks`, and is not done again.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.cooking import needed
from benchmarks.finetuning import weights
from benchmarks.section import Row, Section
from benchmarks.tuned import named, took

RUNS = Path("runs/tasks")
RATE = "training.optimizer.learning_rate=1e-4"
SEEDS = (0, 1, 2)
"""Of the cases that are near what was promised; the others are learned once."""


@dataclass(frozen=True, slots=True)
class Case:
    """One data set: what is asked, how it is learned, and what was promised."""

    name: str
    task: str
    folder: str
    metric: str
    least: float | None = None
    words: tuple[str, ...] = ()
    train: str = "train.tsv"
    held_out: str = "dev.tsv"
    seeds: tuple[int, ...] = (0,)
    run: str = ""
    """Name of its folders; that of its data without it."""
    model: str = ""
    """What it begins with; the MiniLM weights without it."""


MEAN = ("task.pick.kind=mean",)
"""As this model was pretrained for sentences: its vector of a text is the mean of all tokens', not the first's."""
PAIR = ("task.text=sentence1", "task.pair=sentence2")
CASES = (
    Case("TREC, coarse", "classification", "classification/trec", "accuracy", 0.94,
         ("task.label=coarse", "training.epochs=5")),
    Case("AG News", "classification", "classification/ag_news", "accuracy", 0.90),
    Case("AG News, mean of all vectors", "classification", "classification/ag_news", "accuracy", 0.90, MEAN,
         seeds=SEEDS, run="ag_news-mean"),
    Case("SST-2", "classification", "classification/sst2", "accuracy", 0.875),
    Case("SST-2, mean of all vectors", "classification", "classification/sst2", "accuracy", 0.875, MEAN,
         seeds=SEEDS, run="sst2-mean"),
    Case("CoLA", "classification", "classification/cola", "Matthews"),
    Case("MRPC", "classification", "classification/mrpc", "accuracy", words=PAIR),
    Case("RTE", "classification", "classification/rte", "accuracy", words=PAIR),
    Case("SNLI, small", "classification", "classification/snli_small", "accuracy", words=PAIR),
    Case("STS-B", "regression", "classification/stsb", "Spearman", 0.84, (*PAIR, "task.score=score")),
    Case("CoNLL-2003 entities", "tagging", "ner/conll2003", "entity F1", 0.84),
    Case("UD English, parts of speech", "tagging", "ner/ud_ewt_pos", "tag accuracy", 0.93, ("training.epochs=2",)),
    Case("UD English, from nothing (elmo-nano)", "tagging", "ner/ud_ewt_pos", "tag accuracy", 0.90,
         ("training.epochs=6", "recipe.model.dropout=0.3", "training.optimizer.learning_rate=3e-3"),
         run="ud_ewt_pos-scratch", model="elmo-nano"),
    Case("SST-2, LoRA of rank 8", "classification", "classification/sst2", "accuracy", None,
         (*MEAN, "tuning.kind=lora", "tuning.rank=8", "training.optimizer.learning_rate=1e-3"), run="sst2-lora"),
    *(Case(f"SQuAD 1.1, {rows:,} questions", "question_answering", "qa", "F1", None,
           ("training.length=384", "training.batch=16", f"data.limit={rows}"), "squad_v1.1_train_part.jsonl",
           "squad_v1.1_dev_part.jsonl", run=f"squad-{rows}") for rows in (500, 1000, 2000, 3997)),
    Case("WikiQA, mean of all vectors", "ranking", "retrieval/wikiqa", "MAP",
         words=(*MEAN, "training.epochs=1")),
)


def measure(quick: bool) -> Section:
    """Fine-tune on each data set, and compare with the simple methods on the same rows."""
    rows = [row for case in (CASES[:1] if quick else CASES) for row in case_rows(case, quick)]
    about = ("From the published MiniLM weights (22.7 M parameters) where nothing else is said, `saucier finetune` "
             "with its defaults but for the rate of 1e-4 and what is named; the last weights, scored on the held-out "
             "rows, which chose nothing. In brackets the 95 % interval over rows.")
    return Section("Tasks", about, rows, ["`runs/tasks` holds every run with its settings, predictions and report."])


def case_rows(case: Case, quick: bool) -> list[Row]:
    """Return a row for each seed of a data set."""
    return [finetuned(case, seed, quick) for seed in case.seeds]


def finetuned(case: Case, seed: int, quick: bool) -> Row:
    """Fine-tune once, or read what stands there, and return its line."""
    from saucier.jobs.finetuning.finetune import finetune
    from saucier.jobs.finetuning.settings import read_finetuning_words

    words = [RATE, f"training.seed={seed}", *case.words, *(["data.limit=64"] if quick else [])]
    place = needed(case.folder)
    settings, _ = read_finetuning_words(case.task, words, case.model or weights(),
                                        {"train": [str(place / case.train)], "held_out": [str(place / case.held_out)]})
    folder = RUNS / ("quick-" * quick + f"{case.run or Path(case.folder).name}-{seed}")
    begin = time.perf_counter()
    done = finetune(settings, folder, quiet=True)
    print(f"  {case.name}, seed {seed}: {time.perf_counter() - begin:.0f} s", file=sys.stderr, flush=True)
    return line(case, seed, json.loads(done.scores.read_text(encoding="utf-8"))["held-out"], took(folder) / 60)


def line(case: Case, seed: int, found: dict[str, Any], minutes: float) -> Row:
    """Lay out one result: the metric, that of the best simple method, and how long it took."""
    own = named(found["scores"], case.metric)
    simple = {name: named(scores, case.metric) for name, scores in found["baselines"].items()}
    best = max(simple.items(), key=lambda item: item[1]["value"] or -1, default=None)
    theirs = f"{best[0]} {best[1]['value'] or 0:.3f}" if best else ""
    value = own["value"] or 0.0
    goal = case.least if case.least is not None else (best[1]["value"] or 0.0 if best else None)
    what = f"{case.name}: {case.metric}, seed {seed}, {minutes:.1f} minutes"
    return Row(what, f"{value:.3f} ({own['low']:.3f}–{own['high']:.3f})", theirs, None,
               "" if goal is None else f"≥ {goal:.3f}", None if goal is None else value >= goal)
