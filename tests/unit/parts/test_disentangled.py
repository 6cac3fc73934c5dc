"""Disentangled attention and the convolution against their definitions, as plain loops in float64."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from saucier import config as c
from saucier.errors import InputError
from saucier.model import build
from saucier.parts.attention import SelfAttention
from saucier.parts.context import Context
from saucier.parts.masks import Span
from saucier.parts.mixing import Convolution
from saucier.parts.relative_positions import DistanceTable, find_table_rows, log_bucket

DIM, HEADS, LENGTH = 12, 3, 7
WIDTH = DIM // HEADS
INPUT = torch.randn(2, LENGTH, DIM, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def context(documents: Tensor | None = None) -> Context:
    span = Span(LENGTH, LENGTH, 0, torch.device("cpu"), None, documents, documents)
    return Context(span, torch.arange(LENGTH)[None], want_weights=True)


def noisy(module: torch.nn.Module) -> torch.nn.Module:
    torch.manual_seed(0)
    module = module.double().eval()
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    return module


def row(distances: c.ExactDistances | c.LogDistances, distance: int) -> int:
    """The table row of query minus key: He et al. 2021, §3.1, eq 3, or the ranges of the second version's release."""
    half = distances.rows // 2
    if isinstance(distances, c.LogDistances):
        near = distances.buckets // 2
        if abs(distance) > near:
            far = math.log(abs(distance) / near) / math.log((distances.reach - 1) / near)
            distance = int(math.copysign(near + math.ceil(far * (near - 1)), distance))
    return min(max(distance + half, 0), 2 * half - 1)


def by_definition(module: SelfAttention, table: Tensor, x: Tensor) -> Tensor:
    """Weights by eq 2-4: content to content, content to position, position to content, over the root of terms times E.

    Shapes: x [B, L, D] -> [B, H, L, L].
    """
    positions = module.config.positions
    assert isinstance(positions, c.Disentangled)
    query, key, _ = module.qkv(x).split(DIM, dim=-1)
    if isinstance(positions.maps, c.SharedMaps):
        by_query, by_key, _ = module.qkv(table).split(DIM, dim=-1)
    else:
        by_key = module.positions.key(table) if module.positions.key else None
        by_query = module.positions.query(table) if module.positions.query else None
    scores = torch.zeros(len(x), HEADS, LENGTH, LENGTH, dtype=x.dtype)
    for b in range(len(x)):
        for h in range(HEADS):
            own = slice(h * WIDTH, (h + 1) * WIDTH)
            for i in range(LENGTH):
                for j in range(LENGTH):
                    at = row(positions.distances, i - j)
                    score = query[b, i, own] @ key[b, j, own]
                    if positions.content_to_position:
                        score = score + query[b, i, own] @ by_key[at, own]
                    if positions.position_to_content:
                        score = score + key[b, j, own] @ by_query[at, own]
                    scores[b, h, i, j] = score / math.sqrt(positions.terms * WIDTH)
    return scores.softmax(-1)


@pytest.mark.sampled
@pytest.mark.parametrize("terms", [(True, True), (True, False), (False, True)])
@pytest.mark.parametrize("maps", [c.OwnMaps(), c.OwnMaps(key_bias=False), c.SharedMaps()])
@pytest.mark.parametrize("distances", [c.ExactDistances(reach=3), c.LogDistances(buckets=4, reach=7)])
def test_weights_are_those_of_the_definition(distances: c.ExactDistances | c.LogDistances,
                                             maps: c.OwnMaps | c.SharedMaps, terms: tuple[bool, bool]) -> None:
    positions = c.Disentangled(distances=distances, maps=maps, content_to_position=terms[0],
                               position_to_content=terms[1], norm=c.LayerNorm())
    module = noisy(SelfAttention(c.SelfAttention(projection=c.Projection(heads=HEADS), positions=positions), DIM))
    table = noisy(DistanceTable(positions, DIM))
    here = context()
    here.shared = table(here)
    module(INPUT, here)
    torch.testing.assert_close(here.attentions[0], by_definition(module, here.shared, INPUT), atol=1e-12, rtol=0)


@pytest.mark.parametrize(("buckets", "reach"), [(4, 9), (8, 40), (9, 40), (256, 512)])
def test_log_buckets_are_exact_when_near_and_odd_functions(buckets: int, reach: int) -> None:
    distances = c.LogDistances(buckets=buckets, reach=reach)
    all_of_them = torch.arange(-reach + 1, reach)
    found = log_bucket(all_of_them, distances)
    near = all_of_them.abs() <= buckets // 2
    assert torch.equal(found[near], all_of_them[near])
    assert torch.equal(found.flip(0), -found)
    assert (found.diff() >= 0).all()
    assert found.max() == 2 * (buckets // 2) - 1


@pytest.mark.parametrize("buckets", [4, 9, 100, 256])
def test_the_farthest_distance_falls_into_the_last_bucket(buckets: int) -> None:
    """Whatever the reach: a ratio of logarithms that is one must not be rounded up to the next bucket."""
    for reach in range(buckets // 2 + 2, 700):
        found = log_bucket(torch.tensor([reach - 2, reach - 1]), c.LogDistances(buckets=buckets, reach=reach))
        assert found.tolist()[1] == 2 * (buckets // 2) - 1 >= found.tolist()[0], reach


def test_keys_without_a_bias_have_none() -> None:
    """The first version's maps: the bias holds queries and values alone."""
    module = noisy(SelfAttention(c.SelfAttention(projection=c.Projection(heads=HEADS, key_bias=False)), DIM))
    assert module.qkv.bias.shape == (2 * DIM,)
    plain = INPUT @ module.qkv.weight.T
    expected = plain + torch.cat([module.qkv.bias[:DIM], torch.zeros(DIM, dtype=torch.float64),
                                  module.qkv.bias[DIM:]])
    torch.testing.assert_close(module.qkv(INPUT), expected, atol=1e-12, rtol=0)


@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize("documents", [None, torch.tensor([[0, 0, 0, 1, 1, 1, 1], [0, 1, 1, 0, 0, 2, 2]])])
def test_the_convolution_is_a_sum_over_neighbours(groups: int, documents: Tensor | None) -> None:
    module = noisy(Convolution(c.Convolution(size=3, groups=groups), DIM))
    found = module.convolved(INPUT, context(documents))
    width = DIM // groups
    for b in range(2):
        for i in range(LENGTH):
            for o in range(DIM):
                total = module.bias[o].clone()
                for n in range(3):
                    j = i + n - 1
                    if 0 <= j < LENGTH and (documents is None or documents[b, i] == documents[b, j]):
                        first = o // width * width
                        total += INPUT[b, j, first:first + width] @ module.weight[o, :, n]
                torch.testing.assert_close(found[b, i, o], total, atol=1e-12, rtol=0)


@pytest.mark.parametrize(("positions", "message"), [
    (c.Disentangled(content_to_position=False, position_to_content=False), "without either score"),
    (c.Disentangled(distances=c.LogDistances(buckets=8, reach=5)), "within the 4 exact")])
def test_what_makes_no_sense_is_refused(positions: c.Disentangled, message: str) -> None:
    attention = c.SelfAttention(projection=c.Projection(heads=HEADS), positions=positions)
    stack = c.Stack(layers=c.Repeat(block=c.Block(sublayers=(c.PreNorm(inner=attention),)), times=1))
    with pytest.raises(InputError, match=message):
        build(c.Transformer(dim=DIM, embed=c.Embedding(vocab=5), encoder=stack), device="meta")


@pytest.mark.parametrize("distances", [c.ExactDistances(reach=6), c.LogDistances(buckets=8, reach=32)])
@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (3, 3), (1, 20), (5, 20), (40, 40)])
def test_the_rows_that_are_met_are_all_that_is_read(distances: c.ExactDistances | c.LogDistances, queries: int,
                                                    keys: int) -> None:
    rows, met = find_table_rows(distances, queries, keys, torch.device("cpu"))
    for i in range(queries):
        for j in range(keys):
            assert met.start + rows[i, j] == row(distances, keys - queries + i - j)
    assert (rows.min(), rows.max()) == (0, met.stop - met.start - 1)
