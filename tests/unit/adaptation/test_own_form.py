"""Adapters in our own form: settings that no learned values can stand behind are refused before anything is made."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import saucier
from saucier.adaptation import tuning as a
from saucier.adaptation.rewrite import rewrite
from saucier.errors import InputError
from saucier.families import FAMILIES
from saucier.folders.load import open_adapter
from saucier.folders.save import save, save_adapter

TUNINGS: dict[str, a.Tuning] = {"rank": a.Lora(rank=2), "length": a.Prefix(length=2), "width": a.Adapter(width=4),
                                "hidden": a.Prefix(length=2, hidden=3), "lower": a.Freeze(lower=1)}


def adapter(tuning: a.Tuning, place: Path) -> Path:
    save(saucier.build(FAMILIES["gpt2"](layers=1, dim=16, heads=2, vocab=60, length=24), seed=1), place / "base")
    model = rewrite(saucier.load(place / "base", dtype="float32", device="cpu"), by=tuning)
    save_adapter(model, place / "adapter", base="../base", layout="own")
    return place / "adapter"


def changed(folder: Path, name: str, value: Any) -> None:
    path = folder / "adapter_config.json"
    document = json.loads(path.read_text())
    document["rewrites"][0][name] = value
    path.write_text(json.dumps(document))


@pytest.mark.sampled
@pytest.mark.parametrize("name", TUNINGS)
@pytest.mark.parametrize("value", [10**400, 10**12, 2**20 + 1, 10**6, -1])
def test_numbers_that_nothing_was_learned_for(name: str, value: int, tmp_path: Path) -> None:
    """Without a bound they are a loop of hours, memory that no machine has, or numbers that torch does not take."""
    folder = adapter(TUNINGS[name], tmp_path)
    changed(folder, name, value)
    with pytest.raises(InputError, match=name):
        open_adapter(folder, dtype="float32", device="cpu")


def test_weights_that_are_missing_are_named_first(tmp_path: Path) -> None:
    folder = adapter(TUNINGS["rank"], tmp_path)
    (folder / "adapter_model.safetensors").unlink()
    with pytest.raises(InputError, match=r"adapter_model\.safetensors: no such file; fetch"):
        open_adapter(folder, dtype="float32", device="cpu")


@pytest.mark.slow
@pytest.mark.parametrize("note", ["[" * 50_000, "1" * 5000, "[]", "{", '{"a": '])
def test_notes_that_are_no_object(note: str, tmp_path: Path) -> None:
    save(saucier.build(FAMILIES["gpt2"](layers=1, dim=16, heads=2, vocab=60, length=24), seed=1), tmp_path / "base")
    model = rewrite(saucier.load(tmp_path / "base", dtype="float32", device="cpu"), by=a.Lora(rank=2))
    save_adapter(model, tmp_path / "adapter", base="../base")
    path = tmp_path / "adapter/adapter_model.safetensors"
    save_file(load_file(path), path, metadata={"format": "pt", "base_marks": note})
    with pytest.raises(InputError, match="the note base_marks is no JSON object; fetch"):
        saucier.load(tmp_path / "adapter", dtype=torch.float32, device="cpu")
