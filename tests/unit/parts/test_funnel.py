"""Funnel-Transformer's layout: lengths, distances by hand, learning, saving, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import saucier
import saucier.folders  # hands in how a model is written
from saucier import InputError
from saucier import config as c
from saucier.families.funnel import funnel
from saucier.model import Transformer, build
from saucier.parts.funnel import Places, PooledDistances, QueriesAndKeys, pool_rows, repeat_rows, take_rows

LENGTHS = (3, 7, 8, 15, 16)


def layout(**changes: object) -> c.Funnel:
    found = small(**changes).encoder
    assert found is not None and isinstance(found.layers, c.Funnel)
    return found.layers


def small(**changes: object) -> c.Transformer:
    config = funnel(16, (1, 2, 1), heads=2, head_dim=8, vocab=30, hidden=24, dropout=0.0)
    assert config.encoder is not None
    layers = config.encoder.layers.model_copy(update=changes)
    return config.model_copy(update={"encoder": config.encoder.model_copy(update={"layers": layers})})


def model(**changes: object) -> Transformer:
    return build(small(**changes), seed=5).eval()


def ids(length: int) -> torch.Tensor:
    return torch.randint(3, 30, (2, length), generator=torch.Generator().manual_seed(length))


@pytest.mark.sampled
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("changes", [{}, {"truncate": False}, {"separate_first": False}, {"query_only": False},
                                     {"pooling": "max"}, {"repeats": (2, 1, 2)}])
def test_it_ends_in_one_vector_for_each_token(changes: dict[str, object], length: int) -> None:
    output = model(**changes)(ids(length), output_hidden_states=True)
    assert output.last_hidden_state.shape == (2, length, 16)
    counts = [states.shape[1] for states in output.hidden_states]
    assert min(counts) < length and counts[0] == counts[-1] == length
    pooled = layout(**changes)
    x = torch.arange(float(2 * length)).view(2, length, 1)
    assert pool_rows(pooled, x, "mean").shape[1] == take_rows(pooled, x[..., 0]).shape[1] == pooled.pooled(length)


def test_vectors_are_pooled_and_repeated_by_hand() -> None:
    x = torch.tensor([[[0.0], [1], [3], [5], [7], [9]]])
    assert pool_rows(layout(), x, "mean")[0, :, 0].tolist() == [0, 2, 6]
    assert pool_rows(layout(), x, "max")[0, :, 0].tolist() == [0, 3, 7]
    assert pool_rows(layout(separate_first=False), x, "mean")[0, :, 0].tolist() == [0.5, 4, 8]
    two = layout(sizes=(1, 1))
    assert repeat_rows(two, torch.tensor([[[9.0], [2], [6]]]), 6)[0, :, 0].tolist() == [9, 2, 2, 6, 6, 0]


def test_scores_are_those_of_each_distance() -> None:
    part = PooledDistances(c.PooledDistances(), c.Projection(heads=2, head_dim=8), 16).double()
    torch.manual_seed(0)
    for parameter in part.parameters():
        torch.nn.init.normal_(parameter)
    context = type("Pass", (), {"once": lambda self, key, make: make()})()
    rows = QueriesAndKeys(Places(-1, 2, None), Places(0, 1, None))
    query = torch.randn(1, 2, 4, 8, dtype=torch.double)
    found = part.score_distances(query, 7, rows, context)
    for q, place in enumerate((-1, 1, 3, 5)):
        for k in range(7):
            vector = part.map(part.vectors(place - k, place - k, 1, query))[0].view(2, 8)
            assert torch.allclose(found[0, :, q, k], (query[0, :, q] * vector).sum(-1))


def test_it_learns_and_is_saved(tmp_path: Path) -> None:
    made = build(small(), seed=1)
    made(ids(9), token_type_ids=torch.ones(2, 9, dtype=torch.long)).logits.square().mean().backward()
    assert all(one.grad is not None and one.grad.abs().sum() > 0 for name, one in made.named_parameters()
               if "segments" not in name and "positions.content" not in name)
    made.eval().save(tmp_path / "out")
    again = saucier.load(tmp_path / "out", dtype="float32", device="cpu")
    assert again.config.encoder == made.config.encoder
    assert torch.equal(again(ids(9)).logits, made(ids(9)).logits)


@pytest.mark.parametrize(("changes", "says"), [({"repeats": (1,)}, "repeats for 1"),
                                               ({"after": None}, "head reads all")])
def test_what_it_refuses(changes: dict[str, object], says: str) -> None:
    with pytest.raises(InputError, match=says):
        c.check(small(**changes))
    with pytest.raises(InputError, match="pools neighbours"):
        model()(ids(6), documents=torch.zeros(2, 6, dtype=torch.long))
