"""Permutation language modelling: the masks of the definition, the choice of targets, leaks, and the memory."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tests.unit.objectives.helpers import IDS, rows

from saucier.errors import InputError
from saucier.families import FAMILIES
from saucier.model import Transformer, build
from saucier.objectives import config as c
from saucier.objectives.base import IGNORED, Batch, ObjectiveInputs
from saucier.objectives.permutation import (
    PermutationCorruption,
    build_permutation,
    draw_target_spans,
    map_queries,
    mask_later_tokens,
    move_class_last,
    read_memory,
)
from saucier.recipes import recipe as read

TEXT = rows([[1, *range(10, 32), 2], [1, *range(40, 56), 2, *[0] * 6]])


def model(**options: object) -> Transformer:
    config = FAMILIES["xlnet"](dim=32, layers=2, heads=4, vocab=100, dropout=0.0, **options)
    found = build(config, seed=1)
    with torch.no_grad():
        for parameter in found.parameters():
            parameter.normal_(std=0.3, generator=torch.Generator().manual_seed(parameter.numel()))
    return found


def corruption(**options: object) -> PermutationCorruption:
    return build_permutation(c.Permutation(**options), ObjectiveInputs(IDS))[0]


def test_the_masks_of_a_small_example_are_those_of_the_figure() -> None:
    """In the order 2, 1, 3 (C fig 8): queries see nothing, 2, and 2 and 1; the text sees itself too."""
    ranks = np.array([[1, 0, 2]])
    seen = ~mask_later_tokens(ranks, np.ones_like(ranks, dtype=bool))[0]
    assert seen.astype(int).tolist() == [[0, 1, 0], [0, 0, 0], [1, 1, 0]]
    content = seen | np.eye(3, dtype=bool)
    assert content.astype(int).tolist() == [[1, 1, 0], [0, 1, 0], [1, 1, 1]]


def test_who_sees_whom_is_what_a_loop_says() -> None:
    batch = corruption()(TEXT, seed=3, step=1)
    ranks, targets = corruption().drawn(TEXT, TEXT.mask & ~np.isin(TEXT.tokens, IDS.special), 3, 1)
    for row in range(len(TEXT)):
        for query in range(24):
            for key in range(24):
                plain = ranks[row, key] == -1
                earlier = ranks[row, key] < ranks[row, query]
                itself = query == key and not targets[row, query]
                assert bool(batch["perm_mask"][row, query, key]) == (not (plain or earlier or itself))
    labels = batch["labels"]
    places = batch["target_mapping"].argmax(-1)
    for row in range(len(TEXT)):
        known = labels[row] != IGNORED
        assert sorted(places[row][known].tolist()) == targets[row].nonzero()[0].tolist()
        assert labels[row][known].tolist() == TEXT.tokens[row, places[row][known].numpy()].tolist()


def test_no_target_sees_itself_or_a_later_one() -> None:
    """The gradient of each prediction by each input vector is zero where the order forbids a look, and only there."""
    body, batch = model().eval(), corruption(every=3)(TEXT.select(slice(0, 1)), seed=0, step=0)
    vectors = body.embed.tokens(batch["input_ids"]).detach().requires_grad_()
    inputs = {name: batch[name] for name in ("perm_mask", "target_mapping")}
    states = body(inputs_embeds=vectors, compute_logits=False, **inputs).last_hidden_state
    places = batch["target_mapping"][0].argmax(-1)
    for query, place in enumerate(places.tolist()):
        moved = torch.autograd.grad(states[0, query].sum(), vectors, retain_graph=True)[0][0].abs().sum(-1) > 0
        assert moved.tolist() == (~batch["perm_mask"][0, place]).tolist()
    assert len(places) == 22 // 3


def test_one_token_in_k_is_a_target_in_spans_of_the_published_lengths() -> None:
    config = c.Permutation()
    found = [draw_target_spans(512, config, np.random.default_rng(seed)) for seed in range(200)]
    assert {int(one.sum()) for one in found} == {512 // 6}
    runs = [len(run) for one in found for run in "".join("x" if flag else " " for flag in one).split()]
    assert max(runs) <= 12
    alone = [draw_target_spans(7000, config.model_copy(update={"every": 6}), np.random.default_rng(seed))
             for seed in range(20)]
    share = np.mean([one.sum() for one in alone]) / 7000
    assert share == pytest.approx(1 / 6, abs=1e-3)
    assert np.mean(runs) == pytest.approx(2.0, abs=0.35)  # mean of 1/n over 1..5 is 2.19; the rest comes one by one
    assert draw_target_spans(0, config, np.random.default_rng(0)).sum() == 0
    assert draw_target_spans(3, config, np.random.default_rng(0)).sum() == 1


def test_spans_are_those_of_a_loop() -> None:
    """The published procedure, step by step, with the same random numbers."""
    config = c.Permutation(every=4, longest=3)
    for seed in range(50):
        random = np.random.default_rng(seed)
        count, chances = 90 // 4, 1 / np.arange(1, 4)
        sizes = 1 + random.choice(3, count, p=chances / chances.sum())
        shares, expected, place = random.random(count), np.zeros(90, dtype=bool), 0
        for size, share in zip(sizes, shares, strict=True):
            size = min(size, count - int(expected.sum()))
            begin = place + int(share * size * 4)
            if not size or begin + size > 90:
                break
            expected[begin:begin + size] = True
            place += size + size * 4
        rest = random.permutation(np.flatnonzero(~expected))[:count - int(expected.sum())]
        expected[rest] = True
        assert (draw_target_spans(90, config, np.random.default_rng(seed)) == expected).all()


def test_a_row_is_the_same_in_any_micro_batch() -> None:
    made = corruption()
    whole, alone = made(TEXT, seed=0, step=2), made(TEXT.select(slice(1, 2)), seed=0, step=2)
    width = alone["input_ids"].shape[1]
    assert torch.equal(whole["perm_mask"][1:, :width, :width], alone["perm_mask"])
    assert not torch.equal(whole["perm_mask"], made(TEXT, seed=0, step=3)["perm_mask"])


def test_rows_with_fewer_targets_have_queries_without_a_label() -> None:
    mapping, labels = map_queries(np.array([[5, 6, 7], [8, 9, 4]]),
                                  np.array([[True, False, True], [False, True, False]]))
    assert mapping.tolist() == [[[1, 0, 0], [0, 0, 1]], [[0, 1, 0], [1, 0, 0]]]
    assert labels.tolist() == [[5, 7], [9, IGNORED]]


def test_the_classification_token_stands_last_as_a_segment_of_its_own() -> None:
    made = rows([[1, 10, 11, 2, 12, 2], [1, 10, 2, 12, 2, 0]])
    made.segments[:] = [[0, 0, 0, 0, 1, 1], [0, 0, 0, 1, 1, 0]]
    found = move_class_last(made)
    assert found.tokens.tolist() == [[10, 11, 2, 12, 2, 1], [10, 2, 12, 2, 1, 0]]
    assert found.segments.tolist() == [[0, 0, 0, 1, 1, 2], [0, 0, 1, 1, 2, 0]]
    batch = corruption(rows=c.TwoPieces())(made, seed=0, step=0)
    assert torch.equal(batch["token_type_ids"], torch.from_numpy(found.segments))


def naive(body: Transformer, batch: Batch, mems: object = None) -> float:
    """The loss by whole logits."""
    extra = {} if mems is None else {"mems": mems}
    inputs = {name: value for name, value in batch.items() if name not in ("labels", "earlier")}
    logits = body(**inputs, **extra).logits
    return float(F.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten(), reduction="sum").detach())


def test_the_loss_is_that_of_the_second_stream() -> None:
    made, objective = build_permutation(c.Permutation(), ObjectiveInputs(IDS))
    body, batch = model().eval(), made(TEXT, seed=0, step=0)
    loss = objective(body, batch)
    assert float(loss.total.detach()) == pytest.approx(naive(body, batch), rel=1e-4)
    assert objective.count(batch) == {"tokens": 22 // 6 + 16 // 6} == {"tokens": loss.weight}


def test_a_memory_is_what_was_read_before_and_has_no_gradient() -> None:
    made, objective = build_permutation(c.Permutation(rows=c.RunningText(memory=8)), ObjectiveInputs(IDS))
    assert (made.overlap, made.row_length(16)) == (8, 16)
    body, batch = model(memory=8).eval(), made(TEXT.select(slice(0, 1)), seed=0, step=0)
    assert batch["input_ids"].tolist() == TEXT.tokens[:1, 8:].tolist()
    mems = body(input_ids=torch.from_numpy(TEXT.tokens[:1, :8])).mems
    expected = naive(body, batch, mems)
    assert float(objective(body, batch).total.detach()) == pytest.approx(expected, rel=1e-4)
    assert abs(naive(body, batch) - expected) > 1e-3
    other = batch | {"earlier": batch["earlier"].flip(1)}
    assert float(objective(body, other).total.detach()) != pytest.approx(expected, rel=1e-4)
    assert not any(one.requires_grad for one in read_memory(body, batch)["mems"])


def test_documents_in_one_row_are_kept_apart() -> None:
    made = rows([[1, *range(10, 20), 2, 1, *range(40, 50), 2]], [[0] * 12 + [1] * 12])
    body, batch = model().eval(), corruption()(made, seed=0, step=0)
    vectors = body.embed.tokens(batch["input_ids"]).detach().requires_grad_()
    inputs = {name: value for name, value in batch.items() if name not in ("labels", "input_ids")}
    states = body(inputs_embeds=vectors, compute_logits=False, **inputs).last_hidden_state
    for query, place in enumerate(batch["target_mapping"][0].argmax(-1).tolist()):
        moved = torch.autograd.grad(states[0, query].sum(), vectors, retain_graph=True)[0][0].abs().sum(-1) > 0
        assert not moved[12:].any() if place < 12 else not moved[:12].any()
        assert moved.any()


@pytest.mark.parametrize(("name", "override", "words"), [
    ("bert-nano", ["objective={kind: permutation}"], "permutation needs a second stream of queries"),
    ("gpt-nano", ["objective={kind: permutation}"], "permutation trains a model of encoder, and this one is decoder"),
    ("xlnet-nano", ["objective.rows.memory=100"], "the model remembers 64 tokens, and not 100"),
    ("xlnet-nano", ["objective.every=1"], "greater than or equal to 2"),
    ("xlnet-nano", ["data.kind=pairs"], "permutation learns from running text"),
])
def test_what_does_not_fit_is_said_before_data_is_read(name: str, override: list[str], words: str) -> None:
    with pytest.raises(InputError, match=words):
        read(name, override)
