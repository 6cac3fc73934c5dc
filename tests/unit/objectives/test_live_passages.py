"""REALM's loss and gradients against the equations, written out passage by passage in float64."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from tests.tolerances import assert_close
from tests.unit.objectives.teaching import make
from torch import Tensor

from saucier import config as c
from saucier.model import Transformer
from saucier.objectives.base import Batch
from saucier.objectives.latent_passages import Joined, LatentPassages, SequenceMarginal
from saucier.objectives.live_passages import NULL, LiveRetriever

SENTENCES, READ, KNOWN = 2, 3, 5
SCALE = 1.3
RANDOM = torch.Generator().manual_seed(2)
TEXTS = torch.randint(4, 50, (KNOWN, 6), generator=RANDOM)
NOTHING = torch.tensor([[2, 3]])
STALE = torch.randn(KNOWN, 16, generator=RANDOM, dtype=torch.float64)
OWN = 1
"""The place of the passage that holds the first sentence."""
BATCH: Batch = {"input_ids": torch.randint(4, 50, (SENTENCES, 4), generator=RANDOM),
                "question.input_ids": torch.randint(4, 50, (SENTENCES, 5), generator=RANDOM),
                "labels": torch.tensor([[-100, -100, 7, 12], [-100, 9, -100, -100]])}


@dataclass
class Held:
    """A few passages in memory, with vectors of an earlier encoder: a `LivePassages`."""

    chosen: Tensor | None = None
    age: int = 7
    steps: tuple[int, ...] = ()

    def find(self, questions: Tensor, count: int) -> Tensor:
        raise AssertionError("the sentence's own passage would be among them")

    def vectors(self, places: Tensor) -> Tensor:
        raise AssertionError("stale vectors choose, and weigh nothing")

    def find_others(self, batch: Batch, questions: Tensor, count: int) -> tuple[Tensor, int]:
        assert not questions.requires_grad
        near = questions @ STALE.T
        near[0, OWN] = -torch.inf
        self.chosen = near.topk(count).indices
        return self.chosen, 1

    def join(self, batch: Batch, places: Tensor) -> Joined:
        rows = []
        for own, found in zip(batch["input_ids"], places.tolist(), strict=True):
            rows += [torch.cat([own, TEXTS[place] if place != NULL else torch.zeros(6, dtype=torch.long)])
                     for place in found]
        mask = torch.ones(len(rows), 10, dtype=torch.long)
        mask[places.flatten() == NULL, 4:] = 0
        starts = torch.full(places.shape, 4)
        return Joined({"input_ids": torch.stack(rows), "attention_mask": mask}, starts, starts + 6)

    def spell(self, places: Tensor) -> Batch:
        rows = [TEXTS[place] if place != NULL else torch.cat([NOTHING[0], torch.zeros(4, dtype=torch.long)])
                for place in places.tolist()]
        mask = torch.ones(len(rows), 6, dtype=torch.long)
        mask[places == NULL, 2:] = 0
        return {"input_ids": torch.stack(rows), "attention_mask": mask}

    def begin_step(self, step: int) -> None:
        self.steps = (*self.steps, step)

    def finish_step(self, step: int) -> None:
        self.steps = (*self.steps, -step)


def models() -> tuple[Transformer, Transformer]:
    head = c.EmbeddingHead(pooling=(c.Pooling(kind="mean"),), normalize=False)
    return make("bert", length=32), make("bert", head=head, seed=3)


def written_out(reader: Transformer, encoder: Transformer, chosen: Tensor) -> tuple[Tensor, Tensor]:
    """The loss by eq 72, 73 and 76, the null document the last of the candidates, and its p(z | x) summed."""
    loss, null = torch.zeros((), dtype=torch.float64), torch.zeros((), dtype=torch.float64)
    for number in range(SENTENCES):
        question = encoder(BATCH["question.input_ids"][number:number + 1]).embeddings[0]
        labels = BATCH["labels"][number]
        places = (labels >= 0).nonzero()[:, 0]
        weights, chances = [], []
        for place in [*chosen[number].tolist(), None]:
            text = NOTHING if place is None else TEXTS[place:place + 1]
            weights.append((SCALE * (encoder(text).embeddings[0] @ question)).exp())
            row = [BATCH["input_ids"][number]] + ([] if place is None else [TEXTS[place]])
            logits = reader(torch.cat(row)[None]).logits[0, places]
            chances.append(logits.softmax(-1)[torch.arange(len(places)), labels[places]].prod())
        prior = torch.stack(weights) / torch.stack(weights).sum()
        loss, null = loss - (prior * torch.stack(chances)).sum().log(), null + prior[-1]
    return loss, null


def test_loss_and_gradients_are_those_of_the_equations() -> None:
    """The gradient reaches both sides of the retriever; the index's own vectors only choose."""
    reader, encoder = models()
    held = Held()
    objective = LatentPassages(LiveRetriever(encoder, held, READ, SCALE), SequenceMarginal())
    objective.bind(reader)
    loss = objective(reader, BATCH)
    assert held.chosen is not None and OWN not in held.chosen[0]
    weights = [*reader.parameters(), *encoder.parameters()]
    found = torch.autograd.grad(loss.total, weights, allow_unused=True)
    expected, null = written_out(reader, encoder, held.chosen)
    wanted = torch.autograd.grad(expected, weights, allow_unused=True)
    assert loss.weight == objective.count(BATCH)["tokens"] == 3
    assert_close(loss.total, expected, 1e-9)
    for one, other in zip(found, wanted, strict=True):
        assert (one is None) == (other is None)
        if one is not None and other is not None:
            assert_close(one, other, 1e-9)
    assert_close(loss.figures["null"].total, null, 1e-9)
    assert float(loss.figures["stale"].total) / loss.figures["stale"].weight == 7
    assert float(loss.figures["own"].total) == 1


def test_passages_themselves_get_a_gradient() -> None:
    """With the questions' vectors held fixed the encoder learns still, of the passages' side alone."""
    reader, encoder = models()
    retriever = LiveRetriever(encoder, Held(), READ, SCALE)
    objective = LatentPassages(retriever, SequenceMarginal())
    objective.bind(reader)
    words = [int(word) for word in TEXTS.flatten().tolist()
             if word not in set(BATCH["question.input_ids"].flatten().tolist())]
    objective(reader, BATCH).total.backward()
    gradient = encoder.embed.tokens.weight.grad
    assert gradient is not None and float(gradient[words].abs().sum()) > 1e-6


def test_a_single_candidate_is_the_null_document() -> None:
    reader, encoder = models()
    held = Held()
    objective = LatentPassages(LiveRetriever(encoder, held, 1, SCALE), SequenceMarginal())
    objective.bind(reader)
    loss = objective(reader, BATCH)
    assert held.chosen is None, "nothing is looked for"
    assert_close(loss.total, written_out(reader, encoder, torch.empty(SENTENCES, 0, dtype=torch.long))[0], 1e-9)
    assert float(loss.figures["null"].total) == SENTENCES


def test_steps_are_told_to_the_passages() -> None:
    reader, encoder = models()
    held = Held()
    objective = LatentPassages(LiveRetriever(encoder, held, READ), SequenceMarginal())
    assert objective.at(3) is objective
    objective.finish_update(reader, 3)
    assert held.steps == (3, -3)
