"""A model with a memory from the command line: cooked, measured as one long pass, and bad input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from tests.cli.conftest import TINY, Saucier, rhymes

from saucier.config import Stack
from saucier.folders.load import load
from saucier.model import Transformer, build
from saucier.text.rows.store import TokenStore

SMALL = [one for one in TINY if not one.startswith("model.length")] + [
    "model.memory=24", "model.hidden=64", "model.cutoffs=[100]", "training.length=8", "tokenizer.vocab=290"]


@pytest.fixture(scope="module")
def remembering(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from saucier.cli import main

    folder = tmp_path_factory.mktemp("memory")
    (folder / "text.txt").write_text(rhymes(400))
    assert main(["cook", "transformer-xl-nano", "--data", str(folder / "text.txt"), "--out", str(folder / "run"),
                 "--no-calibrate", "data.document=line", "training.dtype=float32", *SMALL]) == 0
    return folder / "run"


@pytest.mark.slow
@pytest.mark.parametrize("memory", [24, 40])
def test_the_loss_in_segments_is_that_of_one_pass(saucier: Saucier, remembering: Path, memory: int) -> None:
    """Every query sees as many keys as the memory is long, so one pass over all of the text is the same."""
    found = json.loads(saucier("evaluate", remembering, "--batch", 1, "--memory", memory, "--dtype", "float32",
                               "--json").out)
    model = load(remembering, dtype="float32")
    longer = build(model.config.model_copy(update={"decoder": changed(model, memory)})).eval()
    longer.load_state_dict(model.state_dict())
    store = TokenStore(next(remembering.rglob("held_out")))
    ids = torch.tensor(store.tokens[:].astype("int64"))[None]
    ends = torch.tensor(store.offsets[1:-1].astype("int64")) - 1
    with torch.no_grad():
        losses = F.nll_loss(longer(ids[:, :-1]).logits[0], ids[0, 1:], reduction="none")
    kept = torch.ones(len(losses), dtype=torch.bool)
    kept[ends] = False  # the first token of a document is not foretold by the one before
    assert found["held_out"]["tokens"] == int(kept.sum())
    assert found["held_out"]["loss"] == pytest.approx(float(losses[kept].mean()), abs=1e-5)


def changed(model: Transformer, memory: int) -> Stack:
    """The model's decoder with another memory, written by hand."""
    text = model.config.decoder.model_dump_json().replace('"length":24', f'"length":{memory}')
    return Stack.model_validate_json(text.replace('"size":24', f'"size":{memory}'))


@pytest.mark.slow
def test_tokens_per_second_are_told(saucier: Saucier, remembering: Path) -> None:
    assert saucier("evaluate", remembering).out.splitlines()[-1].endswith("tokens/s")


def test_what_cannot_be_is_refused(saucier: Saucier, remembering: Path, cooked: Path) -> None:
    answer = saucier("evaluate", remembering, "--stride", 4)
    assert answer.code == 2
    assert "--stride" in answer.error
    assert "--memory" in answer.error
    answer = saucier("evaluate", cooked, "--memory", 4)
    assert answer.code == 2
    assert "has no memory" in answer.error
    assert json.loads(saucier("evaluate", cooked, "--stride", 8, "--json").out)["held_out"]["loss"] > 0


@pytest.mark.slow
def test_text_is_written_beside_the_memory(saucier: Saucier, remembering: Path) -> None:
    answer = saucier("generate", remembering, "the cook", "--tokens", 40, "--seed", 1)
    assert answer.code == 0
    assert answer.out.startswith("the cook")
