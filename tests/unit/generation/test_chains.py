"""Text from masked models: the chains go where their definitions say, and read no more than they should."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import chisquare
from tests.unit.generation.models import shaken
from torch import Tensor

import saucier
from saucier import config as c
from saucier.errors import InputError
from saucier.families import FAMILIES
from saucier.generation import Gibbs, MetropolisHastings, walk
from saucier.model import Transformer, build

WORDS, MASK, BEGIN, END = 4, 4, 5, 6
PLACES = 3
OPEN = torch.tensor([[BEGIN, *[MASK] * PLACES, END]])
FRAME = {"suppress_tokens": (BEGIN, END)}


def masked_model(**options: Any) -> Transformer:
    """Return a small BERT of a vocabulary of four words, a mask and a frame."""
    config = FAMILIES["bert"](**{"dim": 16, "layers": 1, "heads": 2, "vocab": 7, "length": 8} | options)
    return shaken(build(config))  # type: ignore[no-any-return]


def definition(model: Transformer, *, normalized: bool) -> np.ndarray[Any, Any]:
    """Return exp(-energy) of all texts, made a distribution: place by place, text by text."""
    energies = []
    for words in product(range(WORDS), repeat=PLACES):
        text, energy = torch.tensor([[BEGIN, *words, END]]), 0.0
        for place, word in enumerate(words, start=1):
            hidden = text.clone()
            hidden[0, place] = MASK
            with torch.no_grad():
                scores = model(hidden).logits[0, place, :WORDS]
            energy -= float((scores.log_softmax(-1) if normalized else scores)[word])
        energies.append(energy)
    chances = np.exp(-np.array(energies) + min(energies))
    return chances / chances.sum()


def seen(ids: Tensor) -> np.ndarray[Any, Any]:
    """Count the texts."""
    numbers = (ids[:, 1:-1] * torch.tensor([WORDS**2, WORDS, 1])).sum(1)
    return np.bincount(numbers.numpy(), minlength=WORDS**PLACES)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["raw", "normalized"])
def test_metropolis_hastings_draws_from_the_distribution_of_its_energy(kind: str) -> None:
    """Chains of their own, so that the counts are independent: chi-square over all 64 texts."""
    model, count = masked_model(), 6000
    strategy = MetropolisHastings.model_validate({"mask": MASK, "steps": 25, "energy": kind})
    done = walk(model, OPEN, strategy=strategy, seed=1, num_return_sequences=count, **FRAME)
    wanted = definition(model, normalized=kind == "normalized") * count
    found, order = seen(done.ids), np.argsort(wanted)  # the four rarest count as one
    found, wanted = (np.append(one[order[4:]], one[order[:4]].sum()) for one in (found, wanted))
    assert wanted.min() > 5
    assert chisquare(found, wanted).pvalue > 0.001
    far = np.full_like(wanted, count / len(wanted))
    assert chisquare(found, far).pvalue < 1e-6  # and not from any other, such as one that is equal for all
    assert 0.2 < done.rate < 1
    assert done.energy is not None


def test_with_one_open_place_every_proposal_is_taken() -> None:
    """The proposal is then the distribution itself; the energy that is kept is that of the text."""
    model, text = masked_model(), torch.tensor([[BEGIN, 0, MASK, 2, END]])
    strategy = MetropolisHastings(mask=MASK, steps=30)
    done = walk(model, text, strategy=strategy, seed=0, **FRAME)
    assert done.proposed > 0
    assert done.rate == 1
    hidden = done.ids.clone()
    hidden[0, 2] = MASK
    scores = model(hidden).logits[0, 2, :WORDS].log_softmax(-1)
    assert done.energy is not None
    torch.testing.assert_close(done.energy[0], -scores[done.ids[0, 2]].detach(), atol=1e-5, rtol=0)


def test_gibbs_draws_one_place_from_its_conditional() -> None:
    """With one open place and one step the tokens are as often there as the model says."""
    model, text, count = masked_model(), torch.tensor([[BEGIN, 0, MASK, 2, END]]), 5000
    ids = saucier.generate(model, text, strategy=Gibbs(mask=MASK, steps=1), num_return_sequences=count, seed=3, **FRAME)
    chances = model(text).logits[0, 2, :WORDS].softmax(-1).detach().double().numpy()
    assert chisquare(np.bincount(ids[:, 2].numpy(), minlength=WORDS), chances / chances.sum() * count).pvalue > 0.001
    assert (ids[:, [0, 1, 3, 4]] == text[:, [0, 1, 3, 4]]).all()


def test_behind_the_burn_in_the_likeliest_is_taken() -> None:
    """A sequential pass of greedy steps is the loop written out."""
    model = masked_model()
    ids = saucier.generate(model, OPEN, strategy=Gibbs(mask=MASK, steps=PLACES, burn_in=0, order="sequential"), **FRAME)
    wanted = OPEN.clone()
    for place in range(1, 1 + PLACES):
        wanted[0, place] = MASK
        wanted[0, place] = model(wanted).logits[0, place, :WORDS].argmax()
    assert ids.equal(wanted)


def test_top_k_is_for_steps_behind_the_burn_in() -> None:
    """With k = 1 no chance is left behind it; before it there is."""
    model, text = masked_model(), OPEN.repeat(200, 1)

    def different(burn_in: int) -> int:
        strategy = Gibbs(mask=MASK, steps=PLACES, burn_in=burn_in, order="sequential")
        return len(saucier.generate(model, text, strategy=strategy, top_k=1, seed=2, **FRAME).unique(dim=0))

    assert different(0) == 1
    assert different(PLACES) > 10


@pytest.mark.slow
def test_padding_and_seed() -> None:
    """A padded text is written as it is alone, and a seed draws the same text again."""
    model = masked_model()
    padded = torch.tensor([[BEGIN, MASK, MASK, END, 0, 0]])
    strategy = Gibbs(mask=MASK, steps=2, burn_in=0, order="sequential")
    mask = torch.tensor([[1, 1, 1, 1, 0, 0]])
    alone = saucier.generate(model, padded[:, :4], strategy=strategy, **FRAME)
    assert saucier.generate(model, padded, mask, strategy=strategy, **FRAME)[:, :4].equal(alone)
    drawn = [saucier.generate(model, OPEN.repeat(20, 1), strategy=Gibbs(mask=MASK), seed=seed, **FRAME)
             for seed in (5, 5, 6)]
    assert drawn[0].equal(drawn[1])
    assert not drawn[0].equal(drawn[2])


def test_order_of_places() -> None:
    """A random order visits every open place, and no other."""
    model, text = masked_model(), torch.tensor([[BEGIN, MASK, 1, MASK, END]]).repeat(50, 1)
    ids = saucier.generate(model, text, strategy=Gibbs(mask=MASK, steps=40), seed=0, **FRAME)
    assert (ids[:, 2] == 1).all()
    assert ((ids[:, [1, 3]] < WORDS).all())


def test_what_cannot_be_done_is_said() -> None:
    model = masked_model()
    with pytest.raises(InputError, match="no mask token"):
        saucier.generate(model, torch.tensor([[1, 2]]), strategy=Gibbs(mask=MASK))
    with pytest.raises(InputError, match="num_beams: is for texts written from left to right"):
        saucier.generate(model, OPEN, strategy=Gibbs(mask=MASK), num_beams=4)
    with pytest.raises(InputError, match=r"strategy\.gibbs\.steps"):
        saucier.generate(model, OPEN, strategy={"kind": "gibbs", "mask": MASK, "steps": 0})
    decoder = shaken(build(FAMILIES["gpt2"](dim=16, layers=1, heads=2, vocab=7, length=8)))
    with pytest.raises(InputError, match="fills in no hidden tokens"):
        saucier.generate(decoder, OPEN, strategy=Gibbs(mask=MASK))
    stream = c.LanguageHead(predicts=c.UnmaskedPrediction(kind="query_stream"))
    told = FAMILIES["xlnet"](dim=16, layers=1, heads=2, hidden=16, vocab=7).model_copy(update={"head": stream})
    with pytest.raises(InputError, match="second stream"):
        walk(build(told), OPEN, strategy=Gibbs(mask=MASK))


@pytest.mark.parametrize("family", ["bert-masked-lm", "mobilebert-masked-lm", "albert-masked-lm", "electra-masked-lm"])
def test_published_masked_models_write(shared: Path, family: str) -> None:
    """The chains are those of the definition: greedy steps from left to right, and an energy that is the sum."""
    folder = shared / "golden" / family
    if not folder.is_dir():
        pytest.skip(f"no golden folder of {family}")
    model = saucier.load(folder, head="language", dtype="float32", device="cpu")
    text, token = torch.tensor([[5, 3, 7, 3, 6]]), 3
    ids = saucier.generate(model, text, strategy=Gibbs(mask=token, steps=2, burn_in=0, order="sequential"))
    wanted = text.clone()
    for place in (1, 3):
        scores = model(wanted).logits[0, place].detach().clone()
        scores[token] = -torch.inf
        wanted[0, place] = scores.argmax()
    assert ids.equal(wanted)
    done = walk(model, text, strategy=MetropolisHastings(mask=token, steps=3, energy="raw"), seed=0)
    hidden = [done.ids.index_fill(1, torch.tensor(place), token) for place in (1, 3)]
    costs = [-model(one).logits[0, place, done.ids[0, place]] for one, place in zip(hidden, (1, 3), strict=True)]
    assert done.energy is not None
    torch.testing.assert_close(done.energy[0], sum(costs).detach(), atol=1e-4, rtol=0)  # type: ignore[union-attr]
