"""Runs of a rewritten model: only what learns is trained and saved, and a run that went on ends with the same bits."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tests.tolerances import assert_close
from tests.unit.training.toy import gpt, recipe, study

import saucier
from saucier.adaptation import tuning as a
from saucier.adaptation.lora import list_named_pairs
from saucier.adaptation.rewrite import list_trainable, rewrite
from saucier.checkpoints.steps import latest_checkpoint
from saucier.errors import InputError
from saucier.model import Transformer
from saucier.training.loop import train

IDS = torch.tensor([[5, 6, 7, 8]])
KINDS = {"lora": a.Lora(rank=2, dropout=0.1), "qlora": a.Qlora(rank=2), "bias": a.Bias(), "freeze": a.Freeze(lower=1)}


def begun(base: Path, by: a.Tuning) -> Transformer:
    if not base.exists():
        gpt(dropout=0.0).save(base)
    return rewrite(saucier.load(base, dtype="float32", device="cpu"), by=by, seed=4)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_gone_on_with_is_uninterrupted(kind: str, tmp_path: Path) -> None:
    whole, first, second = (begun(tmp_path / "base", KINDS[kind]) for _ in range(3))
    frozen = {name: p.detach().clone() for name, p in whole.named_parameters() if not p.requires_grad}
    train(whole, study(), recipe(6, save_every=3), run_folder=tmp_path / "whole", reporters=[])
    same = {"recipe": {"same": 1}, "reporters": []}
    train(first, study(), recipe(3, save_every=3), run_folder=tmp_path / "parts", **same)
    train(second, study(), recipe(6, save_every=3), run_folder=tmp_path / "parts", **same)
    assert all(torch.equal(one, other) for one, other in zip(whole.parameters(), second.parameters(), strict=True))
    assert all(torch.equal(dict(whole.named_parameters())[name], value) for name, value in frozen.items())
    found = latest_checkpoint(tmp_path / "whole")
    assert found is not None and not (found / "model.safetensors").exists()
    learning = set(list_trainable(whole))
    assert load_file(found / "adapter_model.safetensors").keys() == learning
    assert {name.rsplit(":", 1)[0] for name in load_file(found / "optimizer.safetensors")} == learning
    document = json.loads((found / "adapter_config.json").read_text())
    assert document["base_model_name_or_path"] == str(tmp_path / "base") and document["peft_type"] == "SAUCIER"


def test_a_run_is_loaded_with_its_adapter_merged(tmp_path: Path) -> None:
    model = begun(tmp_path / "base", KINDS["lora"])
    train(model, study(), recipe(4, average=2, save_every=2), run_folder=tmp_path / "run", reporters=[])
    loaded = saucier.load(tmp_path / "run/checkpoints/average", dtype="float32", device="cpu")
    with torch.no_grad():
        assert_close(loaded(IDS).logits, model.eval()(IDS).logits)
    assert not list_named_pairs(loaded) and all(p.requires_grad for p in loaded.parameters())


def test_another_base_is_refused(tmp_path: Path) -> None:
    model = begun(tmp_path / "base", KINDS["lora"])
    assert saucier.folders.save.save(model, tmp_path / "adapter", layout="own") == "own"
    changed = gpt(dropout=0.0)
    with torch.no_grad():
        changed.embed.tokens.weight.add_(0.1)
    (tmp_path / "base").rename(tmp_path / "other")
    changed.save(tmp_path / "base")
    with pytest.raises(InputError, match=r"does not fit its base model .*: it has other weights; give"):
        saucier.load(tmp_path / "adapter")
    (tmp_path / "other").rename(tmp_path / "again")
    assert saucier.folders.load.open_adapter(tmp_path / "adapter", base=str(tmp_path / "again")).provenance.rewrites
