"""How residuals wrap sublayers, against their formulas."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from saucier import config as c
from saucier.checkpoints.weight_names import HeadByHead
from saucier.errors import InputError
from saucier.model import Transformer, build

NORM = c.LayerNorm()
ATTENTION = c.SelfAttention(projection=c.Projection(heads=2), visibility=c.Causal())


def layer(*sublayers: c.Residual) -> Transformer:
    """A model of one block."""
    stack = c.Stack(layers=c.Repeat(block=c.Block(sublayers=sublayers), times=1))
    model = build(c.Transformer(dim=8, embed=c.Embedding(vocab=11), decoder=stack), seed=1).eval()
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return model


def both(model: Transformer) -> tuple[Tensor, Tensor]:
    """What the block reads, and what it gives."""
    with torch.no_grad():
        states = model(torch.tensor([[1, 4, 7, 2]]), output_hidden_states=True).hidden_states
    return states[0], states[1]


def apply(sublayer: torch.nn.Module, x: Tensor) -> Tensor:
    """Attention of the first token alone, which sees itself, or the feed-forward."""
    if hasattr(sublayer, "qkv"):
        return sublayer.out(sublayer.qkv(x)[..., 16:])
    return sublayer.down(torch.nn.functional.gelu(sublayer.up(x)))


@pytest.mark.parametrize("own", [True, False])
def test_parallel_sublayers_read_the_same_input(own: bool) -> None:
    """Wang and Komatsuzaki 2021: x + attention(n(x)) + feed_forward(n(x)); Black et al. 2022, §2.1: two norms."""
    beside = c.Parallel(inner=c.FeedForward(hidden=12), norm=NORM if own else None)
    model = layer(c.PreNorm(inner=ATTENTION, norm=NORM), beside)
    x, got = both(model)
    first, second = model.decoder.blocks[0]["attention"], model.decoder.blocks[0]["feed_forward"]
    with torch.no_grad():
        wanted = x + apply(first.inner, first.norm(x)) + apply(second.inner, (second.norm or first.norm)(x))
    torch.testing.assert_close(got[:, 0], wanted[:, 0])


def test_a_residual_that_begins_behind_the_norm() -> None:
    model = layer(c.FromNorm(inner=c.FeedForward(hidden=12), norm=NORM))
    x, got = both(model)
    only = model.decoder.blocks[0]["feed_forward"]
    with torch.no_grad():
        normed = only.norm(x)
        torch.testing.assert_close(got, normed + apply(only.inner, normed))


def test_a_plain_norm_centres_and_scales() -> None:
    model = layer(c.PreNorm(inner=c.FeedForward(hidden=12), norm=c.PlainLayerNorm(eps=0.1)))
    x, got = both(model)
    only = model.decoder.blocks[0]["feed_forward"]
    assert not list(only.norm.parameters())
    with torch.no_grad():
        normed = (x - x.mean(-1, keepdim=True)) / (x.var(-1, correction=0, keepdim=True) + 0.1).sqrt()
        torch.testing.assert_close(got, x + apply(only.inner, normed))


@pytest.mark.parametrize("sublayers", [
    (c.Parallel(inner=ATTENTION),),
    (c.PostNorm(inner=ATTENTION), c.Parallel(inner=c.FeedForward(hidden=12))),
])
def test_a_parallel_sublayer_needs_a_pre_norm_one(sublayers: tuple[c.Residual, ...]) -> None:
    with pytest.raises(InputError, match="stands beside a pre-norm one") as caught:
        layer(*sublayers)
    assert caught.value.where == "decoder.blocks.0"


def test_rows_by_head_become_rows_by_part_and_back() -> None:
    """Head 0's queries, keys, values, then head 1's: twelve rows of one value each."""
    rows = torch.tensor([[part * 100 + head * 10 + row] for head in range(2) for part in range(3) for row in range(2)])
    by_part = torch.tensor([[part * 100 + head * 10 + row] for part in range(3) for head in range(2)
                            for row in range(2)])
    assert torch.equal(HeadByHead(2).ours([rows]), by_part) and torch.equal(HeadByHead(2).theirs(by_part)[0], rows)
