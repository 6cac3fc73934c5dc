"""Fusion-in-decoder against encoder states that are put one after another by hand, and against every text."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.tolerances import assert_close
from tests.unit.generation.models import shaken
from tests.unit.generation.test_mixtures import END, FILL, IDS, MASK, NEW, SOURCES, START, TEXTS, VOCAB, all_texts
from torch import Tensor

import saucier
from saucier.errors import InputError
from saucier.families import FAMILIES
from saucier.generation.decoding import Native
from saucier.generation.prefix_cache import PrefixCache
from saucier.model import Transformer, build
from saucier.objectives.base import Batch
from saucier.objectives.latent_passages import score_joined_targets

SIZES: dict[str, dict[str, int]] = {"bart": {"length": 16}, "t5": {"head_dim": 8, "hidden": 32}}


def make(family: str) -> Transformer:
    sizes: dict[str, Any] = SIZES[family]
    return shaken(build(FAMILIES[family](dim=16, layers=1, heads=2, vocab=VOCAB, **sizes)))  # type: ignore[no-any-return]


@pytest.fixture(scope="module", params=["bart", "t5"])
def model(request: pytest.FixtureRequest) -> Transformer:
    return make(request.param)


def joined_by_hand(model: Transformer, number: int) -> Tensor:
    """Each source read alone, without padding, and their vectors one after another. Shapes: -> [1, S, D]."""
    found = []
    for row in range(number * SOURCES, (number + 1) * SOURCES):
        ids = IDS[row:row + 1, :int(MASK[row].sum())]
        found.append(model(ids, decoder_input_ids=torch.tensor([[START]])).encoder_last_hidden_state)
    return torch.cat(found, 1)


def logs_by_hand(model: Transformer, number: int, texts: list[tuple[int, ...]]) -> list[Tensor]:
    """Return log p of each token of some texts."""
    joined, found = joined_by_hand(model, number), []
    for text in texts:
        before = torch.tensor([[START, *text[:-1]]])
        logs = model(None, encoder_output=joined, decoder_input_ids=before).logits[0].log_softmax(-1)
        found.append(logs[torch.arange(len(text)), list(text)])
    return found


def test_targets_are_scored_from_all_sources_at_once(model: Transformer) -> None:
    """And every passage is told of what its tokens did, through the encoder."""
    double = model.double()
    try:
        labels = torch.tensor([[4, 0, END], [3, END, -100]])
        batch: Batch = {"decoder_input_ids": torch.tensor([[START, 4, 0], [START, 3, 0]]), "labels": labels}
        inputs = {"input_ids": IDS, "attention_mask": MASK}
        found = score_joined_targets(double, inputs, batch)
        for number, text in enumerate([(4, 0, END), (3, END)]):
            assert_close(found[number, :len(text)], logs_by_hand(double, number, [text])[0], 1e-10)
        weights = [one for one in double.parameters() if one.requires_grad]
        wanted = torch.autograd.grad(sum(logs_by_hand(double, number, [text])[0].sum() for number, text in enumerate(
            [(4, 0, END), (3, END)])), weights, allow_unused=True)
        for one, other in zip(torch.autograd.grad(found.sum(), weights, allow_unused=True), wanted, strict=True):
            assert (one is None) == (other is None)
            if one is not None and other is not None:
                assert_close(one, other, 1e-10)
    finally:
        model.float()


@pytest.mark.slow
def test_beams_find_the_likeliest_text_of_all(model: Transformer) -> None:
    """With as many beams as there are texts, the search is exhaustive."""
    with torch.no_grad():
        found = saucier.generate(model, IDS, MASK, fusion=SOURCES, num_beams=4 * VOCAB**NEW, length_penalty=0.0, **FILL)
        for number in range(TEXTS):
            texts = all_texts()
            chances = [float(one.sum()) for one in logs_by_hand(model, number, texts)]
            best = texts[max(range(len(texts)), key=lambda place: chances[place])]
            assert tuple(found[number, 1:1 + len(best)].tolist()) == best


@pytest.mark.parametrize("options", [{}, {"num_beams": 3}, {"do_sample": True, "seed": 3, "num_return_sequences": 2}])
def test_a_step_with_the_cache_is_a_pass_over_all(model: Transformer, options: dict[str, Any]) -> None:
    """Searches see what a model sees that is given the joined states; each text alone writes what it does in a batch.
    """
    found = saucier.generate(model, IDS, MASK, fusion=SOURCES, **FILL, **options)
    copies = options.get("num_return_sequences", 1)
    assert len(found) == TEXTS * copies
    if not options.get("do_sample"):
        for number in range(TEXTS):
            rows = slice(number * SOURCES, (number + 1) * SOURCES)
            alone = saucier.generate(model, IDS[rows], MASK[rows], fusion=SOURCES, **FILL, **options)[0]
            assert found[number, :len(alone)].tolist() == alone.tolist()


def test_one_source_is_the_model_itself(model: Transformer) -> None:
    assert torch.equal(saucier.generate(model, IDS, MASK, fusion=1, **FILL), saucier.generate(model, IDS, MASK, **FILL))


def test_the_native_engine_writes_the_same() -> None:
    model = make("bart")
    assert torch.equal(saucier.generate(model, IDS, MASK, fusion=SOURCES, engine=Native(), **FILL),
                       saucier.generate(model, IDS, MASK, fusion=SOURCES, **FILL))


@pytest.mark.parametrize(("more", "what"), [
    ({"fusion": 4}, "6 sources, and 4 of each text"), ({"fusion": 0}, "6 sources, and 0"), ({"fusion": True}, "True"),
    ({"fusion": 3, "mixture": torch.zeros(6, 1)}, "several sources"),
    ({"fusion": 3, "prefix_cache": PrefixCache()}, "several sources"),
])
def test_what_cannot_be_joined_is_refused(more: dict[str, Any], what: str) -> None:
    with pytest.raises(InputError, match=what):
        saucier.generate(make("bart"), IDS, MASK, **more, **FILL)
    decoder = build(FAMILIES["gpt2"](dim=16, layers=1, heads=2, vocab=VOCAB, length=16))
    with pytest.raises(InputError, match="a decoder alone has no sources"):
        saucier.generate(decoder, IDS, torch.ones_like(IDS), fusion=3, eos_token_id=END, pad_token_id=3)
