"""Scaling laws: a law that made the losses is found again, predicts what it was not shown, and says how sure it is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from saucier.errors import InputError
from saucier.jobs.comparison.report import write_scaling_page
from saucier.jobs.comparison.scaling import (
    ByData,
    BySize,
    BySizeAndData,
    ByWork,
    Law,
    Point,
    fit_law,
    format_law,
    scaling_table,
)

pytest.importorskip("scipy")


def run(parameters: int, tokens: int, loss: float) -> Point:
    six = 6.0 * parameters * tokens
    return Point(name=f"{parameters}-{tokens}", parameters=parameters, tokens=tokens, flops=six, six=six, loss=loss)


def law_of_both(parameters: float, tokens: float) -> float:
    """Return the loss of a made-up world."""
    return 1.7 + 400 / parameters**0.35 + 900 / tokens**0.4


def grid(noise: float = 0.0, seed: int = 0) -> list[Point]:
    random = np.random.default_rng(seed)
    return [run(size, tokens, law_of_both(size, tokens) * float(np.exp(random.normal(0, noise))))
            for size in (10_000, 40_000, 160_000, 640_000) for tokens in (200_000, 800_000, 3_200_000)]


@pytest.mark.slow
def test_a_law_of_size_and_data_is_found_again() -> None:
    """Exactly, from losses without noise; and it predicts a run sixteen times as large as any."""
    large = run(10_000_000, 50_000_000, law_of_both(1e7, 5e7))
    found = fit_law(BySizeAndData(), grid(), [large], draws=10)
    assert found.irreducible == pytest.approx(1.7, rel=0.01)
    assert [term.exponent for term in found.terms] == pytest.approx([0.35, 0.4], rel=0.01)
    assert [term.factor for term in found.terms] == pytest.approx([400, 900], rel=0.1)
    assert found.predictions[0].predicted == pytest.approx(large.loss, rel=0.002)
    assert found.error < 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("law", [BySize(), ByData(), ByWork()], ids=lambda law: law.kind)
def test_a_law_of_one_quantity_is_found_again(law: Law) -> None:
    name = law.quantities[0]
    runs = [run(size, 100 * size, 0.0) for size in (10_000, 30_000, 90_000, 270_000, 810_000)]
    made = [one.model_copy(update={"loss": 2.0 + 50 / float(getattr(one, name)) ** 0.25}) for one in runs]
    found = fit_law(law, made[:-1], made[-1:], draws=10)
    assert found.terms[0].exponent == pytest.approx(0.25, rel=0.02)
    assert found.predictions[0].predicted == pytest.approx(made[-1].loss, rel=0.001)


@pytest.mark.slow
def test_the_intervals_hold_the_truth_nearly_always() -> None:
    """Runs with half a per cent of noise: the larger run's true loss lies in the interval nearly always."""
    truth, inside = law_of_both(2.5e6, 1e7), 0
    for seed in range(6):
        found = fit_law(BySizeAndData(), grid(0.005, seed), [run(2_500_000, 10_000_000, truth)], draws=30)
        inside += found.predictions[0].low <= truth <= found.predictions[0].high
    assert inside >= 5


@pytest.mark.slow
def test_one_bad_run_does_not_bend_the_law() -> None:
    """A run that lost 30 % more than it should moves the prediction by less than 2 %."""
    runs = grid()
    bad = [*runs[:4], runs[4].model_copy(update={"loss": runs[4].loss * 1.3}), *runs[5:]]
    large = run(2_500_000, 10_000_000, law_of_both(2.5e6, 1e7))
    assert fit_law(BySizeAndData(), bad, [large], draws=5).predictions[0].predicted == pytest.approx(large.loss,
                                                                                                     rel=0.02)


@pytest.mark.slow
def test_a_fit_is_shown_as_a_formula_and_drawn(tmp_path: Path) -> None:
    """Every number of the table is a number of the fit; the page needs nothing else."""
    pytest.importorskip("matplotlib")
    found = fit_law(BySizeAndData(), grid(), [run(2_500_000, 10_000_000, 3.0)], draws=5)
    text = format_law(found)
    assert text.startswith("L(N, D) = 1.70")
    assert "/ N^0.350 + " in text
    *fitted, predicted = scaling_table(found).rows
    assert len(fitted) == 12
    assert predicted[0].endswith("(left out)")
    assert predicted[6] == "3.0000"
    assert predicted[7].startswith(f"{law_of_both(2.5e6, 1e7):.3f}")
    assert {line[5] for line in fitted} == {"1.00"}  # these runs' FLOPs are the rule of thumb
    page = write_scaling_page(found, tmp_path).read_text()
    assert page.count("<svg") == 1
    assert text in page


def test_too_few_runs_are_refused() -> None:
    with pytest.raises(InputError, match="5 runs to fit, and a law of parameters and tokens has 5 coefficients"):
        fit_law(BySizeAndData(), grid()[:5])
    with pytest.raises(InputError, match="the runs have 2 different numbers of parameters"):
        fit_law(BySizeAndData(), grid()[:6])
