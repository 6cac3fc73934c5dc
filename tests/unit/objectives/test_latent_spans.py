"""ORQA's losses and gradients against the equations, written out span by span in float64."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from tests.tolerances import assert_close
from tests.unit.objectives.teaching import make
from torch import Tensor

from saucier import config as c
from saucier.model import Transformer
from saucier.objectives.base import Batch
from saucier.objectives.latent_passages import Joined, Retriever
from saucier.objectives.latent_spans import LatentSpans

QUESTIONS, READ, EARLY, KNOWN, LENGTH, LONGEST = 3, 2, 4, 6, 7, 3
SCALE, QUESTION_TOKENS = 1.3, 4
RANDOM = torch.Generator().manual_seed(5)
VECTORS = torch.randn(KNOWN, 16, generator=RANDOM, dtype=torch.float64)
TEXTS = torch.randint(4, 50, (KNOWN, LENGTH), generator=RANDOM)
CUT = torch.tensor([7, 6, 5, 7, 7, 6])
"""Tokens of each passage that a row has room for."""


@dataclass
class Held:
    """A few passages in memory, read after the question."""

    def find(self, questions: Tensor, count: int) -> Tensor:
        assert not questions.requires_grad
        return (questions @ VECTORS.T).topk(count).indices

    def vectors(self, places: Tensor) -> Tensor:
        return VECTORS[places]

    def join(self, batch: Batch, places: Tensor) -> Joined:
        own = batch["input_ids"][:, None].expand(-1, places.shape[1], -1)
        ids = torch.cat([own, TEXTS[places]], -1).flatten(0, 1)
        mask = torch.arange(ids.shape[1]) < QUESTION_TOKENS + CUT[places].flatten()[:, None]
        starts = torch.full_like(places, QUESTION_TOKENS)
        return Joined({"input_ids": ids, "attention_mask": mask.long()}, starts, starts + CUT[places])


def models() -> tuple[Transformer, Transformer]:
    head = c.EmbeddingHead(pooling=(c.Pooling(kind="cls"),), maps=(c.DenseMap(width=16, activation="identity"),),
                           normalize=False)
    return (make("bert", length=32, head=c.JointSpanHead(longest=LONGEST, hidden=8)),
            make("bert", head=head, seed=3))


def rank(encoder: Transformer, batch: Batch, number: int) -> tuple[list[int], Tensor]:
    question = encoder(batch["question.input_ids"][number:number + 1]).embeddings[0]
    return (VECTORS @ question).topk(EARLY).indices.tolist(), SCALE * VECTORS @ question


def make_batch(encoder: Transformer) -> Batch:
    """Of the first question an answer stands twice in what is read, once cut away, once too long; of the second only
    the early passages hold one; of the third none does.
    """
    batch: Batch = {"input_ids": torch.randint(4, 50, (QUESTIONS, QUESTION_TOKENS), generator=RANDOM),
                    "question.input_ids": torch.randint(4, 50, (QUESTIONS, 5), generator=RANDOM)}
    near = [rank(encoder, batch, number)[0] for number in range(QUESTIONS)]
    last = LENGTH - 1
    far = [next(one for one in range(KNOWN) if one not in near[number]) for number in range(QUESTIONS)]
    spans = [[(near[0][0], 1, 2), (near[0][1], 0, 0), (near[0][0], 0, 3), (near[0][1], last, last), (near[0][3], 2, 3)],
             [(near[1][2], 2, 3), (far[1], 0, 1)], [(far[2], 3, 3)]]
    padded = torch.tensor([[*some, *[(-1, -1, -1)] * (5 - len(some))] for some in spans])
    names = ("answer_passages", "answer_starts", "answer_ends")
    return batch | dict(zip(names, padded.unbind(-1), strict=True))


def written_out(reader: Transformer, encoder: Transformer, batch: Batch) -> tuple[Tensor, Tensor]:
    """Return both losses by eq 71 and the early update, one span after the other; questions without a hit cost 0."""
    spans = early = torch.zeros((), dtype=torch.float64)
    for number in range(QUESTIONS):
        near, scores = rank(encoder, batch, number)
        answers = {tuple(one) for one in torch.stack([batch[name][number] for name in (
            "answer_passages", "answer_starts", "answer_ends")], 1).tolist()}
        right, every = [], []
        for place in near[:READ]:
            whole = torch.cat([batch["input_ids"][number], TEXTS[place][:CUT[place]]])[None]
            logits = reader(whole).span_logits[0]
            for first in range(int(CUT[place])):
                for end in range(first, min(first + LONGEST, int(CUT[place]))):
                    every.append(torch.exp(scores[place] + logits[QUESTION_TOKENS + first, end - first]))
                    right += every[-1:] if (place, first, end) in answers else []
        if right:
            spans = spans - (torch.stack(right).sum() / torch.stack(every).sum()).log()
        held = [place for place in near if place in {one[0] for one in answers}]
        if held:
            early = early - (scores[held].exp().sum() / scores[near].exp().sum()).log()
    return spans, early


def test_losses_and_gradients_are_those_of_the_equations() -> None:
    reader, encoder = models()
    batch = make_batch(encoder)
    objective = LatentSpans(Retriever(encoder, Held(), READ, SCALE), EARLY)
    objective.bind(reader)
    loss = objective(reader, batch)
    expected = written_out(reader, encoder, batch)
    assert float(expected[0].detach()) > 0.1 and float(expected[1].detach()) > 0.1
    assert_close(loss.parts["spans"].total, expected[0], 1e-9)
    assert_close(loss.parts["passages"].total, expected[1], 1e-9)
    weights = [*reader.parameters(), *encoder.parameters()]
    found = torch.autograd.grad(loss.total, weights, allow_unused=True)
    wanted = torch.autograd.grad(expected[0] + expected[1], weights, allow_unused=True)
    for one, other in zip(found, wanted, strict=True):
        assert (one is None) == (other is None)
        if one is not None and other is not None:
            assert_close(one, other, 1e-9)
    assert sum(float(one.abs().sum()) for one in wanted[-2:] if one is not None) > 1e-6, "the retriever learns"


def test_questions_are_counted_by_what_stands_where() -> None:
    """All three have an answer somewhere; one is read, two are among the passages of the early loss."""
    reader, encoder = models()
    batch = make_batch(encoder)
    objective = LatentSpans(Retriever(encoder, Held(), READ, SCALE), EARLY)
    assert objective.count(batch) == {"spans": 3.0, "passages": 3.0}
    figures = objective(reader, batch).figures
    assert (float(figures["read"].total), float(figures["found"].total), figures["read"].weight) == (1.0, 2.0, 3.0)
    batch["answer_passages"][2] = -1
    assert objective.count(batch) == {"spans": 2.0, "passages": 2.0}


@pytest.mark.parametrize("early", [None, EARLY])
def test_both_losses_reach_the_retriever(early: int | None) -> None:
    """The one of spans by itself; the early one where no answer was read."""
    reader, encoder = models()
    batch = make_batch(encoder)
    number = 0 if early is None else 1
    alone = {name: value[number:number + 1] for name, value in batch.items()}
    objective = LatentSpans(Retriever(encoder, Held(), READ, SCALE), early)
    assert objective.parts == (("spans",) if early is None else ("spans", "passages"))
    objective(reader, alone).total.backward()
    weight = next(one for name, one in encoder.named_parameters() if "maps" in name)
    assert weight.grad is not None and float(weight.grad.abs().sum()) > 1e-6
    reached = reader.head.output.weight.grad
    assert (float(reached.abs().sum()) > 1e-6) == (early is None)


def test_a_question_without_an_answer_in_sight_has_no_gradient() -> None:
    """Not even where a passage has no token."""
    reader, encoder = models()
    alone = {name: value[2:] for name, value in make_batch(encoder).items()}

    class Empty(Held):
        def join(self, batch: Batch, places: Tensor) -> Joined:
            joined = Held.join(self, batch, places)
            return Joined(joined.inputs, joined.starts, joined.starts)

    loss = LatentSpans(Retriever(encoder, Empty(), READ, SCALE), EARLY)(reader, alone)
    loss.total.backward()
    assert float(loss.total.detach()) == 0.0
    grads = [one.grad for one in (*reader.parameters(), *encoder.parameters()) if one.grad is not None]
    assert grads and all(bool((one == 0).all()) for one in grads)
