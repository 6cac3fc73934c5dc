"""`bench`: every format is measured, what it loses too, and `auto` takes what was chosen."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
import torch
from tests.unit.generation.test_native import GOLDEN

import saucier
from saucier.errors import InputError
from saucier.families import FAMILIES
from saucier.jobs.bench import FormatFigures, choose
from saucier.lens.kernel_plan import describe_kernel_plan
from saucier.native import library, packed

pytestmark = [pytest.mark.skipif(not GOLDEN.is_dir(), reason="no golden tokenizers here"),
              pytest.mark.filterwarnings("ignore:the matrices in")]
TEXT = "The cat sat on the mat. It was a warm day, and nobody came by.\n\nA dog ran over the road.\n"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed, "cache_folder", lambda name: tmp_path)


def build(folder: Path, family: str, tokenizer: str) -> Path:
    torch.manual_seed(0)
    vocab = saucier.load_tokenizer(GOLDEN / tokenizer).vocab_size
    length = {} if family == "t5" else {"length": 64}
    saucier.build(FAMILIES[family](dim=32, layers=2, heads=2, vocab=vocab, **length)).eval().save(folder)
    shutil.copy(GOLDEN / tokenizer / "tokenizer.json", folder)
    shutil.copy(GOLDEN / tokenizer / "tokenizer_config.json", folder)
    return folder


def test_a_language_model(tmp_path: Path) -> None:
    folder = build(tmp_path / "model", "gpt2", "tokenizer-byte-bpe")
    (tmp_path / "text.txt").write_text(TEXT)
    found = saucier.bench(folder, data=tmp_path / "text.txt", tokens=2, loss=10.0, out=tmp_path / "drawn")
    figures = {one.format: one for one in found.formats}
    assert list(figures) == ["own parts", "float32", "bfloat16", "int8", "int4"]
    assert not any(one.fault for one in found.formats) and found.tokens > 20 and found.unit == "tokens/s"
    lost = {name: one.kl or 0.0 for name, one in figures.items()}
    assert lost["float32"] < lost["int8"] < lost["int4"] < 0.1 and lost["float32"] < 1e-7
    measured = saucier.evaluate(folder, tmp_path / "text.txt", dtype="float32")["perplexity"].value
    assert figures["own parts"].perplexity == pytest.approx(measured, rel=1e-4)
    in_format = saucier.evaluate(folder, tmp_path / "text.txt", format="int4")["perplexity"].value
    assert figures["int4"].perplexity == pytest.approx(in_format, rel=1e-4)
    assert figures["float32"].bytes == 2 * figures["bfloat16"].bytes
    assert figures["bfloat16"].bytes > 1.5 * figures["int8"].bytes > 2.25 * figures["int4"].bytes
    assert found.chosen in figures and "tokens compared" in repr(found)
    assert saucier.load(folder, format="auto").format == (None if found.chosen == "own parts" else found.chosen)
    page = (tmp_path / "drawn" / "bench.html").read_text()
    assert "int4" in page and "<svg" in page and found.to_dict()["chosen"] == found.chosen


def test_an_encoder_without_data_keeps_its_numbers(tmp_path: Path) -> None:
    found = saucier.bench(build(tmp_path / "model", "bert", "tokenizer-wordpiece"))
    assert found.unit == "ms" and found.chosen in ("own parts", "float32")
    assert all(one.kl is None and one.floor is None for one in found.formats)


@pytest.mark.slow
def test_an_encoder_decoder(tmp_path: Path) -> None:
    found = saucier.bench(build(tmp_path / "model", "t5", "tokenizer-unigram-t5"), tokens=2)
    assert found.unit == "tokens/s" and not any(one.fault for one in found.formats)
    assert found.chosen in ("own parts", "float32")


def test_without_a_compiler_the_own_parts_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a library of the wheel, nor one in the cache, nor a compiler: one line says so."""
    folder = build(tmp_path / "model", "gpt2", "tokenizer-byte-bpe")
    plain = saucier.write(folder, "The cat", tokens=4, temperature=0)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("SAUCIER_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setitem(sys.modules, "ziglang", None)
    library.load_library.cache_clear()
    try:
        with pytest.raises(InputError, match="format: the native kernels need a C compiler, and there is none; pip "):
            saucier.load(folder, format="int8")
        with pytest.warns(UserWarning, match="format auto: the model's own parts, since the native kernels need a C "):
            assert saucier.write(folder, "The cat", tokens=4, temperature=0, format="auto").text == plain.text
        found = saucier.bench(folder, tokens=2)
    finally:
        library.load_library.cache_clear()
    assert found.remarks() == ["float32, bfloat16, int8, int4: the native kernels need a C compiler, and there is none"]
    assert found.chosen == "own parts" and found.formats[0].speeds[1] > 0


def test_what_is_chosen_loses_no_more_than_it_may() -> None:
    own, half, quarter = (FormatFigures(name, speeds={1: speed, 8: speed}, kl=kl) for name, speed, kl in (
        ("own parts", 1.0, 0.0), ("int8", 2.0, 0.001), ("int4", 3.0, 0.1)))
    for loss, expected in ((0.0, "own parts"), (0.001, "int8"), (0.01, "int8"), (0.1, "int4")):
        assert choose([own, half, quarter], loss, ("own parts",), writes=True) == expected
    assert choose([own, half, quarter], 1.0, ("own parts",), writes=False) == "own parts", "less is better in ms"
    scored = [FormatFigures("own parts", speeds={1: 1.0, 8: 3.0}, score=0.9),
              FormatFigures("int8", speeds={1: 1.0, 8: 2.0}, score=0.88)]
    assert choose(scored, 0.02, ("own parts",), writes=False) == "own parts"
    assert choose(scored, 0.03, ("own parts",), writes=False) == "int8"


def test_the_plan_is_shown() -> None:
    plan = saucier.show(GOLDEN / "gpt2", plan=True)
    assert "kernel calls" in repr(plan) and "product     head" in repr(plan) and not plan.failed
    assert "product" in repr(describe_kernel_plan(GOLDEN / "bert", "int8"))
    pair = repr(saucier.show(GOLDEN / "t5", plan=True))
    assert "\nencoder: attend_rows encoder.blocks.1" in pair and "\nsource:  keep" in pair and "\ncross " in pair
    assert "encoder: runs by its own parts: the native kernels have no maps for" in repr(
        saucier.show(GOLDEN / "led", plan=True))
    refused = saucier.show(GOLDEN / "reformer", plan=True)
    assert refused.failed and "runs by its own parts: the native kernels have no" in repr(refused)


def test_bad_input(tmp_path: Path) -> None:
    folder = build(tmp_path / "model", "gpt2", "tokenizer-byte-bpe")
    for options, fault in (({"data": tmp_path / "none.txt"}, "none.txt"), ({"loss": -1.0}, "loss"),
                           ({"tokens": 0}, "tokens")):
        with pytest.raises(InputError, match=fault):
            saucier.bench(folder, **options)
    with pytest.raises(InputError, match="int5"):
        saucier.evaluate(folder, tmp_path / "text.txt", format="int5")
