"""Where documents begin in packed rows, and where a token stands in its document.

Letters: B batch, L length.
"""

from __future__ import annotations

import torch
from torch import Tensor

from saucier.errors import InputError


def refuse_pieces(document: Tensor) -> None:
    """Refuse documents that stop and go on again. Shapes: [B, L]. Raises `InputError` with the row."""
    for row, numbers in enumerate(document):
        runs = torch.unique_consecutive(numbers)
        runs = runs[runs >= 0]
        if len(runs) != len(torch.unique(runs)):
            raise InputError(f"row {row}: a document goes on behind another one", where="documents",
                             remedy="put each document's tokens together")


def begins(document: Tensor) -> Tensor:
    """Return at which tokens another document begins. Shapes: [B, L] -> the same, boolean."""
    first = torch.ones_like(document[:, :1], dtype=torch.bool)
    return torch.cat([first, document[:, 1:] != document[:, :-1]], dim=1)


def places_in_text(real: Tensor, document: Tensor | None) -> Tensor:
    """Return how many real tokens of the same document stand before each. Shapes: [B, L] -> [B, L]."""
    before = real.long().cumsum(1) - real.long()
    if document is None:
        return before
    return before - torch.where(begins(document), before, 0).cummax(1).values
