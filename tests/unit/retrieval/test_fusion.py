"""Fusions against sums by hand, weights from other questions, and measures against their formulas and scikit-learn."""

from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, ndcg_score

from saucier.errors import InputError
from saucier.retrieval.collection import Collection, Passage, Question
from saucier.retrieval.fusion import (
    WEIGHTS,
    Choice,
    Ranking,
    feed_back,
    fuse_by_folds,
    fuse_ranks,
    fuse_scores,
    tune_weight,
)
from saucier.retrieval.measures import MEASURES, judge, measure
from saucier.tasks.metrics.metric import compare_values, full_value

FIRST = Ranking(np.array([[9.0, 6.0, 3.0]]), np.array([[4, 0, 2]]))
SECOND = Ranking(np.array([[0.9, 0.5, 0.1]]), np.array([[2, 4, 7]]))


def test_reciprocal_ranks_by_hand() -> None:
    """A passage that one ranking lacks gains nothing there."""
    found = fuse_ranks([FIRST, SECOND])
    worth = {4: 1 / 61 + 1 / 62, 0: 1 / 62, 2: 1 / 63 + 1 / 61, 7: 1 / 63}
    order = sorted(worth, key=lambda place: -worth[place])[:3]
    assert found.places.tolist() == [order]
    assert found.scores[0] == pytest.approx([worth[place] for place in order])


def test_standardised_scores_by_hand() -> None:
    """A passage that one ranking lacks has the lowest score there."""
    z = math.sqrt(1.5)  # of three scores at equal distances
    found = fuse_scores(FIRST, SECOND, 0.25)
    worth = {4: 0.75 * z + 0.25 * 0, 0: 0.75 * 0 - 0.25 * z, 2: -0.75 * z + 0.25 * z, 7: -z}
    order = sorted(worth, key=lambda place: -worth[place])[:3]
    assert found.places.tolist() == [order]
    assert found.scores[0] == pytest.approx([worth[place] for place in order])
    assert fuse_scores(FIRST, SECOND, 0.0).places.tolist() == FIRST.places.tolist()
    equal = Ranking(np.ones((1, 3)), np.array([[7, 8, 9]]))
    assert fuse_scores(equal, equal, 0.5).places.tolist() == [[7, 8, 9]]


def test_a_choice_counts_as_its_chances() -> None:
    """By the definition; who is sure counts as any scores do, and who cannot tell leaves the order as it was."""
    logits = np.array([[2.0, 1.0, 0.0, -4.0], [300.0, 0.0, 0.0, 0.0], [0.1, 0.0, 0.0, 0.0]])
    places = np.tile([3, 1, 0, 2], (3, 1))
    found = Choice(logits, places).comparable()
    chances = np.exp(logits - logits.max(1, keepdims=True))
    chances /= chances.sum(1, keepdims=True)
    np.testing.assert_allclose(found, chances * 4 / np.sqrt(3))
    assert found[1].std() == pytest.approx(1.0) and found[2].std() < 0.03
    assert Ranking(logits, places).comparable()[2].std() == pytest.approx(1.0)
    first = Ranking(np.tile([4.0, 3.0, 2.0, 1.0], (3, 1)), np.tile([0, 1, 2, 3], (3, 1)))
    assert fuse_scores(first, Choice(logits, places), 0.6).places.tolist() == [[0, 1, 3, 2], [3, 0, 1, 2], [0, 1, 2, 3]]
    assert (Choice(logits[:, :1], places[:, :1]).comparable() == 0).all()
    assert isinstance(Choice(logits, places).cut(2), Choice)


def test_feedback_by_hand() -> None:
    """The first two passages are asked too; one that a ranking lacks has the lowest score there."""
    asked: list[int] = []

    def rank(places: np.ndarray) -> Ranking:
        asked.extend(places.tolist())
        return Ranking(np.array([[3.0, 1.0], [8.0, 2.0]]), np.array([[0, 7], [4, 2]]))  # of passage 0, and of 4

    found = feed_back(FIRST, 2, rank)
    assert asked == [0, 4]
    worth = {4: 9 + 0.375 * (1 + 8), 0: 6 + 0.375 * (3 + 2), 2: 3 + 0.375 * (1 + 2), 7: 3 + 0.375 * (1 + 2)}
    assert found.places.tolist() == [[4, 0, 2]]
    assert found.scores[0] == pytest.approx([worth[place] for place in (4, 0, 2)])


def test_rankings_of_other_questions_are_refused() -> None:
    """In one line."""
    with pytest.raises(InputError, match="of 1 and 2 questions"):
        fuse_ranks([FIRST, Ranking(np.ones((2, 1)), np.zeros((2, 1), dtype=np.int64))])


def drawn(questions: int, passages: int, seed: int) -> tuple[Collection, Ranking]:
    """Questions with graded passages, and a ranking of all passages."""
    random = np.random.default_rng(seed)
    asked = tuple(Question(str(number), "?", {str(place): float(random.integers(1, 4)) for place in random.choice(
        passages, size=1 + number % 4, replace=False)}) for number in range(questions))
    scores = random.normal(size=(questions, passages))
    order = np.argsort(-scores, axis=1)
    known = tuple(Passage(str(place), "", "text") for place in range(passages))
    return Collection("drawn", known, asked), Ranking(np.take_along_axis(scores, order, 1), order)


def test_measures_are_those_of_scikit_learn() -> None:
    """nDCG@10 with graded relevance, average precision; recall and reciprocal rank by counting."""
    collection, ranking = drawn(12, 30, 5)
    for name in ("nDCG@10", "MAP", "MRR", "recall@5"):
        found = MEASURES[name](judge(ranking, collection))
        for row, question in enumerate(collection.questions):
            grades = np.array([question.relevance.get(str(place), 0.0) for place in range(30)])
            scores = np.empty(30)
            scores[ranking.places[row]] = ranking.scores[row]
            ranks = [rank for rank, place in enumerate(ranking.places[row], start=1) if grades[place] > 0]
            expected = {"nDCG@10": ndcg_score([grades], [scores], k=10), "MRR": 1 / ranks[0],
                        "MAP": average_precision_score(grades > 0, scores),
                        "recall@5": sum(rank <= 5 for rank in ranks) / len(ranks)}[name]
            assert found[row] == pytest.approx(expected)


def test_what_is_not_found_counts_as_lost() -> None:
    """A short ranking, and a question that nothing answers."""
    collection, ranking = drawn(3, 8, 1)
    nothing = Ranking(np.zeros((3, 1)), np.array([[next(place for place in range(8) if str(
        place) not in question.relevance)] for question in collection.questions]))
    assert [MEASURES[name](judge(nothing, collection)).tolist() for name in MEASURES] == [[0, 0, 0]] * len(MEASURES)
    lost = Collection("lost", collection.passages, (*collection.questions[:2], Question("x", "?")))
    with pytest.raises(InputError, match="question 'x' has no relevant passage"):
        judge(ranking, lost)
    assert len(lost.answerable.questions) == 2


def test_two_systems_are_compared_on_the_same_questions() -> None:
    """The paired test sees what the means alone do not."""
    collection, ranking = drawn(40, 30, 2)
    better = fuse_scores(ranking, perfect(collection), 0.5)
    first, second = (measure(one, collection, "MRR") for one in (better, ranking))
    found = compare_values(first, second, draws=500)
    assert found.value == pytest.approx(full_value(first) - full_value(second)) and found.low > 0 > -found.value
    assert found.units_p < 0.01


def perfect(collection: Collection) -> Ranking:
    """The relevant passages first."""
    scores = np.array([[question.relevance.get(passage.id, 0.0) for passage in collection.passages]
                       for question in collection.questions])
    order = np.argsort(-scores, axis=1, kind="stable")
    return Ranking(np.take_along_axis(scores, order, 1), order)


def test_a_weight_never_sees_the_questions_that_it_scores() -> None:
    """Changing the answers of a fold changes no weight of that fold, and groups are never divided."""
    collection, first = drawn(30, 20, 3)
    second, groups = perfect(collection), [number // 2 for number in range(30)]
    def worth(ranking: Ranking) -> np.ndarray:
        return MEASURES["MRR"](judge(ranking, collection))
    weights = fuse_by_folds(first, second, worth, groups, folds=3).weights
    assert tune_weight(first, second, worth) > 0.5 and min(weights) > 0.5
    fold = np.array([group % 3 for group in groups])
    turned = Ranking(second.scores, np.where((fold == 1)[:, None], second.places[:, ::-1], second.places))
    again = fuse_by_folds(first, turned, worth, groups, folds=3).weights
    assert again[1] == weights[1] and again != weights
    assert WEIGHTS[0] == 0 and WEIGHTS[-1] == 1
    with pytest.raises(InputError, match="15 groups of questions are fewer than 16 folds"):
        fuse_by_folds(first, second, worth, groups, folds=16)
