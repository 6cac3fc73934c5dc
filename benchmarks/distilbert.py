"""DistilBERT's recipe: MiniLM learns to fill in hidden words, a student of every second of its layers learns on by the
triple loss, and both are fine-tuned; beside it the same start that learns on without the teacher.

`python -m benchmarks distilbert`. What is finished is kept in `runs/distilbert`, and is not done again. Source: Sanh et
al. 2019, arXiv:1910.01108, sections 2 and 3.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.compression import CASES, DRAWS, SEEDS, Case, files_of, interval
from benchmarks.cooking import kept, needed
from benchmarks.finetuning import weights
from benchmarks.section import Row, Section, at_least
from benchmarks.tuned import finetuned, rights

RUNS = Path("runs/distilbert")
TASKS = tuple(case for case in CASES if case.name in {"SST-2", "TREC", "AG News"})
STEPS, STUDENT_STEPS, RATE = 1000, 500, 5e-4
WORDS = ["training.batch=16", "training.length=128", "training.evaluate_every=500",
         f"training.optimizer.learning_rate={RATE}", "training.dtype=bfloat16", "objective.next_sentence=null"]
"""The text is one document; and CPUs that multiply in bfloat16 take half of the time."""
TRIPLE_LOSS = ("[{kind: soft_targets, weight: 5, temperature: 2}, {kind: hard_targets, weight: 2}, "
               "{kind: hidden_states, weight: 1, distance: {kind: cosine}, layers: {kind: last}}]")
"""As the recipe `distilbert-nano` has it, but for soft targets at masked words alone, which the published code offers:
at every token the 30,522 words of MiniLM take most of the time of a CPU.
"""
BODIES = ("teacher", "student", "alone")
"""The last one learns by masked words alone."""
KEPT, FASTER = 0.97, 1.5
"""What the book asks of the student: the share that it keeps, and its speed."""
PASSES = 300


def measure(quick: bool) -> Section:
    """Pretrain three bodies, fine-tune each on every task with every seed, and compare."""
    bodies, seeds, tasks = pretrain(quick), SEEDS[:1] if quick else SEEDS, TASKS[:1] if quick else TASKS
    runs = {(case, name): [tune(case, name, body, seed, quick) for seed in seeds]
            for case in tasks for name, body in bodies.items()}
    rows = [row for case in tasks for row in compare(case, {name: runs[case, name] for name in bodies})]
    rows += compare_sizes({name: runs[tasks[0], name][0] for name in bodies})
    about = (f"The published MiniLM (6 layers) learns masked words of WikiText-2 for {STEPS:,} updates of 2,048 "
             "tokens; a student begins with every second layer of it and learns "
             f"{STUDENT_STEPS:,} updates, by soft targets, masked words and the cosine of the last hidden vectors, or "
             "by masked words alone. Each is fine-tuned for 3 epochs. Mean of the seeds of fine-tuning (one of "
             "pretraining); in brackets the 95 % interval of a paired bootstrap over seeds and rows.")
    return Section("DistilBERT", about, rows, [f"`{RUNS}` holds every run."])


def pretrain(quick: bool) -> dict[str, Path]:
    """Return the runs of the three bodies, made unless they are there."""
    import saucier

    place = RUNS / ("quick" * quick) / "bodies"
    small = ["training.steps=4", "training.evaluate_every=4", "--no-calibrate"] if quick else []
    found, start = {name: place / name for name in BODIES}, place / "start"

    def cook(name: str, model: Path, *more: str) -> None:
        steps = STEPS if name == "teacher" else STUDENT_STEPS
        kept(f"--from={model}", found[name], ["--data", str(needed("lm", "wikitext2", "train.txt")), *WORDS,
                                              f"training.steps={steps}", *more, *small])

    cook("teacher", Path(weights()))
    if not start.is_dir():
        saucier.convert(found["teacher"], start, layers="1,3,5")
    cook("student", start, f"distillation={{teacher: {found['teacher']}, losses: {TRIPLE_LOSS}}}")
    cook("alone", start)
    return found


def tune(case: Case, name: str, body: Path, seed: int, quick: bool) -> Path:
    """Fine-tune a body, unless that is done; return its run."""
    files = files_of(case, quick)
    return finetuned(body.parents[1] / f"{Path(case.train).parent.name}-{name}-{seed}", case.task, str(body),
                     (Path(files["train"][0]), Path(files["held_out"][0])),
                     [f"training.seed={seed}", f"training.length={case.length}", *case.words,
                      f"training.epochs={1 if quick else 3}"])


def compare(case: Case, runs: dict[str, list[Path]]) -> Iterator[Row]:
    """Lay out what the student keeps of its teacher, and what the teacher gave it."""
    from saucier.tasks.metrics.statistics import paired_difference

    teacher, student, alone = (np.array([rights(run) for run in runs[name]]) for name in BODIES)
    random, (seeds, rows) = np.random.default_rng(0), teacher.shape
    drawn = []
    for _ in range(DRAWS):
        some = np.ix_(random.integers(seeds, size=seeds), random.integers(rows, size=rows))
        drawn.append(student[some].mean() / teacher[some].mean())
    low, high = interval(np.array(drawn))
    share = student.mean() / teacher.mean()
    yield Row(f"{case.name}: half of the layers, the triple loss, {rows:,} rows",
              f"{student.mean():.3f}: keeps {share:.1%} ({low:.1%} … {high:.1%})", f"teacher {teacher.mean():.3f}",
              target=f"≥ {KEPT:.0%}", reached=bool(share >= KEPT))
    gap = paired_difference(student, alone, np.ones(rows), draws=DRAWS)
    yield Row(f"{case.name}: with the teacher against the same updates without", f"{student.mean():.3f}",
              f"{alone.mean():.3f}; difference {gap.value:+.3f} ({gap.low:+.3f} … {gap.high:+.3f})", target="better",
              reached=gap.low > 0)


def compare_sizes(runs: dict[str, Path]) -> Iterator[Row]:
    """Lay out parameters, and the time of one row of 32 tokens, in turn with the teacher."""
    import torch

    from saucier.opened import open_model

    models: list[Any] = [open_model(runs[name]).model.eval() for name in ("teacher", "student")]
    sizes = [sum(weight.numel() for weight in model.parameters()) for model in models]
    layers = [sum(weight.numel() for weight in model.encoder.parameters()) for model in models]
    yield Row("parameters", f"{sizes[1]:,}", f"{sizes[0]:,}; of the layers {layers[1]:,} of {layers[0]:,}")
    ids = torch.arange(32)[None] + 5
    times: list[list[float]] = [[], []]
    for _ in range(PASSES):
        for model, own in zip(models, times, strict=True):
            begin = time.perf_counter()
            with torch.inference_mode():
                model(ids)
            own.append(time.perf_counter() - begin)
    teacher, student = (float(np.median(own)) * 1e3 for own in times)
    yield at_least("one row of 32 tokens", f"{student:.2f} ms", f"{teacher:.2f} ms", teacher / student, FASTER)
