"""A memory that is carried: segments learn what one long pass would tell them, and the state says all of it."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tests.laws.zoo import scrambled, tokens
from tests.tolerances import assert_close
from tests.unit.training.toy import IDS, LENGTH, rows_of, small

from saucier import config as c
from saucier.errors import InputError
from saucier.objectives import config as o
from saucier.objectives.base import Batch, Objective, ObjectiveInputs
from saucier.objectives.build import build_objective
from saucier.objectives.checks import find_mismatches
from saucier.objectives.config.single_objective import ObjectiveSetting
from saucier.recipes import recipe
from saucier.text.config import ByteBPE, LanguageData, TextData

ROWS, SEGMENTS = 3, 4


def long_memory() -> c.Transformer:
    """A decoder that remembers more than all segments, and begins with nothing."""
    tree = small("transfo_xl")
    memory = c.SegmentMemory(length=SEGMENTS * LENGTH)
    attention = c.SelfAttention(projection=c.Projection(heads=4), visibility=c.Causal(), positions=c.TransformerXL())
    block = c.Block(sublayers=(c.PostNorm(inner=attention), c.PostNorm(inner=c.FeedForward(hidden=40))))
    return tree.model_copy(update={"decoder": c.Stack(layers=c.Repeat(block=block, times=2), memory=memory)})


def built(body: c.Transformer) -> tuple[object, Objective]:
    """Both halves of causal learning in consecutive rows."""
    return build_objective(o.Causal(rows=o.ConsecutiveRows()), ObjectiveInputs(IDS, body, 10, LENGTH))


def batches(text: torch.Tensor, corruption: object, first: int = 0) -> list[Batch]:
    """The segments of a text as batches of consecutive rows, numbered from `first`."""
    made = []
    for number in range(SEGMENTS):
        piece = text[:, number * LENGTH:(number + 1) * LENGTH + 1].numpy()
        rows = rows_of(piece, np.arange(first, first + len(piece)))
        rows = dataclasses.replace(rows, continues=np.full(len(piece), number > 0))
        made.append(corruption(rows, seed=0, step=number))
    return made


def test_the_losses_of_segments_are_those_of_one_long_pass() -> None:
    """Where the memory is long enough; the sum over all segments, by the model's own adaptive softmax."""
    model = scrambled(long_memory())
    text = tokens(model.config, ROWS, SEGMENTS * LENGTH + 1)
    corruption, objective = built(model.config)
    with torch.no_grad():
        found = sum(objective(model, batch).total for batch in batches(text, corruption))
        logits = model(text[:, :-1]).logits
        whole = F.nll_loss(logits.flatten(0, 1), text[:, 1:].flatten(), reduction="sum")
    assert_close(found, whole, 1e-3)  # a sum of about 600


def test_micro_batches_remember_each_for_itself() -> None:
    model = scrambled(small("transfo_xl"))
    text = tokens(model.config, ROWS, SEGMENTS * LENGTH + 1)
    corruption, one = built(model.config)
    _, other = built(model.config)
    apart = [batches(text[row:row + 1], corruption, first=row) for row in range(ROWS)]
    with torch.no_grad():
        for number, batch in enumerate(batches(text, corruption)):
            whole = one(model, batch).total
            parts = sum(other(model, apart[row][number]).total for row in range(ROWS))
            assert_close(parts, whole, 1e-4)


def test_a_text_that_begins_anew_has_no_memory() -> None:
    model = scrambled(small("transfo_xl"))
    text = tokens(model.config, ROWS, SEGMENTS * LENGTH + 1)
    corruption, objective = built(model.config)
    segments = batches(text, corruption)
    with torch.no_grad():
        first = [objective(model, batch).total for batch in segments]
        again = [objective(model, batch).total for batch in segments]
        alone = objective.held_out()(model, segments[1])
    assert first == again
    assert abs(alone.total - first[1]) > 0.1  # a held-out look has a memory of its own, which is empty


@pytest.mark.parametrize("share", [slice(0, 3), slice(1, 3)], ids=["all", "the second process"])
def test_what_is_carried_is_all_that_is_remembered(share: slice) -> None:
    model = scrambled(small("transfo_xl"))
    text = tokens(model.config, ROWS, SEGMENTS * LENGTH + 1)[share]
    corruption, objective = built(model.config)
    segments = batches(text, corruption, first=share.start)
    with torch.no_grad():
        for batch in segments[:-1]:
            objective(model, batch)
        carried = {name: value.clone() for name, value in objective.carried.state().items()}
        _, other = built(model.config)
        other.carried.put(range(share.start, share.start + len(text)), carried)
        assert torch.equal(other(model, segments[-1]).total, objective(model, segments[-1]).total)
    assert [tuple(value.shape) for value in carried.values()] == [(len(text), 12, 32)] * 2


def test_labels_stop_at_documents_and_the_memory_does_not() -> None:
    body = small("transfo_xl")
    corruption, _ = built(body)
    ids = np.arange(4, 21)[None].repeat(2, 0)
    documents = np.where(np.arange(17) < 8, 0, 1)[None].repeat(2, 0)
    rows = dataclasses.replace(rows_of(ids, np.arange(2), documents), continues=np.array([True, True]))
    batch = corruption(rows, seed=0, step=0)
    assert (batch["labels"][0] == -100).nonzero().flatten().tolist() == [7]
    assert "documents" not in batch
    assert batch["rows"].tolist() == [0, 1]


def test_xlnet_carries_its_memory_too() -> None:
    """Yang et al. 2019, §2.4: the memory holds content vectors, whatever the order was."""
    model = scrambled(small("xlnet"))
    corruption, objective = build_objective(o.Permutation(rows=o.ConsecutiveRows(), every=3),
                                            ObjectiveInputs(IDS, model.config, 10, LENGTH))
    assert (corruption.row_length(LENGTH), corruption.overlap) == (LENGTH, 0)
    text = torch.randint(4, 24, (ROWS, 2 * LENGTH), generator=torch.Generator().manual_seed(0))
    made = []
    for number, piece in enumerate(text.split(LENGTH, dim=1)):
        rows = dataclasses.replace(rows_of(piece.numpy(), np.arange(ROWS)), continues=np.full(ROWS, number > 0))
        made.append(corruption(rows, seed=0, step=number))
    with torch.no_grad():
        objective(model, made[0])
        second = objective(model, made[1]).total
        plain = {name: value for name, value in made[0].items() if name not in ("rows", "continues", "labels")}
        mems = model(**plain, use_mems=True).mems
        given = {name: value for name, value in made[1].items() if name not in ("rows", "continues")}
        logits = model(**{k: v for k, v in given.items() if k != "labels"}, mems=mems).logits
        by_hand = F.cross_entropy(logits.flatten(0, 1), given["labels"].flatten(), reduction="sum")
    assert_close(second, by_hand, 1e-3)


CONSECUTIVE = o.Causal(rows=o.ConsecutiveRows())
REFUSED = {
    "no memory": (CONSECUTIVE, small("gpt2"), TextData(), "beside a memory, which the model does not have"),
    "a memory without an end": (o.Permutation(rows=o.ConsecutiveRows()), small("xlnet").model_copy(update={
        "encoder": small("xlnet").encoder.model_copy(update={"memory": c.SegmentMemory()})}), TextData(),
                                "beside a memory that ends"),
    "languages": (CONSECUTIVE, small("transfo_xl"), LanguageData(),
                  "several languages"),
    "shuffled rows before zeros": (o.Causal(), small("transfo_xl"), TextData(), "a memory of zeros before every row"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_refused_before_text_is_read(name: str) -> None:
    objective, body, data, words = REFUSED[name]
    found = next(find_mismatches(objective, ObjectiveSetting(body, ByteBPE(), data)))
    assert words in found.what
    assert found.path == ("rows", "kind")


def test_parts_of_a_mixture_cannot_go_on() -> None:
    with pytest.raises(InputError, match=r"objective\.parts\.1\.objective\.rows\.kind: rows go on from step to step"):
        recipe("xlnet-nano", ["objective={kind: mixture, parts: [{objective: {kind: permutation}}, {objective: "
                              "{kind: permutation, rows: {kind: consecutive}}}]}"])
