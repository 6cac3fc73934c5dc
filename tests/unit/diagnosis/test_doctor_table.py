"""A diagnosis on the screen."""

from __future__ import annotations

import pytest

from saucier.diagnosis.doctor import format_difference


@pytest.mark.parametrize(("value", "said"), [(None, ""), (0.0, "0"), (1.0, "1.0e+00"), (2.04e-6, "2.0e-6")])
def test_differences_are_short(value: float | None, said: str) -> None:
    assert format_difference(value) == said
