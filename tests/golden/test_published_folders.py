"""Published checkpoints give their published numbers, by the golden set's own checker, and survive saving."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest
import torch

import saucier
from saucier.checkpoints.published_folder import express_model, write_published
from saucier.checkpoints.weight_files import Weights
from saucier.families import LAYOUTS

GOLDEN = Path(__file__).parents[2].parent / "shared" / "golden"
pytestmark = pytest.mark.skipif(not GOLDEN.is_dir(), reason="the golden checkpoints are not beside this checkout")


DROPPED = {
    "bert-relative-key": {"@embeddings.position_embeddings.weight"}, "transfo-xl": {"@pos_emb.inv_freq"},
    "fnet-masked-lm": {"@pooler.dense.weight", "@pooler.dense.bias"},
    "fnet-question-answering": {"@pooler.dense.weight", "@pooler.dense.bias"},
    "fnet-token-classification": {"@pooler.dense.weight", "@pooler.dense.bias"},
}
"""Tensors that the model of a folder never reads, so that they are not written again; `@` is the body's prefix."""


def family(folder: Path) -> str:
    return str(json.loads((folder / "config.json").read_text())["model_type"])


def published() -> list[str]:
    """Every folder with a model."""
    folders = [path.parent for path in sorted(GOLDEN.glob("*/golden.json"))
               if json.loads(path.read_text()).get("kind", "model") == "model"]
    return [folder.name for folder in folders]


def without_labels(folder: Path) -> dict[str, object]:
    """The cases of a folder with their labels taken away, so that the logits beside a loss are compared too."""
    golden: dict[str, object] = json.loads((folder / "golden.json").read_text())
    for case in golden["cases"]:  # type: ignore[attr-defined]
        if "decoder_input_ids" in case["inputs"] or "encoder_last_hidden_state" not in case["outputs"]:
            case["inputs"].pop("labels", None)
    return golden


def checker() -> ModuleType:
    spec = importlib.util.spec_from_file_location("golden_check", GOLDEN / "check.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_nothing_else_is_left_out() -> None:
    assert len(published()) == 174
    assert {family(GOLDEN / name) for name in published()} <= LAYOUTS.keys()


@pytest.mark.sampled
@pytest.mark.parametrize("name", published())
def test_folder(name: str) -> None:
    folder = GOLDEN / name
    results = list(checker().model_cases(folder, without_labels(folder)))
    assert results
    assert [f"{case}: {faults}" for case, good, _, faults in results if not good] == []


@pytest.mark.sampled
@pytest.mark.parametrize("name", published())
def test_saved_again_it_is_the_same_checkpoint(name: str, tmp_path: Path) -> None:
    """Tensor by tensor, whatever the form of the file that was read."""
    model = saucier.load(GOLDEN / name, dtype="float32", device="cpu")
    layout = LAYOUTS[family(GOLDEN / name)]
    write_published(model, *express_model(model, layout), tmp_path / "out")
    first, second = Weights(GOLDEN / name), Weights(tmp_path / "out")
    dropped = {key.replace("@", base) for key in DROPPED.get(name, DROPPED.get(family(GOLDEN / name), set()))
               for base in layout.bases}
    there, here = ({key: source[key].float() for key in source} for source in (first, second))
    for key in (key.replace("@", layout.base) for key in ZEROED.get(family(GOLDEN / name), ())):
        assert not here[key][0].any()
        there[key][0] = 0
    one_name = (there.keys() ^ here.keys()) - dropped
    assert not one_name or name in RENAMED
    assert all(holds(here, there[key]) if key in there else holds(there, here[key]) for key in one_name)
    assert all(torch.equal(there[key], here[key]) for key in there.keys() & here.keys())
    again = saucier.load(tmp_path / "out", dtype="float32", device="cpu")
    assert again.config == model.config and again.generation == model.generation


ZEROED = {"funnel": ("@embeddings.word_embeddings.weight",)}
"""Tables whose row of padding the reference sets to zero when it reads a file, so that ours is written as zero."""
RENAMED = {"bert-pytorch-bin", "openai-gpt-double-heads"}
"""Folders whose file holds a tied tensor under both of its names, or under the other one."""


def holds(tensors: dict[str, torch.Tensor], wanted: torch.Tensor) -> bool:
    return any(one.shape == wanted.shape and torch.equal(one, wanted) for one in tensors.values())
