"""What holds of every config."""

from __future__ import annotations

import pytest
from pydantic import Field, ValidationError

from saucier.config.base import LARGEST_NUMBER, Config


class Some(Config):
    number: int = Field(default=1, gt=-(10**500))
    several: tuple[int, ...] = ()
    other: float | int | str = 0


@pytest.mark.parametrize("value", [LARGEST_NUMBER + 1, -LARGEST_NUMBER - 1, 10**400])
def test_whole_numbers_have_64_bits(value: int) -> None:
    """Beyond them neither tensors nor floats take a number: it would be an `OverflowError` somewhere later."""
    for given in ({"number": value}, {"several": (1, value)}):
        with pytest.raises(ValidationError, match="should be a whole number of at most 64 bits"):
            Some.model_validate(given)
    assert Some(number=LARGEST_NUMBER, several=(-LARGEST_NUMBER, LARGEST_NUMBER), other="x").number == LARGEST_NUMBER
