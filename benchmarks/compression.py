"""Smaller models against the one that they came from: MiniLM fine-tuned on each task, a student of half of its layers
with and without that teacher, and the ready chain `small`. Paired intervals, three seeds.

`python -m benchmarks compression`. What is finished is kept in `runs/compression`, and is not done again. Students see
the training rows of their own task alone: `sst5/dev` holds nearly every sentence of `sst2/dev`, and is never read.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.cooking import needed
from benchmarks.finetuning import weights
from benchmarks.section import Row, Section, at_least

RUNS = Path("runs/compression")
SEEDS = (0, 1, 2)
DRAWS = 2_000
EPOCHS = {"teacher": 3, "student": 5}
QUICK_ROWS, QUICK_MEASURE = 48, ("measure.rounds=3", "measure.rows=4", "measure.memory=false")
KEPT, KEPT_BY_CHAIN, FASTER, SMALLER, CHAIN_FASTER = 0.95, 0.96, 1.8, 10.0, 2.0
"""What is promised: of three layers the share that is kept and the speed; of the chain the share, size and speed."""


@dataclass(frozen=True, slots=True)
class Case:
    """One task: its files, what tells its columns, how long its rows may be, and what it is judged by."""

    name: str
    train: str
    test: str
    words: tuple[str, ...] = ()
    length: int = 48
    metric: str = "accuracy"
    task: str = "classification"


PAIR = ("task.text=sentence1", "task.pair=sentence2")
CLASSES = "classification"
CASES = (
    Case("SST-2", f"{CLASSES}/sst2/train.tsv", f"{CLASSES}/sst2/dev.tsv"),
    Case("TREC", f"{CLASSES}/trec/train.tsv", f"{CLASSES}/trec/dev.tsv", ("task.label=coarse",)),
    Case("AG News", f"{CLASSES}/ag_news/train.tsv", f"{CLASSES}/ag_news/test.tsv", length=64),
    Case("SNLI", f"{CLASSES}/snli_small/train.tsv", f"{CLASSES}/snli_small/test.tsv", PAIR),
    Case("STS-B", f"{CLASSES}/stsb/train.tsv", f"{CLASSES}/stsb/dev.tsv", (*PAIR, "task.score=score"),
         metric="Spearman", task="regression"),
    Case("CoNLL", "ner/conll2003/train.tsv", "ner/conll2003/dev.tsv", length=64, metric="entity F1", task="tagging"))
CHAINED = CASES[0]
"""The task for which the ready chain `small` is measured, too."""
STUDENTS = {"taught": "", "alone": ", distillation: null"}
"""The student that learns from the teacher, and the same one that learns from the labels alone."""
FOUR_BITS = "kind: integer, bits: 4, group: 64, scales: float16"
QUANTIZED = {"int8": "{}", "int4": f"{{format: {{{FOUR_BITS}}}}}",
             "int4-gptq": f"{{format: {{{FOUR_BITS}}}, method: {{kind: gptq}}}}",
             "int4-awq": f"{{format: {{{FOUR_BITS}}}, method: {{kind: awq}}}}", "nf4": "{format: {kind: nf4}}"}
"""What the teacher's matrices are rounded to, without any training."""
PRUNED = {"heads": "{kind: heads, share: 0.5}", "magnitude": "{kind: magnitude, share: 0.4}"}
"""What is cut from the teacher; then it learns again for an epoch, from itself as it was."""
GRIDS = {"changed": {name: f"{{kind: quantize, by: {by}}}" for name, by in QUANTIZED.items()}
         | {name: f"{{kind: prune, by: {by}, training: {{epochs: 1}}}}" for name, by in PRUNED.items()},
         "learned": {"q8bert": "{kind: quantize, by: {kind: quantization_aware}, training: {epochs: 1}}"}}
"""Chain -> what the teacher is made into, by name; `q8bert` learns with the numbers that it is rounded to."""
LOST = {"int8": 0.01, "q8bert": 0.01, "int4-gptq": 0.02, "int4-awq": 0.02, "heads": 0.01, "magnitude": 0.02}
"""What is promised of the mean share of the score that is lost, over all tasks."""


@dataclass(frozen=True, slots=True)
class Answers:
    """What is right for the rows of a task, and what each seed of each model says."""

    golds: Sequence[Any]
    said: dict[str, list[Sequence[Any]]]


def measure(quick: bool) -> Section:
    """Fine-tune, distil and compress, seed after seed; then compare on the same rows."""
    cases, seeds = (CASES[:1], SEEDS[:1]) if quick else (CASES, SEEDS)
    for seed in seeds:  # every task once before any comes again
        for case in cases:
            work(case, seed, quick)
    rows = [row for case in cases for row in compare(case, seeds, quick)]
    rows += [pooled(cases, seeds, quick), *chain_rows(CHAINED, seeds, quick), *changed_rows(cases, quick)]
    about = ("The published MiniLM weights (22.7 M parameters, 6 layers), fine-tuned on each task as the teacher; a "
             "student of every second of its layers, with soft targets of the teacher beside the labels, against the "
             "teacher and against the same student with the labels alone. Mean of the seeds; in brackets the 95 % "
             "interval of a paired bootstrap over rows. Times are taken in turn with the teacher, rows at their own "
             "lengths, one row in a pass.")
    return Section("Compression", about, rows, ["`runs/compression` holds every run with its report."])


def folder_of(case: Case, seed: int, quick: bool, name: str) -> Path:
    """Return the folder of one run."""
    return RUNS / ("quick-" * quick + f"{Path(case.train).parent.name}-{seed}") / name


def files_of(case: Case, quick: bool) -> dict[str, list[str]]:
    """Return the files of a task; for a quick run their first rows."""
    found = {}
    for key, name in (("train", case.train), ("held_out", case.test)):
        source = needed(*Path(name).parts)
        if quick:
            target = RUNS / "quick-data" / f"{source.parent.name}-{source.name}"
            target.parent.mkdir(parents=True, exist_ok=True)
            lines = source.read_text(encoding="utf-8").splitlines(keepends=True)
            target.write_text("".join(lines[:QUICK_ROWS + 1]), encoding="utf-8")
            source = target
        found[key] = [str(source.absolute())]
    return found


def work(case: Case, seed: int, quick: bool) -> None:
    """Make the teacher of a task, and all that is made of it, unless that is done."""
    begin = time.perf_counter()
    make_teacher(case, seed, quick)
    for name, more in STUDENTS.items():
        if name == "taught" and case is CHAINED:
            continue  # the chain's first step
        training = f"{{epochs: {1 if quick else EPOCHS['student']}, seed: {seed}}}"
        write_chain(folder_of(case, seed, quick, f"{name}.yaml"),
                    f"name: {name}\nkeep: 0.01\nsteps:\n  - {{kind: distil, layers: 3{more}, training: {training}}}\n")
        compress(case, seed, quick, folder_of(case, seed, quick, f"{name}.yaml"), name)
    if seed == SEEDS[0]:
        change(case, seed, quick)
    if case is CHAINED:
        seeded = ["keep=0.01", f"steps.0.training.seed={seed}", *(["steps.0.training.epochs=1"] if quick else [])]
        compress(case, seed, quick, "small", "small", seeded)
    print(f"  {case.name}, seed {seed}: {time.perf_counter() - begin:.0f} s", file=sys.stderr, flush=True)


def make_teacher(case: Case, seed: int, quick: bool) -> Path:
    """Fine-tune MiniLM on a task, unless that is done; return its folder."""
    import saucier

    teacher, files = folder_of(case, seed, quick, "teacher"), files_of(case, quick)
    words = [f"training.seed={seed}", f"training.length={case.length}", *case.words,
             f"training.epochs={1 if quick else EPOCHS['teacher']}"]
    saucier.finetune(case.task, words, model=weights(), data=files["train"], held_out=files["held_out"], out=teacher,
                     quiet=True)
    return teacher


def change(case: Case, seed: int, quick: bool) -> None:
    """Make of the teacher of a task what is in `GRIDS`, unless that is done."""
    for name, steps in GRIDS.items():
        ways, chain = "".join(f"    - {{name: {way}, step: {step}}}\n" for way, step in steps.items()), f"{name}.yaml"
        write_chain(folder_of(case, seed, quick, chain),
                    f"name: {name}\nkeep: 0.01\nmeasure: {{memory: false}}\ngrid:\n  -\n{ways}")
        compress(case, seed, quick, folder_of(case, seed, quick, chain), name)


def write_chain(path: Path, text: str) -> None:
    """Write the file of a chain."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def compress(case: Case, seed: int, quick: bool, chain: str | Path, name: str, words: Sequence[str] = ()) -> None:
    """Take a teacher through a chain; its rows are those that it learned from."""
    import saucier

    saucier.compress(chain, [*words, *(QUICK_MEASURE if quick else ())], model=folder_of(case, seed, quick, "teacher"),
                     out=folder_of(case, seed, quick, name), quiet=True)


def read_answers(case: Case, seeds: Sequence[int], quick: bool, models: dict[str, str]) -> Answers:
    """Read what models said of the rows that are measured; `models`: name -> folder of its predictions."""
    from saucier.tasks.prediction_files import read_predictions

    said: dict[str, list[Sequence[Any]]] = {}
    golds: Sequence[Any] = ()
    for name, place in models.items():
        for seed in seeds:
            rows = read_predictions(str(folder_of(case, seed, quick, place) / "predictions" / "held-out.jsonl"))
            said.setdefault(name, []).append([row.prediction for row in rows])
            golds = [row.gold for row in rows]
    return Answers(golds, said)


def three_models(case: Case, seeds: Sequence[int], quick: bool) -> Answers:
    """Read what the teacher and both students said."""
    return read_answers(case, seeds, quick, {"teacher": "teacher", "taught": f"{taught_in(case)}/steps/1-distil",
                                             "alone": "alone/steps/1-distil"})


def taught_in(case: Case) -> str:
    """Return the folder of the chain whose first step is the student that learns from the teacher."""
    return "small" if case is CHAINED else "taught"


def draw_scores(case: Case, found: Answers) -> tuple[dict[str, float], dict[str, Any]]:
    """Return the mean score of each model over the seeds, and draws of it; all models have the same rows in a draw."""
    from saucier.tasks.metrics.metric import full_value
    from saucier.tasks.metrics.statistics import resampling_weights
    from saucier.tasks.scores import metrics_for

    kind = {"regression": "numbers", "tagging": "tags"}.get(case.task, "classes")
    every = [one for seeds in found.said.values() for one in seeds]
    metric = next(one for one in metrics_for(kind, found.golds, *every) if one.name == case.metric)
    measured = {name: [metric.measure(found.golds, one) for one in seeds] for name, seeds in found.said.items()}
    drawn = {name: np.concatenate([np.mean([one.resampled(counts) for one in seeds], axis=0)
                                   for counts in resampling_weights(len(found.golds), seed=0, draws=DRAWS)])
             for name, seeds in measured.items()}
    return {name: float(np.mean([full_value(one) for one in seeds])) for name, seeds in measured.items()}, drawn


def interval(drawn: Any) -> tuple[float, float]:
    """Return the middle 95 % of the draws that are defined."""
    low, high = np.quantile(drawn[np.isfinite(drawn)], [0.025, 0.975]) if np.isfinite(drawn).any() else (np.nan, np.nan)
    return float(low), float(high)


def share_row(what: str, values: dict[str, float], drawn: dict[str, Any], model: str, promised: float) -> Row:
    """Lay out what a model keeps of the teacher's score."""
    with np.errstate(invalid="ignore", divide="ignore"):
        low, high = interval(drawn[model] / drawn["teacher"])
    kept = values[model] / values["teacher"] if values["teacher"] else float("nan")
    return Row(what, f"{values[model]:.3f}: keeps {kept:.1%} ({low:.1%} … {high:.1%})",
               f"teacher {values['teacher']:.3f}", target=f"≥ {promised:.0%}", reached=kept >= promised)


def compare(case: Case, seeds: Sequence[int], quick: bool) -> Iterator[Row]:
    """Lay out one task: what the student keeps, what the teacher gives it, and how much faster it is."""
    found = three_models(case, seeds, quick)
    values, drawn = draw_scores(case, found)
    yield share_row(f"{case.name}: {case.metric}, 3 of 6 layers, {len(found.golds):,} rows", values, drawn, "taught",
                    KEPT)
    low, high = interval(drawn["taught"] - drawn["alone"])
    yield Row(f"{case.name}: with the teacher against the labels alone", f"{values['taught']:.3f}",
              f"{values['alone']:.3f}; difference {values['taught'] - values['alone']:+.3f} ({low:+.3f} … {high:+.3f})",
              target="better", reached=low > 0)
    yield speed_row(f"{case.name}: one row, 3 of 6 layers", case, seeds, quick, taught_in(case), FASTER, step=0)


def speed_row(what: str, case: Case, seeds: Sequence[int], quick: bool, name: str, promised: float,
              step: int = -1) -> Row:
    """Lay out how much faster a model of a chain, the last one, answers one row: the median of the seeds."""
    from saucier.jobs.compression.outcome import read_compressed

    speeds = [read_compressed(folder_of(case, seed, quick, name)).steps[step].speed(1) for seed in seeds]
    ratio = float(np.median([one.ratio for one in speeds]))
    own, theirs = (float(np.median(side)) for side in ([one.milliseconds for one in speeds],
                                                       [one.teacher for one in speeds]))
    return at_least(what, f"{own:.1f} ms", f"{theirs:.1f} ms", ratio, promised)


def pooled(cases: Sequence[Case], seeds: Sequence[int], quick: bool) -> Row:
    """Lay out what the teacher gives over all tasks of classes together: one paired interval over all their rows."""
    from saucier.tasks.metrics.statistics import paired_difference

    sides: dict[str, list[Any]] = {name: [] for name in STUDENTS}
    for case in (one for one in cases if one.metric == "accuracy"):
        found = three_models(case, seeds, quick)
        for name, rights in sides.items():
            rights.append([[float(one == gold) for one, gold in zip(said, found.golds, strict=True)]
                           for said in found.said[name]])
    first, second = (np.concatenate(side, axis=1) for side in sides.values())
    gap = paired_difference(first, second, np.ones(first.shape[1]), draws=DRAWS)
    return Row(f"all tasks of classes together: with the teacher against the labels alone, {first.shape[1]:,} rows",
               f"{first.mean():.3f}", f"{second.mean():.3f}; difference {gap.value:+.3f} ({gap.low:+.3f} … "
               f"{gap.high:+.3f}), over seeds and rows", target="better", reached=gap.low > 0)


def chain_rows(case: Case, seeds: Sequence[int], quick: bool) -> Iterator[Row]:
    """Lay out the ready chain `small`: what it keeps, how small and how fast its last model is."""
    from saucier.jobs.compression.outcome import read_compressed

    done = [read_compressed(folder_of(case, seed, quick, "small")) for seed in seeds]
    last = done[0].steps[-1].name
    found = read_answers(case, seeds, quick, {"teacher": "teacher", "small": f"small/steps/{last}"})
    values, drawn = draw_scores(case, found)
    yield share_row(f"chain `small` on {case.name}: {case.metric}", values, drawn, "small", KEPT_BY_CHAIN)
    own, theirs = (float(np.median([one.size.disk for one in side])) for side in
                   ([one.steps[-1] for one in done], [one.teacher for one in done]))
    yield at_least(f"chain `small` on {case.name}: bytes on disk, embeddings counted", f"{own / 1e6:.1f} MB",
                   f"{theirs / 1e6:.1f} MB", theirs / own, SMALLER)
    yield speed_row(f"chain `small` on {case.name}: one row", case, seeds, quick, "small", CHAIN_FASTER)


def changed_rows(cases: Sequence[Case], quick: bool) -> Iterator[Row]:
    """Lay out what the teachers of the first seed lose as other numbers, and without parts of them."""
    from saucier.jobs.compression.outcome import read_compressed

    places = {way: f"{name}/steps/{way}" for name, ways in GRIDS.items() for way in ways}
    shares: dict[str, list[Any]] = {name: [] for name in places}
    speeds: dict[str, list[float]] = {name: [] for name in shares}
    for case in cases:
        found = read_answers(case, SEEDS[:1], quick, {"teacher": "teacher", **places})
        values, drawn = draw_scores(case, found)
        for step in (step for name in GRIDS for step in read_compressed(
                folder_of(case, SEEDS[0], quick, name)).steps):
            with np.errstate(invalid="ignore", divide="ignore"):
                shares[step.name].append((values[step.name] / values["teacher"], drawn[step.name] / drawn["teacher"]))
            speeds[step.name].append(step.speed(1).ratio)
    for name, kept in shares.items():
        mean, (low, high) = np.mean([one for one, _ in kept]), interval(np.mean([draws for _, draws in kept], axis=0))
        promised = LOST.get(name)
        yield Row(f"the teacher as {name}: what {len(cases)} tasks lose in the mean", f"{1 - mean:+.2%} "
                  f"({1 - high:+.2%} … {1 - low:+.2%})", f"one row: {np.median(speeds[name]):.2f} × as fast",
                  target=f"< {promised:.0%}" if promised else "",
                  reached=bool(1 - mean < promised) if promised else None)
