"""Unclipped relative positions are the sums of the papers, entry by entry."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from saucier import config as c
from saucier.errors import InputError
from saucier.parts.context import Context
from saucier.parts.masks import Span
from saucier.parts.relative_positions import RelativeKeys, RelativeKeysAndQueries

LENGTH, WIDTH, SCALE = 6, 4, 0.5


def context(queries: int, keys: int) -> Context:
    return Context(Span(queries, keys, keys - queries, torch.device("cpu")), torch.arange(keys)[None])


def tensors(queries: int, keys: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = ((2, 4, queries, WIDTH), (2, 2, keys, WIDTH), (2 * LENGTH - 1, WIDTH))
    query, key, table = (torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes)
    return query, key, table


@pytest.mark.parametrize(("queries", "keys"), [(6, 6), (1, 5), (2, 4)])
def test_each_pair_meets_the_vector_of_its_distance(queries: int, keys: int) -> None:
    """Two query heads share a key head; the queries are the last positions."""
    query, key, table = tensors(queries, keys)
    by_query = RelativeKeys(c.RelativeVectors(kind="relative_key", length=LENGTH), WIDTH)
    by_both = RelativeKeysAndQueries(c.RelativeVectors(kind="relative_key_query", length=LENGTH), WIDTH)
    for module in (by_query, by_both):
        module.weight = torch.nn.Parameter(table)
    first = by_query(query, key, SCALE, context(queries, keys))
    second = by_both(query, key, SCALE, context(queries, keys))
    for head in range(4):
        for i in range(queries):
            for j in range(keys):
                vector = table[(i + keys - queries) - j + LENGTH - 1]
                expected = query[:, head, i] @ vector * SCALE
                torch.testing.assert_close(first[:, head, i, j], expected)
                torch.testing.assert_close(second[:, head, i, j], expected + key[:, head // 2, j] @ vector * SCALE)


def test_more_positions_than_distances_are_refused() -> None:
    query, key, _ = tensors(7, 7)
    with pytest.raises(InputError, match="7 positions are more than the 6 relative ones"):
        RelativeKeys(c.RelativeVectors(kind="relative_key", length=LENGTH), WIDTH).double()(query, key, SCALE,
                                                                                            context(7, 7))
