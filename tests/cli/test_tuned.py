"""Adapters on the command line: what one is, and one merged with the comparison before and after."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from tests.cli.conftest import Saucier
from tests.unit.training.toy import gpt

import saucier as package
from saucier.adaptation import config as a
from saucier.adaptation.low_rank import named_pairs
from saucier.adaptation.rewrite import rewrite
from saucier.adapters import save_adapter


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return the folder of an adapter on a small decoder."""
    gpt(dropout=0.0).save(tmp_path / "base")
    model = rewrite(package.load(tmp_path / "base", dtype="float32", device="cpu"), by=a.Lora(where=("qkv",), rank=2))
    with torch.no_grad():
        for _, _, pair in named_pairs(model).values():
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
