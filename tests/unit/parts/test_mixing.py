"""Mixing without attention, against its definition as plain loops."""

from __future__ import annotations

import cmath

import pytest
import torch

from saucier import config as c
from saucier.errors import InputError
from saucier.model import build
from saucier.parts.context import Context
from saucier.parts.masks import Span
from saucier.parts.mixing import FourierMixing

LENGTH, DIM = 5, 6


def context(documents: torch.Tensor | None = None) -> Context:
    span = Span(LENGTH, LENGTH, 0, torch.device("cpu"), None, documents, documents)
    return Context(span, torch.arange(LENGTH)[None])


def test_the_transform_is_the_real_part_of_both_sums() -> None:
    """Lee-Thorp et al. 2022, eq 1-3: y = Re(F_length(F_width(x)))."""
    x = torch.randn(2, LENGTH, DIM, generator=torch.Generator().manual_seed(0))
    found = FourierMixing(c.FourierMixing(), DIM)(x, context())
    for b in range(2):
        for n in range(LENGTH):
            for k in range(DIM):
                total = sum(complex(x[b, i, j]) * cmath.exp(-2j * cmath.pi * (n * i / LENGTH + k * j / DIM))
                            for i in range(LENGTH) for j in range(DIM))
                assert found[b, n, k].item() == pytest.approx(total.real, abs=1e-4)


def test_packed_documents_are_refused() -> None:
    with pytest.raises(InputError, match="documents cannot be kept apart"):
        FourierMixing(c.FourierMixing(), DIM)(torch.zeros(1, LENGTH, DIM), context(torch.zeros(1, LENGTH).long()))


def test_a_decoder_cannot_mix_the_future() -> None:
    stack = c.Stack(layers=c.Repeat(block=c.Block(sublayers=(c.PostNorm(inner=c.FourierMixing()),)), times=1))
    with pytest.raises(InputError, match="sees the future"):
        build(c.Transformer(dim=DIM, embed=c.Embedding(vocab=5), decoder=stack), device="meta")
