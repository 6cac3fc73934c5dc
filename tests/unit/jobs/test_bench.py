"""`bench`: every format is measured, what it loses too, and `auto` takes what was chosen."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.unit.generation.test_native import GOLDEN

import saucier
from saucier import config as c
from saucier.errors import InputError
from saucier.families import FAMILIES
from saucier.jobs.bench import Bench, FormatFigures, choose
from saucier.lens.kernel_plan import describe_kernel_plan
from saucier.native import library, packed

pytestmark = [pytest.mark.skipif(not GOLDEN.is_dir(), reason="no golden tokenizers here"),
              pytest.mark.filterwarnings("ignore:the matrices in")]
TEXT = "The cat sat on the mat. It was a warm day, and nobody came by.\n\nA dog ran over the road.\n"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed, "cache_folder", lambda name: tmp_path)


OWN = object()
"""The head that a family has by itself."""


def build(folder: Path, family: str, tokenizer: str, head: Any = OWN, *, loud: bool = False) -> Path:
    torch.manual_seed(0)
    vocab = saucier.load_tokenizer(GOLDEN / tokenizer).vocab_size
    length = {} if family == "t5" else {"length": 64}
    config = FAMILIES[family](dim=32, layers=2, heads=2, vocab=vocab, **length)
    model = saucier.build(config if head is OWN else config.model_copy(update={"head": head})).eval()
    if loud or head is not OWN:
        with torch.no_grad():
            for name, one in model.named_parameters():  # so that what blocks add is not lost beside what they are given
                one.mul_(12.0 if ".inner." in name or "head" in name else 1.0)
    model.save(folder)
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
    told = json.loads(json.dumps(found.to_dict()))
    assert "int4" in page and "<svg" in page and told["chosen"] == found.chosen
    assert told["page"] == str(tmp_path / "drawn" / "bench.html")


def test_an_encoder_without_data_keeps_its_numbers(tmp_path: Path) -> None:
    found = saucier.bench(build(tmp_path / "model", "bert", "tokenizer-wordpiece"))
    assert found.unit == "ms" and found.chosen in ("own parts", "float32")
    assert all(one.kl is None and one.floor is None for one in found.formats)


def figures_of(found: Bench, name: str) -> list[float]:
    """Return a figure of every format."""
    values = [getattr(one, name) for one in found.formats]
    assert all(value is not None for value in values), name
    return values


def test_a_masked_model_loses_on_hidden_tokens(tmp_path: Path) -> None:
    folder = build(tmp_path / "model", "bert", "tokenizer-wordpiece", loud=True)
    (tmp_path / "text.txt").write_text(TEXT)
    found = saucier.bench(folder, data=tmp_path / "text.txt", loss=10.0)
    own, float32, _, int8, int4 = figures_of(found, "kl")
    assert own == 0 and float32 < 1e-7 and float32 < int8 < int4 < 0.1
    measured = saucier.evaluate(folder, tmp_path / "text.txt", dtype="float32")
    assert found.tokens == measured.amount and found.counted == "hidden tokens"
    assert figures_of(found, "perplexity")[0] == pytest.approx(measured["pseudo-perplexity"].value, rel=1e-5)
    in_format = saucier.evaluate(folder, tmp_path / "text.txt", format="int4")["pseudo-perplexity"].value
    assert figures_of(found, "perplexity")[-1] == pytest.approx(in_format, rel=1e-5)
    assert "at most 10 nats of KL divergence" in found.caption


def test_an_embedder_loses_cosine_and_neighbours(tmp_path: Path) -> None:
    folder = build(tmp_path / "model", "bert", "tokenizer-wordpiece", c.EmbeddingHead())
    texts = [f"The {name} {does}." for name in ("cat", "dog", "man", "day") for does in ("sat down", "ran", "was warm")]
    (tmp_path / "texts.txt").write_text("\n".join(texts))
    found = saucier.bench(folder, data=tmp_path / "texts.txt", loss=1.0)
    own, *others = (saucier.embed(folder, texts, format=form) for form in (None, "int8", "int4"))
    for cosine, neighbours, one in zip(figures_of(found, "cosine")[3:], figures_of(found, "neighbours")[3:], others,
                                       strict=True):
        assert cosine == pytest.approx(float((own * one).sum(-1).mean()), abs=1e-6) and cosine < 1 - 1e-6
        nearest = [(side @ side.T - 3 * torch.eye(len(texts))).argmax(-1) for side in (own, one)]
        assert neighbours == pytest.approx(float((nearest[0] != nearest[1]).float().mean()))
    assert (found.tokens, found.counted, figures_of(found, "neighbours")[0]) == (12, "texts", 0.0)
    assert "of the nearest neighbours" in found.caption and "other neighbour" in repr(found)


def test_a_body_loses_cosine(tmp_path: Path) -> None:
    folder = build(tmp_path / "model", "bert", "tokenizer-wordpiece", None)
    (tmp_path / "text.txt").write_text(TEXT)
    found = saucier.bench(folder, data=tmp_path / "text.txt")
    _, float32, _, int8, int4 = figures_of(found, "cosine")
    assert float32 == pytest.approx(1, abs=1e-6) and int4 < int8 < 1


@pytest.mark.parametrize("labelled", [True, False])
def test_a_classifier_loses_answers(tmp_path: Path, labelled: bool) -> None:
    """Of rows without labels it is known what changes, of others also what it costs."""
    folder = build(tmp_path / "model", "bert", "tokenizer-wordpiece", c.ClassificationHead(classes=3))
    texts = [line for line in TEXT.splitlines() if line]
    rows = tmp_path / ("rows.tsv" if labelled else "rows.txt")
    lines = ["label\ttext", *(f"LABEL_1\t{one}" for one in texts)] if labelled else texts
    rows.write_text("\n".join(lines) + "\n")
    found = saucier.bench(folder, data=rows, loss=0.5)
    model, tokenizer = saucier.load(folder, dtype="float32"), saucier.load_tokenizer(folder)
    int4, divergences = saucier.load(folder, dtype="float32", format="int4"), []
    for one in texts:
        ids = torch.tensor([tokenizer.encode(one)])
        with torch.inference_mode():
            own, other = (side(ids, torch.ones_like(ids)).logits[0].log_softmax(-1) for side in (model, int4))
        divergences.append(float((own.exp() * (own - other)).sum()))
    assert figures_of(found, "kl")[-1] == pytest.approx(sum(divergences) / len(texts), abs=1e-7)
    assert divergences[0] > 1e-6
    assert figures_of(found, "flips")[0] == 0 and found.counted == "rows"
    assert (found.metric, found.formats[0].perplexity) == ("accuracy" if labelled else "", None)
    if labelled:
        measured = saucier.evaluate(folder, rows, format="int4")["accuracy"].value
        assert figures_of(found, "score")[-1] == pytest.approx(measured)


@pytest.mark.slow
def test_an_encoder_decoder(tmp_path: Path) -> None:
    (tmp_path / "rows.tsv").write_text("source\ttarget\nThe cat sat.\tA cat sat down.\nA dog ran.\tThe dog ran.\n")
    found = saucier.bench(build(tmp_path / "model", "t5", "tokenizer-unigram-t5"), tokens=2, data=tmp_path / "rows.tsv")
    assert found.unit == "tokens/s" and not any(one.fault for one in found.formats)
    assert found.metric == "BLEU" and figures_of(found, "flips")[:2] == [0.0, 0.0]
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
    lucky = FormatFigures("int8", speeds={1: 2.0, 8: 1.0}, score=0.9)  # other numbers, and the same score
    assert choose([replace(own, score=0.9), lucky], 0.0, ("own parts",), writes=True) == "own parts"
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
    encoder = repr(describe_kernel_plan(GOLDEN / "bert", "int8"))
    for step in ("embed       embed.tokens", "segments    embed.segments", "product"):
        assert f"\n{step}" in encoder
    pair = repr(saucier.show(GOLDEN / "t5", plan=True))
    for step in ("encoder: embed       embed.tokens", "encoder: attend_rows encoder.blocks.1", "source:  keep",
                 "cross "):
        assert f"\n{step}" in pair
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
