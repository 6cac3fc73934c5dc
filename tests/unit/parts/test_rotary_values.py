"""RoFormer's option to rotate the values too, against the definition with complex numbers."""

from __future__ import annotations

import pytest
import torch

from saucier import config as c
from saucier.errors import InputError
from saucier.parts.attention import SelfAttention
from saucier.parts.context import Context
from saucier.parts.masks import Span

DIM, LENGTH = 8, 5


def turned(x: torch.Tensor, position: int) -> torch.Tensor:
    """Neighbours as one complex number, times e^(i m theta): Su et al. 2021, §3.4.2, eq 34."""
    theta = 10000.0 ** (-torch.arange(0, len(x), 2, dtype=torch.float64) / len(x))
    by = torch.polar(torch.ones_like(theta), position * theta)
    return torch.view_as_real(torch.view_as_complex(x.view(-1, 2)) * by).flatten()


@pytest.mark.parametrize("values", [False, True])
def test_values_turn_where_the_config_says_so(values: bool) -> None:
    positions = c.Rotary(pairs=c.Pairs(kind="neighbours"), values=values)
    torch.manual_seed(0)
    module = SelfAttention(c.SelfAttention(projection=c.Projection(heads=1), positions=positions), DIM).double().eval()
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    x = torch.randn(1, LENGTH, DIM, dtype=torch.float64)
    context = Context(Span(LENGTH, LENGTH, 0, torch.device("cpu")), torch.arange(LENGTH)[None])
    query, key, value = module.qkv(x)[0].split(DIM, dim=-1)
    expected = torch.zeros(LENGTH, DIM, dtype=torch.float64)
    for i in range(LENGTH):
        scores = torch.stack([turned(query[i], i) @ turned(key[j], j) / DIM**0.5 for j in range(LENGTH)])
        for j, weight in enumerate(scores.softmax(0)):
            expected[i] += weight * (turned(value[j], j) if values else value[j])
    torch.testing.assert_close(module(x, context)[0], module.out(expected), atol=1e-6, rtol=0)


def test_the_table_of_angles_ends() -> None:
    positions = c.Rotary(length=LENGTH - 1)
    module = SelfAttention(c.SelfAttention(projection=c.Projection(heads=1), positions=positions), DIM)
    context = Context(Span(LENGTH, LENGTH, 0, torch.device("cpu")), torch.arange(LENGTH)[None])
    with pytest.raises(InputError, match="beyond the 4 positions"):
        module(torch.zeros(1, LENGTH, DIM), context)
