"""Every objective on every kind of body: it trains, or is refused with one reason, by the checks and by the builder."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.unit.objectives.helpers import pairs, rows
from tools.book import ObjectiveOnBody, bodies_page, check_pair, list_bodies, list_objectives

from saucier.errors import InputError
from saucier.model import build
from saucier.objectives import config as c
from saucier.objectives.base import ObjectiveInputs, TokenIds
from saucier.objectives.build import build_objective

IDS = TokenIds(vocab=200, pad=0, bos=1, eos=2, mask=3, special=(*range(10), *range(100, 200)),
               sentinels=tuple(range(199, 99, -1)), extra={"[R]": 4, "[S]": 5, "[X]": 6, "<python>": 7, "<english>": 8,
                                                           "<length>": 9})
LENGTH = 48
CASES = {f"{objective.kind} on {name}": check_pair(objective, body) for objective in list_objectives()
         for name, body in list_bodies().items()}
ROOT = Path(__file__).resolve().parents[3]


def built(found: ObjectiveOnBody) -> tuple:
    return build_objective(found.objective, ObjectiveInputs(IDS, found.body, length=LENGTH))


def some_rows(length: int) -> object:
    """Rows of every kind at once: two pieces, sentences, and a padded row."""
    tokens = np.arange(10, 10 + 2 * length).reshape(2, length) % 80 + 10
    tokens[1, length - 5:] = 0
    made = rows(tokens.tolist())
    made.segments[:, length // 2:] = 1
    return dataclasses.replace(made, sentence_starts=np.broadcast_to(np.arange(length) % 6 == 0, tokens.shape),
                               languages=np.zeros_like(tokens))


@pytest.mark.sampled
@pytest.mark.parametrize("name", [name for name, found in CASES.items() if found.reason is None])
def test_what_fits_trains(name: str) -> None:
    found = CASES[name]
    corruption, objective = built(found)
    model = build(found.body, seed=1)
    objective.bind(model)
    source = [[10, 11, 12, 2], [13, 14, 2, 0]]
    given = pairs(source, source) if found.objective.rows_read.kind == "text_pairs" else \
        some_rows(corruption.row_length(LENGTH) + corruption.overlap)
    batch = corruption(given, seed=0, step=0)
    loss = objective.at(0)(model, batch)
    counts = objective.at(0).count(batch)
    assert all(part.weight == counts[key] > 0 for key, part in loss.parts.items())
    loss.total.backward()
    assert torch.isfinite(loss.total)
    assert all(torch.isfinite(one.grad).all() for one in model.parameters() if one.grad is not None)
    assert sum(one.grad is not None and bool(one.grad.any()) for one in model.parameters()) > 10


@pytest.mark.parametrize("name", [name for name, found in CASES.items() if found.reason is not None])
def test_what_does_not_fit_is_refused_in_the_same_words(name: str) -> None:
    found = CASES[name]
    with pytest.raises(InputError) as caught:
        built(found)
    assert caught.value.what == found.reason
    assert caught.value.remedy


def test_every_objective_trains_some_body() -> None:
    for objective in list_objectives():
        assert any(found.reason is None for found in CASES.values() if found.objective == objective)


def test_what_makes_a_source_and_a_target_trains_all_that_write() -> None:
    for objective in list_objectives():
        if isinstance(objective, c.Noisy | c.SequenceToSequence):
            fits = [name for name in list_bodies() if CASES[f"{objective.kind} on {name}"].reason is None]
            assert fits == ["decoder", "prefix decoder", "encoder and decoder"]


def test_the_page_is_current() -> None:
    assert (ROOT / "docs/bodies.md").read_text(encoding="utf-8") == bodies_page(), "run make book"
