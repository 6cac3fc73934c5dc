"""Packed and compiled decoding give what the model gives, and never what it gave before its weights changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.unit.generation.models import left_mask, prompt, small

import saucier
from saucier.generation import compiled_step
from saucier.generation.packed_weights import (
    MadeFromWeights,
    copy_modules,
    fingerprint_weights,
    is_packable,
    pack_module,
    use_packed_weights,
)
from saucier.model import Transformer

HAS_BFLOAT16 = torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported()
needs_bfloat16 = pytest.mark.skipif(not HAS_BFLOAT16, reason="this processor does not multiply bfloat16")


def test_float32_is_not_packed() -> None:
    model = small("gpt2")
    assert not is_packable(model)
    assert use_packed_weights(model) is model


@needs_bfloat16
@pytest.mark.parametrize("family", ["gpt2", "llama", "t5", "transformer"])
def test_packed_logits_are_the_models(family: str) -> None:
    """bfloat16 has 8 bits: the order of a sum moves the last of them. The float32 model says how far both may be."""
    exact = small(family)
    model = small(family).to(torch.bfloat16)
    twin, ids = copy_modules(model, pack_module), prompt()
    given = {"decoder_input_ids": ids} if model.config.encoder is not None else {}
    with torch.inference_mode():
        want, plain, packed = (one(ids, **given).logits.float() for one in (exact, model, twin))
    assert (packed - want).abs().max() < 1.5 * (plain - want).abs().max() + 0.02
    assert {weight.data_ptr() for weight in twin.embed.parameters()} == {
        weight.data_ptr() for weight in model.embed.parameters()
    }


@needs_bfloat16
def test_the_twin_follows_the_weights() -> None:
    model = small("gpt2").to(torch.bfloat16)
    assert use_packed_weights(model) is use_packed_weights(model)
    first = saucier.generate(model, prompt())
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.3)
    second, twin = saucier.generate(model, prompt()), use_packed_weights(model)
    assert first.tolist() != second.tolist()
    assert second.tolist() == saucier.generate(twin, prompt()).tolist()


def write_in_place(model: Transformer) -> None:
    with torch.no_grad():
        next(model.parameters()).mul_(1.5)


def write_through_data(model: Transformer) -> None:
    next(model.parameters()).data.mul_(1.5)


def replace(model: Transformer) -> None:
    weight = next(model.parameters())
    weight.data = weight.data.clone()


@pytest.mark.parametrize("change", [write_in_place, write_through_data, replace])
def test_the_fingerprint_sees_every_change(change: Any) -> None:
    model = small("gpt2")
    before = fingerprint_weights(model)
    assert fingerprint_weights(model) == before
    change(model)
    assert fingerprint_weights(model) != before


def test_what_is_remembered_goes_with_the_model() -> None:
    remembered: MadeFromWeights[object] = MadeFromWeights()
    model = small("gpt2")
    first = remembered.get(model, "key", object)
    assert remembered.get(model, "key", object) is first
    assert remembered.get(model, "other", object) is not first
    write_in_place(model)
    assert remembered.get(model, "key", object) is not first
    del model
    assert not list(remembered.kept)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SAUCIER_CACHE", str(tmp_path))
    monkeypatch.setattr(compiled_step, "STEPS", MadeFromWeights())
    return tmp_path / "compiled"


def refuse(*_: object) -> None:
    raise AssertionError("compiled although the code is on disk")


@pytest.mark.slow
def test_compiled_ids_are_the_models_and_the_code_stays_on_disk(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = small("gpt2", layers=1)
    want = saucier.generate(model, prompt(), max_new_tokens=9)
    assert torch.equal(saucier.generate(model, prompt(), max_new_tokens=9, compile=True), want)
    assert len(list(cache.iterdir())) == 1
    monkeypatch.setattr(compiled_step, "compile_to", refuse)
    monkeypatch.setattr(compiled_step, "STEPS", MadeFromWeights())  # as a new process begins
    assert torch.equal(saucier.generate(model, prompt(), max_new_tokens=9, compile=True), want)
    beams: dict[str, Any] = {"max_new_tokens": 20, "num_beams": 3}  # other rows, another length: the same code
    assert torch.equal(
        saucier.generate(model, prompt(2, 4), compile=True, **beams), saucier.generate(model, prompt(2, 4), **beams)
    )


@pytest.mark.slow
def test_a_model_under_the_compiler_of_torch_decodes_without_it() -> None:
    """Every step is one token longer: it would be compiled over and over."""
    model = small("gpt2", layers=1)
    want = saucier.generate(model, prompt(), max_new_tokens=9)
    model.compile(backend=refuse)
    assert torch.equal(saucier.generate(model, prompt(), max_new_tokens=9), want)
    with pytest.raises(Exception, match="compiled although"):
        model(prompt())


def test_the_name_of_compiled_code_says_what_it_depends_on() -> None:
    model, kind = small("gpt2"), compiled_step.Kind(single=True, padded=False)
    before = compiled_step.digest_step(model, kind)
    assert compiled_step.digest_step(small("gpt2"), kind) == before
    assert compiled_step.digest_step(model, compiled_step.Kind(single=False, padded=False)) != before
    assert compiled_step.digest_step(small("gpt2", heads=2), kind) != before
    write_through_data(model)
    assert compiled_step.digest_step(model, kind) != before


def test_the_oldest_compiled_code_goes(tmp_path: Path) -> None:
    import os

    for number in range(compiled_step.KEPT + 3):
        path = tmp_path / f"step-{number:02}.pt2"
        path.write_bytes(b"")
        os.utime(path, (number, number))
    compiled_step.discard_oldest(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f"step-{number:02}.pt2" for number in range(3, compiled_step.KEPT + 3)
    ]


def test_without_a_compiler_there_is_one_line(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(saucier.errors.WorkError, match=r"compile: .*install g\+\+"):
        saucier.generate(small("gpt2"), prompt(), compile=True)
    assert not list(cache.iterdir())


@pytest.mark.nightly
@pytest.mark.parametrize(
    "dtype", [torch.float32, pytest.param(torch.bfloat16, marks=needs_bfloat16)], ids=["float32", "bfloat16"]
)
@pytest.mark.parametrize("family", ["gpt2", "llama", "t5", "transformer"])
def test_compiled_in_every_kind(cache: Path, family: str, dtype: torch.dtype) -> None:
    """One row, several, padded, beams, one source token; in bfloat16 only what is certain: it runs and ends."""
    model = small(family).to(dtype)
    ids, mask = prompt(), left_mask()
    calls: list[dict[str, Any]] = [
        {"input_ids": ids[:1]},
        {"input_ids": ids},
        {"input_ids": ids, "attention_mask": mask},
        {"input_ids": ids[:, :1]},
        {"input_ids": ids[:1], "num_beams": 3, "eos_token_id": 5, "length_penalty": 2.0, "pad_token_id": 39},
    ]
    for call in calls:
        call |= {"max_new_tokens": 9, "decoder_start_token_id": 0}
        got, want = saucier.generate(model, compile=True, **call), saucier.generate(model, **call)
        if dtype == torch.float32:
            assert torch.equal(got, want), call
        else:
            assert got.shape[0] == want.shape[0]


def test_compiled_code_is_named_after_all_that_it_is_made_from(root: Path) -> None:
    """A change in a folder inside `parts`, or in what the parts read of a config, makes other code."""
    found = {path.relative_to(root / "src" / "saucier").as_posix() for path in compiled_step.list_traced_files()}
    for folder in ("parts", "config"):
        files = {path.relative_to(root / "src" / "saucier").as_posix()
                 for path in (root / "src" / "saucier" / folder).rglob("*.py")}
        assert files <= found
    assert {"parts/sparse/plan.py", "config/visibility.py", "model.py", "generation/compiled_step.py",
            "generation/packed_weights.py"} <= found
