"""RAG's losses and gradients against the equations, written out passage by passage in float64, and the published class.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf
from tests.tolerances import assert_close
from tests.unit.objectives.teaching import make
from torch import Tensor

import saucier
from saucier import config as c
from saucier.model import Transformer
from saucier.objectives.base import Batch
from saucier.objectives.latent_passages import (
    Joined,
    LatentPassages,
    Marginal,
    Retriever,
    SequenceMarginal,
    TokenMarginal,
    score_targets,
)
from saucier.training.hyperparameters import AdamW
from saucier.training.optimizers import build_optimizer

QUESTIONS, FOUND, KNOWN = 2, 3, 5
SCALE = 1.7
RANDOM = torch.Generator().manual_seed(2)
VECTORS = torch.randn(KNOWN, 16, generator=RANDOM, dtype=torch.float64)
TEXTS = torch.randint(4, 50, (KNOWN, 6), generator=RANDOM)
LABELS = torch.tensor([[7, 12, 2], [9, 2, -100]])
BATCH: Batch = {"input_ids": torch.randint(4, 50, (QUESTIONS, 4), generator=RANDOM),
                "question.input_ids": torch.randint(4, 50, (QUESTIONS, 5), generator=RANDOM),
                "question.attention_mask": torch.tensor([[1] * 5, [1, 1, 1, 0, 0]]),
                "decoder_input_ids": torch.tensor([[2, 7, 12], [2, 9, 0]]), "labels": LABELS}


@dataclass
class Held:
    """A few passages in memory, read before the question."""

    asked: Tensor | None = None

    def find(self, questions: Tensor, count: int) -> Tensor:
        assert not questions.requires_grad
        self.asked = questions
        return (questions.double()[:, None] * VECTORS).sum(-1).topk(count).indices

    def vectors(self, places: Tensor) -> Tensor:
        return VECTORS[places]

    def join(self, batch: Batch, places: Tensor) -> Joined:
        own = batch["input_ids"][:, None].expand(-1, places.shape[1], -1)
        starts = torch.zeros_like(places)
        return Joined({"input_ids": torch.cat([TEXTS[places], own], -1).flatten(0, 1)}, starts, starts + TEXTS.shape[1])


def models() -> tuple[Transformer, Transformer]:
    head = c.EmbeddingHead(pooling=(c.Pooling(kind="mean"),), normalize=False)
    return make("bart", length=32), make("bert", head=head, seed=3)


def written_out(reader: Transformer, encoder: Transformer, *, by_token: bool) -> tuple[Tensor, list[Tensor]]:
    """The loss by eq 81 or 82, and the chance of each passage given the whole answer (81)."""
    loss, behind = torch.zeros((), dtype=torch.float64), []
    for number in range(QUESTIONS):
        real = int(BATCH["question.attention_mask"][number].sum())
        question = encoder(BATCH["question.input_ids"][number:number + 1, :real]).embeddings[0]
        near = (VECTORS @ question).topk(FOUND).indices
        prior = torch.exp(SCALE * VECTORS[near] @ question)
        prior = prior / prior.sum()
        target = LABELS[number][LABELS[number] >= 0]
        chances = []
        for place in near.tolist():
            ids = torch.cat([TEXTS[place], BATCH["input_ids"][number]])[None]
            logits = reader(ids, decoder_input_ids=BATCH["decoder_input_ids"][number:number + 1, :len(target)]).logits
            chances.append(logits[0].softmax(-1)[torch.arange(len(target)), target])
        each = torch.stack(chances)  # [K, T]
        if by_token:
            loss = loss - (prior[:, None] * each).sum(0).log().sum()
        else:
            joint = prior * each.prod(1)
            loss = loss - joint.sum().log()
            behind.append(joint / joint.sum())
    return loss, behind


@pytest.mark.parametrize("marginal", [SequenceMarginal(), TokenMarginal()])
def test_losses_and_gradients_are_those_of_the_equations(marginal: Marginal) -> None:
    reader, encoder = models()
    objective = LatentPassages(Retriever(encoder, Held(), FOUND, SCALE), marginal)
    objective.bind(reader)
    loss = objective(reader, BATCH)
    weights = [*reader.parameters(), *encoder.parameters()]
    found = torch.autograd.grad(loss.total, weights, allow_unused=True)
    expected, _ = written_out(reader, encoder, by_token=isinstance(marginal, TokenMarginal))
    wanted = torch.autograd.grad(expected, weights, allow_unused=True)
    assert loss.weight == objective.count(BATCH)["tokens"] == 5
    assert_close(loss.total, expected, 1e-9)
    assert sum(float(one.abs().sum()) for one in wanted[-3:] if one is not None) > 1e-6, "the retriever learns"
    for one, other in zip(found, wanted, strict=True):
        assert (one is None) == (other is None)
        if one is not None and other is not None:
            assert_close(one, other, 1e-9)


def test_the_posterior_is_by_bayes_rule() -> None:
    reader, encoder = models()
    retriever = Retriever(encoder, Held(), FOUND, SCALE)
    with torch.no_grad():
        found = retriever.find(BATCH)
        logs = score_targets(reader, retriever.read(BATCH, found).inputs, BATCH)
        _, behind = SequenceMarginal()(found.prior, logs, LABELS >= 0)
        _, expected = written_out(reader, encoder, by_token=False)
    assert_close(behind, torch.stack(expected), 1e-9)


def test_chances_sum_to_one_under_autocast() -> None:
    """Inner products are of the vectors as they are: in bfloat16, times a scale, they would give other chances."""
    _, encoder = models()
    retriever = Retriever(encoder.float(), Held(), FOUND, 20.0)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        found = retriever.find(BATCH)
        vectors = encoder(BATCH["question.input_ids"], attention_mask=BATCH["question.attention_mask"]).embeddings
    expected = 20 * (VECTORS.float()[found.places] * vectors.float()[:, None]).sum(-1)
    torch.testing.assert_close(found.scores, expected, rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(found.prior.exp().sum(-1), torch.ones(QUESTIONS), rtol=0, atol=1e-6)


def test_the_retriever_begins_again_with_its_own_weights() -> None:
    reader, encoder = models()
    objective = LatentPassages(Retriever(encoder, Held(), FOUND), SequenceMarginal())
    objective.bind(reader)
    before = {name: value.clone() for name, value in encoder.state_dict().items()}
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter += 1.0
    objective.bind(reader)
    assert objective.modules == {"retriever": encoder}
    assert all(torch.equal(value, before[name]) for name, value in encoder.state_dict().items())


def test_the_retriever_learns_at_its_own_rate() -> None:
    reader, encoder = models()
    objective = LatentPassages(Retriever(encoder, Held(), FOUND, rate=0.25), SequenceMarginal())
    optimizer = build_optimizer(AdamW(learning_rate=0.004), reader, objective.modules,
                                module_rates=objective.module_rates)
    rates = {id(one): group["lr"] for inner in optimizer.parts for group in inner.param_groups
             for one in group["params"]}
    assert {rates[id(one)] for one in encoder.parameters()} == {0.001}
    assert {rates[id(one)] for one in reader.parameters()} == {0.004}


def published(tmp_path: Path) -> tuple[Any, Any, Transformer]:
    torch.manual_seed(0)
    config = hf.BartConfig(vocab_size=50, d_model=16, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
                           decoder_attention_heads=2, encoder_ffn_dim=32, decoder_ffn_dim=32, dropout=0.0,
                           max_position_embeddings=32, pad_token_id=1, bos_token_id=0, eos_token_id=2,
                           decoder_start_token_id=2)
    generator = hf.BartForConditionalGeneration(config).eval()
    encoder = hf.DPRQuestionEncoder(hf.DPRConfig(vocab_size=50, hidden_size=16, num_hidden_layers=1,
                                                 num_attention_heads=2, intermediate_size=32))
    generator.save_pretrained(tmp_path)
    return generator, encoder, saucier.load(tmp_path, dtype="float32", device="cpu")


@pytest.mark.parametrize(("marginal", "name"), [(SequenceMarginal(), "RagSequenceForGeneration"),
                                                (TokenMarginal(), "RagTokenForGeneration")])
def test_losses_are_those_of_the_published_classes(tmp_path: Path, marginal: Marginal, name: str) -> None:
    generator, encoder, ours = published(tmp_path)
    theirs = getattr(hf, name)(question_encoder=encoder, generator=generator).eval()
    ids = torch.randint(3, 50, (QUESTIONS * FOUND, 6), generator=torch.Generator().manual_seed(4))
    scores = torch.tensor([[1.0, 0.2, -0.4], [0.3, 0.1, 2.0]])
    text = torch.tensor([[2, 7, 12, 9, 2], [2, 9, 4, 2, 1]])  # the start, then what is written, then padding
    wanted = theirs(context_input_ids=ids, context_attention_mask=torch.ones_like(ids), doc_scores=scores,
                    labels=text, n_docs=FOUND).loss
    labels = text[:, 1:].masked_fill(text[:, 1:] == 1, -100)
    batch = {"labels": labels, "decoder_input_ids": text[:, :-1]}
    with torch.no_grad():
        logs = score_targets(ours, {"input_ids": ids}, batch)
        chance, _ = marginal(scores.log_softmax(-1), logs, labels >= 0)
    assert_close(-chance, wanted)
