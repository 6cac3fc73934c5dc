"""Scores of written texts, with what each example adds to them: BLEU, chrF, ROUGE, exact match, perplexity.

A gold is a text, or several references.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from saucier.tasks.metrics.intervals import Mean, Sums, ratio
from saucier.tasks.metrics.metric import Metric, indicator
from saucier.tasks.metrics.rouge import KINDS, best
from saucier.tasks.metrics.statistics import Floats
from saucier.tasks.metrics.translation import SegmentSums, bleu_sums, chrf_sums

Gold = str | Sequence[str]


def bleu_metric() -> Metric:
    """Corpus BLEU, 0 to 100. Source: Papineni et al. 2002; Post 2018, arXiv:1804.08771."""
    return Metric("BLEU", lambda golds, predictions: corpus(bleu_sums(predictions, references(golds))), "texts")


def chrf_metric() -> Metric:
    """Corpus chrF, 0 to 100. Source: Popović 2015."""
    return Metric("chrF", lambda golds, predictions: corpus(chrf_sums(predictions, references(golds))), "texts")


def rouge_metric(name: str, kind: str) -> Metric:
    """Mean F1 of one kind of ROUGE (`rouge1`, `rouge2`, `rougeL`, `rougeLsum`), 0 to 1, without stemming."""
    def measure(golds: Sequence[Gold], predictions: Sequence[str]) -> Mean:
        values = [best(KINDS[kind], prediction, gold, False).f1
                  for gold, prediction in zip(golds, predictions, strict=True)]
        return Mean(np.array(values), np.ones(len(values)))

    return Metric(name, measure, "texts")


def text_match() -> Metric:
    """Share of texts that are their reference, or one of them, but for space around."""
    return Metric("exact match", lambda golds, predictions: Mean(
        indicator([prediction.strip() in [one.strip() for one in group]
                   for group, prediction in zip(references(golds), predictions, strict=True)]),
        np.ones(len(golds))), "texts")


def perplexity_metric() -> Metric:
    """exp(nats / targets): a gold is an example's number of targets, its prediction their loss in nats."""
    return Metric("perplexity", lambda golds, predictions: Sums(
        np.stack([np.asarray(side, dtype=np.float64) for side in (predictions, golds)], axis=1),
        lambda sums: np.exp(ratio(sums))), "texts", better="lower")


def references(golds: Sequence[Gold]) -> list[list[str]]:
    """Give every example a list of references."""
    return [[gold] if isinstance(gold, str) else list(gold) for gold in golds]


def corpus(segments: SegmentSums) -> Sums:
    """Make a corpus score a function of sums. A draw costs one call of sacrebleu, some 20 µs."""
    def value(sums: Floats) -> Floats:
        rows: Any = np.atleast_2d(sums)
        return np.array([segments.score([float(one) for one in row]) for row in rows]).reshape(np.shape(sums)[:-1])

    return Sums(segments.statistics, value)
