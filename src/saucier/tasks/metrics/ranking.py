"""Scores of rankings: mean average precision and mean reciprocal rank.

An example is a query: its gold is the relevance of each candidate (above 0 is relevant), its prediction their scores.
A query without any relevant candidate is no part of the mean. Among equal scores the irrelevant ones stand first, so
that a constant gains nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from saucier.tasks.metrics.intervals import Mean
from saucier.tasks.metrics.metric import Metric, indicator
from saucier.tasks.metrics.statistics import Floats


def mean_average_precision() -> Metric:
    """Mean over queries of the precision at each relevant candidate's rank. Source: Buckley and Voorhees 2000, §2."""
    return Metric("MAP", lambda golds, predictions: over_queries(average_precision, golds, predictions), "queries")


def mean_reciprocal_rank() -> Metric:
    """Mean over queries of one over the first relevant candidate's rank. Source: Voorhees 1999, TREC-8, §3."""
    return Metric("MRR", lambda golds, predictions: over_queries(reciprocal_rank, golds, predictions), "queries")


def reciprocal_ranks() -> Metric:
    """The same, of ranks that are known already: one of a query."""
    return Metric("MRR", lambda golds, predictions: mean_of(1 / np.asarray(predictions, dtype=np.float64)), "queries")


def within(most: int) -> Metric:
    """Share of queries whose right candidate stands among the first `most`."""
    return Metric(f"recall@{most}", lambda golds, predictions: mean_of(indicator(
        [rank <= most for rank in predictions])), "queries")


def mean_of(values: Floats) -> Mean:
    """Make the mean of a value for each query. Shapes: [N]."""
    return Mean(values, np.ones(len(values)))


def average_precision(ranks: Floats) -> float:
    """Average the precision at these ranks, which count from 1 and ascend."""
    return float(np.mean(np.arange(1, len(ranks) + 1) / ranks)) if len(ranks) else 0.0


def reciprocal_rank(ranks: Floats) -> float:
    """Give one over the first rank."""
    return float(1 / ranks[0]) if len(ranks) else 0.0


def relevant_ranks(gold: Sequence[float], prediction: Sequence[float]) -> Floats:
    """Give the ranks, from 1, of the relevant candidates."""
    relevant = np.asarray(gold, dtype=np.float64) > 0
    order = np.lexsort((relevant, -np.asarray(prediction, dtype=np.float64)))
    return np.flatnonzero(relevant[order]).astype(np.float64) + 1


def over_queries(score: Callable[[Floats], float], golds: Sequence[Sequence[float]],
                 predictions: Sequence[Sequence[float]]) -> Mean:
    """Average a score over the queries that have a relevant candidate."""
    ranks = [*map(relevant_ranks, golds, predictions)]
    return Mean(np.array([*map(score, ranks)]), indicator([len(one) > 0 for one in ranks]))
