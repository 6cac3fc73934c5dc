"""Vectors of tokens: what is added to them, with gradients and without."""

from __future__ import annotations

import pytest
import torch

import saucier
from saucier.families import FAMILIES


@pytest.mark.parametrize("name", ["bert", "xlm", "gpt"])
def test_without_gradients_the_sum_is_the_same_and_what_was_given_stays(name: str) -> None:
    model = saucier.build(FAMILIES[name](dim=16, layers=1, heads=2, vocab=50)).eval()
    ids = torch.arange(12).view(2, 6) + 5
    vectors = model.embed.tokens(ids).detach()
    kept = vectors.clone()
    learned = [model(ids).last_hidden_state, model(inputs_embeds=vectors).last_hidden_state]
    with torch.no_grad():
        found = [model(ids).last_hidden_state, model(inputs_embeds=vectors).last_hidden_state]
    assert all(torch.equal(one, other) for one, other in zip(found, learned, strict=True))
    assert torch.equal(vectors, kept)
