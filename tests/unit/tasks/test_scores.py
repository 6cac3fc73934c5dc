"""Scores against the golden values of seqeval, scikit-learn, scipy and SQuAD's own scorer, and against themselves."""

from __future__ import annotations

import json
import math
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saucier.errors import InputError
from saucier.plain import json_value
from saucier.tasks.metrics import bleu, chrf, rouge
from saucier.tasks.metrics.labels import (
    MEAN_ABSOLUTE_ERROR,
    class_outcomes,
    entity_statistics,
    entity_types,
    f1_metric,
    macro,
    micro,
    standardize,
)
from saucier.tasks.metrics.metric import (
    Metric,
    Ranks,
    bootstrap,
    compare_values,
    exchange_test,
    full_value,
    influence,
    interval,
    row_ranks,
)
from saucier.tasks.scores import KINDS, metrics_for, per_class, score, score_difference, scored
from saucier.tasks.tag_schemes import read_bioes, read_iob2, read_lenient


def load(shared: Path, name: str) -> dict[str, Any]:
    value: dict[str, Any] = json.loads((shared / f"golden/metrics-{name}/golden.json").read_text(encoding="utf-8"))
    return value


@pytest.fixture(scope="module")
def labelling(shared: Path) -> dict[str, Any]:
    """The stored values of seqeval 1.2.2, scikit-learn 1.9 and scipy 1.17."""
    return load(shared, "labelling")


@pytest.fixture(scope="module")
def generation(shared: Path) -> dict[str, Any]:
    """The stored values of sacrebleu, rouge-score and SQuAD's scorer."""
    return load(shared, "generation")


def values(kind: str, golds: Any, predictions: Any) -> dict[str, float]:
    return {one.name: one.value for one in scored(metrics_for(kind, golds, predictions), golds, predictions, 0)}


def macro_f1_of(labels: list[Any]) -> Metric:
    return f1_metric("macro F1", class_outcomes, labels, macro)


def value(metric: Metric, golds: Any, predictions: Any) -> float:
    return full_value(metric.measure(golds, predictions))


@pytest.mark.parametrize("number", range(4))
def test_classes_are_golden(labelling: dict[str, Any], number: int) -> None:
    case = labelling["classification"][number]
    golds, predictions = case["y_true"], case["y_pred"]
    found = values("classes", golds, predictions)
    labels = sorted({*golds, *predictions})
    assert found["accuracy"] == pytest.approx(case["accuracy"], abs=1e-12)
    assert found["macro F1"] == pytest.approx(case["macro"][2], abs=1e-12)
    if "binary" in case:
        positive = f1_metric("F1 of 1", class_outcomes, [1], micro("F1"))
        assert value(positive, golds, predictions) == pytest.approx(case["binary"][2], abs=1e-12)
    if len(labels) == 2:
        assert found["Matthews"] == pytest.approx(case["matthews"], abs=1e-12)
    rows = per_class("classes", golds, predictions)
    for side, place in (("precision", 0), ("recall", 1)):
        assert np.mean([getattr(row, side) for row in rows]) == pytest.approx(case["macro"][place], abs=1e-12)
    weights = [row.count for row in rows]
    assert np.average([row.f1 for row in rows], weights=weights) == pytest.approx(case["weighted"][2], abs=1e-12)


@pytest.mark.parametrize("number", range(4))
def test_matthews_of_any_number_of_classes_is_golden(labelling: dict[str, Any], number: int) -> None:
    from saucier.tasks.metrics.labels import matthews

    case = labelling["classification"][number]
    golds, predictions = case["y_true"], case["y_pred"]
    found = value(matthews(sorted({*golds, *predictions})), golds, predictions)
    assert found == pytest.approx(case["matthews"], abs=1e-12)


@pytest.mark.parametrize("number", range(3))
def test_numbers_are_golden(labelling: dict[str, Any], number: int) -> None:
    case = labelling["regression"][number]
    golds, predictions = case["y_true"], case["y_pred"]
    found = values("numbers", golds, predictions)
    assert found["Pearson"] == pytest.approx(case["pearson"], abs=1e-9)
    assert found["Spearman"] == pytest.approx(case["spearman"], abs=1e-12)
    assert found["RMSE"] ** 2 == pytest.approx(case["mse"], abs=1e-12)
    assert value(MEAN_ABSOLUTE_ERROR, golds, predictions) == pytest.approx(case["mae"], abs=1e-12)


@pytest.mark.parametrize("number", range(4))
def test_entities_are_golden(labelling: dict[str, Any], number: int) -> None:
    case = labelling["sequence_labelling"][number]
    golds, predictions = case["y_true"], case["y_pred"]
    found = values("tags", golds, predictions)
    types, read_strictly = entity_types(golds, predictions), partial(entity_statistics, read=read_iob2)
    assert found["tag accuracy"] == pytest.approx(case["default"]["accuracy"], abs=1e-12)
    assert found["entity macro F1"] == pytest.approx(case["default"]["macro"][2], abs=1e-12)
    for place, side in enumerate(("precision", "recall", "F1")):
        assert found[f"entity {side}"] == pytest.approx(case["default"]["micro"][place], abs=1e-12)
        strict = value(f1_metric("strict", read_strictly, types, micro(side)), golds, predictions)
        assert strict == pytest.approx(case["strict_iob2"]["micro"][place], abs=1e-12)
    strict = value(f1_metric("strict", read_strictly, types, macro), golds, predictions)
    assert strict == pytest.approx(case["strict_iob2"]["macro"][2])
    for row in per_class("tags", golds, predictions):
        want = case["default"]["per_type"][row.name]
        assert (row.precision, row.recall, row.f1, row.count) == pytest.approx(
            (want["precision"], want["recall"], want["f1-score"], want["support"]), abs=1e-12)
    for tags, want in zip([*golds[:10], *predictions[:10]], [*case["entities_true"], *case["entities_pred"]],
                          strict=False):
        assert [list(entity) for entity in read_lenient(tags)] == want


tag_rows = st.lists(st.sampled_from(["O", *(f"{prefix}-{kind}" for prefix in "BIES" for kind in "XY")]), max_size=12)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(tags=tag_rows)
def test_entities_are_seqevals(tags: list[str]) -> None:
    labelling = pytest.importorskip("seqeval.metrics.sequence_labeling")
    scheme = pytest.importorskip("seqeval.scheme")
    assert [tuple(one) for one in read_lenient(tags)] == labelling.get_entities(tags)
    for read, kind in ((read_bioes, scheme.IOBES), (read_iob2, scheme.IOB2)):
        own = [tag for tag in tags if read is read_bioes or tag[0] in "OBI"]
        strict = scheme.Entities([own], kind).entities[0]
        assert [tuple(one) for one in read(own)] == [(one.tag, one.start, one.end - 1) for one in strict]


def test_iob1_is_read_and_another_scheme_is_refused() -> None:
    assert read_lenient(["I-PER", "I-PER", "B-PER", "O", "I-LOC"]) == [("PER", 0, 1), ("PER", 2, 2), ("LOC", 4, 4)]
    with pytest.raises(InputError, match="'E-PER' is no tag of this scheme, which has B, I and O"):
        read_iob2(["B-PER", "E-PER"])


def test_squad_is_golden(generation: dict[str, Any]) -> None:
    rows = generation["squad"]["rows"]
    golds, predictions = [row["answers"] for row in rows], [row["prediction"] for row in rows]
    for row in rows:
        found = values("spans", [row["answers"]], [row["prediction"]])
        assert (found["exact match"], found["F1"]) == pytest.approx((row["exact_match"], row["f1"]), abs=1e-12)
    found = values("spans", golds, predictions)
    assert 100 * found["exact match"] == pytest.approx(generation["squad"]["exact_match"], abs=1e-9)
    assert 100 * found["F1"] == pytest.approx(generation["squad"]["f1"], abs=1e-9)


def test_questions_without_an_answer_are_scored_by_themselves() -> None:
    golds: list[list[str]] = [["a cat"], [], [], ["the dog", "a hound"]]
    found = {one.name: one for one in scored(metrics_for("spans", golds), golds, ["cat", "", "it", "black dog"])}
    assert found["exact match (unanswerable)"].value == 0.5 and found["exact match (unanswerable)"].count == 2
    assert found["exact match (answerable)"].value == 0.5
    assert found["F1 (answerable)"].value == pytest.approx((1 + 2 / 3) / 2)
    assert found["F1"].value == pytest.approx((1 + 1 + 0 + 2 / 3) / 4)


def test_texts_are_the_corpus_scores(generation: dict[str, Any]) -> None:
    golds = [*zip(generation["references"], generation["references_2"], strict=True)]
    predictions = generation["hypotheses"]
    found = values("texts", golds, predictions)
    assert found["BLEU"] == pytest.approx(bleu(predictions, golds).score, abs=1e-9)
    assert found["chrF"] == pytest.approx(chrf(predictions, golds).score, abs=1e-9)
    for name, kind in (("ROUGE-1", "rouge1"), ("ROUGE-2", "rouge2"), ("ROUGE-L", "rougeL")):
        assert found[name] == pytest.approx(rouge(predictions, golds)[kind].f1, abs=1e-12)
    [single] = [case for case in generation["corpus_bleu"] if case["references"] == "single" and not case["kwargs"]]
    assert values("texts", generation["references"], predictions)["BLEU"] == pytest.approx(single["score"], abs=1e-9)


def test_a_draw_of_bleu_is_the_bleu_of_the_drawn_texts(generation: dict[str, Any]) -> None:
    golds, predictions = generation["references"], generation["hypotheses"]
    rows = np.random.default_rng(0).integers(len(golds), size=len(golds))
    measured = metrics_for("texts", golds)[0].measure(golds, predictions)
    drawn = measured.resampled(np.bincount(rows, minlength=len(golds))[None].astype(float))
    assert drawn[0] == pytest.approx(bleu([predictions[row] for row in rows], [golds[row] for row in rows]).score)


@settings(max_examples=60, deadline=None)
@given(rows=st.lists(st.tuples(st.lists(st.integers(0, 1), min_size=1, max_size=8), st.integers(0, 99)), min_size=1))
def test_rankings_are_their_definition(rows: list[tuple[list[int], int]]) -> None:
    golds = [gold for gold, _ in rows]
    predictions = [list(np.random.default_rng(seed).permutation(len(gold)).astype(float)) for gold, seed in rows]
    precisions, firsts = [], []
    for gold, scores in zip(golds, predictions, strict=True):
        ranked = [gold[place] for place in sorted(range(len(gold)), key=lambda place: -scores[place])]
        hits = [sum(ranked[:rank]) / rank for rank in range(1, len(ranked) + 1) if ranked[rank - 1]]
        if hits:
            precisions.append(sum(hits) / len(hits))
            firsts.append(1 / (ranked.index(1) + 1))
    found = values("rankings", golds, predictions)
    if not firsts:
        assert math.isnan(found["MAP"]) and math.isnan(found["MRR"])
        return
    assert (found["MAP"], found["MRR"]) == pytest.approx((np.mean(precisions), np.mean(firsts)))


def test_equal_scores_gain_nothing() -> None:
    assert values("rankings", [[1, 0, 0, 0]], [[5.0] * 4])["MRR"] == 0.25


def test_many_labels_are_sklearns() -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    random = np.random.default_rng(0)
    gold, guess = (random.integers(2, size=(40, 5)) for _ in range(2))
    gold[:, 4] = guess[:, 4] = 0
    sets = [[[str(place) for place in np.flatnonzero(row)] for row in side] for side in (gold, guess)]
    found = values("many_labels", *sets)
    assert found["micro F1"] == pytest.approx(metrics.f1_score(gold, guess, average="micro"))
    assert found["macro F1"] == pytest.approx(metrics.f1_score(gold[:, :4], guess[:, :4], average="macro"))
    assert found["exact match"] == pytest.approx(metrics.accuracy_score(gold, guess))


def test_perplexity_is_of_all_targets_together() -> None:
    assert values("losses", [10, 30], [10 * math.log(3), 30 * math.log(5)])["perplexity"] == pytest.approx(
        math.exp((10 * math.log(3) + 30 * math.log(5)) / 40))


@pytest.mark.slow
def test_intervals_hold_the_truth_nineteen_times_in_twenty() -> None:
    """Of accuracy 0.9 on 100 rows, F1 and correlations, each known by construction."""
    random, rounds = np.random.default_rng(0), 300
    inside = dict.fromkeys(("accuracy", "F1 of 1", "Pearson", "Spearman"), 0)
    truth = {"accuracy": 0.9, "F1 of 1": 0.9, "Pearson": 0.6, "Spearman": 6 / math.pi * math.asin(0.3)}
    for number in range(rounds):
        golds = random.integers(2, size=120)
        guesses = np.where(random.random(120) < 0.9, golds, 1 - golds)
        x = random.standard_normal(120)
        y = 0.6 * x + 0.8 * random.standard_normal(120)
        for kind, sides in (("classes", (golds, guesses)), ("numbers", (x, y))):
            for metric in metrics_for(kind, *(side.tolist() for side in sides)):
                if metric.name in truth:
                    low, high = interval(metric.measure(*(side.tolist() for side in sides)), seed=number, draws=300)
                    inside[metric.name] += low <= truth[metric.name] <= high
    assert all(0.9 <= count / rounds <= 0.98 for count in inside.values()), inside


def test_all_right_is_not_sure() -> None:
    """Twenty of twenty: Wilson's interval begins at 20 / (20 + 1.96²)."""
    found = score(metrics_for("choices", [1])[0], [1] * 20, [1] * 20)
    assert (found.value, found.high) == (1.0, pytest.approx(1.0))
    assert found.low == pytest.approx(20 / (20 + 1.959964 ** 2))


def test_ranks_are_made_anew_in_every_draw() -> None:
    stats = pytest.importorskip("scipy.stats")
    random = np.random.default_rng(3)
    golds, predictions = random.integers(6, size=30).astype(float), random.normal(size=30)
    counts = random.multinomial(30, np.full(30, 1 / 30), size=20).astype(float)
    for count, drawn in zip(counts, Ranks(golds, predictions).resampled(counts), strict=True):
        rows = np.repeat(np.arange(30), count.astype(int))
        assert drawn == pytest.approx(stats.spearmanr(golds[rows], predictions[rows]).statistic)


def test_a_class_of_few_rows_may_be_missing_from_a_draw() -> None:
    """Its F1 is then no part of the mean, as scikit-learn has it."""
    metrics = pytest.importorskip("sklearn.metrics")
    golds, predictions = ["a", "b", "b", "c"], ["a", "b", "a", "b"]
    counts = np.array([[0.0, 2, 1, 0]])
    rows = [1, 1, 2]
    want = metrics.f1_score([golds[row] for row in rows], [predictions[row] for row in rows], average="macro",
                            zero_division=0)
    assert macro_f1_of(["a", "b", "c"]).measure(golds, predictions).resampled(counts)[0] == pytest.approx(want)


def test_what_is_not_defined_is_said() -> None:
    found = score(metrics_for("numbers", [1.0])[0], [1.0, 2.0, 3.0], [2.0, 2.0, 2.0])
    assert math.isnan(found.value) and json_value(found)["value"] is None and json_value(found)["count"] == 3


@pytest.mark.parametrize("kind", ["classes", "numbers"])
def test_two_methods_are_compared_row_by_row(kind: str) -> None:
    """A better one is found, a twin is not; exchanged answers are what exchanging them by hand gives."""
    random = np.random.default_rng(5)
    golds = random.integers(2, size=200)
    good, bad = (np.where(random.random(200) < right, golds, 1 - golds) for right in (0.9, 0.6))
    for metric in metrics_for(kind, golds.tolist(), good.tolist(), bad.tolist()):
        sign = 1 if metric.better == "higher" else -1
        found = score_difference(metric, golds.tolist(), (good.tolist(), bad.tolist()), draws=1000)
        assert sign * found.value > 0 and min(sign * found.low, sign * found.high) > 0, metric.name
        assert found.units_p < 0.01 and found.p < 0.01
        same = score_difference(metric, golds.tolist(), (good.tolist(), good.tolist()), draws=100)
        assert (same.value, same.p, same.units_p) == (0.0, 1.0, 1.0)
        swaps = random.integers(2, size=(4, 200)).astype(float)
        first, second = (metric.measure(golds.tolist(), side.tolist()) for side in (good, bad))
        scale = {"Pearson": standardize, "Spearman": lambda side: row_ranks(side[None].astype(float))[0]}
        one, two = (scale.get(metric.name, np.asarray)(side) for side in (good, bad))
        by_hand = [value(metric, golds.tolist(), np.where(swap, two, one).tolist())
                   - value(metric, golds.tolist(), np.where(swap, one, two).tolist()) for swap in swaps]
        assert first.exchanged(second, swaps) - second.exchanged(first, swaps) == pytest.approx(by_hand, abs=1e-9)
        alone = [value(metric, golds.tolist(), good.tolist())
                 - value(metric, golds.tolist(), np.where(np.arange(200) == row, two, one).tolist())
                 for row in range(9)]
        assert influence(first, second)[:9] == pytest.approx(alone, abs=1e-9)


def test_equal_methods_are_told_apart_one_time_in_twenty() -> None:
    random, wrong = np.random.default_rng(6), 0
    for number in range(200):
        golds = random.integers(3, size=60).tolist()
        sides = [[gold if random.random() < 0.7 else 3 for gold in golds] for _ in range(2)]
        first, second = (macro_f1_of([0, 1, 2, 3]).measure(golds, side) for side in sides)
        wrong += exchange_test(first, second, seed=number, draws=200) <= 0.05
    assert wrong <= 20


def test_the_same_seed_gives_the_same_interval() -> None:
    golds, predictions = [0, 1] * 20, [0, 1, 1, 1] * 10
    for kind in ("classes", "numbers"):
        metrics = metrics_for(kind, golds, predictions)
        assert scored(metrics, golds, predictions, 3) == scored(metrics, golds, predictions, 3)
        first = metrics[-1].measure(golds, predictions)
        assert not np.array_equal(bootstrap(first, seed=0, draws=50), bootstrap(first, seed=1, draws=50))
        assert compare_values(first, first, draws=50).value == 0


def test_wrong_input_is_one_line() -> None:
    with pytest.raises(InputError, match="1 predictions for 2 golds"):
        scored(metrics_for("classes", ["a", "b"]), ["a", "b"], ["a"])
    with pytest.raises(InputError, match="no kind of task 'class'; did you mean 'classes'"):
        metrics_for("class", ["a"])
    assert "classes" in KINDS
