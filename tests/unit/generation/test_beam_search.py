"""Beam search against an exhaustive search over all texts, where the beam is wide enough to lose nothing."""

from __future__ import annotations

import itertools

import pytest
import torch
from tests.unit.generation.models import shaken
from torch import Tensor

import saucier
from saucier.families import FAMILIES
from saucier.model import Transformer, build

VOCAB, NEW, END = 4, 3, 1


@pytest.fixture(scope="module")
def model() -> Transformer:
    return shaken(build(FAMILIES["gpt2"](dim=16, layers=1, heads=2, vocab=VOCAB, length=16)))  # type: ignore[no-any-return]


def all_texts() -> list[tuple[int, ...]]:
    """Return every text of NEW tokens, or that ends earlier with END."""
    found = set()
    for tokens in itertools.product(range(VOCAB), repeat=NEW):
        found.add(tokens[: tokens.index(END) + 1] if END in tokens else tokens)
    return sorted(found)


def log_probability(model: Transformer, prompt: Tensor, text: tuple[int, ...]) -> float:
    ids = torch.cat([prompt, torch.tensor([text])], dim=1)
    with torch.no_grad():
        logits = model(ids[:, :-1]).logits
    assert logits is not None
    steps = logits[0, prompt.shape[1] - 1 :].log_softmax(-1)
    return float(steps.gather(1, torch.tensor(text)[:, None]).sum())


@pytest.mark.slow
@pytest.mark.parametrize("penalty", [-1.0, 0.0, 0.7, 1.0, 2.0, 4.0])
def test_the_best_texts_are_found(model: Transformer, penalty: float) -> None:
    """The score of a text is its log probability over its length to the power of the penalty (end token counted)."""
    for first in range(VOCAB):
        prompt = torch.tensor([[2, first]])
        ranked = sorted(all_texts(), key=lambda text: -log_probability(model, prompt, text) / len(text) ** penalty)
        got = saucier.generate(
            model,
            prompt,
            torch.ones(1, 2),
            max_new_tokens=NEW,
            num_beams=VOCAB**2,
            eos_token_id=END,
            num_return_sequences=3,
            length_penalty=penalty,
            early_stopping="never",
            pad_token_id=3,
        )[:, 2:]
        want = [list(text) + [3] * (NEW - len(text)) for text in ranked[:3]]
        longest = max(len(text) for text in ranked[:3])
        assert got.tolist() == [text[:longest] for text in want]


def test_wider_beams_find_likelier_texts(model: Transformer) -> None:
    prompt = torch.tensor([[0, 2, 3]])
    found = [saucier.generate(model, prompt, max_new_tokens=6, num_beams=width)[0, 3:].tolist() for width in (1, 2, 8)]
    chances = [log_probability(model, prompt, tuple(text)) for text in found]
    assert chances[2] >= chances[0]
    assert len(found[2]) == 6


def test_rows_are_searched_apart(model: Transformer) -> None:
    """What stands in the other rows of a batch changes nothing."""
    prompts = torch.tensor([[0, 2, 3], [3, 3, 0], [2, 0, 2]])
    options = {"max_new_tokens": 8, "num_beams": 3, "eos_token_id": END, "length_penalty": 0.5, "pad_token_id": 3}
    together = saucier.generate(model, prompts, torch.ones(3, 3), **options)
    for row, prompt in enumerate(prompts):
        alone = saucier.generate(model, prompt[None], torch.ones(1, 3), **options)[0]
        assert together[row, : len(alone)].tolist() == alone.tolist()
        assert set(together[row, len(alone) :].tolist()) <= {3}


def test_beams_can_be_sampled(model: Transformer) -> None:
    options = {"max_new_tokens": 5, "num_beams": 2, "do_sample": True, "num_return_sequences": 2}
    first, again, other = (saucier.generate(model, torch.tensor([[0, 2]]), seed=seed, **options) for seed in (4, 4, 5))
    assert first.tolist() == again.tolist()
    assert first.shape == (2, 7)
    drawn = {
        tuple(saucier.generate(model, torch.tensor([[0, 2]]), seed=seed, **options)[0].tolist()) for seed in range(6)
    }
    assert len(drawn) > 1
    assert other.shape == (2, 7)
