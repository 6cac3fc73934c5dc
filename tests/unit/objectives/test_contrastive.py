"""In-batch negatives in passes and over processes: the loss and gradients of the whole batch; a teacher's scores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from saucier import config as c
from saucier.families import FAMILIES
from saucier.model import Transformer, build
from saucier.objectives.contrastive import (
    PASSAGES,
    SIMILARITIES,
    CandidateDivergence,
    CandidateMargins,
    InBatchNegatives,
    TwoEncoders,
    compute_group_vectors,
    hash_texts,
    mark_no_negatives,
    mark_side,
)
from saucier.parts.stack import draw_layers
from saucier.tasks.encoded_examples import CollateExamples, EncodedBatches, EncodedExamples, Ragged
from saucier.training.processes import Processes
from saucier.training.update import TrainingData, Updater

ROWS, GROUP = 12, 3


def small_encoder(dropout: float) -> Transformer:
    """A BERT of two layers in float64, with the mean of its vectors."""
    config = FAMILIES["bert"](16, 2, heads=2, vocab=50, length=16, dropout=dropout)
    config = config.model_copy(update={"head": c.EmbeddingHead(normalize=False), "pooler": None})
    return build(config, seed=0).double().train()


def groups(answers: bool = False) -> EncodedExamples:
    """Questions with passages of which some stand in several rows."""
    random = np.random.default_rng(3)
    passages = [random.integers(5, 50, size=size).tolist() for size in (4, 7, 9, 12, 5, 12)]
    texts = [text for row in range(ROWS) for text in (
        random.integers(5, 50, size=3 + row % 3).tolist(), passages[row % 4], passages[2 + row % 4])]
    values = {"answers": np.arange(ROWS) // 2} if answers else {}
    return EncodedExamples({"input_ids": Ragged.of(texts, 0)}, values, np.arange(ROWS), group=GROUP)


def updater(model: Transformer, objective: Any, encoded: EncodedExamples, *, micro: int | None,
            processes: Processes = Processes()) -> Updater:  # noqa: B008 - one that is alone
    """What fills the gradients of a batch of all rows."""
    study = TrainingData(EncodedBatches(encoded, ROWS, seed=1), CollateExamples(), objective)
    return Updater(model, study, processes, "float32", 7, micro, None, Path("failures"))


def gradients(model: Transformer) -> dict[str, Tensor]:
    """The gradients of a model, which then has none."""
    found = {name: one.grad.clone() for name, one in model.named_parameters() if one.grad is not None}
    model.zero_grad()
    return found


@pytest.mark.sampled
@pytest.mark.parametrize("similarity", ["cosine", "inner_product"])
@pytest.mark.parametrize("micro", [1, 5, 8, 100])
@pytest.mark.parametrize("answers", [False, True])
def test_passes_give_the_gradients_of_the_whole_batch(similarity: str, micro: int, answers: bool) -> None:
    """In float64, to rounding; equal texts are read once."""
    model, objective, encoded = small_encoder(0.0), InBatchNegatives(3.0, similarity), groups(answers)
    whole = updater(model, objective, encoded, micro=None).gradients(0)
    expected = gradients(model)
    found = updater(model, objective, encoded, micro=micro).gradients(0)
    for name, gradient in gradients(model).items():
        torch.testing.assert_close(gradient, expected.pop(name), rtol=1e-9, atol=1e-12)
    assert not expected and found.loss == pytest.approx(whole.loss, rel=1e-12)


def test_scores_are_in_float32_under_autocast() -> None:
    """20 times a cosine in bfloat16 would be right to an eighth."""
    vectors = torch.nn.functional.normalize(torch.randn(ROWS, GROUP, 32), dim=-1)
    keys = {"texts": torch.arange(ROWS * GROUP).view(ROWS, GROUP)}
    expected = InBatchNegatives(20.0).losses(vectors, keys)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(InBatchNegatives(20.0).losses(vectors, keys), expected)


def test_dropout_is_that_of_one_graph_over_all_passes() -> None:
    """Against the same passes with the same random numbers, kept whole in memory."""
    model, objective, encoded = small_encoder(0.3), InBatchNegatives(3.0), groups()
    work = updater(model, objective, encoded, micro=4)
    micro = list(work.micro_batches(0))
    passes, vectors = objective.split([batch for _, batch in micro], 4), list[Tensor]()
    with draw_layers([model], None, (7, 0)):
        for number, one in enumerate(passes):
            work.seed_dropout(0, micro[0][0], number)
            vectors.append(objective.represent(model, one))
    keys = {"texts": torch.cat([objective.keys(batch)["texts"] for _, batch in micro])}
    loss = objective.losses(objective.assemble(torch.cat(vectors), passes, keys), keys).sum() / ROWS
    loss.backward()
    expected = gradients(model)
    found = work.gradients(0)
    assert found.loss == pytest.approx(float(loss.detach()), rel=1e-12)
    for name, gradient in gradients(model).items():
        torch.testing.assert_close(gradient, expected[name], rtol=1e-9, atol=1e-12)
    plain = updater(small_encoder(0.0), objective, encoded, micro=4).gradients(0)
    assert found.loss != pytest.approx(plain.loss, rel=1e-3)


def test_two_encoders_learn_from_one_loss() -> None:
    """Passes give both the gradients of the whole batch, and each has gradients of its own texts."""
    model, second = small_encoder(0.0), small_encoder(0.0)
    with torch.no_grad():
        for one in second.parameters():
            one.mul_(0.9)
    objective = TwoEncoders(3.0, "inner_product", "elsewhere", {PASSAGES: second})
    whole = updater(model, objective, groups(), micro=None).gradients(0)
    expected = gradients(model), gradients(second)
    found = updater(model, objective, groups(), micro=4).gradients(0)
    assert found.loss == pytest.approx(whole.loss, rel=1e-12)
    for one, wanted in zip((model, second), expected, strict=True):
        assert wanted
        for name, gradient in gradients(one).items():
            torch.testing.assert_close(gradient, wanted[name], rtol=1e-9, atol=1e-12)
    batch = groups().batch(np.arange(4))
    assert float(objective(model, batch).total.detach()) != pytest.approx(
        float(InBatchNegatives(3.0, "inner_product")(model, batch).total.detach()), rel=1e-3)


class Gathered(Processes):
    """One of two processes, to which the rows of the other one are shown."""

    def gather_rows(self, values: Any) -> dict[str, Tensor]:
        """Both processes' rows, those of the other one as it made them."""
        OTHERS[self.rank] = dict(values)
        both = [OTHERS[rank] for rank in range(2) if rank in OTHERS]
        return {name: torch.cat([one[name] for one in both]) for name in values} if len(both) == 2 else wait(self)

    def sums(self, values: dict[str, float]) -> dict[str, float]:
        """The targets of both, which have as many."""
        return {name: 2 * value for name, value in values.items()}

    def sum_gradients(self, parameters: Any) -> None:
        """Left to the test."""


OTHERS: dict[int, dict[str, Tensor]] = {}


class WaitingError(Exception):
    """The other process's rows are not there yet."""


def wait(process: Processes) -> dict[str, Tensor]:
    """Stop here."""
    raise WaitingError


@pytest.mark.parametrize("micro", [None, 3])
def test_processes_add_up_to_the_whole_batch(micro: int | None) -> None:
    """Each compares its own texts with those of all."""
    model, objective, encoded = small_encoder(0.0), InBatchNegatives(3.0), groups(True)
    updater(model, objective, encoded, micro=None).gradients(0)
    expected = gradients(model)
    OTHERS.clear()
    shares = [updater(model, objective, encoded, micro=micro, processes=Gathered(rank, 2)) for rank in range(2)]
    with pytest.raises(WaitingError):
        shares[0].gradients(0)
    parts = []
    for share in (shares[1], shares[0]):
        share.gradients(0)
        parts.append(gradients(model))
    for name, gradient in expected.items():
        torch.testing.assert_close(parts[0][name] + parts[1][name], gradient, rtol=1e-9, atol=1e-12)


def test_what_may_be_right_is_no_negative() -> None:
    """Equal pairs, pairs of equal texts, pairs with an equal answer; never the own pair."""
    keys = {"texts": torch.tensor([[1, 10, 11], [2, 10, 12], [1, 13, 10], [3, 14, 14]]),
            "answers": torch.tensor([0, 1, 2, 1])}
    expected = torch.zeros(4, 8, dtype=torch.bool)
    for row, place in ((0, 1), (0, 2), (0, 6), (1, 0), (1, 3), (1, 6), (2, 0), (3, 1), (3, 7)):
        expected[row, place] = True
    assert torch.equal(mark_no_negatives(keys), expected)
    without = mark_no_negatives({"texts": keys["texts"]})
    assert not without[1, 3] and not without[3, 1]


def test_texts_are_told_apart_whatever_their_padding() -> None:
    """Order, length and tokens count, padding does not."""
    ids = torch.tensor([[5, 6, 0, 0], [6, 5, 0, 0], [5, 6, 0, 9], [5, 0, 0, 0], [0, 0, 0, 0]])
    mask = torch.tensor([[1, 1, 0, 0], [1, 1, 0, 0], [1, 1, 0, 0], [1, 0, 0, 0], [1, 0, 0, 0]])
    found = hash_texts({"input_ids": ids, "attention_mask": mask}).tolist()
    assert found[0] == found[2] and len({*found}) == 4
    assert found[:2] == hash_texts({"input_ids": ids[:2, :2], "attention_mask": mask[:2, :2]}).tolist()
    random = torch.randint(0, 30_000, (20_000, 12), generator=torch.Generator().manual_seed(0))
    assert len(hash_texts({"input_ids": random}).unique()) == 20_000


def test_every_different_text_is_read_once_and_questions_apart() -> None:
    """Of 12 questions and 24 passages, 6 of them different: passes of one side, none longer than its longest text."""
    encoded, objective = groups(), InBatchNegatives(1.0)
    batch = encoded.batch(np.arange(ROWS))
    passes = objective.split([batch], 4)
    sizes = [(int(one["texts"][0]) & 1, len(one["texts"])) for one in passes]
    assert sizes == [(0, 4), (0, 4), (0, 4), (1, 4), (1, 2)]
    assert all(int(one["attention_mask"].sum(-1).max()) == one["input_ids"].shape[1] for one in passes)
    assert int(mark_side(torch.tensor(-1), 0)) == -2


def test_a_teachers_scores() -> None:
    """Against the papers' formulas."""
    drawn = torch.randn(4, 4, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    vectors = drawn / drawn.norm(dim=-1, keepdim=True)
    labels = torch.randn(4, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    margins, divergence = CandidateMargins(5.0), CandidateDivergence(5.0, 2.0)
    found = [one.losses(vectors, {"labels": labels}) for one in (margins, divergence)]
    for row in range(4):
        ours = [5 * float(vectors[row, 0] @ vectors[row, side]) for side in (1, 2, 3)]
        theirs = labels[row].tolist()
        gaps = [((ours[0] - ours[side]) - (theirs[0] - theirs[side])) ** 2 for side in (1, 2)]
        assert float(found[0][row]) == pytest.approx(sum(gaps) / 2)
        first, second = (np.exp(one) / np.exp(one).sum() for one in (np.array(theirs) / 2, np.array(ours)))
        assert float(found[1][row]) == pytest.approx(float((first * np.log(first / second)).sum()))


def test_similarities_are_those_of_the_vectors() -> None:
    """Inner products of what the model gives, cosines of what has length one."""
    model, batch = small_encoder(0.0), groups().batch(np.arange(3))
    with torch.no_grad():
        plain, unit = (compute_group_vectors(model, batch, SIMILARITIES[one]) for one in ("inner_product", "cosine"))
    torch.testing.assert_close(plain / plain.norm(dim=-1, keepdim=True), unit)
    assert plain.dtype == torch.float64 and plain.shape == (3, GROUP, 16)
