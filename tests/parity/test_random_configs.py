"""Random legal configs of the reference library: the same numbers, read and written back, for every family.

The reference class is built with random weights, saved, and opened by us; then our copy is saved and opened there.
"""

from __future__ import annotations

import importlib
import pkgutil
import random
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from tests.parity import draws
from tests.parity.batches import batch, fields, real

import saucier
from saucier.checkpoints.published_folder import express_model, write_published
from saucier.families import LAYOUTS

transformers = pytest.importorskip("transformers", reason="the reference library is in the test group")

ORDINARY, SLOW = 3, 20
ATOL, RTOL = 1e-4, 1e-4
"""The golden set's own tolerances."""
MODULES: dict[str, ModuleType] = {module.name: importlib.import_module(f"{draws.__name__}.{module.name}")
                                  for module in pkgutil.iter_modules(draws.__path__)}


def cases() -> list[Any]:
    """Every family with its seeds; the later ones are slow."""
    return [pytest.param(name, seed, id=f"{name}-{seed}", marks=[pytest.mark.nightly] if seed >= ORDINARY else [])
            for name in MODULES for seed in range(SLOW)]


def reference(config: Any, name: str, seed: int) -> Any:
    """Return a reference model with every parameter random, gains and biases too."""
    config._attn_implementation = "eager"  # before building: some classes copy the config for each side
    model = getattr(transformers, name)(config).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if not parameter.requires_grad:  # a fixed table
                continue
            centre = 1.0 if "norm" in key.lower() and key.endswith("weight") and parameter.dim() == 1 else 0.0
            parameter.copy_(centre + 0.2 * torch.randn(parameter.shape, generator=generator))
        model.tie_weights()
    return model


def answers(model: Any, given: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return all outputs of a reference model by name."""
    with torch.no_grad():
        output = model(**given, output_hidden_states=True, output_attentions=True, return_dict=True)
    return dict(fields(output))


def look(output: Any, name: str) -> torch.Tensor:
    """Return one output of ours by the reference's name."""
    first, _, number = name.partition(".")
    value = getattr(output, first)
    return value[int(number)] if number else value


def compare(found: Any, wanted: dict[str, torch.Tensor], given: dict[str, torch.Tensor]) -> None:
    """Compare every output that the reference gave."""
    for name, want in wanted.items():
        got = look(found, name)
        assert got is not None, f"{name} is missing"
        assert got.shape == want.shape, f"{name}: {tuple(got.shape)} instead of {tuple(want.shape)}"
        torch.testing.assert_close(real(name, got, given), real(name, want, given), atol=ATOL, rtol=RTOL,
                                   msg=lambda text, name=name: f"{name}: {text}")


def placed(model: Any) -> Any:
    """Give weights memory of their own: a mapped file has them at odd addresses, which changes the order of sums."""
    for parameter in model.parameters():
        parameter.data = parameter.data.clone()
    return model


@pytest.mark.sampled
@pytest.mark.parametrize(("family", "seed"), cases())
def test_same_numbers_both_ways(family: str, seed: int, tmp_path: Path) -> None:
    """Reference -> Saucier -> reference; the way back gives the same bits."""
    rng = random.Random(f"{family}-{seed}")
    config, classes = MODULES[family].draw(rng)
    name = rng.choice(classes)
    there = reference(config, name, seed)
    there.save_pretrained(tmp_path / "reference", safe_serialization=True)
    make = getattr(MODULES[family], "inputs", batch)
    given = make(config, name, rng)
    wanted = answers(there, given)

    ours = saucier.load(tmp_path / "reference", head=name, dtype="float32", device="cpu")
    with torch.no_grad():
        compare(ours(**given, output_hidden_states=True, output_attentions=True), wanted, given)

    write_published(ours, *express_model(ours, LAYOUTS[config.model_type]), tmp_path / "ours")
    again = getattr(transformers, name).from_pretrained(tmp_path / "ours", attn_implementation="eager").eval()
    back = answers(placed(again), given)
    assert back.keys() == wanted.keys()
    for key, want in wanted.items():
        torch.testing.assert_close(real(key, back[key], given), real(key, want, given), atol=0, rtol=0)
