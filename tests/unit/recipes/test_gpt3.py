"""GPT-3's plan holds the published figures within one percent."""

from __future__ import annotations

import pytest

from saucier.config import parameters
from saucier.cost.memory import estimate_memory
from saucier.recipes import recipe


def test_the_plan_of_gpt3_has_the_published_figures() -> None:
    """Parameters 175 B, 300 B tokens and 3.14e23 FLOPs (Brown et al. 2020, tables 2.1 and D.1); 350 GB of weights in
    16 bits (Hu et al. 2021, §4.2). Table D.1 counts 6 FLOPs a parameter and token, and no attention scores."""
    gpt3 = recipe("gpt3")
    count = parameters(gpt3.model)
    tokens = gpt3.training.steps * gpt3.training.batch * gpt3.training.length
    assert count == pytest.approx(175e9, rel=0.01)
    assert tokens == pytest.approx(300e9, rel=0.01)
    assert 6 * count * tokens == pytest.approx(3.14e23, rel=0.01)
    weights = estimate_memory(gpt3.model, batch=1, length=1, training=False, value_bytes=2).weights
    assert weights == pytest.approx(350e9, rel=0.01)
