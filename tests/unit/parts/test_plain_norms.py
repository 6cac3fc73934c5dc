"""Norms without statistics."""

from __future__ import annotations

import torch

from saucier import config as c
from saucier.config.counting import norm_size
from saucier.model import build
from saucier.parts.norms import build_norm


def test_no_norm_is_a_gain_and_a_bias() -> None:
    """Sun et al. 2020, §3.3: NoNorm(h) = gamma * h + beta, value by value."""
    norm = build_norm(c.Unnormed(kind="no_norm"), 4).double()
    torch.nn.init.normal_(norm.weight)
    torch.nn.init.normal_(norm.bias)
    x = torch.randn(3, 4, dtype=torch.float64)
    for row in range(3):
        for i in range(4):
            assert norm(x)[row, i].item() == (norm.weight[i] * x[row, i] + norm.bias[i]).item()
    assert sum(parameter.numel() for parameter in norm.parameters()) == 4 * norm_size(c.Unnormed(kind="no_norm"))


def test_the_identity_norm_holds_and_changes_nothing() -> None:
    x = torch.randn(3, 4)
    norm = build_norm(c.Unnormed(kind="identity"), 4)
    assert torch.equal(norm(x), x)
    assert not list(norm.parameters()) and norm_size(c.Unnormed(kind="identity")) == 0


def test_gains_start_at_one() -> None:
    embed = c.Embedding(vocab=5, norm=c.Unnormed(kind="no_norm"))
    block = c.Block(sublayers=(c.PreNorm(inner=c.FeedForward(hidden=4), norm=c.Unnormed(kind="identity")),))
    model = build(c.Transformer(dim=4, embed=embed, encoder=c.Stack(layers=c.Repeat(block=block, times=1))))
    assert model.embed.norm is not None
    assert (model.embed.norm.weight == 1).all() and not model.embed.norm.bias.any()
