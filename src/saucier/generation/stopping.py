"""When a row has ended: at an end token, at a string of its text, at the limit of its length.

Letters: R rows, L tokens so far.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor


class Decodes(Protocol):
    """What is needed of a tokenizer."""

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """Return the text of ids."""


class Stop(Protocol):
    """Says which rows end with their last token."""

    def __call__(self, ids: Tensor) -> Tensor:
        """Shapes: ids [R, L] -> [R], True where the row has ended."""


def ended(stops: Sequence[Stop], ids: Tensor) -> Tensor:
    """Say which rows end by any of these. Shapes: ids [R, L] -> [R]."""
    found = torch.zeros(ids.shape[0], dtype=torch.bool, device=ids.device)
    for stop in stops:
        found = found | stop(ids)
    return found


@dataclass(frozen=True, slots=True)
class EndTokens:
    """A row ends with one of these tokens."""

    tokens: tuple[int, ...]

    def __call__(self, ids: Tensor) -> Tensor:
        """Shapes: ids [R, L] -> [R]."""
        last, found = ids[:, -1], ids[:, -1] == self.tokens[0]
        for token in self.tokens[1:]:
            found = found | (last == token)
        return found


@dataclass(frozen=True, slots=True)
class EndLength:
    """Every row ends at this length."""

    length: int

    def __call__(self, ids: Tensor) -> Tensor:
        """Shapes: ids [R, L] -> [R]."""
        return torch.full((ids.shape[0],), ids.shape[1] >= self.length, device=ids.device)


@dataclass(frozen=True, slots=True)
class EndStrings:
    """A row ends when its new text holds one of these strings, wherever token borders fall."""

    strings: tuple[str, ...]
    tokenizer: Decodes
    start: int
    """Where the new text begins in a row."""

    def __call__(self, ids: Tensor) -> Tensor:
        """Shapes: ids [R, L] -> [R]."""
        texts = (self.tokenizer.decode(row) for row in ids[:, self.start:].tolist())
        return torch.tensor([any(string in text for string in self.strings) for text in texts], device=ids.device)
