"""Activations are those that the reference library has under the published names."""

from __future__ import annotations

from typing import get_args

import pytest
import torch

from saucier import config as c
from saucier.checkpoints import fields
from saucier.parts.linear import ACTIVATIONS

reference = pytest.importorskip("transformers.activations", reason="the reference library is in the test group")


@pytest.mark.parametrize("published", fields.ACTIVATIONS)
def test_published_names_mean_the_same_function(published: str) -> None:
    x = torch.linspace(-12, 12, 401)
    torch.testing.assert_close(ACTIVATIONS[fields.ACTIVATIONS[published]](x), reference.ACT2FN[published](x), atol=1e-6,
                               rtol=1e-6)


def test_every_name_has_a_function_and_a_published_name() -> None:
    assert set(ACTIVATIONS) == set(get_args(c.Activation)) == set(fields.ACTIVATIONS.values())
