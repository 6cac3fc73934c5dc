"""What changes the scores of the next token before one is chosen: small objects, applied in the order of a list.

Letters: R rows, L tokens so far, V vocab, W windows, N size of an n-gram.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

NEVER = float("-inf")


class Processor(Protocol):
    """Scores of the next token -> other scores; its input is left as it was."""

    def __call__(self, ids: Tensor, scores: Tensor) -> Tensor:
        """Shapes: ids [R, L] so far, scores [R, V] float32 -> [R, V]."""


def forbid_tokens(scores: Tensor, tokens: Sequence[int]) -> Tensor:
    """Give tokens no chance in any row. Shapes: [R, V] -> [R, V]."""
    return scores.index_fill(1, torch.tensor(tokens, device=scores.device), NEVER)


@dataclass(frozen=True, slots=True)
class RepetitionPenalty:
    """Divides positive scores of tokens that are already there by the penalty, and multiplies negative ones.

    Source: Keskar et al. 2019, §4.1, arXiv:1909.05858, which only divides; negative scores as in transformers.
    """

    penalty: float
    padding: Tensor | None = None
    """[R], tokens at the left of each row that are padding and do not count."""

    def __call__(self, ids: Tensor, scores: Tensor) -> Tensor:
        """Shapes: ids [R, L], scores [R, V] -> [R, V]."""
        seen = torch.zeros(scores.shape[0], scores.shape[1] + 1, dtype=torch.bool, device=scores.device)
        if self.padding is not None:  # counted in a column that is cut off again
            places = torch.arange(ids.shape[1], device=ids.device)
            ids = ids.masked_fill(places < self.padding[:, None], scores.shape[1])
        seen = seen.scatter(1, ids, True)[:, :-1]
        return torch.where(seen, torch.where(scores < 0, scores * self.penalty, scores / self.penalty), scores)


@dataclass(frozen=True, slots=True)
class NoRepeatedNGram:
    """Forbids a token that would complete an n-gram a second time.

    Source: Paulus et al. 2018, §2.5, arXiv:1705.04304.
    """

    size: int

    def __call__(self, ids: Tensor, scores: Tensor) -> Tensor:
        """Shapes: ids [R, L], scores [R, V] -> [R, V]."""
        if ids.shape[1] < self.size:
            return scores
        windows = ids.unfold(1, self.size, 1)  # [R, W, N]
        recent = ids[:, None, ids.shape[1] - self.size + 1:]
        rows, places = (windows[..., :-1] == recent).all(-1).nonzero(as_tuple=True)
        return scores.index_put((rows, windows[rows, places, -1]), scores.new_tensor(NEVER))


@dataclass(frozen=True, slots=True)
class NoBadWord:
    """Forbids the last token of a sequence where a row ends with its beginning."""

    word: tuple[int, ...]

    def __call__(self, ids: Tensor, scores: Tensor) -> Tensor:
        """Shapes: ids [R, L], scores [R, V] -> [R, V]."""
        *start, last = self.word
        if len(start) > ids.shape[1]:
            return scores
        begun = (ids[:, ids.shape[1] - len(start):] == ids.new_tensor(start)).all(1)
        changed = scores.clone()
        changed[begun, last] = NEVER
        return changed


@dataclass(frozen=True, slots=True)
class Suppress:
    """Forbids tokens everywhere."""

    tokens: tuple[int, ...]

    def __call__(self, ids: Tensor, scores: Tensor) -> Tensor:
        """Shapes: ids [R, L], scores [R, V] -> [R, V]."""
        return forbid_tokens(scores, self.tokens)


@dataclass(frozen=True, slots=True)
class SuppressAt:
    """Forbids tokens at one length (the first new token)."""

    tokens: tuple[int, ...]
    length: int

    def __call__(self, ids: Tensor, scores: Tensor) -> Tensor:
        """Shapes: ids [R, L], scores [R, V] -> [R, V]."""
        return forbid_tokens(scores, self.tokens) if ids.shape[1] == self.length else scores


@dataclass(frozen=True, slots=True)
class SuppressBefore:
    """Forbids tokens while rows are shorter than a length (no end before the minimum)."""

    tokens: tuple[int, ...]
    length: int

    def __call__(self, ids: Tensor, scores: Tensor) -> Tensor:
        """Shapes: ids [R, L], scores [R, V] -> [R, V]."""
        return forbid_tokens(scores, self.tokens) if ids.shape[1] < self.length else scores


@dataclass(frozen=True, slots=True)
class ForceAt:
    """Allows only these tokens at one length (a language token at the start, an end token at the limit)."""

    tokens: tuple[int, ...]
    length: int

    def __call__(self, ids: Tensor, scores: Tensor) -> Tensor:
        """Shapes: ids [R, L], scores [R, V] -> [R, V]."""
        if ids.shape[1] != self.length:
            return scores
        return torch.full_like(scores, NEVER).index_fill_(1, torch.tensor(self.tokens, device=scores.device), 0.0)


@dataclass(frozen=True, slots=True)
class FiniteScores:
    """Makes numbers of scores that are none: 0 of NaN, the largest and the smallest number of the infinite ones.

    What was forbidden before it is then very unlikely, as in transformers.
    """

    def __call__(self, ids: Tensor, scores: Tensor) -> Tensor:
        """Shapes: ids [R, L], scores [R, V] -> [R, V]."""
        return scores.nan_to_num()


@dataclass(frozen=True, slots=True)
class Temperature:
    """Divides the scores: below 1 sharpens the distribution, above 1 flattens it."""

    value: float

    def __call__(self, ids: Tensor, scores: Tensor) -> Tensor:
        """Shapes: ids [R, L], scores [R, V] -> [R, V]."""
        return scores / self.value


@dataclass(frozen=True, slots=True)
class TopK:
    """Keeps the k likeliest tokens, and those as likely as the last of them.

    Source: Fan et al. 2018, §5.1, arXiv:1805.04833.
    """

    count: int

    def __call__(self, ids: Tensor, scores: Tensor) -> Tensor:
        """Shapes: ids [R, L], scores [R, V] -> [R, V]."""
        least = scores.topk(min(self.count, scores.shape[1])).values[:, -1:]
        return scores.masked_fill(scores < least, NEVER)


@dataclass(frozen=True, slots=True)
class TopP:
    """Keeps the smallest set of likeliest tokens whose probability is at least p.

    Source: Holtzman et al. 2020, §3.1, arXiv:1904.09751.
    """

    share: float
    least: int = 1
    """So many tokens are kept whatever their probability."""

    def __call__(self, ids: Tensor, scores: Tensor) -> Tensor:
        """Shapes: ids [R, L], scores [R, V] -> [R, V]."""
        ordered, places = scores.sort(dim=1)
        dropped = ordered.softmax(1).cumsum(1) <= 1 - self.share
        dropped[:, -self.least:] = False
        return scores.masked_fill(dropped.scatter(1, places, dropped), NEVER)


@dataclass(frozen=True, slots=True)
class Renormalize:
    """Makes log probabilities of scores."""

    def __call__(self, ids: Tensor, scores: Tensor) -> Tensor:
        """Shapes: ids [R, L], scores [R, V] -> [R, V]."""
        return scores.log_softmax(-1)
