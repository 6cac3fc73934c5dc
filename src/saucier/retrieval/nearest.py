"""Exact search: the passages whose vectors have the largest inner product with those of questions.

Axes: Q questions, P passages, E width of a vector, K passages found.
"""

from __future__ import annotations

import torch
from torch import Tensor

from saucier.errors import InputError

MOST_SCORES = 1 << 24
"""Inner products that are held at once."""
BLOCK = 1 << 16
"""Passages whose inner products are made at once."""


def find_nearest(queries: Tensor, passages: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the `count` passages of the largest inner product with each question, the largest first.

    Of equal ones the passage with the lower place comes first, wherever blocks begin. Half precision is compared in
    float32, under autocast too. The work is done where the passages are; what is found is on the CPU.
    Shapes: queries [Q, E], passages [P, E] -> scores [Q, K], places [Q, K], where K is `count`, or P if that is less.
    Errors: `InputError` for other shapes, a count below 1, and vectors that are not finite.
    Source: eq 84; Karpukhin et al. 2020, §3.1, eq 1, arXiv:2004.04906.
    """
    check_vectors(queries, passages, count)
    dtype = torch.promote_types(torch.promote_types(queries.dtype, passages.dtype), torch.float32)
    count, block = min(count, len(passages)), min(BLOCK, len(passages))
    found: list[tuple[Tensor, Tensor]] = []
    for part in queries.to(passages.device, dtype).split(max(1, MOST_SCORES // block)):
        best, places = part.new_empty(len(part), 0), torch.empty(len(part), 0, dtype=torch.long, device=part.device)
        for start in range(0, len(passages), block):
            with torch.autocast(part.device.type, enabled=False):
                scores = part @ passages[start:start + block].to(dtype).T
            scores, near = take_largest(scores, count)
            best, kept = take_largest(torch.cat([best, scores], dim=1), count)
            places = torch.cat([places, near + start], dim=1).gather(1, kept)
        found.append((best.cpu(), places.cpu()))
    scores, places = (torch.cat(side) for side in zip(*found, strict=True))
    return scores, places


def take_largest(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the `count` largest scores of each row, at most all, and their places; of equal ones the first.

    Shapes: [Q, P] -> [Q, K], [Q, K]. `topk` takes any of equal scores: rows in which that matters are sorted whole.
    """
    count = min(count, scores.shape[1])
    places = scores.topk(count, dim=1, sorted=False).indices.sort(dim=1).values
    best, order = scores.gather(1, places).sort(dim=1, descending=True, stable=True)
    places = places.gather(1, order)
    if tied := ((scores >= best[:, -1:]).sum(1) > count).nonzero()[:, 0].tolist():
        whole = scores[tied].sort(dim=1, descending=True, stable=True)
        best[tied], places[tied] = whole.values[:, :count], whole.indices[:, :count]
    return best, places


def check_vectors(queries: Tensor, passages: Tensor, count: int) -> None:
    """Raise `InputError` for what cannot be searched."""
    if queries.ndim != 2 or passages.ndim != 2 or queries.shape[1] != passages.shape[1]:
        raise InputError(f"have the shapes {list(queries.shape)} and {list(passages.shape)}",
                         where="vectors of questions and passages", remedy="embed both with one model, one row a text")
    if not len(queries) or not len(passages):
        raise InputError("are none", where="questions" if len(passages) else "passages", remedy="give at least one")
    if count < 1:
        raise InputError(f"is {count}", where="count", remedy="give a number of passages")
    for name, vectors in (("questions", queries), ("passages", passages)):
        if not bool(torch.isfinite(vectors).all()):
            raise InputError("have vectors that are not finite", where=name, remedy="embed them again")
