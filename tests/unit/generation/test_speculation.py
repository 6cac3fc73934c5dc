"""Speculation writes what is written without it, by every way to guess; and what it saves."""

from __future__ import annotations

from collections import Counter
from itertools import product

import pytest
import torch

import saucier
from saucier.errors import InputError
from saucier.families import FAMILIES
from saucier.generation import Draft, Native, PromptLookup
from saucier.generation.speculation import LookupGuesses, Speculation

SHAPE = {"dim": 32, "layers": 2, "heads": 4, "vocab": 40}
SOURCE = torch.tensor([[5, 6, 7, 8, 9, 5, 6, 7]])
ENGINES = {"parts": None, "native": Native()}
WAYS = {"greedy": {}, "drawn": {"do_sample": True, "seed": 3, "temperature": 0.7, "top_k": 12},
        "ruled": {"do_sample": True, "seed": 4, "repetition_penalty": 1.3, "no_repeat_ngram_size": 3, "eos_token_id": 7,
                  "pad_token_id": 0}}


def build(family: str = "gpt2", seed: int = 0, **more: object) -> saucier.Transformer:
    torch.manual_seed(seed)
    model = saucier.build(FAMILIES[family](**SHAPE | more)).eval()
    for weight in model.parameters():  # far from uniform, so that rounding decides nothing
        if weight.ndim > 1:
            weight.data *= 6
    return model


def near(model: saucier.Transformer, seed: int = 1) -> saucier.Transformer:
    """Return a model that mostly agrees."""
    torch.manual_seed(seed)
    other = saucier.build(model.config).eval()
    other.load_state_dict(model.state_dict())
    for weight in other.parameters():
        weight.data += 0.05 * weight.data.std() * torch.randn_like(weight) if weight.numel() > 1 else 0
    return other


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("family", ["llama", "bloom"])
def test_the_same_is_written(family: str, engine: str, way: str) -> None:
    model = build(family)
    model = model if engine == "native" else model.double()
    options = WAYS[way] | {"max_new_tokens": 24, "engine": ENGINES[engine]}
    expected = saucier.generate(model, SOURCE, **options)
    ways: list[Speculation] = [PromptLookup(), PromptLookup(tokens=2, longest=1), Draft(near(model)),
                               Draft(build(family, 7).to(model.dtype), tokens=3)]
    for speculation in ways:
        assert torch.equal(saucier.generate(model, SOURCE, speculation=speculation, **options), expected)
        counts = speculation.acceptance
        assert counts.tokens - counts.passes == counts.accepted <= counts.proposed


def test_the_model_itself_guesses_rightly_and_saves_passes() -> None:
    """A draft that is the model is right every time, when tokens are drawn too: both draw with the same numbers."""
    model = build().double()
    for way in ({}, WAYS["drawn"]):
        speculation = Draft(model)
        saucier.generate(model, SOURCE, speculation=speculation, max_new_tokens=41, **way)
        counts = speculation.acceptance
        assert counts.accepted == counts.proposed == 32 and counts.passes == 8  # five tokens a pass
        assert str(counts) == "32 of 32 guesses right (100%); 40 tokens in 8 passes"


@pytest.mark.parametrize("way", WAYS)
def test_rows_of_several_lengths_go_their_own_way(way: str) -> None:
    model = build("llama")
    ids = torch.randint(8, 40, (4, 9), generator=torch.Generator().manual_seed(0))
    mask = (torch.arange(9)[None] >= torch.tensor([0, 3, 7, 0])[:, None]).long()
    options = WAYS[way] | {"max_new_tokens": 16, "engine": "native"}
    expected = saucier.generate(model, ids, mask, **options)
    for speculation in (PromptLookup(), Draft(near(model))):
        assert torch.equal(saucier.generate(model, ids, mask, speculation=speculation, **options), expected)


def test_a_padded_row_alone() -> None:
    model, mask = build("bloom").double(), torch.tensor([[0, 0, 1, 1, 1, 1, 1, 1]])
    options = {"max_new_tokens": 20}
    expected = saucier.generate(model, SOURCE, mask, **options)
    for speculation in (PromptLookup(), Draft(near(model))):
        assert torch.equal(saucier.generate(model, SOURCE, mask, speculation=speculation, **options), expected)


@pytest.mark.parametrize("family", ["t5", "bart"])
def test_encoder_decoders(family: str) -> None:
    model = build(family).double()
    options = {"max_new_tokens": 25, "decoder_start_token_id": 0, "eos_token_id": None}
    expected = saucier.generate(model, SOURCE, **options)
    for speculation in (PromptLookup(), Draft(near(model))):
        assert torch.equal(saucier.generate(model, SOURCE, speculation=speculation, **options), expected)
        assert speculation.acceptance.accepted > 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", [PromptLookup, Draft])
@torch.no_grad()
def test_draws_follow_the_distribution(kind: type[Speculation]) -> None:
    """Chi-square over all texts of three tokens, against their exact probabilities."""
    torch.manual_seed(0)
    model = saucier.build(FAMILIES["gpt2"](dim=16, layers=1, heads=2, vocab=4)).eval().double()
    for weight in model.parameters():
        weight.data *= 4
    prompt, draws = torch.tensor([[1, 2, 1]]), 800
    speculation: Speculation = PromptLookup() if kind is PromptLookup else Draft(near(model))
    seen = Counter(tuple(saucier.generate(model, prompt, do_sample=True, seed=seed, max_new_tokens=3,
                                          speculation=speculation)[0, 3:].tolist()) for seed in range(draws))
    texts = list(product(range(4), repeat=3))
    rows = torch.cat([prompt.expand(len(texts), -1), torch.tensor(texts)], 1)
    log = model(rows).logits[:, 2:-1].log_softmax(-1).gather(-1, rows[:, 3:, None])[..., 0].sum(1)
    expected = log.exp() * draws
    found = torch.tensor([seen[text] for text in texts], dtype=torch.double)
    common = expected >= 5
    found, expected = (torch.cat([one[common], one[~common].sum()[None]]) for one in (found, expected))
    statistic = float(((found - expected)**2 / expected).sum())
    freedom = len(found) - 1
    assert statistic < freedom + 3.3 * (2 * freedom)**0.5  # about one in a thousand seeds would fail
    assert 0 < speculation.acceptance.accepted < speculation.acceptance.proposed


def test_lookup_prefers_long_and_late_matches() -> None:
    guesses = LookupGuesses(3)
    text = torch.tensor([1, 2, 3, 10, 11, 9, 2, 3, 20, 21, 1, 2, 3])
    assert guesses.find(text, 13, 2).tolist() == [10, 11]  # three agree
    assert LookupGuesses(2).find(text, 13, 2).tolist() == [20, 21]
    assert guesses.find(torch.tensor([4, 5, 6]), 3, 2).tolist() == []
    assert guesses.find(torch.tensor([4, 4, 4]), 3, 2).tolist() == [4]


@pytest.mark.parametrize(("options", "words"), [
    ({"num_beams": 2}, "written with beams are not guessed ahead"),
    ({"use_cache": False}, "with use_cache=False"), ({"compile": True}, "with compile")])
def test_wrong_options_are_one_line(options: dict[str, object], words: str) -> None:
    with pytest.raises(InputError, match=words):
        saucier.generate(build(), SOURCE, speculation=PromptLookup(), **options)


def test_wrong_models_are_one_line() -> None:
    model = build()
    for draft, words in ((build(vocab=41), "41 tokens, and the model has 40"),
                         (build("t5"), "one of the models has an encoder"), (build(length=16), "positions"),
                         (saucier.build(FAMILIES["bert"](**SHAPE)), "only decoders keep a cache")):
        with pytest.raises(InputError, match=words):
            saucier.generate(model, SOURCE, speculation=Draft(draft), max_new_tokens=20)
    with pytest.raises(InputError, match="2 rows, and guesses are read for one row"):
        saucier.generate(model, SOURCE.repeat(2, 1), speculation=PromptLookup())
    with pytest.raises(InputError, match="tokens"):
        PromptLookup(tokens=0)
