"""Adapters of ours in the hands of PEFT, and PEFT's in ours: the same numbers both ways."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.checkpoints.test_adapters import base_model
from tests.tolerances import assert_close
from torch import Tensor

import saucier
from saucier.adaptation import tuning as a
from saucier.adaptation.lora import list_named_pairs
from saucier.adaptation.rewrite import rewrite, share
from saucier.folders.load import open_adapter
from saucier.folders.save import save_adapter

pytest.importorskip("transformers")
if not all(map(importlib.util.find_spec, ("peft", "accelerate"))):
    pytest.skip("peft needs accelerate, and one of them is not installed", allow_module_level=True)
import peft  # only where it is installed

IDS = torch.tensor([[5, 6, 7, 8], [9, 3, 2, 4]])
Options = dict[str, Any]


def inputs(kind: str) -> dict[str, Tensor]:
    return {"decoder_input_ids": IDS.flip(1)} if kind == "t5" else {}


def numbers(output: Any) -> Tensor:
    return output.logits if getattr(output, "logits", None) is not None else output.last_hidden_state


def ours(folder: Path) -> saucier.model.Transformer:
    return saucier.load(folder, dtype="float32", device="cpu")


def learned(model: Any) -> None:
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for _, _, pair in list_named_pairs(model).values():
            pair.up.weight.normal_(0.0, 0.2, generator=generator)
            pair.down.weight.normal_(0.0, 0.2, generator=generator)


OURS: dict[str, tuple[str, list[a.Lora]]] = {
    "bert": ("bert", [a.Lora(rank=2)]),
    "bert-all": ("bert", [a.Lora(where=("linear",), rank=3, alpha=5)]),
    "bert-whole": ("bert", [a.Lora(where=("qkv",), rank=2)]),
    "bert-one-layer": ("bert", [a.Lora(where=("*.blocks.1.*.value",), rank=2)]),
    "bert-two-ranks": ("bert", [a.Lora(where=("query",), rank=2, alpha=3), a.Lora(where=("down",), rank=4, alpha=9)]),
    "gpt2": ("gpt2", [a.Lora(where=("qkv", "output", "up", "down"), rank=2)]),
    "gpt2-parts": ("gpt2", [a.Lora(rank=2, alpha=7)]),
    "gpt2-parts-differ": ("gpt2", [a.Lora(where=("query",), rank=2, alpha=7), a.Lora(where=("value",), rank=3)]),
    "llama": ("llama", [a.Lora(where=("linear",), rank=2)]),
    "llama-gate": ("llama", [a.Lora(where=("gate", "key"), rank=2, scaling=a.ByRootOfRank())]),
    "t5": ("t5", [a.Lora(where=("linear",), rank=2)]),
    "t5-cross": ("t5", [a.Lora(where=("*.cross.*",), rank=2)]),
    "table": ("llama", [a.Lora(where=("tokens", "query"), rank=2)]),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", OURS)
def test_peft_reads_ours(case: str, tmp_path: Path) -> None:
    kind, rewrites = OURS[case]
    reference = base_model(kind, tmp_path / "base")
    model = ours(tmp_path / "base")
    with torch.no_grad():
        plain = numbers(model(IDS, **inputs(kind)))
        for by in rewrites:
            rewrite(model, by=by)
        learned(model)
        expected = numbers(model(IDS, **inputs(kind)))
    assert save_adapter(model, tmp_path / "adapter") == "peft"
    assert (expected - plain).abs().max() > 1e-3
    adapted = peft.PeftModel.from_pretrained(reference, str(tmp_path / "adapter")).eval()
    with torch.no_grad():
        assert_close(numbers(adapted(input_ids=IDS, **inputs(kind))), expected)
        again = open_adapter(tmp_path / "adapter", dtype="float32", device="cpu")
        assert_close(numbers(again(IDS, **inputs(kind))), expected)
        if case != "table":
            assert_close(numbers(ours(tmp_path / "adapter")(IDS, **inputs(kind))), expected)


@pytest.mark.parametrize("case", ["bert", "gpt2", "llama", "t5"])
def test_another_base_is_refused_where_we_wrote_the_adapter(case: str, tmp_path: Path) -> None:
    """PEFT's files tell nothing of the base's values; ours do, in a note that PEFT does not read."""
    kind, rewrites = OURS[case]
    base_model(kind, tmp_path / "base")
    model = ours(tmp_path / "base")
    for by in rewrites:
        rewrite(model, by=by)
    learned(model)
    assert save_adapter(model, tmp_path / "adapter") == "peft"
    other = ours(tmp_path / "base")
    with torch.no_grad():
        next(one for name, one in other.named_parameters() if "norm" in name).add_(0.5)
    other.save(tmp_path / "other")
    wrong = rf": \S+ has other values; give {tmp_path}/base as it was, with --base"
    moved = rf"adapter: the adapter was made for {tmp_path}/base, and does not fit {tmp_path}/other{wrong}"
    with pytest.raises(saucier.InputError, match=moved):
        open_adapter(tmp_path / "adapter", base=str(tmp_path / "other"), dtype="float32", device="cpu")
    (tmp_path / "base").rename(tmp_path / "moved")
    with pytest.raises(saucier.InputError, match="its base model is not there"):
        ours(tmp_path / "adapter")
    (tmp_path / "other").rename(tmp_path / "base")
    with pytest.raises(saucier.InputError, match=rf"does not fit its base model {tmp_path}/base{wrong}"):
        ours(tmp_path / "adapter")


PEFTS: dict[str, tuple[str, Options]] = {
    "bert": ("bert", {"target_modules": ["query", "value"]}),
    "bert-all": ("bert", {"target_modules": "all-linear", "r": 3}),
    "gpt2": ("gpt2", {"target_modules": ["c_attn", "c_proj", "c_fc"], "fan_in_fan_out": True}),
    "llama": ("llama", {"target_modules": ["q_proj", "up_proj", "o_proj"], "use_rslora": True}),
    "llama-patterns": ("llama", {"target_modules": ["q_proj", "k_proj"], "rank_pattern": {"k_proj": 2},
                                 "alpha_pattern": {"layers.1.self_attn.q_proj": 11}}),
    "t5": ("t5", {"target_modules": ["q", "v", "wo"]}),
    "table": ("llama", {"target_modules": ["embed_tokens", "v_proj"]}),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", PEFTS)
def test_we_read_pefts(case: str, tmp_path: Path) -> None:
    kind, options = PEFTS[case]
    torch.manual_seed(3)
    adapted = peft.get_peft_model(base_model(kind, tmp_path / "base"),
                                  peft.LoraConfig(**{"r": 4, "lora_alpha": 6, **options}))
    for name, parameter in adapted.named_parameters():
        if "lora_" in name:
            parameter.data = torch.randn_like(parameter) * 0.2
    adapted.eval().save_pretrained(tmp_path / "adapter")
    document = json.loads((tmp_path / "adapter/adapter_config.json").read_text())
    document["base_model_name_or_path"] = "../base"
    (tmp_path / "adapter/adapter_config.json").write_text(json.dumps(document))
    model = open_adapter(tmp_path / "adapter", dtype="float32", device="cpu")
    with torch.no_grad():
        expected = numbers(adapted(input_ids=IDS, **inputs(kind)))
        assert_close(numbers(model(IDS, **inputs(kind))), expected)
    learning, _ = adapted.get_nb_trainable_parameters()
    assert share(model)[0] == learning
