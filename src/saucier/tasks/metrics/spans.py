"""Answers in a text: exact match and F1 as SQuAD scores them, versions 1.1 and 2.0.

An answer is compared after lower case, without punctuation, articles and superfluous spaces; of several references the
best counts. A question without any reference has no answer, and "" is then the right prediction.
Source: Rajpurkar et al. 2016, §6.1, arXiv:1606.05250; Rajpurkar et al. 2018, arXiv:1806.03822, for no answer.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from saucier.tasks.metrics.intervals import Mean
from saucier.tasks.metrics.metric import Metric, indicator

ARTICLES = re.compile(r"\b(a|an|the)\b")
WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)
Gold = Sequence[str]
"""The references of one question; none where it has no answer."""


def normalized(text: str) -> str:
    """Write an answer as it is compared."""
    return " ".join(ARTICLES.sub(" ", text.lower().translate(WITHOUT_PUNCTUATION)).split())


def exact_match(prediction: str, gold: Gold) -> float:
    """Give 1 where the prediction is one of the references."""
    return max(float(normalized(prediction) == normalized(reference)) for reference in gold or [""])


def answer_f1(prediction: str, gold: Gold) -> float:
    """Give the F1 of the words, with the best of the references."""
    return max(word_f1(normalized(prediction).split(), normalized(reference).split()) for reference in gold or [""])


def word_f1(ours: list[str], theirs: list[str]) -> float:
    """Compare two lists of words; where one is empty, 1 if both are."""
    if not ours or not theirs:
        return float(ours == theirs)
    common = (Counter(ours) & Counter(theirs)).total()
    return 2 * common / (len(ours) + len(theirs))


def answerable(gold: Gold) -> bool:
    """Tell whether a question has an answer."""
    return any(normalized(reference) for reference in gold)


def every(gold: Gold) -> bool:
    """Take every question."""
    return True


def unanswerable(gold: Gold) -> bool:
    """Tell whether a question has no answer."""
    return not answerable(gold)


Part = Callable[[Gold], bool]
PARTS: dict[str, Part] = {"": every, " (answerable)": answerable, " (unanswerable)": unanswerable}


def span_exact_match(part: str = "") -> Metric:
    """Share of questions with an exact answer, among all or one of `PARTS`."""
    return Metric("exact match" + part, lambda golds, predictions: over_questions(
        exact_match, golds, predictions, part), "questions")


def span_f1(part: str = "") -> Metric:
    """Mean F1 of the answers, among all or one of `PARTS`."""
    return Metric("F1" + part, lambda golds, predictions: over_questions(answer_f1, golds, predictions, part),
                  "questions")


def over_questions(score: Callable[[str, Gold], float], golds: Sequence[Gold], predictions: Sequence[str],
                   part: str) -> Mean:
    """Average a score over the questions of a part."""
    return Mean(np.array([*map(score, predictions, golds)]), indicator([PARTS[part](gold) for gold in golds]))
