"""Is the data ever what training waits for? Batches and corruptions against the model's own work, at nano size.

Both are timed in one process, in turns: making the batches of a step, and the whole update, whose rest is the model's.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any

from benchmarks.section import Row, Section, at_least

PROMISED = 5.0
"""How many times as fast as the model the data must be made."""
STEPS, ROUNDS, DOCUMENTS = 4, 5, 300
WARM = 2
QUICK = ("bert-nano", "bert-nano, pmi")
WORDS = "objective={kind: masked, choice: {kind: %s}}"
ROWS = "objective={kind: masked, rows: {kind: %s}}"
VARIANTS: dict[str, tuple[str, tuple[str, ...]]] = {
    **{f"bert-nano, {kind}": ("bert-nano", (WORDS % kind,))
       for kind in ("tokens", "whole_words", "spans", "n_grams", "pmi")},
    **{f"bert-nano, {kind}": ("bert-nano", (ROWS % kind,)) for kind in ("full_sentences", "document_sentences")},
    "bert-nano, sentence_pairs": ("bert-nano", ("objective.rows={kind: sentence_pairs}",)),
    "bert-nano, static masks": ("bert-nano", ("objective={kind: masked, dynamic: false, duplicates: 10}",)),
}
"""Objectives beside those of the nano recipes."""


@dataclass(frozen=True, slots=True)
class Work:
    """What is timed, for a step."""

    data: Callable[[int], object]
    whole: Callable[[int], object]
    tokens: int
    """Tokens of a step, source and target together."""


def cases() -> dict[str, tuple[str, tuple[str, ...]]]:
    """Return every nano recipe, and the variants: recipe and overrides by name."""
    from saucier.recipes import names

    return {name: (name, ()) for name in names() if name.endswith("-nano")} | VARIANTS


def prepared(name: str, overrides: tuple[str, ...], folder: Path) -> Work:
    """Read the text and build everything as `saucier cook` does."""
    from saucier.cost.workload import count_batch_tokens
    from saucier.devices import choose_autocast_dtype
    from saucier.jobs.pretraining.batching import build_run_objectives, make_training_data
    from saucier.jobs.pretraining.data import prepare_data
    from saucier.jobs.run.console import Console
    from saucier.jobs.run.folder import open_run
    from saucier.model import build
    from saucier.recipes import recipe
    from saucier.training.optimizers import build_optimizer
    from saucier.training.processes import Processes
    from saucier.training.update import Updater

    wanted = recipe(name, limited(name, overrides))
    run, _ = open_run(folder, wanted)
    prepared_data = prepare_data(wanted, run, Console(silent=True))
    study = make_training_data(wanted, prepared_data.tokenizer, prepared_data.train,
                               build_run_objectives(wanted, prepared_data.tokenizer, prepared_data.collocations))
    model = build(wanted.model_for(prepared_data.tokenizer.vocab_size)).train()
    study.objective.bind(model)
    dtype, _ = choose_autocast_dtype("auto", next(model.parameters()).device)
    training = wanted.training
    updater = Updater(model, study, Processes(), dtype, seed=0, micro_batch=training.micro_batch, clip=training.clip,
                      failures=Path(mkdtemp()))
    optimizer = build_optimizer(training.optimizer, model, study.objective.modules)

    def data(step: int) -> object:
        return list(updater.micro_batches(step))

    def whole(step: int) -> None:
        updater.gradients(step)
        optimizer.step(1e-3)
        updater.forget()

    return Work(data, whole, count_batch_tokens(study.batches[0]))


def limited(name: str, overrides: tuple[str, ...]) -> list[str]:
    """Return the overrides, with less text where the recipe reads running text."""
    from saucier.recipes import recipe

    few = [f"data.limit={DOCUMENTS}"] if recipe(name).data.kind == "text" else []
    return [*overrides, *few, "tokenizer.vocab=2000"] if few and has_vocabulary(name) else [*overrides, *few]


def has_vocabulary(name: str) -> bool:
    """Whether the recipe's tokenizer is trained to a size."""
    from saucier.recipes import recipe

    return hasattr(recipe(name).tokenizer, "vocab")


def seconds(work: Callable[[int], object], first: int) -> float:
    """Time some steps, and return the mean of one."""
    begin = time.perf_counter()
    for step in range(first, first + STEPS):
        work(step)
    return (time.perf_counter() - begin) / STEPS


def compared(what: str, work: Work, rounds: int) -> Row:
    """Take turns; the model's time is what the whole update takes beyond the data."""
    for step in range(WARM):
        work.whole(step)
    turns = [(seconds(work.data, STEPS * turn), seconds(work.whole, STEPS * turn)) for turn in range(rounds)]
    data, whole = (statistics.median(values) for values in zip(*turns, strict=True))
    model = max(whole - data, 1e-9)
    return at_least(what, f"{work.tokens / data:,.0f} tokens/s", f"{work.tokens / model:,.0f} tokens/s", model / data,
                    PROMISED)


def measure(quick: bool) -> Section:
    """Measure every case."""
    rows: list[Row] = []
    found: dict[str, Any] = {name: case for name, case in cases().items() if not quick or name in QUICK}
    for name, (recipe, overrides) in found.items():
        with TemporaryDirectory() as folder:
            rows.append(compared(name, prepared(recipe, overrides, Path(folder)), 1 if quick else ROUNDS))
    about = ("Left: cutting rows and corrupting them, one thread of Python and numpy. Right, as \"the other\": the "
             "forward and backward pass of the nano model and its optimizer on the same batches, all threads. "
             f"{DOCUMENTS} documents of Python's documentation; a promise of {PROMISED:g}× means that training waits "
             "for its data a sixth of the time at most.")
    return Section("The data side", about, rows)
