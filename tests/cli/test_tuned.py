"""Adapters on the command line: what one is, and one merged with the comparison before and after."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.cli.conftest import Saucier
from tests.unit.training.toy import gpt, small

import saucier as package
from saucier.adaptation import tuning as a
from saucier.adaptation.lora import list_named_pairs
from saucier.adaptation.rewrite import rewrite
from saucier.folders.load import open_adapter
from saucier.folders.save import save_adapter
from saucier.model import build


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return the folder of an adapter on a small decoder."""
    gpt(dropout=0.0).save(tmp_path / "base")
    model = rewrite(package.load(tmp_path / "base", dtype="float32", device="cpu"), by=a.Lora(where=("qkv",), rank=2))
    with torch.no_grad():
        for _, _, pair in list_named_pairs(model).values():
            pair.up.weight.normal_(0.0, 0.1, generator=torch.Generator().manual_seed(1))
    assert save_adapter(model, tmp_path / "adapter") == "peft"
    return tmp_path / "adapter"


def test_show_tells_what_an_adapter_is(saucier: Saucier, folder: Path) -> None:
    answer = saucier("show", folder)
    assert answer.code == 0
    values = 2 * (2 * 32 + 2 * 96)
    base = sum(p.numel() for p in gpt().parameters())
    assert f"{values:,} parameters, {values / base:.2%} of the base's {base:,}" in answer.out
    assert "LORA, in the layout of PEFT" in answer.out and "target_modules: ['c_attn']" in answer.out
    found = json.loads(saucier("show", folder, "--json").out)
    assert found["parameters"] == values and found["base_parameters"] == base


@pytest.mark.slow
def test_merge_compares_before_it_writes(saucier: Saucier, folder: Path, tmp_path: Path) -> None:
    answer = saucier("merge", folder, "--out", tmp_path / "merged", "--json")
    assert answer.code == 0
    found = json.loads(answer.out)
    assert found["difference"] < 1e-5 < 1e-2 < found["effect"] and found["agreeing"] == 1.0
    ids = torch.tensor([[5, 6, 7, 8]])
    with torch.no_grad():
        one, two = (package.load(path, dtype="float32")(ids).logits for path in (tmp_path / "merged", folder))
    torch.testing.assert_close(one, two, rtol=1e-5, atol=1e-5)
    assert "merged, 2 maps changed, layout gpt2" in saucier("merge", folder, "--out", tmp_path / "again").out
    assert "is there already" in saucier("merge", folder, "--out", tmp_path / "merged").error


def test_what_cannot_be_merged(saucier: Saucier, folder: Path, tmp_path: Path) -> None:
    model = rewrite(package.load(tmp_path / "base", dtype="float32", device="cpu"), by=a.Prefix(length=2))
    save_adapter(model, tmp_path / "prefix")
    answer = saucier("merge", tmp_path / "prefix", "--out", tmp_path / "merged")
    assert answer.code == 2 and "a prefix is no sum of weights" in answer.error
    assert "PREFIX_TUNING" in saucier("show", tmp_path / "prefix").out
    (tmp_path / "base").rename(tmp_path / "moved")
    assert "no such folder" in saucier("merge", folder, "--out", tmp_path / "merged").error
    assert saucier("merge", folder, "--out", tmp_path / "merged", "--base", tmp_path / "moved").code == 0


def other_base(kind: str, folder: Path) -> None:
    """Write a base that the adapter was not made for."""
    match kind:
        case "values":
            gpt(seed=1, dropout=0.0).save(folder)
        case "shapes":
            build(small("gpt2", dim=48, dropout=0.0)).save(folder)
        case "names":
            build(small("bert")).save(folder)
        case _:
            package.folders.save.save(gpt(dropout=0.0), folder, layout="own")


@pytest.mark.slow
@pytest.mark.parametrize(("form", "kind", "said"), [
    ("peft", "values", "has other values"),
    ("peft", "shapes", "c_attn gives [32, 96] instead of [48, 144]"),
    ("peft", "names", "c_attn is not in the base model"),
    ("peft", "layout", "it is in our own layout"),
    ("foreign", "shapes", "c_attn gives [32, 96] instead of [48, 144]"),
    ("own", "values", "it has other weights"),
    ("own", "shapes", " is 48 instead of 32"),
])
@pytest.mark.parametrize("verb", ["merge", "doctor"])
def test_a_base_that_does_not_fit_is_named_beside_the_one_that_would(
        saucier: Saucier, folder: Path, tmp_path: Path, verb: str, form: str, kind: str, said: str) -> None:
    """One line has the adapter, the base that it was made for, the one that was given, and what is otherwise."""
    if form == "own":
        model = open_adapter(folder, dtype="float32", device="cpu")
        folder = tmp_path / "own"
        assert save_adapter(model, folder, layout="own") == "own"
    if form == "foreign":  # as PEFT writes it, without a note on the base's values
        tensors = load_file(folder / "adapter_model.safetensors")
        save_file(tensors, folder / "adapter_model.safetensors")
    other_base(kind, tmp_path / "other")
    more = ("--out", tmp_path / "merged") if verb == "merge" else ()
    answer = saucier(verb, folder, "--base", tmp_path / "other", *more)
    assert answer.code == 2
    assert answer.error.startswith(f"{folder}: the adapter was made for {tmp_path}/base, and does not fit "
                                   f"{tmp_path}/other: ")
    assert said in answer.error and answer.error.endswith(f"; give {tmp_path}/base as it was, with --base")
    assert not (tmp_path / "merged").exists()


def test_what_is_no_adapter_or_no_text_is_named(saucier: Saucier, folder: Path, tmp_path: Path) -> None:
    answer = saucier("merge", tmp_path / "base", "--out", tmp_path / "merged")
    assert (answer.code, answer.error) == (2, f"{tmp_path}/base: holds no adapter; give a folder with "
                                           "adapter_config.json, or a tuned run")
    (tmp_path / "picture.txt").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(range(256)))
    for name, said in (("nowhere.txt", "no such file"), ("picture.txt", "byte")):
        answer = saucier("merge", folder, "--out", tmp_path / "merged", "--text", tmp_path / name)
        assert answer.code == 2 and name in answer.error and said in answer.error
    assert not (tmp_path / "merged").exists()
