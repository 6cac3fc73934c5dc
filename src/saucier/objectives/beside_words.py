"""A task's loss, and that of the words of its rows, from one pass. Letters: B rows, L length, D dim, V vocab."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from saucier.errors import InputError
from saucier.objectives.base import IGNORED, Batch, Loss, Objective, Part
from saucier.objectives.cross_entropy import cross_entropy
from saucier.objectives.labelling import OfLogits, logits_of, run
from saucier.objectives.prediction import chosen
from saucier.parts.heads import DoubleHead

WORDS = "words"


@dataclass(frozen=True, slots=True)
class BesideWords(Objective):
    """L3 = L2 + weight * L1: the task, and each word of its rows by those before it.

    Words are scored by the token table, as in the paper's eq 2, whatever the family's own language head does. L1 is
    the mean over all words of the batch; in the authors' code that of the rows' means.
    Source: Radford et al. 2018, §3.2, eq 5.
    """

    task: OfLogits
    weight: float

    @property
    def parts(self) -> tuple[str, ...]:
        """Those of the task, and the words."""
        return (*self.task.parts, WORDS)

    def held_out(self) -> OfLogits:
        """The task alone is measured."""
        return self.task

    def count(self, batch: Batch) -> dict[str, float]:
        """Number of labels and of words."""
        return self.task.count(batch) | {WORDS: float((next_words(batch) != IGNORED).sum())}

    def bind(self, model: nn.Module) -> None:
        """Raise `InputError` for a model whose token table does not fit its vectors."""
        table = token_table(model)
        if table.shape[-1] != model.config.dim:
            raise InputError("the token table is not as wide as the vectors, so it cannot score words",
                             where="task.form.auxiliary", remedy="use 0")

    def __call__(self, model: nn.Module, batch: Batch) -> Loss:
        """Return both summed losses, and the task's figures."""
        output = run(model, batch)
        assert output.last_hidden_state is not None, "every model gives it"
        loss = self.task.of(logits_of(output), batch)
        features, targets = chosen(output.last_hidden_state, next_words(batch))
        head = getattr(model, "head", None)
        if isinstance(head, DoubleHead):
            features = head.language.prepare(features)
        sums = cross_entropy(features, token_table(model), None, targets)
        loss.parts[WORDS] = Part(self.weight * sums.loss, float(len(targets)))
        return loss


def token_table(model: nn.Module) -> Tensor:
    """Return the table of token vectors. Shapes: -> [V, D]."""
    table: Tensor = model.embed.tokens.weight  # type: ignore[union-attr, assignment]  # a Transformer has one
    return table


def next_words(batch: Batch) -> Tensor:
    """Return the id behind each place of each row, -100 where there is none. Shapes: -> [B, L]."""
    ids, real = (batch[name].flatten(0, -2) for name in ("input_ids", "attention_mask"))
    targets = torch.full_like(ids, IGNORED)
    targets[:, :-1] = torch.where(real[:, 1:] > 0, ids[:, 1:], IGNORED)
    return targets
