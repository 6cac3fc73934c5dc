"""The head that finds answers in long texts, and where a row's question ends.

Letters: B batch, L length, D dim.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from saucier import config as c
from saucier.parts.activations import ACTIVATIONS
from saucier.parts.dropout import Dropout
from saucier.parts.inputs import Inputs
from saucier.parts.linear import Linear
from saucier.parts.norms import build_norm

if TYPE_CHECKING:
    from saucier.parts.heads import Reading

FORBIDDEN = 1e6
"""What is taken from the logits of a question's tokens."""


def in_question(ids: Tensor | None, inputs: Inputs | None, separator: int) -> Tensor | None:
    """Say which tokens belong to a row's question, up to its first separator; the first token where there is none.

    None where neither the ids nor `question_lengths` are known. Shapes: ids [B, L] -> [B, L].
    """
    lengths = (inputs or {}).get("question_lengths")
    if ids is None:
        return None
    ends = (ids == separator).long().argmax(-1) + 1 if lengths is None else lengths.flatten()
    return torch.arange(ids.shape[1], device=ids.device) < ends[:, None]


class QuestionSpanHead(nn.Module):
    """Logits of where an answer starts and ends. Source: Zaheer et al. 2020, appendix E.2, arXiv:2007.14062."""

    def __init__(self, config: c.QuestionSpanHead, dim: int) -> None:
        """Build the feed-forward with its norm, and the output map."""
        super().__init__()
        self.separator = config.separator
        self.up, self.down = Linear(dim, config.hidden), Linear(config.hidden, dim)
        self.activation = ACTIVATIONS[config.activation]
        self.norm = build_norm(config.norm, dim)
        self.dropout = Dropout(config.dropout)
        self.output = Linear(dim, 2)

    def forward(self, hidden: Tensor) -> Tensor:
        """Logits before the question is taken out. Shapes: [..., D] -> [..., 2]."""
        changed = self.down(self.activation(self.up(self.dropout(hidden))))
        return self.output(self.norm(hidden + self.dropout(changed)))  # type: ignore[no-any-return]

    def answer(self, reading: Reading) -> dict[str, Tensor]:
        """Two times [B, L]."""
        logits = self(reading.hidden)
        question = in_question(reading.ids, reading.inputs, self.separator)
        if question is not None:
            barred = question & (torch.arange(question.shape[1], device=question.device) > 0)
            logits = logits - barred[..., None] * FORBIDDEN
        start, end = logits.unbind(-1)
        return {"start_logits": start.contiguous(), "end_logits": end.contiguous()}
