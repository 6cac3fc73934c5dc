"""What earlier calls read is not read again, and nothing of what is written changes."""

from __future__ import annotations

import pytest
import torch
from tests.unit.generation.test_speculation import SHAPE, WAYS, build

import saucier
from saucier.errors import InputError
from saucier.families import FAMILIES
from saucier.generation import Native, PrefixCache, PromptLookup

ENGINES = {"parts": None, "native": Native(), "int8": Native(format="int8")}


def draw(length: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(8, 40, (1, length), generator=torch.Generator().manual_seed(seed))


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("engine", ENGINES)
def test_a_chat_reads_its_history_once(engine: str, way: str) -> None:
    model, cache, history = build("llama"), PrefixCache(), draw(12)
    model = model.double() if engine == "parts" else model
    options = WAYS[way] | {"max_new_tokens": 6, "engine": ENGINES[engine]}
    for turn in range(4):
        known, before = cache.reused, history.shape[1]
        found = saucier.generate(model, history, prefix_cache=cache, **options)
        assert torch.equal(found, saucier.generate(model, history, **options))
        if turn and way != "ruled":  # all but the last token that was written, and what the person said
            assert cache.reused - known == before - 4
        history = torch.cat([found, draw(3, turn + 1)], 1)
    assert len(cache.entries) == 1 or way == "ruled"
    kept = len(cache.entries)
    saucier.generate(model, history[:, :12], prefix_cache=cache, **options | {"max_new_tokens": 1})
    assert len(cache.entries) == kept  # it is the beginning of what is there


def test_prompts_of_a_batch_with_samples_and_with_beams() -> None:
    model, cache = build("bloom"), PrefixCache()
    shared = draw(20)
    rows = torch.cat([torch.cat([shared, draw(5, seed)], 1) for seed in range(1, 4)])
    mask = torch.ones_like(rows)
    mask[2, :4] = 0
    for options in ({"do_sample": True, "seed": 1, "num_return_sequences": 2}, {"num_beams": 3}, {}):
        options |= {"max_new_tokens": 5, "engine": Native()}
        expected = saucier.generate(model, rows, mask, **options)
        assert torch.equal(saucier.generate(model, rows, mask, prefix_cache=cache, **options), expected)
    assert cache.read == 25 + 25 + 21 + 2 * 3  # then only the last token of each prompt
    saucier.generate(model, torch.cat([shared, draw(7, 9)], 1), prefix_cache=cache, engine=Native(), max_new_tokens=1)
    assert cache.reused == 24 * 4 + 20 * 2 + 20


@pytest.mark.parametrize("engine", ENGINES)
def test_a_padded_row(engine: str) -> None:
    model, cache, prompt = build("llama"), PrefixCache(), torch.cat([torch.zeros(1, 3, dtype=torch.long), draw(9)], 1)
    model = model.double() if engine == "parts" else model
    mask = (torch.arange(12) >= 3)[None].long()
    options = {"max_new_tokens": 6, "engine": ENGINES[engine]}
    first = saucier.generate(model, prompt, mask, prefix_cache=cache, **options)
    assert torch.equal(first, saucier.generate(model, prompt, mask, **options))
    longer = torch.cat([first[:, 3:], draw(2, 5)], 1)
    assert torch.equal(saucier.generate(model, longer, prefix_cache=cache, **options),
                       saucier.generate(model, longer, **options))
    assert cache.reused == 9 + 5  # the prompt, and what was written but for its last token


def test_with_guesses_too() -> None:
    model, cache = build("llama"), PrefixCache()
    prompt = torch.cat([draw(6), draw(6), draw(4, 1)], 1)
    options = {"max_new_tokens": 12, "engine": Native()}
    for more in (prompt, torch.cat([prompt, draw(6)], 1)):
        found = saucier.generate(model, more, prefix_cache=cache, speculation=PromptLookup(), **options)
        assert torch.equal(found, saucier.generate(model, more, **options))
    assert cache.reused == 16


def test_another_model_other_weights_and_other_numbers_share_nothing() -> None:
    model, cache, prompt = build("llama"), PrefixCache(), draw(10)
    other = build("llama", 5)
    for one, engine in ((model, Native()), (other, Native()), (model, Native(format="int8"))):
        saucier.generate(one, prompt, engine=engine, prefix_cache=cache)
    assert cache.reused == 0 and len(cache.entries) == 3
    with torch.no_grad():
        next(model.parameters()).mul_(1.5)
    saucier.generate(model, prompt, engine=Native(), prefix_cache=cache)
    assert cache.reused == 0


def test_the_oldest_goes_beyond_the_limit() -> None:
    model, prompts = build("llama"), [draw(9, seed) for seed in range(3)]
    cache = PrefixCache()
    saucier.generate(model, prompts[0], prefix_cache=cache, max_new_tokens=4)
    one = cache.bytes
    assert one == 2 * 2 * 12 * SHAPE["dim"] * 4  # two layers, keys and values of twelve tokens in float32
    cache = PrefixCache(limit=2 * one)
    for number in (0, 1, 0, 2, 0, 1):
        saucier.generate(model, prompts[number], prefix_cache=cache, max_new_tokens=4)
        assert cache.bytes <= 2 * one
    assert cache.reused == 2 * 8  # prompt 0 twice; prompt 1 had gone when it came again


def test_what_cannot_be_taken_up_again_is_one_line() -> None:
    cache = PrefixCache()
    for model, options, words in (
            (build("t5"), {}, "only a decoder alone"),
            (build("llama"), {"use_cache": False}, "use_cache=False"), (build("llama"), {"compile": True}, "compile"),
            (saucier.build(FAMILIES["reformer"](dim=32, layers=2, heads=4, vocab=40)), {}, "kernel")):
        with pytest.raises(InputError, match=words):
            saucier.generate(model, draw(4), prefix_cache=cache, max_new_tokens=2, decoder_start_token_id=0, **options)
    with pytest.raises(InputError, match="2 prompts"):
        saucier.generate(build(), draw(4).repeat(2, 1), prefix_cache=cache)
    with pytest.raises(InputError, match="limit"):
        PrefixCache(limit=0)
