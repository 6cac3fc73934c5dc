"""The cost of growing lengths: what is fitted, what is measured, and what is refused."""

from __future__ import annotations

import pytest

import saucier
from saucier.errors import InputError
from saucier.lens.growth import GrowthPoint, fit_exponents, measure_growth, read_lengths


def test_the_exponent_of_a_power_is_found() -> None:
    """A cost of 3 L^1.5 grows as L^1.5; one point says nothing."""
    lengths = [512, 1024, 2048]
    points = [GrowthPoint(one, 3 * one**1.5, 1.0, 0) for one in lengths]
    assert fit_exponents(points) == {"seconds": pytest.approx(1.5), "attention_seconds": pytest.approx(0.0),
                                     "memory_bytes": None}
    assert set(fit_exponents(points[:1]).values()) == {None}


def test_lengths_beyond_the_table_of_positions_are_measured() -> None:
    """The nano BERT has 128 of them; attention is a part of the whole."""
    found = list(measure_growth(saucier.recipe("bert-nano").model, [256, 32]))
    assert [one.length for one in found] == [32, 256]
    assert all(0 < one.attention_seconds < one.seconds for one in found)
    assert set(fit_exponents(found)) == {"seconds", "attention_seconds", "memory_bytes"}


def test_no_time_left_stops() -> None:
    """The first length is always measured."""
    assert len(list(measure_growth(saucier.recipe("bert-nano").model, [16, 32, 64], limit=0.0))) == 1


def test_a_large_model_is_refused_before_it_is_built() -> None:
    """With what would help."""
    with pytest.raises(InputError, match=r"parameters are too many to measure here; make it smaller"):
        list(measure_growth(saucier.recipe("gpt3").model, [16]))
    with pytest.raises(InputError, match=r"too many to measure here; .* or give shorter --lengths"):
        list(measure_growth(saucier.recipe("longformer-nano").model, [10**11]))  # a row of the table for each


@pytest.mark.parametrize("text", ["", "a,b", "512;1024"])
def test_what_is_no_length_is_refused(text: str) -> None:
    """In one line."""
    with pytest.raises(InputError, match="are no lengths; write 512,1024,2048"):
        read_lengths(text)


def test_exponents_of_points() -> None:
    """Each cost has its own."""
    points = [GrowthPoint(length, length * 1e-3, length**2 * 1e-6, length * 1000) for length in (64, 128, 256)]
    found = fit_exponents(points)
    assert found == pytest.approx({"seconds": 1.0, "attention_seconds": 2.0, "memory_bytes": 1.0})
