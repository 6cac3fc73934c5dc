"""Published checkpoints give their published numbers, by the golden set's own checker, and survive saving."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest
import torch

import saucier
from saucier.checkpoints.foreign import write_foreign
from saucier.families.layouts import LAYOUTS

GOLDEN = Path(__file__).parents[2].parent / "shared" / "golden"
pytestmark = pytest.mark.skipif(not GOLDEN.is_dir(), reason="the golden checkpoints are not beside this checkout")


REFUSED: dict[str, str] = {}
"""Folders with a setting that the parts cannot express yet."""


LONG_AND_PAIRED = [
    "longformer", "longformer-model", "longformer-multiple-choice", "longformer-question-answering",
    "longformer-sequence-classification", "longformer-token-classification", "led", "dpr-context-encoder",
    "dpr-question-encoder", "dpr-reader", "realm-embedder", "realm-knowledge-augmented-encoder", "realm-scorer",
    "bert-generation-encoder", "encoder-decoder-bert2bert", "encoder-decoder-bertgeneration"]


def published() -> list[str]:
    """Folders of listed families whose every case is one of the classes that the family knows."""
    names = []
    for path in sorted(GOLDEN.glob("*/golden.json")):
        golden, config = json.loads(path.read_text()), path.parent / "config.json"
        layout = LAYOUTS.get(json.loads(config.read_text()).get("model_type")) if config.is_file() else None
        safe = (path.parent / "model.safetensors").is_file() or (path.parent / "model.safetensors.index.json").is_file()
        if layout and safe and path.parent.name not in REFUSED and all(case["class"] in layout.classes
                                                                       for case in golden["cases"]):
            names.append(path.parent.name)
    return names


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


def test_every_listed_family_has_folders() -> None:
    assert {"bert", "gpt2", "llama", "t5", "t5-v1_1", "openai-gpt", "gpt2-sharded",
            "gpt2-fp16-checkpoint"} <= set(published())


@pytest.mark.parametrize("name", published())
def test_folder(name: str) -> None:
    folder = GOLDEN / name
    results = list(checker().model_cases(folder, without_labels(folder)))
    assert results
    assert [f"{case}: {faults}" for case, good, _, faults in results if not good] == []


@pytest.mark.parametrize("name", ["bert", "gpt2", "gpt2-model", "llama", "t5", "t5-v1_1", "openai-gpt",
                                  "bert-causal-lm", "roberta", "roberta-model", "xlm-roberta", "camembert",
                                  "distilbert", "electra", "electra-masked-lm", "mpnet", "albert", "albert-masked-lm",
                                  "xlm", "xlm-causal", "xlm-multiple-choice", "xlm-sequence-classification", "xlnet",
                                  "xlnet-multiple-choice", "xlnet-token-classification", "xlnet-question-answering",
                                  "transfo-xl", "transfo-xl-div4", "transfo-xl-sequence-classification",
                                  "big_bird", "big_bird-original_full-question-answering", "reformer",
                                  "reformer-masked-lm", "reformer-sequence-classification", *LONG_AND_PAIRED])
def test_saved_again_it_is_the_same_checkpoint(name: str, tmp_path: Path) -> None:
    from safetensors.torch import load_file

    model = saucier.load(GOLDEN / name, dtype="float32", device="cpu")
    write_foreign(model, LAYOUTS[json.loads((GOLDEN / name / "config.json").read_text())["model_type"]],
                  tmp_path / "out")
    first, second = load_file(GOLDEN / name / "model.safetensors"), load_file(tmp_path / "out" / "model.safetensors")
    first.pop("transformer.pos_emb.inv_freq", None)  # Transformer-XL's table of frequencies, which is no weight
    assert set(first) == set(second)
    assert all(torch.equal(first[key], second[key]) for key in first)
    again = saucier.load(tmp_path / "out", dtype="float32", device="cpu")
    assert again.config == model.config and again.generation == model.generation


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_expressed_is_refused_by_name(name: str) -> None:
    with pytest.raises(saucier.InputError, match=REFUSED[name]):
        saucier.load(GOLDEN / name)
