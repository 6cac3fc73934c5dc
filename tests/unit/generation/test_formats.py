"""`saucier.load(format=)`: what a model in a format gives, what is kept of it, and what is refused."""

from __future__ import annotations

import shutil
import warnings
from pathlib import Path

import pytest
import torch
from tests.tolerances import PART, assert_close
from tests.unit.generation.test_native import GOLDEN, OPTIONS, draw

import saucier
from saucier.adaptation.quantization.quantize import quantize_model
from saucier.adaptation.quantization.schemes import Integers, Quantization
from saucier.errors import InputError, WorkError
from saucier.generation import formats
from saucier.generation.decoding import Native
from saucier.generation.native_encoder import use_native
from saucier.generation.native_feed import score_texts
from saucier.native import matrices, packed

pytestmark = pytest.mark.skipif(not GOLDEN.is_dir(), reason="no golden checkpoints here")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(packed, "cache_folder", lambda name: tmp_path)
    return tmp_path


@pytest.mark.parametrize("form", ["float32", "bfloat16", "int8", "int4"])
@pytest.mark.filterwarnings("ignore:the matrices in")
def test_a_format_is_the_engine(form: str) -> None:
    ids, plain = draw(2, 9), saucier.load(GOLDEN / "gpt2", dtype="float32")
    model = saucier.load(GOLDEN / "gpt2", format=form)
    engine = Native.model_validate({"format": form})
    assert model.format == form and plain.format is None
    assert torch.equal(saucier.generate(model, ids, **OPTIONS), saucier.generate(plain, ids, engine=engine, **OPTIONS))
    mask = torch.ones_like(ids)
    mask[1, 5:] = 0
    scores = score_texts(model, engine, ids, mask)
    assert not scores[1, 5:].any()
    if form == "float32":
        assert_close(scores[mask.bool()], plain(ids, mask).logits[mask.bool()], PART, "scores of whole texts")


@pytest.mark.parametrize("name", ["gpt2", "bert", "marian"])
def test_matrices_are_rounded_once_for_all_starts(cache: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    def read(model: saucier.Transformer) -> torch.Tensor:
        return model(draw(1, 9)).last_hidden_state if name == "bert" else saucier.generate(model, draw(1, 9), **OPTIONS)

    with pytest.warns(UserWarning, match="the matrices in int8 are kept for the next start: .* kB"):
        first = read(saucier.load(GOLDEN / name, format="int8"))
    monkeypatch.setattr(matrices, "round_groups", lambda *_: pytest.fail("rounded again"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(read(saucier.load(GOLDEN / name, format="int8")), first)
    assert len(list(cache.glob(f"int8-*{packed.SUFFIX}"))) == 1


def test_stored_codes_are_laid_out_once_for_all_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "model"
    quantize_model(saucier.load(GOLDEN / "gpt2", dtype="float32"),
                   Quantization(format=Integers(bits=4, group=32))).save(folder)
    with pytest.warns(UserWarning, match="the matrices in float32 are kept for the next start"):
        first = saucier.generate(saucier.load(folder, format="float32"), draw(1, 9), **OPTIONS)
    monkeypatch.setattr(matrices, "lay_out_panels", lambda *_: pytest.fail("laid out again"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(saucier.generate(saucier.load(folder, format="float32"), draw(1, 9), **OPTIONS), first)


@pytest.mark.filterwarnings("ignore:the matrices in")
def test_other_weights_are_other_matrices(tmp_path: Path, cache: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    for name in ("config.json", "model.safetensors"):
        shutil.copy(GOLDEN / "gpt2" / name, folder / name)
    first = saucier.load(folder, format="int8")
    changed = saucier.load(folder, dtype="float32")
    with torch.no_grad():
        for one in changed.parameters():
            one.add_(0.1 * torch.randn_like(one))
    changed.save(folder)
    second, ids = saucier.load(folder, format="int8"), draw(1, 6)
    engine, mask = Native(format="int8"), torch.ones(1, 6)
    assert torch.equal(score_texts(second, engine, ids, mask), score_texts(changed, engine, ids, mask))
    assert not torch.equal(score_texts(first, engine, ids, mask), score_texts(second, engine, ids, mask))


def test_an_encoder_becomes_a_view() -> None:
    plain, ids = saucier.load(GOLDEN / "bert", dtype="float32"), draw(2, 9)
    model = saucier.load(GOLDEN / "bert", format="float32")
    with torch.inference_mode():
        assert_close(model(ids).last_hidden_state, plain(ids).last_hidden_state, PART, "vectors")
        assert torch.equal(model(ids).last_hidden_state, use_native(plain, Native())(ids).last_hidden_state)


def test_auto_loses_nothing_unless_it_was_chosen() -> None:
    model = saucier.load(GOLDEN / "gpt2", format="auto")
    assert model.format == "float32"
    formats.write_choice(model, {"format": "int8"})
    with pytest.warns(UserWarning, match="are kept"):
        assert saucier.load(GOLDEN / "gpt2", format="auto").format == "int8"
    formats.write_choice(model, {"format": packed.OWN_PARTS})
    assert saucier.load(GOLDEN / "gpt2", format="auto").format is None
    with pytest.warns(UserWarning, match="not measured on this machine yet, so the model's own parts"):
        assert saucier.load(GOLDEN / "bert", format="auto").format is None


def test_what_is_not_lowered_is_named() -> None:
    with pytest.raises(InputError, match=r"format: the native kernels have no .*; leave it out, or use auto"):
        saucier.load(GOLDEN / "reformer", format="int8")
    with pytest.warns(UserWarning, match="format auto: the model's own parts, since the native kernels have no"):
        assert saucier.load(GOLDEN / "reformer", format="auto").format is None


def test_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise WorkError("the native kernels need a C compiler, and there is none")

    monkeypatch.setattr(formats, "load_library", fail)
    with pytest.raises(InputError, match="need a C compiler, and there is none; pip install ziglang"):
        saucier.load(GOLDEN / "gpt2", format="float32")
    with pytest.warns(UserWarning, match="the model's own parts, since the native kernels need a C compiler"):
        assert saucier.load(GOLDEN / "gpt2", format="auto").format is None


@pytest.mark.parametrize(("options", "fault"), [
    ({"format": "int5"}, "format: unknown format 'int5'; did you mean 'int"),
    ({"format": 8}, "format: is int 8; give one of auto"),
    ({"format": "int8", "device": "cuda"}, "device: cuda has no formats of ours"),
    ({"format": "int8", "dtype": "bfloat16"}, "dtype: the matrices are in int8"),
    ({"format": "int8", "task": "classification"}, "task: a model with a new head is to be trained")])
def test_wrong_options(options: dict[str, object], fault: str) -> None:
    with pytest.raises(InputError, match=fault):
        saucier.load(GOLDEN / "gpt2", **options)  # type: ignore[arg-type]


def test_such_a_model_is_for_inference(tmp_path: Path) -> None:
    model = saucier.load(GOLDEN / "gpt2", format="float32")
    with pytest.raises(InputError, match="was loaded in float32, for inference alone; load it without a format"):
        model.save(tmp_path / "new")
    with pytest.raises(InputError, match="the native engine cannot go with compile"):
        saucier.generate(model, draw(1, 4), compile=True, **OPTIONS)
    with pytest.raises(InputError, match="format: a model in memory has the format that it was loaded in"):
        saucier.embed(saucier.load(GOLDEN / "bert"), ["a"], format="int8")
