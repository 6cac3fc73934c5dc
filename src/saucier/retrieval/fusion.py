"""Rankings, and two of them made one: by reciprocal ranks, or by weighted scores that are made comparable. No torch.

A weight is chosen on other questions than those that are then scored (`fuse_by_folds`), or it is a guess at them.
Axes: Q questions, K passages found, W weights that are tried.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from saucier.errors import InputError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
RANK_CONSTANT = 60
"""Added to each rank, so that first places do not outweigh all else. Source: Cormack et al. 2009."""
WEIGHTS = tuple(step / 20 for step in range(21))
"""Of the second ranking, those that are tried."""
FOLDS = 5
FEEDBACK = 0.75
"""How much the first passages say of what is looked for, where they are asked too; the question says 1.

Source: Manning, Raghavan and Schütze 2008, "Introduction to Information Retrieval", §9.1.1.
"""


@dataclass(frozen=True, slots=True)
class Ranking:
    """The passages that were found for each question, the best first. Shapes: scores, places [Q, K]."""

    scores: Floats
    places: Ints

    @classmethod
    def of(cls, found: Sequence[Any]) -> Ranking:
        """Take scores and places as searches give them: arrays, or tensors on the CPU."""
        scores, places = found
        return cls(np.asarray(scores, dtype=np.float64), np.asarray(places, dtype=np.int64))

    def __len__(self) -> int:
        return len(self.places)

    def cut(self, count: int) -> Ranking:
        """Keep the first passages of each question."""
        return type(self)(self.scores[:, :count], self.places[:, :count])

    def comparable(self) -> Floats:
        """Return scores that can be added to those of another ranking: with a mean of 0 and a spread of 1 for each
        question; zeros where all are equal.
        """
        spread = self.scores.std(axis=1, keepdims=True)
        centred = self.scores - self.scores.mean(axis=1, keepdims=True)
        found: Floats = np.divide(centred, spread, out=np.zeros_like(centred), where=spread > 0)
        return found


class Choice(Ranking):
    """Passages by the scores of a model that learned to choose the right one among some: logits of a softmax."""

    __slots__ = ()

    def comparable(self) -> Floats:
        """Return the chance of each passage, in units of the spread that these have where one is certain.

        A model that cannot tell passages apart then leaves the order of the other ranking as it is, while its
        standardised logits would differ as much as those of a model that is sure. One passage alone has 0.
        """
        count = self.scores.shape[1]
        odds = np.exp(self.scores - self.scores.max(axis=1, keepdims=True))
        found: Floats = odds / odds.sum(axis=1, keepdims=True) * (count / np.sqrt(count - 1) if count > 1 else 0)
        return found


def fuse_ranks(rankings: Sequence[Ranking], constant: float = RANK_CONSTANT) -> Ranking:
    """Add up one over the ranks, each plus a constant; a passage that a ranking lacks gains nothing there.

    Errors: `InputError` for rankings of other questions.
    Source: Cormack, Clarke and Büttcher 2009, "Reciprocal Rank Fusion", §2.
    """
    gains = [np.broadcast_to(1 / (constant + 1 + np.arange(one.places.shape[1])), one.places.shape) for one in rankings]
    return add_up(rankings, gains, [np.zeros(len(one)) for one in rankings])


def fuse_scores(first: Ranking, second: Ranking, weight: float | Floats) -> Ranking:
    """Add up comparable scores, `weight` times those of the second and 1 - `weight` times those of the first.

    A passage that a ranking lacks has the lowest score there. Errors: `InputError` for rankings of other questions.
    Shapes: weight, of all questions or [Q]. Source: Bruch et al. 2023, §3, arXiv:2210.11934 (convex combination).
    """
    shares = np.broadcast_to(np.asarray(weight, dtype=np.float64), len(first))
    gains = [(share[:, None] * one.comparable()) for one, share in ((first, 1 - shares), (second, shares))]
    return add_up([first, second], gains, [one.min(axis=1) for one in gains])


def feed_back(first: Ranking, count: int, rank: Callable[[Ints], Ranking]) -> Ranking:
    """Ask for the first `count` passages of each question too, and add `FEEDBACK` times the mean of what these gain.

    `rank` ranks by passages as it does by questions, given their places. A passage that a ranking lacks has the lowest
    score there. Shapes: rank [P] -> [P, K].
    Source: Rocchio 1971, "Relevance Feedback in Information Retrieval"; without irrelevant passages, and of scores, not
    of vectors, so that it is the same for words.
    """
    asked, which = np.unique(first.places[:, :count], return_inverse=True)
    again = rank(asked)
    others = [Ranking(again.scores[row], again.places[row]) for row in which.reshape(len(first), -1).T]
    gains = [first.scores, *(FEEDBACK / len(others) * one.scores for one in others)]
    return add_up([first, *others], gains, [one.min(axis=1) for one in gains])


def add_up(rankings: Sequence[Ranking], gains: Sequence[Floats], lacking: Sequence[Floats]) -> Ranking:
    """Rank the passages of all rankings by the sum of what they gain in each; of equal ones the lower place first.

    As many are kept as the longest ranking has. Shapes: gains [Q, K] each, lacking [Q] each.
    """
    if len({len(one) for one in rankings}) != 1:
        raise InputError(f"of {' and '.join(str(len(one)) for one in rankings)} questions", where="rankings",
                         remedy="give rankings of the same questions")
    count = max(one.places.shape[1] for one in rankings)
    scores, kept = (np.empty((len(rankings[0]), count), dtype=kind) for kind in (np.float64, np.int64))
    for question in range(len(rankings[0])):
        places = np.unique(np.concatenate([one.places[question] for one in rankings]))
        total = np.zeros(len(places))
        for one, gained, otherwise in zip(rankings, gains, lacking, strict=True):
            own = np.full(len(places), otherwise[question])
            own[np.searchsorted(places, one.places[question])] = gained[question]
            total += own
        order = np.argsort(-total, kind="stable")[:count]
        scores[question], kept[question] = total[order], places[order]
    return Ranking(scores, kept)


@dataclass(frozen=True, slots=True)
class Fused:
    """A fusion of two rankings by scores."""

    ranking: Ranking
    weights: tuple[float, ...]
    """Of the second ranking: one for each fold."""


Measure = Callable[[Ranking], Floats]
"""What a ranking is worth for each question; more is better. Shapes: -> [Q]."""


def tune_weight(first: Ranking, second: Ranking, measure: Measure) -> float:
    """Return the weight of the second ranking with which these questions are answered best; of equal ones the middle.

    Questions that are scored with it must be others.
    """
    return choose_weight(np.array([measure(fuse_scores(first, second, weight)).mean() for weight in WEIGHTS]))


def choose_weight(values: Floats) -> float:
    """Return the weight of the largest value; of equal ones the middle one. Shapes: [W]."""
    best = np.flatnonzero(values >= values.max() - 1e-12)
    return WEIGHTS[int(best[len(best) // 2])]


def fuse_by_folds(first: Ranking, second: Ranking, measure: Measure, groups: Sequence[object], *,
                  folds: int = FOLDS) -> Fused:
    """Fuse by scores, each fold of questions with the weight that is best for those of all other folds.

    `groups`: what each question is about; questions of one group are in one fold.
    Errors: `InputError` where there are fewer groups than folds.
    """
    names = {group: number for number, group in enumerate(dict.fromkeys(groups))}
    if len(names) < folds:
        raise InputError(f"{len(names)} groups of questions are fewer than {folds} folds", where="questions",
                         remedy="give more questions, or a weight")
    fold = np.array([names[group] % folds for group in groups])
    worth = np.stack([measure(fuse_scores(first, second, weight)) for weight in WEIGHTS])
    chosen = tuple(choose_weight(worth[:, fold != number].mean(axis=1)) for number in range(folds))
    return Fused(fuse_scores(first, second, np.array(chosen)[fold]), chosen)
