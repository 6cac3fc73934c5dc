"""BigBird's attention against its definition, key by key in float64, and which blocks are drawn."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from saucier import config as c
from saucier.config.visibility import block_keys, build_bigbird_visibility
from saucier.model import Transformer, build
from saucier.parts.masks import Draw
from saucier.parts.visibility import count_random_blocks

SIZE, DRAWN, LENGTH, HEADS = 2, 1, 17, 2
BLOCKS = -(-LENGTH // SIZE)


def keys_of(query: int, drawn: dict[int, list[int]]) -> list[int]:
    """The keys of a query, those of a block once more for each time that it is drawn. Zaheer et al. 2020, §2."""
    block, last = query // SIZE, BLOCKS - 1
    if block in (0, last):
        return list(range(LENGTH))
    seen = sorted({0, block - 1, block, block + 1, last}) + drawn[block]
    return [key for other in seen for key in range(other * SIZE, min((other + 1) * SIZE, LENGTH))]


def one_layer(visibility: c.Visibility) -> Transformer:
    """An encoder of one attention, in float64."""
    attention = c.SelfAttention(projection=c.Projection(heads=HEADS), visibility=visibility)
    stack = c.Stack(layers=c.Repeat(block=c.Block(sublayers=(c.PreNorm(inner=attention),)), times=1))
    return build(c.Transformer(dim=8, embed=c.Embedding(vocab=11), encoder=stack), seed=1).double().eval()


def by_definition(model: Transformer, hidden: Tensor, real: Tensor, drawn: list[dict[int, list[int]]]) -> Tensor:
    """The layer once more, by loops. Shapes: hidden [L, D], real [L] -> [L, D]."""
    residual = model.encoder.blocks[0]["attention"]
    maps = residual.inner.qkv(residual.norm(hidden[None]))[0]
    query, key, value = maps.split(8, dim=-1)
    mixed = torch.zeros(LENGTH, 8, dtype=torch.float64)
    for head in range(HEADS):
        part = slice(head * 4, head * 4 + 4)
        for place in range(LENGTH):
            keys = [other for other in keys_of(place, drawn[head]) if real[other]]
            weights = [math.exp(float(query[place, part] @ key[other, part]) / 2) for other in keys]
            for weight, other in zip(weights, keys, strict=True):
                mixed[place, part] += weight / sum(weights) * value[other, part]
    return hidden + residual.inner.out(mixed)


def drawn_for(draw: Draw | None) -> list[dict[int, list[int]]]:
    """The drawn blocks as lists, a repeated block repeated."""
    config = c.RandomBlocks(size=SIZE, count=DRAWN, length=64)
    counts = count_random_blocks(config, BLOCKS, draw).expand(HEADS, -1, -1)
    return [{block: [other for other in range(BLOCKS) for _ in range(int(head[block, other]))]
             for block in range(BLOCKS)} for head in counts]


@pytest.mark.parametrize("weights", [False, True], ids=["fused", "explicit"])
@pytest.mark.parametrize("training", [False, True])
def test_attention_is_the_softmax_over_all_keys_and_their_repetitions(training: bool, weights: bool) -> None:
    model = one_layer(build_bigbird_visibility(SIZE, DRAWN, 64)).train(training)
    ids = torch.randint(0, 11, (2, LENGTH), generator=torch.Generator().manual_seed(0))
    mask = (torch.arange(LENGTH) < torch.tensor([LENGTH, 13])[:, None]).long()
    drawn = drawn_for(Draw(HEADS, 0) if training else None)
    with torch.no_grad():
        found = model(ids, mask, output_attentions=weights).last_hidden_state
        for row, real in enumerate(mask.bool()):
            wanted = by_definition(model, model.embed.tokens(ids[row]), real, drawn)
            torch.testing.assert_close(found[row][real], wanted[real], rtol=1e-10, atol=1e-10)


def test_a_repeated_key_is_shown_with_the_weight_of_one_copy() -> None:
    model = one_layer(build_bigbird_visibility(SIZE, DRAWN, 64))
    shown = model(torch.arange(LENGTH)[None] % 11, output_attentions=True).attentions[0][0]
    again = shown.clone()
    again[:, SIZE:SIZE * (BLOCKS - 1), :SIZE] *= 1 + DRAWN
    torch.testing.assert_close(again.sum(-1), torch.ones(HEADS, LENGTH, dtype=torch.float64))


def test_short_inputs_see_all() -> None:
    model = one_layer(build_bigbird_visibility(SIZE, DRAWN, 64))
    limit = (5 + 2 * DRAWN) * SIZE
    shown = [model(torch.zeros(1, length, dtype=torch.long), output_attentions=True).attentions[0]
             for length in (limit, limit + 1)]
    assert (shown[0] > 0).all()
    assert not (shown[1] > 0).all()


@pytest.mark.parametrize("layer", [0, 1, 7])
def test_drawn_blocks_are_outside_the_window_and_always_the_same(layer: int) -> None:
    config, draw = c.RandomBlocks(size=4, count=3, length=4096), Draw(5, layer)
    counts = count_random_blocks(config, 20, draw)
    assert torch.equal(counts, count_random_blocks(config, 20, draw))
    assert (counts[:, 1:-1].sum(-1) == 3).all()
    assert not counts[:, [0, -1]].any()
    assert all(not counts[:, block, max(block - 1, 0):block + 2].any() for block in range(1, 19))
    assert not torch.equal(counts[0], counts[1])


def test_outside_training_the_first_block_takes_every_place() -> None:
    counts = count_random_blocks(c.RandomBlocks(size=4, count=3), 9, None)
    assert counts.sum() == 3 * 7
    assert (counts[0, 1:-1, 0] == 3).all()


@pytest.mark.parametrize("blocks_in_row", [1, 2, 3, 8])
@pytest.mark.parametrize("pattern", [c.BlockWindow(size=3), c.BlockWindow(size=3, reach=0), c.GlobalBlocks(size=3)])
def test_keys_are_counted_as_they_are_seen(pattern: c.BlockWindow | c.GlobalBlocks, blocks_in_row: int) -> None:
    from saucier.parts.masks import Span
    from saucier.parts.visibility import build_mask

    length = 3 * blocks_in_row
    allowed = build_mask(pattern, Span(length, length, 0, torch.device("cpu"))).allowed
    assert block_keys(pattern, length) == pytest.approx(float(allowed.sum()) / length)
