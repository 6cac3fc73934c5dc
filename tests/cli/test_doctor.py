"""`saucier doctor` on a run, on golden checkpoints and on broken ones: the table, JSON, and the exit code."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from tests.cli.conftest import Saucier


def test_a_run_is_sound(saucier: Saucier, cooked: Path, text_file: Path) -> None:
    answer = saucier("doctor", cooked, "--text", text_file)
    assert answer.code == 0
    assert "a batch is its rows" in answer.out and "sound: all" in answer.out and str(text_file) in answer.out
    assert "does not apply  it keeps no memory" in answer.out


def test_a_broken_weight_is_exit_code_one(saucier: Saucier, shared: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(shared / "golden/bert-masked-lm", folder)
    weights = load_file(folder / "model.safetensors")
    next(value for name, value in weights.items() if "intermediate" in name)[0] = torch.nan
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    answer = saucier("doctor", folder, "--json")
    found = json.loads(answer.out)
    assert answer.code == 1 and not found["sound"]
    verdicts = {one["name"]: one["verdict"] for one in found["findings"]}
    assert verdicts["weights are finite"] == "fails" and verdicts["tied weights are tied"] == "holds"
    assert found["text"].startswith("random ids, since no tokenizer: ") and "has no tokenizer.json" in found["text"]


def test_bfloat16_has_a_tolerance_of_its_own(saucier: Saucier, shared: Path) -> None:
    found = json.loads(saucier("doctor", shared / "golden/gpt2", "--dtype", "bfloat16", "--json").out)
    assert found["sound"] and found["dtype"] == "bfloat16"
    assert {one["tolerance"] for one in found["findings"]} == {None, 0.0, 0.1}


def test_what_is_no_model_is_one_line(saucier: Saucier, tmp_path: Path) -> None:
    answer = saucier("doctor", tmp_path)
    assert answer.code == 2 and "no whole checkpoint here" in answer.error
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "config.json").write_text("{}")
    assert saucier("doctor", tmp_path).error.rstrip().endswith(f"{tmp_path / 'inner'} looks like a model")
