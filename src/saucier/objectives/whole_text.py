"""Conditional masked language modelling: some tokens of a target are hidden from a decoder that sees all the others.

Beside them the target's length is learned from the source. Letters: B batch, S source, T target.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch.nn.functional as F
from torch import nn

from saucier.errors import InputError
from saucier.objectives import config as c
from saucier.objectives.base import IGNORED, Batch, Given, Loss, Part, required, tensor
from saucier.objectives.prediction import Beside
from saucier.parts.heads import LengthHead
from saucier.parts.output import Output
from saucier.text.rows import Ints, PairRows, generator

HIDING = 11
"""The stream of random numbers that hides tokens."""


@dataclass(frozen=True, slots=True)
class ConditionalMaskedCorruption:
    """Hides a number of a target's tokens that is drawn evenly, from one to all; only they are targets.

    The target stands without its frame: it needs no end, since its length is known.
    Source: Ghazvininejad et al. 2019, §2.2, arXiv:1904.09324.
    """

    mask: int
    frame: Ints
    """The ids that begin and end a text; a target stands without them."""
    filler: int
    overlap: ClassVar[int] = 0

    def row_length(self, length: int) -> int:
        """The same: the longer side's own length."""
        return length

    def __call__(self, rows: PairRows, *, seed: int, step: int) -> Batch:
        """Hide tokens. Shapes: source [B, S], target [B, T] -> input_ids [B, S]; decoder_input_ids, labels [B, T'];
        target_lengths [B].
        """
        texts = [self.text(row, length) for row, length in zip(rows.target, rows.target_lengths.tolist(), strict=True)]
        lengths = np.array([len(text) for text in texts], dtype=np.int64)
        given = np.full((len(texts), max(1, int(lengths.max(initial=1)))), self.filler, dtype=np.int64)
        labels = np.full_like(given, IGNORED)
        for number, text in enumerate(texts):
            given[number, :len(text)] = text
            hidden = self.hidden(len(text), generator(seed, HIDING, step, int(rows.row[number])))
            labels[number, hidden], given[number, hidden] = text[hidden], self.mask
        batch = {"input_ids": tensor(rows.source), "decoder_input_ids": tensor(given), "labels": tensor(labels),
                 "target_lengths": tensor(lengths)}
        real = np.arange(given.shape[1]) < np.maximum(lengths, 1)[:, None]
        return batch | {name: tensor(mask) for name, mask in (("attention_mask", rows.source_mask),
                                                              ("decoder_attention_mask", real)) if not mask.all()}

    def text(self, row: Ints, length: int) -> Ints:
        """Return a target without its frame. Shapes: [T] -> [up to T]."""
        return row[:length][~np.isin(row[:length], self.frame)]

    def hidden(self, length: int, random: np.random.Generator) -> Ints:
        """Draw the places that are hidden. Shapes: -> [1 to length]; none of an empty text."""
        count = int(random.integers(1, length + 1)) if length else 0
        return random.choice(length, count, replace=False).astype(np.int64) if count else np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class TargetLength(Beside):
    """How long is the target? `target_lengths` [B]. Source: Ghazvininejad et al. 2019, §3.1."""

    @property
    def part(self) -> str:
        """One part."""
        return "lengths"

    @property
    def targets(self) -> tuple[str, ...]:
        """The lengths."""
        return ("target_lengths",)

    @property
    def figures(self) -> Mapping[str, str]:
        """How often the likeliest length is the true one."""
        return {"lengths_correct": "accuracy of the target's length"}

    def count(self, batch: Batch) -> float:
        """Number of rows."""
        return float(len(batch["target_lengths"]))

    def __call__(self, model: nn.Module, output: Output, batch: Batch) -> Loss:
        """Return the summed cross-entropy, and how many lengths are right."""
        head = getattr(model, "head", None)
        if not isinstance(head, LengthHead):
            raise InputError("the model does not tell the length of its target", where="model.head",
                             remedy="use kind: length, as family: mask_predict has")
        logits, wanted = head.lengths(output.pooler_output).float(), batch["target_lengths"]
        count = float(len(wanted))
        return Loss({self.part: Part(F.cross_entropy(logits, wanted, reduction="sum"), count)},
                    {"lengths_correct": Part((logits.argmax(-1) == wanted).sum().float(), count)})


def build_conditional(config: c.ConditionalMasked, given: Given) -> ConditionalMaskedCorruption:
    """Look at the tokenizer. Raises `InputError` where it has no mask token, or none for the length."""
    mask = required(given.ids.mask, "mask", "conditional_masked")
    frame = [one for one in (given.ids.bos, given.ids.eos) if one is not None]
    return ConditionalMaskedCorruption(mask, np.array([*frame, given.ids.extra_id(config.length_token)]),
                                       given.ids.filler)
