"""A tiny problem for the training tests: counting modulo the vocabulary, as endless batches, and models to learn it.

Run as a program it trains in a process of its own: `python toy.py FOLDER [steps]`; used by the tests that kill it.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from inspect import signature
from pathlib import Path

import numpy as np
import torch

from saucier.config import Prefix
from saucier.config import Transformer as Config
from saucier.families import FAMILIES
from saucier.model import Transformer, build
from saucier.objectives import config as o
from saucier.objectives.base import ObjectiveInputs, TokenIds
from saucier.objectives.build import build_objective
from saucier.text.rows.batch import PADDING, PairRows, Rows, make_generator, take_share
from saucier.training.hyperparameters import AdamW, Constant, Training
from saucier.training.update import TrainingData

VOCAB, LENGTH, BATCH = 29, 16, 8
IDS = TokenIds(vocab=VOCAB, pad=0, bos=1, eos=2, mask=3, special=(0, 1, 2, 3), sentinels=(28, 27, 26, 25),
               extra={"<length>": 1},
               word_marks="1" * VOCAB)
FIRST, LAST = 4, 25
"""Ordinary ids are FIRST … LAST-1."""


def rows_of(tokens: np.ndarray, numbers: np.ndarray, documents: np.ndarray | None = None) -> Rows:
    """Wrap ids [B, L] as rows of one document each, unless `documents` says more."""
    zeros, places = np.zeros_like(tokens), np.broadcast_to(np.arange(tokens.shape[1]), tokens.shape).copy()
    flat = np.zeros(len(tokens), dtype=np.int64)
    return Rows(tokens, zeros if documents is None else documents, places, zeros, flat, flat, numbers, numbers)


@dataclass(frozen=True)
class Counting:
    """Rows that count up from a random start, by a random stride; some are padded."""

    length: int = LENGTH + 1
    batch: int = BATCH
    seed: int = 0
    padded: bool = True
    strides: tuple[int, int] = (1, 3)
    steps_per_epoch: int = 1000

    @property
    def counts(self) -> dict[str, int]:
        return {}

    def rows(self, step: int, rank: int = 0, world: int = 1) -> Rows:
        numbers = np.arange(self.batch)[take_share(self.batch, rank, world)]
        random = [make_generator(self.seed, 9, step, int(number)) for number in numbers]
        starts = np.array([one.integers(0, LAST - FIRST) for one in random])
        strides = np.array([one.integers(*self.strides) for one in random])
        tokens = FIRST + (starts[:, None] + strides[:, None] * np.arange(self.length)) % (LAST - FIRST)
        documents = np.zeros_like(tokens)
        if self.padded:
            cut = np.where(numbers % 3 == 2, self.length // 2, self.length)
            documents[np.arange(self.length) >= cut[:, None]] = PADDING
        return rows_of(np.where(documents == PADDING, 0, tokens), numbers, documents)

    def __getitem__(self, step: int) -> Rows:
        return self.rows(step)


@dataclass(frozen=True)
class CountingOn(Counting):
    """Rows that go on counting from step to step, and begin anew after `epoch` steps."""

    epoch: int = 5
    strides: tuple[int, int] = (1, 4)

    def rows(self, step: int, rank: int = 0, world: int = 1) -> Rows:
        numbers = np.arange(self.batch)[take_share(self.batch, rank, world)]
        piece = step % self.epoch
        starts = np.array([make_generator(self.seed, 9, step // self.epoch, int(one)).integers(0, 21)
                           for one in numbers])
        places = piece * (self.length - 1) + np.arange(self.length)
        strides = self.strides[0] + numbers % (self.strides[1] - self.strides[0])
        made = rows_of(FIRST + (starts[:, None] + strides[:, None] * places) % (LAST - FIRST), numbers)
        return replace(made, continues=np.full(len(numbers), piece > 0))


@dataclass(frozen=True)
class Doubling:
    """Pairs: the target is the source, each id moved up by one, backwards, ended by eos."""

    batch: int = BATCH
    seed: int = 0
    steps_per_epoch: int = 1000

    @property
    def counts(self) -> dict[str, int]:
        return {}

    def rows(self, step: int, rank: int = 0, world: int = 1) -> PairRows:
        numbers = np.arange(self.batch)[take_share(self.batch, rank, world)]
        random = [make_generator(self.seed, 8, step, int(number)) for number in numbers]
        lengths = np.array([int(one.integers(3, 7)) for one in random])
        source, target = np.zeros((len(numbers), 8), dtype=np.int64), np.zeros((len(numbers), 8), dtype=np.int64)
        for i, one in enumerate(random):
            ids = one.integers(FIRST, LAST - 1, lengths[i])
            source[i, :lengths[i] + 1] = [*ids, 2]
            target[i, :lengths[i] + 1] = [*(ids[::-1] + 1), 2]
        return PairRows(source, target, lengths + 1, lengths + 1, numbers, numbers)

    def __getitem__(self, step: int) -> PairRows:
        return self.rows(step)


def small(family: str, dim: int = 32, **options: object) -> Config:
    """Return a small member of a family for the toy vocabulary."""
    own = {"transformer": {"hidden": 64}, "gpt2": {"length": 64},
           "deep_char": {"length": 64, "hidden": 64}, "bert": {"length": 64},
           "seq2seq": {}, "elmo": {"cells": 40, "tied": True},
           "mask_predict": {"hidden": 64, "longest": 16},
           "llama": {"hidden": 64, "kv_heads": 2},
           "electra": {"length": 64, "width": 24}, "deberta_v2": {"length": 64, "buckets": 16},
           "xlnet": {"memory": 12}, "transfo_xl": {"memory": 12, "hidden": 64, "cutoffs": (12,), "division": 1},
           "xlm": {"length": 64, "languages": 2},
           "t5": {"hidden": 64, "head_dim": 8}, "t5_shared": {"hidden": 64, "head_dim": 8},
           "t5_decoder": {"hidden": 64, "head_dim": 8, "visibility": Prefix()}}[family]
    heads = {"heads": 4} if "heads" in signature(FAMILIES[family]).parameters else {}
    return FAMILIES[family](dim=dim, layers=2, vocab=VOCAB, **heads, **own, **options)


def gpt(seed: int = 0, dropout: float = 0.1) -> Transformer:
    """Build a small decoder."""
    return build(small("gpt2", dropout=dropout), seed=seed)


def study(objective: o.Single | None = None, batches: object | None = None, body: Config | None = None,
          steps: int = 1) -> TrainingData:
    """Pair an objective with the toy data."""
    corruption, loss = build_objective(objective or o.Causal(), ObjectiveInputs(IDS, body, steps, LENGTH))
    return TrainingData(batches or Counting(), corruption, loss)


def recipe(steps: int = 40, **changes: object) -> Training:
    """Return a short training."""
    plain = {"optimizer": AdamW(learning_rate=3e-3), "schedule": Constant(warmup=3), "length": LENGTH, "batch": BATCH,
             "evaluate_every": 10, "save_every": 3, "dtype": "float32", "events": "off", "seed": 5, "log_every": 1}
    return Training(steps=steps, **{**plain, **changes})


def remembering() -> TrainingData:
    """Rows that go on, for a model with a memory."""
    return study(o.Causal(rows=o.ConsecutiveRows()), CountingOn(), small("transfo_xl"))


def main() -> None:
    """Train in this process; the arguments are a folder, the number of steps, and `memory` for a model with one."""
    from saucier.training.loop import train

    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    steps = int(sys.argv[2]) if len(sys.argv) > 2 else 40
    if sys.argv[3:] == ["memory"]:
        train(build(small("transfo_xl")), remembering(), recipe(steps), run_folder=Path(sys.argv[1]))
    else:
        train(gpt(), study(), recipe(steps), run_folder=Path(sys.argv[1]))


if __name__ == "__main__":
    main()
