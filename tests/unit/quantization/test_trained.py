"""Runs: training with rounding goes on to the same bits, and a quantized model learns through adapters alone."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.unit.training.toy import gpt, recipe, study

import saucier
from saucier import InputError
from saucier.adaptation import tuning as a
from saucier.adaptation.quantization.maps import is_quantized
from saucier.adaptation.quantization.quantize import quantize_model
from saucier.adaptation.quantization.schemes import Integers, Quantization, QuantizationAware
from saucier.adaptation.rewrite import list_trainable, rewrite
from saucier.model import Transformer
from saucier.training.loop import train

BY = QuantizationAware(decay=0.9, freeze=4)


def begun(base: Path, by: a.Tuning) -> Transformer:
    if not base.exists():
        gpt(dropout=0.0).save(base)
    return rewrite(saucier.load(base, dtype="float32", device="cpu"), by=by, seed=4)


@pytest.mark.slow
def test_gone_on_with_is_uninterrupted(tmp_path: Path) -> None:
    """Weights and ranges, to the last bit; what is loaded from the run is the int8 model."""
    whole, first, second = (begun(tmp_path / "base", BY) for _ in range(3))
    train(whole, study(), recipe(6, save_every=3), run_folder=tmp_path / "whole", reporters=[])
    same = {"recipe": {"same": 1}, "reporters": []}
    train(first, study(), recipe(3, save_every=3), run_folder=tmp_path / "parts", **same)
    train(second, study(), recipe(6, save_every=3), run_folder=tmp_path / "parts", **same)
    after = dict(second.named_parameters())
    assert all(torch.equal(one, after[name]) for name, one in whole.named_parameters())
    assert all(float(one[2]) == 4 for name, one in after.items() if name.endswith(".inputs.state"))
    again = saucier.load(tmp_path / "parts", dtype="float32")
    ids = torch.tensor([[5, 6, 7, 8]])
    with torch.no_grad():
        assert is_quantized(again) and torch.equal(again(ids).logits, second.eval()(ids).logits)


def test_a_quantized_model_learns_through_an_adapter_alone(tmp_path: Path) -> None:
    gpt(dropout=0.0).save(tmp_path / "float")
    quantize_model(saucier.load(tmp_path / "float", dtype="float32"),
                   Quantization(format=Integers(bits=4, group=8))).save(tmp_path / "base")
    with pytest.raises(InputError, match="a quantized model is to learn, and rounded numbers cannot"):
        train(saucier.load(tmp_path / "base", dtype="float32"), study(), recipe(2), run_folder=tmp_path / "no",
              reporters=[])
    with pytest.raises(InputError, match="rounded numbers cannot"):
        train(begun(tmp_path / "base", a.Freeze()), study(), recipe(2), run_folder=tmp_path / "no", reporters=[])
    model = begun(tmp_path / "base", a.Lora(rank=2))
    before = {name: one.clone() for name, one in model.named_buffers()}
    train(model, study(), recipe(4, save_every=2), run_folder=tmp_path / "run", reporters=[])
    assert all(torch.equal(one, before[name]) for name, one in model.named_buffers())
    assert all(".pairs." in name and bool((one != 0).any()) for name, one in list_trainable(model).items())
    loaded = saucier.load(tmp_path / "run", dtype="float32")
    ids = torch.tensor([[5, 6, 7, 8]])
    with torch.no_grad():
        torch.testing.assert_close(loaded(ids).logits, model.eval()(ids).logits, rtol=1e-4, atol=1e-4)
