"""The native engine: what it writes is what the model writes, for every golden checkpoint that can be lowered."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.tolerances import PART, assert_close
from tests.unit.native.products import check_apart, round_activations, use_stored_keys, use_stored_numbers
from tests.unit.quantization.packed_folders import awq, compressed, gptq, shuffle_inputs

import saucier
from saucier import config as c
from saucier.adaptation.quantization.quantize import quantize_model
from saucier.adaptation.quantization.schemes import (
    Integers,
    NormalFloat,
    NumberFormat,
    Quantization,
    Symmetric,
    ZeroPoint,
)
from saucier.errors import InputError
from saucier.generation.decoding import Native
from saucier.generation.native_feed import lower_model
from saucier.native.library import list_paths, load_library
from saucier.native.matrices import Format, Panels, store_matrix
from saucier.native.session import Session, cache_bytes

GOLDEN = Path(__file__).parents[3].parent / "shared" / "golden"
LOWERED = ("bert-causal-lm", "bloom", "ctrl", "gpt2", "gpt_neo", "gpt_neox", "gptj", "llama", "mistral", "mixtral",
           "openai-gpt", "opt")
OPTIONS = {"max_new_tokens": 14, "eos_token_id": None, "pad_token_id": 0}
FORMATS: tuple[Format, ...] = ("float32", "bfloat16", "int8", "int4")


def golden(name: str) -> saucier.Transformer:
    if not GOLDEN.is_dir():
        pytest.skip("no golden checkpoints here")
    return saucier.load(GOLDEN / name, dtype="float32")


def draw(rows: int, length: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(5, 100, (rows, length), generator=torch.Generator().manual_seed(seed))


def read_scores(model: saucier.Transformer, ids: torch.Tensor, form: Format, *, at_once: int,
                path: str | None = None) -> torch.Tensor:
    """Read a row `at_once` tokens at a time; the scores after every token [L, V]."""
    session = Session(lower_model(model, Native(format=form), len(ids)), 1, threads=1, path=path)
    found = []
    for start in range(0, len(ids), at_once):
        part = ids[start:start + at_once].numpy().astype(np.int32)
        numbers = np.arange(len(part), dtype=np.int32)
        found.append(session.read(part, np.zeros_like(part), numbers + np.int32(start), numbers))
    return torch.from_numpy(np.concatenate(found))


@pytest.mark.slow
@pytest.mark.parametrize("name", LOWERED)
def test_ids_and_scores_are_those_of_the_model(name: str) -> None:
    model, ids = golden(name), draw(3, 9)
    found = saucier.generate(model, ids, engine=Native(), **OPTIONS)
    assert torch.equal(found, saucier.generate(model, ids, **OPTIONS))
    expected = model(ids[:1]).logits[0]
    for path in list_paths():
        for at_once in (1, 4, 9):
            found = read_scores(model, ids[0], "float32", at_once=at_once, path=path)
            assert_close(found, expected.float(), PART, f"{path}, {at_once} tokens at once")


@pytest.mark.parametrize("form", FORMATS)
def test_cached_is_uncached_in_every_format(form: Format) -> None:
    model, ids = golden("llama"), draw(1, 40)[0]
    together = read_scores(model, ids, form, at_once=40)
    for at_once in (1, 7):
        assert torch.equal(read_scores(model, ids, form, at_once=at_once), together)


@pytest.mark.parametrize("form", FORMATS)
def test_a_format_is_the_model_with_its_numbers(form: Format) -> None:
    """In float64 each map multiplies what its matrix stands for by what its rounded inputs stand for."""
    model, ids = golden("gpt2").double(), draw(1, 12)[0]
    found = read_scores(golden("gpt2"), ids, form, at_once=12)
    path = load_library().saucier_best_path().decode()
    use_stored_numbers(model, [model], form, path)
    use_stored_keys(model.decoder, form)
    with torch.no_grad():
        head = store_matrix(golden("gpt2").embed.tokens.weight.numpy(), form)
        hidden = model(ids[None], compute_logits=False).last_hidden_state[0]
    check_apart(found.numpy(), round_activations(hidden.float().numpy(), head, path) @ head.values().T, form, path)
    assert form == "float32" or (found - golden("gpt2")(ids[None]).logits[0]).abs().max() > 1e-4


def test_rows_of_different_lengths_samples_and_beams() -> None:
    model, ids = golden("gpt_neox"), draw(3, 8)
    mask = torch.ones_like(ids)
    mask[0, :5] = mask[2, :2] = 0
    for options in ({}, {"num_beams": 3, "num_return_sequences": 2}, {"do_sample": True, "seed": 3, "top_k": 20},
                    {"do_sample": True, "seed": 1, "num_return_sequences": 3, "repetition_penalty": 1.3},
                    {"repetition_penalty": 1.5}, {"no_repeat_ngram_size": 2, "min_new_tokens": 3, "eos_token_id": 9}):
        for real in (mask, None):
            both = [saucier.generate(model, ids, real, engine=engine, **OPTIONS | options)
                    for engine in (Native(), None)]
            assert torch.equal(*both), options


def test_many_rows_and_long_prompts_go_in_passes() -> None:
    model = golden("llama")
    for rows, length in ((40, 3), (1, 50), (7, 33)):
        ids = draw(rows, length)
        options = OPTIONS | {"max_new_tokens": 4}
        assert torch.equal(saucier.generate(model, ids, engine=Native(), **options),
                           saucier.generate(model, ids, **options))


def test_rows_go_on_from_each_other() -> None:
    """Whatever moves where, a row goes on as its whole text does; a row that one goes on from lies where it lay."""
    generator, rows, length = np.random.default_rng(5), 5, 24
    model = golden("llama")
    session = Session(lower_model(model, Native(), length), rows, threads=1)
    numbers, every = np.arange(rows, dtype=np.int32), model.config.output_embed.vocab
    texts = generator.integers(0, every, (rows, length)).astype(np.int32)
    for place in range(length):
        found = session.read(texts[:, place].copy(), numbers, np.full_like(numbers, place), numbers)
        expected = model(torch.from_numpy(texts[:, :place + 1]).long()).logits[:, -1].detach().numpy()
        np.testing.assert_allclose(found, expected, atol=1e-5, rtol=0)
        sources = generator.integers(0, rows, rows)
        slots = session.slots.copy()
        session.move(sources, np.full_like(numbers, place + 1))
        texts[:, :place + 1] = texts[sources, :place + 1]
        going, first = np.unique(sources, return_index=True)
        assert sorted(session.slots) == numbers.tolist() and (session.slots[first] == slots[going]).all()


def test_the_cache_is_as_large_as_predicted() -> None:
    for name in ("gpt2", "llama"):
        model = golden(name)
        for form, size in (("float32", 4), ("bfloat16", 2), ("int8", 2), ("int4", 2)):
            session = Session(lower_model(model, Native(format=form), 32), 3)  # whole blocks of 16 keys
            assert session.bytes == cache_bytes(session.plan, 3) == c.cache_bytes(model.config, batch=3, length=32,
                                                                                  bytes_per_value=size)


def test_bfloat16_weights_stay_as_they_are() -> None:
    """To the bit, in panels of 16 rows, two inputs side by side."""
    model = golden("mistral").bfloat16()
    weight = model.decoder.blocks[0].attention.inner.out.weight
    plan = lower_model(model, Native(format="bfloat16"), 16)
    held = next(step.matrix for step in plan.steps if step.what == "decoder.blocks.0.attention.inner.out")
    assert isinstance(held, Panels) and held.format == "bfloat16"
    rows = torch.from_numpy(held.codes.view(np.int16)).transpose(1, 2).flatten(2).flatten(0, 1)[:len(weight)]
    assert torch.equal(rows, weight.detach().view(torch.int16))


def test_a_model_that_changes_is_lowered_again() -> None:
    model, ids = golden("gpt2"), draw(1, 6)
    saucier.generate(model, ids, engine=Native(format="int8"), **OPTIONS)
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(torch.roll(weight, 1, 0))
    expected = read_scores(golden("gpt2"), ids[0], "int8", at_once=6)
    assert not torch.allclose(read_scores(model, ids[0], "int8", at_once=6), expected)


@pytest.mark.parametrize("span", [Symmetric(), ZeroPoint()])
@pytest.mark.parametrize(("bits", "group"), [(4, 32), (8, None), (8, 32)])
@pytest.mark.parametrize("name", ["gpt2", "gptj"])
def test_a_quantized_model_runs_in_its_own_numbers(name: str, bits: int, group: int | None,
                                                   span: Symmetric | ZeroPoint) -> None:
    model = quantize_model(golden(name), Quantization(format=Integers(bits=bits, group=group, range=span)))
    ids = draw(1, 12)[0]
    plan = lower_model(model, Native(), 12)
    assert {step.matrix.format for step in plan.steps if step.matrix is not None} == {f"int{bits}", "int8"}
    expected = model(ids[None]).logits[0]
    apart = (read_scores(model, ids, "float32", at_once=12) - expected).abs().mean() / expected.std()
    assert 0 < apart < 0.02  # activations are rounded to 8 bits


@pytest.mark.parametrize(("write", "bits", "ordered"), [
    (awq, 4, True), (functools.partial(gptq, symmetric=True), 4, True),
    (functools.partial(gptq, symmetric=True), 4, False), (functools.partial(gptq, symmetric=False), 4, False),
    (functools.partial(compressed, bits=8, symmetric=False), 8, False)])
def test_published_numbers_are_read_as_they_are(write: Callable[..., Any], bits: int, ordered: bool, tmp_path: Path
                                                ) -> None:
    """With zero points, and with groups out of order; activations are rounded to 8 bits."""
    held = write(tmp_path / "m", group=32)
    if not ordered:
        shuffle_inputs(tmp_path / "m", held, bits=bits, group=32)
    model, ids = saucier.load(tmp_path / "m", dtype="float32"), draw(1, 8)[0] % 40
    plan = lower_model(model, Native(), len(ids))
    assert {step.matrix.format for step in plan.steps if step.matrix is not None} == {f"int{bits}", "float32"}
    expected = model(ids[None]).logits[0]
    assert (read_scores(model, ids, "float32", at_once=8) - expected).abs().mean() < 0.02 * expected.std()


@pytest.mark.parametrize(("form", "what"), [
    (NormalFloat(), "not integers of 4 or 8 bits"), (Integers(bits=3), "not integers of 4 or 8 bits"),
    (Integers(bits=4, group=16), "has 2 groups for 32 inputs")])
def test_other_numbers_are_refused(form: NumberFormat, what: str) -> None:
    model = quantize_model(golden("gpt2"), Quantization(format=form))
    with pytest.raises(InputError, match=what):
        lower_model(model, Native(), 12)


@pytest.mark.parametrize(("name", "what"), [
    ("bert-masked-lm", "no encoder"), ("reformer", "no two streams"), ("transfo-xl", "no head of kind adaptive")])
def test_what_cannot_be_lowered_is_named(name: str, what: str) -> None:
    with pytest.raises(InputError, match=f"the native kernels have {what}"):
        lower_model(golden(name), Native(), 16)


def test_bad_calls() -> None:
    model, ids = golden("gpt2"), draw(1, 4)
    for options, what in (({"engine": "cuda"}, "should be 'native', not 'cuda'"),
                          ({"engine": Native(), "compile": True}, "go with compile"),
                          ({"engine": Native(), "use_cache": False}, "go with use_cache=False"),
                          ({"engine": Native(), "max_new_tokens": 60}, "more than the model's 48 positions")):
        with pytest.raises(InputError, match=what):
            saucier.generate(model, ids, **options)
    with pytest.raises(InputError, match=r"torch\.float16"):
        saucier.generate(model.half(), ids, engine=Native())


def test_maps_without_a_bias_for_keys() -> None:
    attention = c.SelfAttention(projection=c.Projection(heads=4, kv_heads=2, key_bias=False), visibility=c.Causal())
    block = c.Block(sublayers=(c.PreNorm(inner=attention), c.PreNorm(inner=c.FeedForward(hidden=48))))
    model = saucier.build(c.Transformer(dim=32, embed=c.Embedding(vocab=100), head=c.LanguageHead(), decoder=c.Stack(
        layers=c.Repeat(block=block, times=2), final_norm=c.LayerNorm()))).eval()
    for one in model.decoder.blocks:
        torch.nn.init.normal_(one.attention.inner.qkv.bias, generator=torch.Generator().manual_seed(0))
    ids = draw(1, 12)[0]
    with torch.inference_mode():
        expected = model(ids[None]).logits[0]
    assert_close(read_scores(model, ids, "float32", at_once=5), expected)


def test_weights_without_a_place_are_refused() -> None:
    model = golden("gpt2")
    model.decoder.blocks[0].extra = torch.nn.Linear(2, 2)
    with pytest.raises(InputError, match=r"no place for the weight decoder.blocks.0.extra.bias and 1 more"):
        lower_model(model, Native(), 16)


def test_a_plan_shows_itself() -> None:
    shown = str(lower_model(golden("llama"), Native(format="int4"), 16))
    assert "attend      decoder.blocks.0.attention.inner" in shown and "product     head  120 × 32 int4" in shown
