"""Models with fewer layers: BERT of 12 layers, learned with and without layer drop and cut to four depths; the choices
of Poor Man's BERT; and students of the same teacher. TREC, paired over seeds and rows.

`python -m benchmarks layers`. The teacher has each layer of MiniLM twice, one stack upon the other, and is fine-tuned.
What is finished is kept in `runs/layers`, and is not done again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.compression import CASES, DRAWS, EPOCHS, QUICK_MEASURE, SEEDS, files_of, write_chain
from benchmarks.finetuning import weights
from benchmarks.section import Row, Section
from benchmarks.tuned import rights

RUNS = Path("runs/layers")
CASE = next(one for one in CASES if one.name == "TREC")
DROPPED = 0.25
"""Of layer drop while the model learns; a fourth of the layers away is 1 - 9 / 12."""
DEPTHS = {10: 1 / 6, 9: 1 / 4, 8: 1 / 3, 6: 1 / 2}
"""Layers that are left -> the rate of those that go, every sixth to every second (LayerDrop, §3.2)."""
PLACES, COUNTS = ("top", "even", "odd", "symmetric", "bottom", "contribution"), (2, 4)
"""Poor Man's BERT: which layers go, and how many of twelve."""
STUDENTS = (6, 3)


def measure(quick: bool) -> Section:
    """Learn, cut, and compare."""
    seeds = SEEDS[:1] if quick else SEEDS
    for seed in seeds:
        work(seed, quick)
    rows = [*compare_depths(seeds, quick), *rank_choices(quick), *compare_students(seeds, quick)]
    about = ("BERT of 12 layers of 384 (each layer of MiniLM twice, one stack upon the other), fine-tuned on TREC. "
             f"Layer drop: {DROPPED} while it learns, then every sixth, fourth, third or second layer is left out, and "
             "nothing learned after that. Poor Man's BERT: 2 or 4 layers go, then an epoch from the labels. Mean of "
             "the seeds; in brackets the 95 % interval of a paired bootstrap over seeds and rows.")
    return Section("Layers left out", about, rows, [f"`{RUNS}` holds every run with its report."])


def place_of(seed: int, quick: bool, name: str) -> Path:
    """Return the folder of a run."""
    return RUNS / ("quick-" * quick + str(seed)) / name


def work(seed: int, quick: bool) -> None:
    """Make all that is compared for a seed, unless that is done."""
    import saucier

    stacked = RUNS / "stacked"
    if not stacked.is_dir():
        saucier.convert(weights(), stacked, layers="0-5,0-5")
    files = files_of(CASE, quick)
    for name, more in (("plain", []), ("dropped", [f"training.layer_drop={DROPPED}"])):
        words = [f"training.seed={seed}", f"training.length={CASE.length}", *CASE.words, *more,
                 f"training.epochs={1 if quick else EPOCHS['teacher']}"]
        saucier.finetune(CASE.task, words, model=stacked, data=files["train"], held_out=files["held_out"],
                         out=place_of(seed, quick, name), quiet=True)
        compress(seed, quick, f"{name}-depths", name, {str(left): (
            f"{{kind: prune, by: {{kind: layers, choice: {{kind: every_nth, rate: {rate:.6f}}}}}}}")
            for left, rate in DEPTHS.items()})
    learned = f"training: {{epochs: {1 if quick else EPOCHS['student']}, seed: {seed}}}"
    compress(seed, quick, "students", "plain", {
        str(left): f"{{kind: distil, layers: {left}, {learned}}}" for left in STUDENTS})
    if seed == SEEDS[0]:
        compress(seed, quick, "choices", "plain", {
            f"{place}-{count}": f"{{kind: prune, by: {{kind: layers, choice: {{kind: {place}, count: {count}}}}}, "
            "distillation: null, training: {epochs: 1}}" for count in COUNTS for place in PLACES})


def compress(seed: int, quick: bool, name: str, model: str, steps: dict[str, str]) -> None:
    """Change a model in each of some ways, and measure each."""
    import saucier

    ways = "".join(f"    - {{name: '{step}', step: {how}}}\n" for step, how in steps.items())
    chain = place_of(seed, quick, f"{name}.yaml")
    write_chain(chain, f"name: {name}\nkeep: 0.01\nmeasure: {{memory: false}}\ngrid:\n  -\n{ways}")
    saucier.compress(chain, QUICK_MEASURE if quick else (), model=place_of(seed, quick, model),
                     out=place_of(seed, quick, name), quiet=True)


def read_rights(seeds: Sequence[int], quick: bool, name: str) -> Any:
    """Return which rows a model of each seed answers rightly: [seeds, rows]."""
    return np.array([rights(place_of(seed, quick, name)) for seed in seeds])


def compare_depths(seeds: Sequence[int], quick: bool) -> Iterator[Row]:
    """Lay out each depth cut from the model with, and without, layer drop."""
    from saucier.tasks.metrics.statistics import paired_difference

    whole = {name: read_rights(seeds, quick, name).mean() for name in ("dropped", "plain")}
    yield Row("12 layers, learned with layer drop", f"{whole['dropped']:.3f}", f"without {whole['plain']:.3f}")
    for left in DEPTHS:
        first, second = (read_rights(seeds, quick, f"{name}-depths/steps/{left}") for name in ("dropped", "plain"))
        gap = paired_difference(first, second, np.ones(first.shape[1]), draws=DRAWS)
        yield Row(f"{left} of them, learned with layer drop", f"{first.mean():.3f}",
                  f"without {second.mean():.3f}; difference {gap.value:+.3f} ({gap.low:+.3f} … {gap.high:+.3f})",
                  target="better", reached=gap.low > 0)


def rank_choices(quick: bool) -> Iterator[Row]:
    """Lay out which layers are missed least, the best choice first."""
    for count in COUNTS:
        found = {place: read_rights(SEEDS[:1], quick, f"choices/steps/{place}-{count}").mean() for place in PLACES}
        order = sorted(found, key=found.__getitem__, reverse=True)
        yield Row(f"{count} of 12 layers go, then an epoch: which", f"{order[0]} {found[order[0]]:.3f}",
                  ", ".join(f"{place} {found[place]:.3f}" for place in order[1:]))


def compare_students(seeds: Sequence[int], quick: bool) -> Iterator[Row]:
    """Lay out what students of 6 and 3 layers keep of this teacher."""
    teacher = read_rights(seeds, quick, "plain").mean(0)
    counts = np.random.default_rng(0).multinomial(len(teacher), np.full(len(teacher), 1 / len(teacher)), DRAWS)
    for left in STUDENTS:
        own = read_rights(seeds, quick, f"students/steps/{left}").mean(0)
        low, high = np.quantile(counts @ own / (counts @ teacher), [0.025, 0.975])
        kept = own.mean() / teacher.mean()
        yield Row(f"a student of {left} of 12 layers", f"{own.mean():.3f}: keeps {kept:.1%} ({low:.1%} … {high:.1%})",
                  f"teacher {teacher.mean():.3f}", target="≥ 95%", reached=bool(kept >= 0.95))
