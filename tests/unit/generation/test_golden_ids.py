"""The stored ids of published model classes, and the scores' order with them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from safetensors.torch import load_file

import saucier


@pytest.mark.slow
@pytest.mark.parametrize("family", ["gpt2", "llama", "t5", "t5-v1_1", "openai-gpt", "gpt2-fp16-checkpoint"])
def test_stored_ids(shared: Path, family: str) -> None:
    folder = shared / "golden" / family
    golden = json.loads((folder / "golden.json").read_text(encoding="utf-8"))
    tensors = load_file(folder / "golden.safetensors")
    cases = [case for case in golden["cases"] if case["method"] == "generate"]
    head = "auto" if family in ("gpt2", "llama", "t5", "t5-v1_1") else golden["class"]
    model = saucier.load(folder, head=head, dtype="float32", device="cpu")
    for case in cases:
        inputs = {name: tensors[key] for name, key in case["inputs"].items()}
        got = saucier.generate(model, **inputs, **case["kwargs"])
        assert got.tolist() == tensors[case["outputs"]["sequences"]].tolist(), case["name"]
    assert len(cases) >= 5
