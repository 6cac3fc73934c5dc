"""What changes the scores of the next token before one is chosen: functions that are applied in the order of a list,
their settings bound with `functools.partial`.

A search that needs nothing of torch keeps its rows in numpy, so that a process that only writes does not import torch:
what forbids and forces tokens is written in what both libraries spell alike. Where torch's own spelling stands, tokens
are drawn, or beams add the scores up.
Letters: R rows, L tokens so far, V vocab, W windows, N size of an n-gram.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from saucier.plain import library_of

NEVER = float("-inf")
SMALLEST_BLOCK, LARGEST_BLOCK = 16, 128
"""Scores that are looked at together when the highest are picked."""

Array = Any
"""Torch's tensor, or numpy's array."""
Processor = Callable[[Array, Array], Array]
"""Scores of the next token -> other scores; its input is left as it was.

Shapes: ids [R, L] so far, scores [R, V] float32 -> [R, V]; so in all functions here.
"""


def without_threads(scores: Array) -> Array:
    """Return rows on the CPU as numpy's array of the same memory, and others as they are.

    torch shares the work on large rows among threads that wait busily when they are done, beside those of the kernels.
    """
    return np.asarray(scores) if str(scores.device) == "cpu" else scores


def pick_likeliest(scores: Array, count: int) -> Array:
    """Pick the highest scores, the best first; where one is picked, the first of equal ones.

    Several are looked for in the blocks with the highest scores alone: torch copies and orders all that it is given.
    Shapes: scores [R, V] -> [R, count].
    """
    of = library_of(scores)
    if count == 1:  # numpy takes a tenth of the time of torch too: 20 against 225 µs for 8 rows of 50,257
        return of.asarray(without_threads(scores).argmax(1))[:, None]
    rows, width = scores.shape
    size = min(LARGEST_BLOCK, math.isqrt(width // count))  # as many blocks as scores in those that are picked
    if size < SMALLEST_BLOCK:
        return scores.topk(count).indices
    blocks = width // size
    whole = without_threads(scores)[:, :blocks * size].reshape(rows, size, blocks)  # each column is a block
    best = of.asarray(library_of(whole).amax(whole, 1)).topk(count).indices.sort().values
    inside = (of.arange(size, device=scores.device)[:, None] * blocks + best[:, None]).flatten(1)
    after = of.arange(blocks * size, width, device=scores.device).expand(rows, -1)
    places = of.cat([inside, after], 1)
    return places.gather(1, scores.gather(1, places).topk(count).indices)


def copy_scores(scores: Array) -> Array:
    """Return scores that may be changed. Shapes: [R, V] -> [R, V]."""
    held = without_threads(scores)
    return library_of(scores).asarray(library_of(held).asarray(held, copy=True))


def forbid_tokens(scores: Array, tokens: Sequence[int]) -> Array:
    """Give tokens no chance in any row. Shapes: [R, V] -> [R, V]."""
    changed = copy_scores(scores)
    changed[:, list(tokens)] = NEVER
    return changed


def penalize_repetition(ids: Array, scores: Array, *, penalty: float, padding: Array | None = None) -> Array:
    """Divide positive scores of tokens that are already there by the penalty, and multiply negative ones.

    `padding` [R]: tokens at the left of each row that are padding and do not count.
    Source: Keskar et al. 2019, §4.1, arXiv:1909.05858, which only divides; negative scores as in transformers.
    """
    of = library_of(scores)
    rows = of.arange(len(ids), device=scores.device)[:, None]
    seen = of.zeros((len(ids), scores.shape[1] + 1), dtype=of.bool, device=scores.device)
    if padding is not None:  # counted in a column that is cut off again
        places = of.arange(ids.shape[1], device=ids.device)
        ids = of.where(places < padding[:, None], scores.shape[1], ids)
    seen[rows, ids] = True
    return of.where(seen[:, :-1], of.where(scores < 0, scores * penalty, scores / penalty), scores)


def forbid_repeated_ngrams(ids: Array, scores: Array, *, size: int) -> Array:
    """Forbid a token that would complete an n-gram a second time. Source: Paulus et al. 2018, §2.5, arXiv:1705.04304.
    """
    if ids.shape[1] < size:
        return scores
    of, count = library_of(scores), ids.shape[1] - size + 1
    windows = of.stack([ids[:, start:start + count] for start in range(size)], -1)  # [R, W, N]
    rows, places = of.where((windows[..., :-1] == ids[:, None, count:]).all(-1))
    changed = copy_scores(scores)
    changed[rows, windows[rows, places, -1]] = NEVER
    return changed


def forbid_bad_word(ids: Array, scores: Array, *, word: Sequence[int]) -> Array:
    """Forbid the last token of a sequence where a row ends with its beginning."""
    *start, last = word
    if len(start) > ids.shape[1]:
        return scores
    of = library_of(scores)
    matches = (ids[:, ids.shape[1] - len(start):] == of.asarray(start, dtype=ids.dtype, device=ids.device)).all(1)
    changed = copy_scores(scores)
    changed[matches, last] = NEVER
    return changed


def suppress(ids: Array, scores: Array, *, tokens: Sequence[int], lengths: range | None = None) -> Array:
    """Forbid tokens while rows have one of these lengths: no end before the minimum; None: always."""
    return forbid_tokens(scores, tokens) if lengths is None or ids.shape[1] in lengths else scores


def force_at(ids: Array, scores: Array, *, tokens: Sequence[int], length: int) -> Array:
    """Allow only these tokens at one length (a language token at the start, an end token at the limit)."""
    if ids.shape[1] != length:
        return scores
    forced = library_of(scores).full_like(scores, NEVER)
    forced[:, list(tokens)] = 0.0
    return forced


def make_finite(ids: Array, scores: Array) -> Array:
    """Make numbers of scores that are none: 0 of NaN, the largest and the smallest number of the infinite ones.

    What was forbidden before it is then very unlikely, as in transformers.
    """
    return library_of(scores).nan_to_num(scores)


def apply_temperature(ids: Array, scores: Array, *, temperature: float) -> Array:
    """Divide the scores: below 1 sharpens the distribution, above 1 flattens it."""
    return library_of(scores).asarray(without_threads(scores) / temperature)


def keep_top_k(ids: Array, scores: Array, *, count: int) -> Array:
    """Keep the k likeliest tokens, and those as likely as the last of them.

    Source: Fan et al. 2018, §5.1, arXiv:1805.04833.
    """
    last = pick_likeliest(scores, min(count, scores.shape[1]))[:, -1:]
    held, least = without_threads(scores), without_threads(scores.gather(1, last))
    of = library_of(held)
    return library_of(scores).asarray(of.where(held < least, of.asarray(NEVER, dtype=held.dtype), held))


def keep_top_p(ids: Array, scores: Array, *, share: float, least: int = 1) -> Array:
    """Keep the smallest set of likeliest tokens whose probability is at least p, and the `least` likeliest in any case.

    On the CPU no more is sorted than what may be kept, and sums are of 64 bits. Which of equal scores stay is what
    torch's order of all of them says, as in transformers.
    Source: Holtzman et al. 2020, §3.1, arXiv:1904.09751.
    """
    held = without_threads(scores)
    lasts = [None] if held is scores else [find_last(row, 1 - share, least) for row in held]
    if None not in lasts:
        below = held < np.array(lasts, np.float32)[:, None]
        return library_of(scores).asarray(np.where(below, np.float32(NEVER), held))
    ordered, places = scores.sort(dim=1)
    dropped = ordered.softmax(1).cumsum(1) <= 1 - share
    dropped[:, -least:] = False
    return scores.masked_fill(dropped.scatter(1, places, dropped), NEVER)


def find_last(row: Any, share: float, least: int) -> float | None:
    """Return the score from which on tokens stay: the others have no more than a share of the probability together, and
    `least` stay in any case. None where some of equal ones would stay, or a score is no number.

    Shapes: numpy's [V].
    """
    with np.errstate(invalid="ignore", over="ignore"):  # of scores as `make_finite` leaves them
        likely = np.exp(row - row.max())
    total = likely.sum(dtype=np.float64)
    if not total > 0:
        return None
    some = np.sort(row[likely * float(row.size) > share * total])  # the others have less than the share together
    chances = np.exp(some - row.max()).astype(np.float64)
    count = max(int((total - chances.sum() + chances.cumsum() > share * total).sum()), least)
    if count > len(some):
        some = np.sort(row)
    last = some[-min(count, row.size)]
    return float(last) if int((some >= last).sum()) == count else None


def renormalize(ids: Array, scores: Array) -> Array:
    """Make log probabilities of scores."""
    return scores.log_softmax(-1)
