"""What differences allow to say: verdicts on made-up runs whose truth is known."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from saucier.jobs.comparison.experiment import (
    Adaptation,
    Arm,
    Classification,
    Experiment,
    HeldOutLoss,
    Published,
    Tokens,
)
from saucier.jobs.comparison.judging import Measure, TrialScores, paired_values, read_scores
from saucier.jobs.comparison.outcome import ArmResult, Outcome, compare_arms, pair_row
from saucier.jobs.comparison.preparation import shared_tokenizer, why_incomparable
from saucier.objectives.config import ReplaceSpans
from saucier.recipes import recipe

LOSS = Measure(name="bits per byte", better="lower", unit="blocks")


def scores(values: np.ndarray, weights: np.ndarray | None = None) -> TrialScores:
    """Wrap the values of one run."""
    given = np.ones(len(values)) if weights is None else weights
    return TrialScores(judge=HeldOutLoss(), measure=LOSS, checkpoint="step-1", values=tuple(values.tolist()),
                       weights=tuple(given.tolist()))


def runs(mean: float, *, seeds: int = 3, spread: float = 0.002, units: int = 60) -> list[TrialScores]:
    """Make the runs of an arm: units differ much, and alike for all arms; seeds a little."""
    text = np.random.default_rng(0).normal(0, 0.5, units)
    return [scores(mean + text + np.random.default_rng([seed, int(mean * 1e6)]).normal(0, spread)
                   + np.random.default_rng([7, seed]).normal(0, 0.01, units)) for seed in range(seeds)]


def experiment(*names: str, published: tuple[float, ...] | None = None) -> Experiment:
    figures = published or (None,) * len(names)
    return Experiment(arms=tuple(Arm(name=name, recipe="gpt-nano", published=figure)
                                 for name, figure in zip(names, figures, strict=True)), budget=Tokens(amount=1),
                      published=Published(paper="a paper", measure="GLUE") if published else None)


def test_a_clear_difference_is_told_and_its_direction() -> None:
    """Lower bits are better; the paper says so too for the first pair, and the opposite for the last."""
    wanted = experiment("a", "b", "c", published=(80.0, 79.0, 81.0))
    found = compare_arms(wanted, {"a": runs(2.0), "b": runs(2.2), "c": runs(2.4)})
    assert [(pair.first, pair.second) for pair in found] == [("a", "b"), ("a", "c"), ("b", "c")]
    assert {pair.verdict for pair in found} == {"better"}
    assert [pair.published for pair in found] == ["agrees", "disagrees", "disagrees"]
    assert found[0].difference == pytest.approx(-0.2, abs=0.01)
    assert found[0].low < found[0].difference < found[0].high < 0


def test_equal_arms_are_not_told_apart() -> None:
    first, second = runs(2.0, spread=0.05), runs(2.001, spread=0.05)
    found = compare_arms(experiment("a", "b"), {"a": first, "b": second})[0]
    assert found.verdict == "not enough runs to tell"
    assert "the interval holds 0; about" in found.reason
    assert "seeds would tell" in found.reason


@pytest.mark.parametrize("seeds", [1, 2])
def test_two_seeds_never_tell(seeds: int) -> None:
    """However large the difference; that these models differ is said apart."""
    found = compare_arms(experiment("a", "b"), {"a": runs(2.0, seeds=seeds), "b": runs(3.0, seeds=seeds)})[0]
    assert found.verdict == "not enough runs to tell"
    assert found.reason.startswith("fewer than 3 seeds; these very models differ")
    assert found.units_p < 0.01


def test_units_that_are_not_the_same_are_not_paired() -> None:
    """Other tokenizers cut other blocks: then the whole text is one unit."""
    first, second = [scores(np.array([2.0, 4.0]))], [scores(np.array([3.0]), np.array([2.0]))]
    values, others, weights = paired_values(first, second)
    assert values.tolist() == [[3.0]]
    assert others.tolist() == [[1.5]]
    assert weights.tolist() == [1.0]


def test_scores_are_read_back_for_the_same_judge_only(tmp_path: Path) -> None:
    found = scores(np.array([1.0, 2.5]), np.array([1.0, 3.0]))
    found.write(tmp_path)
    assert read_scores(tmp_path, HeldOutLoss()) == found
    assert read_scores(tmp_path, Classification(train="a", dev="b")) is None
    assert found.whole == 3.5 / 4


def test_losses_of_different_objectives_have_no_common_yardstick() -> None:
    gpt, bert, t5 = (recipe(name) for name in ("gpt-nano", "bert-nano", "t5-nano"))
    assert why_incomparable([gpt, recipe("llama-nano")], HeldOutLoss(), True) is None
    assert "different objectives" in str(why_incomparable([gpt, bert], HeldOutLoss(), False))
    assert why_incomparable([gpt, bert, t5], Classification(train="a", dev="b"), False) is None
    assert why_incomparable([bert, bert], HeldOutLoss(), False) is None
    assert "different tokenizers" in str(why_incomparable([bert, bert], HeldOutLoss(), True))
    common = Adaptation(objective=ReplaceSpans(rate=0.15))
    assert why_incomparable([t5, recipe("t5-nano", ["objective.rate=0.5"])], common, False) is None


def test_one_tokenizer_has_the_special_tokens_of_all() -> None:
    """The first recipe's kind, size and frame; every token that any of them needs."""
    names = ("gpt-nano", "bert-nano", "t5-nano")
    merged = shared_tokenizer([recipe(name) for name in names])
    special = merged["special"]
    assert (merged["kind"], merged["vocab"], special["single"]) == ("byte_bpe", 2048, "$A")
    assert (special["eos"], special["mask"], special["cls"], special["sentinels"]) == (
        "<|endoftext|>", "[MASK]", "[CLS]", 32)
    for name in names:
        assert recipe(name, [f"tokenizer={json.dumps(merged)}"]).vocab == 2048


@pytest.mark.parametrize(("seeds", "shown"), [(2, False), (3, True)])
def test_p_and_effect_are_shown_where_there_are_seeds_for_them(seeds: int, shown: bool) -> None:
    plan = experiment("a", "b").model_copy(update={"seeds": seeds})
    pair = compare_arms(plan, {"a": runs(2.0, seeds=seeds), "b": runs(3.0, seeds=seeds)})[0]
    arm = ArmResult.model_construct(name="a", mean=2.0)
    found = Outcome.model_construct(experiment=plan, measure=Measure.model_construct(name="loss"), arms=(arm,),
                                    pairs=(pair,), notes=())
    assert all(bool(str(cell)) == shown for cell in pair_row(found, pair)[3:5])
