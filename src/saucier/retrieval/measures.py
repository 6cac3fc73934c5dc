"""What a ranking is worth for each question: recall, nDCG, reciprocal rank, average precision. No torch.

A value for each question, so that two systems are compared on the same questions (`tasks.metrics`). Axes: Q questions,
K passages found.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from saucier.errors import InputError
from saucier.retrieval.collection import Collection
from saucier.retrieval.fusion import Floats, Ranking
from saucier.tasks.metrics.labels import mean_per_query
from saucier.tasks.metrics.metric import Mean


@dataclass(frozen=True, slots=True)
class Judged:
    """The grades of what was found. Shapes: found [Q, K]."""

    found: Floats
    """The grade of each passage that was found, 0 where it is not relevant."""
    all: tuple[Floats, ...]
    """The grades of all passages that are relevant to a question, the highest first."""


def judge(ranking: Ranking, collection: Collection) -> Judged:
    """Look up the grades of a ranking of all questions of a collection.

    Errors: `InputError` for a question to which no passage is relevant: it cannot be scored.
    """
    names, found = [passage.id for passage in collection.passages], np.zeros(ranking.places.shape)
    for row, (question, places) in enumerate(zip(collection.questions, ranking.places.tolist(), strict=True)):
        if not question.relevance:
            raise InputError(f"question {question.id!r} has no relevant passage", where=collection.name,
                             remedy="leave such questions out (Collection.answerable)")
        found[row] = [question.relevance.get(names[place], 0.0) for place in places]
    return Judged(found, tuple(np.sort(np.array([*one.relevance.values()]))[::-1] for one in collection.questions))


def recall(judged: Judged, count: int) -> Floats:
    """Return the share of the relevant passages that is among the first `count`. Shapes: -> [Q]."""
    found: Floats = (judged.found[:, :count] > 0).sum(axis=1) / np.array([len(one) for one in judged.all])
    return found


def gain(judged: Judged, count: int) -> Floats:
    """Return nDCG: grades discounted by the logarithm of the rank, over what the best order would give.

    Shapes: -> [Q]. Source: Järvelin and Kekäläinen 2002, §2, with the discount of trec_eval, log2(rank + 1).
    """
    discount = 1 / np.log2(np.arange(2, count + 2))
    reached = judged.found[:, :count] @ discount[:judged.found.shape[1]]
    found: Floats = reached / np.array([one[:count] @ discount[:len(one)] for one in judged.all])
    return found


def reciprocal_rank(judged: Judged) -> Floats:
    """Return one over the rank of the first relevant passage, 0 where none was found. Shapes: -> [Q]."""
    relevant = judged.found > 0
    return np.where(relevant.any(axis=1), 1 / (relevant.argmax(axis=1) + 1), 0.0)


def average_precision(judged: Judged) -> Floats:
    """Return the mean, over all relevant passages, of the precision at their ranks; 0 for one that was not found.

    Shapes: -> [Q]. Source: Buckley and Voorhees 2000, §2.
    """
    relevant = judged.found > 0
    precision = relevant.cumsum(axis=1) / np.arange(1, relevant.shape[1] + 1)
    found: Floats = (precision * relevant).sum(axis=1) / np.array([len(one) for one in judged.all])
    return found


MEASURES: dict[str, Callable[[Judged], Floats]] = {
    "recall@1": lambda judged: recall(judged, 1), "recall@5": lambda judged: recall(judged, 5),
    "recall@20": lambda judged: recall(judged, 20), "nDCG@10": lambda judged: gain(judged, 10),
    "MRR": reciprocal_rank, "MAP": average_precision}
"""What is measured of every ranking, by its name."""


def measure(ranking: Ranking, collection: Collection, name: str) -> Mean:
    """Measure a ranking: a value for each question, whose mean has an interval and is compared in pairs."""
    return mean_per_query(MEASURES[name](judge(ranking, collection)))
