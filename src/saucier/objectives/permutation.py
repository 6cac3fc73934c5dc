"""Permutation language modelling: which tokens are targets, which keys each query sees, and a memory before the row.

Letters: B batch, L length, M memory, P targets of a row.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from saucier.objectives import config as c
from saucier.objectives.base import (
    IGNORED,
    Batch,
    Corruption,
    Loss,
    Objective,
    ObjectiveInputs,
    RowCorruption,
    WrappedObjective,
    to_int_tensor,
)
from saucier.objectives.batch_layout import add_row_inputs
from saucier.objectives.causal import ContinuedRowsCorruption, PredictionWithMemory
from saucier.objectives.masking_units import compute_harmonic_lengths
from saucier.objectives.prediction import Prediction
from saucier.text.rows.batch import PADDING, Rows, make_generator

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
ORDER = 7
"""Stream of random numbers."""
PLAIN = -1
"""The rank of a token that comes before all targets."""
CLASSIFICATION = 2
"""The segment of the classification token. Source: Yang et al. 2019, code release."""


@dataclass(frozen=True, slots=True)
class PermutationCorruption(RowCorruption):
    """Draws targets and an order for each row; nothing in the text is changed."""

    config: c.Permutation
    special: Ints

    @property
    def memory(self) -> int:
        """Tokens before a row that are only remembered."""
        return self.config.rows.memory or 0 if isinstance(self.config.rows, c.RunningText) else 0

    @property
    def overlap(self) -> int:
        """What is remembered are the last tokens of the row before."""
        return self.memory

    def __call__(self, rows: Rows, *, seed: int, step: int) -> Batch:
        """Hide tokens from each other.

        Shapes: rows [B, M + L] -> earlier [B, M], input_ids [B, L], perm_mask [B, L, L], target_mapping [B, P, L],
        labels [B, P].
        """
        if isinstance(self.config.rows, c.TwoPieces):
            rows = move_class_last(rows)
        now = drop_memory_tokens(rows, self.memory)
        usable = now.mask & ~np.isin(now.tokens, self.special)
        ranks, targets = self.drawn(now, usable, seed, step)
        mapping, labels = map_queries(now.tokens, targets)
        batch: Batch = {"input_ids": to_int_tensor(now.tokens),
                        "perm_mask": torch.from_numpy(mask_later_tokens(ranks, targets)),
                        "target_mapping": to_int_tensor(mapping), "labels": to_int_tensor(labels)}
        if self.memory:
            whole = replace(now, documents=np.where(now.mask, 0, PADDING))  # a memory goes over documents' borders
            return add_row_inputs(whole, batch) | {"earlier": to_int_tensor(rows.tokens[:, :self.memory])}
        if isinstance(self.config.rows, c.TwoPieces):
            batch["token_type_ids"] = to_int_tensor(now.segments)
        return add_row_inputs(now, batch)

    def drawn(self, rows: Rows, usable: Flags, seed: int, step: int) -> tuple[Ints, Flags]:
        """Draw the rank of every token, and the targets. Shapes: usable [B, L] -> two of [B, L]."""
        ranks, targets = np.full(usable.shape, PLAIN), np.zeros_like(usable)
        for number, can in enumerate(usable):
            random = make_generator(seed, ORDER, step, int(rows.row[number]))
            places = can.nonzero()[0]
            targets[number, places[draw_target_spans(len(places), self.config, random)]] = True
            late = targets[number] | (rows.mask[number] & ~can)
            ranks[number, late] = random.permutation(int(late.sum()))
        return ranks, targets


def draw_target_spans(length: int, config: c.Permutation, random: np.random.Generator) -> Flags:
    """Choose one token in `every`: short spans, each at a random place of `every` times as many tokens around it.

    What spans do not fill up is chosen one by one. Shapes: -> [length]. Source: Yang et al. 2019, code release.
    """
    count = max(1, length // config.every) if length else 0
    sizes = 1 + random.choice(config.longest, count, p=compute_harmonic_lengths(config.longest))
    sizes = np.clip(np.minimum(sizes, count - (np.cumsum(sizes) - sizes)), 0, None)
    around = sizes * config.every
    begin = np.cumsum(sizes + around) - sizes - around + (random.random(count) * around).astype(np.int64)
    fits = np.logical_and.accumulate(begin + sizes <= length)
    found = np.zeros(length, dtype=bool)
    sizes, begin = sizes[fits], begin[fits]
    found[np.repeat(begin - np.cumsum(sizes) + sizes, sizes) + np.arange(sizes.sum())] = True
    found[random.permutation(np.flatnonzero(~found))[:count - int(found.sum())]] = True
    return found


def mask_later_tokens(ranks: Ints, targets: Flags) -> Flags:
    """Say which keys a query must not see: those that come later in the order, and a target itself.

    A special token sees itself. Shapes: ranks, targets [B, L] -> [B, L, L], rows are queries.
    Source: Yang et al. 2019, §2.3, and code release (C fig 8).
    """
    own = np.where(targets, ranks, ranks + 1)
    found: Flags = (own[:, :, None] <= ranks[:, None, :]) & (ranks[:, None, :] != PLAIN)
    return found


def map_queries(tokens: Ints, targets: Flags) -> tuple[Ints, Ints]:
    """Return which place each query of the second stream asks about, and the token there.

    Rows with fewer targets than others ask about their first place, unlabelled.
    Shapes: tokens, targets [B, L] -> [B, P, L], [B, P].
    """
    counts = targets.sum(axis=1)
    most = int(counts.max(initial=1))
    row, place = targets.nonzero()
    query = np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)
    places, labels = np.zeros((len(tokens), most), dtype=np.int64), np.full((len(tokens), most), IGNORED)
    places[row, query], labels[row, query] = place, tokens[row, place]
    return (places[:, :, None] == np.arange(tokens.shape[1])).astype(np.int64), labels


def drop_memory_tokens(rows: Rows, memory: int) -> Rows:
    """Leave the first tokens of each row out."""
    if not memory:
        return rows
    wide = {name: getattr(rows, name)[:, memory:] for name in ("tokens", "documents", "positions", "segments")}
    return replace(rows, **wide)


def move_class_last(rows: Rows) -> Rows:
    """Move each row's first token, the classification token, after its last, as a segment of its own."""
    lengths = rows.mask.sum(axis=1, keepdims=True)
    place = np.arange(rows.tokens.shape[1])
    source = np.where(place < lengths - 1, place + 1, np.where(place == lengths - 1, 0, place))
    tokens, segments = (np.take_along_axis(one, source, axis=1) for one in (rows.tokens, rows.segments))
    return replace(rows, tokens=tokens, segments=np.where(place == lengths - 1, CLASSIFICATION, segments))


@dataclass(frozen=True, slots=True)
class PredictionAfterMemory(WrappedObjective):
    """A prediction with a memory of the text before each row.

    The memory is computed again for each row, so that a run stays a function of (seed, step, row); the published code
    keeps that of the batch before, made by older weights.
    """

    def __call__(self, model: nn.Module, batch: Batch) -> Loss:
        """Read what was earlier, then predict."""
        return self.inner(model, read_memory(model, batch))


def read_memory(model: nn.Module, batch: Batch) -> Batch:
    """Return a batch with the model's memory of its earlier tokens in their place."""
    with torch.no_grad():
        output = model(input_ids=batch["earlier"], use_mems=True, compute_logits=False)
    rest = {name: value for name, value in batch.items() if name != "earlier"}
    return rest | {"mems": output.mems, "use_mems": False}


def build_permutation(config: c.Permutation, given: ObjectiveInputs) -> tuple[Corruption[Rows], Objective]:
    """Build both halves."""
    corruption = PermutationCorruption(config, np.array(given.ids.special, dtype=np.int64))
    if isinstance(config.rows, c.ConsecutiveRows):
        return ContinuedRowsCorruption(corruption), PredictionWithMemory(Prediction())
    return corruption, PredictionAfterMemory(Prediction()) if corruption.memory else Prediction()
