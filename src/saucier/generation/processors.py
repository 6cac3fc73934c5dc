"""What changes the scores of the next token before one is chosen: functions that are applied in the order of a list,
their settings bound with `functools.partial`.

Letters: R rows, L tokens so far, V vocab, W windows, N size of an n-gram.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

NEVER = float("-inf")

Processor = Callable[[Tensor, Tensor], Tensor]
"""Scores of the next token -> other scores; its input is left as it was.

Shapes: ids [R, L] so far, scores [R, V] float32 -> [R, V]; so in all functions here.
"""


def forbid_tokens(scores: Tensor, tokens: Sequence[int]) -> Tensor:
    """Give tokens no chance in any row. Shapes: [R, V] -> [R, V]."""
    return scores.index_fill(1, torch.tensor(tokens, device=scores.device), NEVER)


def penalize_repetition(ids: Tensor, scores: Tensor, *, penalty: float, padding: Tensor | None = None) -> Tensor:
    """Divide positive scores of tokens that are already there by the penalty, and multiply negative ones.

    `padding` [R]: tokens at the left of each row that are padding and do not count.
    Source: Keskar et al. 2019, §4.1, arXiv:1909.05858, which only divides; negative scores as in transformers.
    """
    seen = torch.zeros(scores.shape[0], scores.shape[1] + 1, dtype=torch.bool, device=scores.device)
    if padding is not None:  # counted in a column that is cut off again
        places = torch.arange(ids.shape[1], device=ids.device)
        ids = ids.masked_fill(places < padding[:, None], scores.shape[1])
    seen = seen.scatter(1, ids, True)[:, :-1]
    return torch.where(seen, torch.where(scores < 0, scores * penalty, scores / penalty), scores)


def forbid_repeated_ngrams(ids: Tensor, scores: Tensor, *, size: int) -> Tensor:
    """Forbid a token that would complete an n-gram a second time. Source: Paulus et al. 2018, §2.5, arXiv:1705.04304.
    """
    if ids.shape[1] < size:
        return scores
    windows = ids.unfold(1, size, 1)  # [R, W, N]
    recent = ids[:, None, ids.shape[1] - size + 1:]
    rows, places = (windows[..., :-1] == recent).all(-1).nonzero(as_tuple=True)
    return scores.index_put((rows, windows[rows, places, -1]), scores.new_tensor(NEVER))


def forbid_bad_word(ids: Tensor, scores: Tensor, *, word: Sequence[int]) -> Tensor:
    """Forbid the last token of a sequence where a row ends with its beginning."""
    *start, last = word
    if len(start) > ids.shape[1]:
        return scores
    matches = (ids[:, ids.shape[1] - len(start):] == ids.new_tensor(start)).all(1)
    changed = scores.clone()
    changed[matches, last] = NEVER
    return changed


def suppress(ids: Tensor, scores: Tensor, *, tokens: Sequence[int], lengths: range | None = None) -> Tensor:
    """Forbid tokens while rows have one of these lengths: no end before the minimum; None: always."""
    return forbid_tokens(scores, tokens) if lengths is None or ids.shape[1] in lengths else scores


def force_at(ids: Tensor, scores: Tensor, *, tokens: Sequence[int], length: int) -> Tensor:
    """Allow only these tokens at one length (a language token at the start, an end token at the limit)."""
    if ids.shape[1] != length:
        return scores
    return torch.full_like(scores, NEVER).index_fill_(1, torch.tensor(tokens, device=scores.device), 0.0)


def make_finite(ids: Tensor, scores: Tensor) -> Tensor:
    """Make numbers of scores that are none: 0 of NaN, the largest and the smallest number of the infinite ones.

    What was forbidden before it is then very unlikely, as in transformers.
    """
    return scores.nan_to_num()


def apply_temperature(ids: Tensor, scores: Tensor, *, temperature: float) -> Tensor:
    """Divide the scores: below 1 sharpens the distribution, above 1 flattens it."""
    return scores / temperature


def keep_top_k(ids: Tensor, scores: Tensor, *, count: int) -> Tensor:
    """Keep the k likeliest tokens, and those as likely as the last of them.

    Source: Fan et al. 2018, §5.1, arXiv:1805.04833.
    """
    least = scores.topk(min(count, scores.shape[1])).values[:, -1:]
    return scores.masked_fill(scores < least, NEVER)


def keep_top_p(ids: Tensor, scores: Tensor, *, share: float, least: int = 1) -> Tensor:
    """Keep the smallest set of likeliest tokens whose probability is at least p, and the `least` likeliest in any case.

    Source: Holtzman et al. 2020, §3.1, arXiv:1904.09751.
    """
    ordered, places = scores.sort(dim=1)
    dropped = ordered.softmax(1).cumsum(1) <= 1 - share
    dropped[:, -least:] = False
    return scores.masked_fill(dropped.scatter(1, places, dropped), NEVER)


def renormalize(ids: Tensor, scores: Tensor) -> Tensor:
    """Make log probabilities of scores."""
    return scores.log_softmax(-1)
