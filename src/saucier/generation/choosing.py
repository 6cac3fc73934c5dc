"""How tokens are picked from scores: the best, or at random.

Letters: R rows, V candidates.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor


class Choice(Protocol):
    """Picks candidates of each row."""

    def __call__(self, scores: Tensor, count: int) -> Tensor:
        """Shapes: scores [R, V] -> [R, count], places of the picked ones."""


class Greedy:
    """The highest scores, the best first; of equal ones the first."""

    def __call__(self, scores: Tensor, count: int) -> Tensor:
        """Shapes: scores [R, V] -> [R, count]."""
        return scores.argmax(1, keepdim=True) if count == 1 else scores.topk(count).indices


@dataclass(frozen=True, slots=True)
class Sample:
    """Draws without replacement, with the probabilities that the scores' softmax gives."""

    generator: torch.Generator

    @classmethod
    def seeded(cls, seed: int | None, device: torch.device) -> Sample:
        """Return a sampler with a generator of its own; without a seed, one is drawn from torch's global generator."""
        if seed is None:
            seed = int(torch.randint(2**62, ()))
        return cls(torch.Generator(device).manual_seed(seed))

    def __call__(self, scores: Tensor, count: int) -> Tensor:
        """Shapes: scores [R, V] -> [R, count]."""
        return torch.multinomial(scores.softmax(1), count, generator=self.generator)
