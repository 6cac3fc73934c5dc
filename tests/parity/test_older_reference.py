"""The numbers of transformers 4.35, stored, for what its version 5 dropped or reads otherwise.

`tests/parity/older/README.md` says how they were made.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.parity.batches import real
from tests.parity.older.weights import fill, thinned

import saucier

FOLDER = Path(__file__).parent / "older"
CASES: dict[str, Any] = json.loads((FOLDER / "cases.json").read_text())
ATOL, RTOL = 1e-4, 1e-4
"""The golden set's own tolerances."""


@pytest.fixture(scope="module")
def outputs() -> dict[str, torch.Tensor]:
    return load_file(FOLDER / "outputs.safetensors")


def placed(case: dict[str, Any], folder: Path) -> Path:
    """Write the checkpoint that the older version had."""
    (folder / "config.json").write_text(json.dumps({**case["config"], "architectures": [case["class"]]}))
    save_file(fill(case["weights"], case["seed"]), folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def cases() -> list[Any]:
    """Every case; three of what only the older version has are ordinary, and one of every family that both have."""
    return [pytest.param(name, marks=[pytest.mark.nightly] * (int(number) >= (3 if f"{family}-4" in CASES else 1)))
            for name in CASES for family, _, number in [name.rpartition("-")]]


@pytest.mark.sampled
@pytest.mark.parametrize("name", cases())
def test_the_numbers_of_the_older_version(name: str, outputs: dict[str, torch.Tensor], tmp_path: Path) -> None:
    """Forward passes, greedy texts and beams."""
    case = CASES[name]
    model = saucier.load(placed(case, tmp_path), dtype="float32", device="cpu")
    given = {key: torch.tensor(value) for key, value in case["inputs"].items()}
    with torch.no_grad():
        found = model(**given)
    wanted = {key.removeprefix(f"{name}."): value for key, value in outputs.items() if key.startswith(f"{name}.")}
    assert wanted
    for key, want in wanted.items():
        torch.testing.assert_close(thinned(real(key, getattr(found, key), given)), want, atol=ATOL, rtol=RTOL,
                                   msg=lambda text, key=key: f"{key}: {text}")
    for kind, beams in (("greedy", 1), ("beams", 3)):
        if kind in case["ids"]:
            ids = given["input_ids"][:, :5]
            made = saucier.generate(model, ids, torch.ones_like(ids), max_new_tokens=5, num_beams=beams,
                                    length_penalty=0.0)
            assert made.tolist() == case["ids"][kind], kind


@pytest.mark.parametrize("field", [{"pruned_heads": {"0": [1]}}, {"tie_encoder_decoder": True}, {"num_beam_groups": 2},
                                   {"position_embedding_type": "sinusoidal"}])
def test_what_cannot_be_expressed_is_refused_by_name(field: dict[str, Any], tmp_path: Path) -> None:
    """Fields of the base class of all older configs, which are read where they change nothing."""
    case = CASES["bert_relative-0"]
    folder = placed({**case, "config": {**case["config"], **field}}, tmp_path)
    with pytest.raises(saucier.InputError, match=next(iter(field))):
        saucier.load(folder)
