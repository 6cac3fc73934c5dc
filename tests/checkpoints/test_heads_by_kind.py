"""`head=` by the kind of our head: the same class as by its published name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import saucier
from saucier.checkpoints.layout import published_tree
from saucier.families import LAYOUTS, bert


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("kinds") / "bert"
    saucier.build(bert(24, 1, heads=2, vocab=40, length=16)).save(path)
    return path


@pytest.mark.parametrize(("kind", "name"), [("pretraining", "BertForPreTraining"), ("language", "BertForMaskedLM"),
                                            ("none", "BertModel")])
def test_a_kind_is_a_class(kind: str, name: str, folder: Path) -> None:
    by_kind, by_name = (saucier.load(folder, head=head, dtype="float32", device="cpu") for head in (kind, name))
    assert by_kind.config == by_name.config
    assert by_kind.provenance.document["architectures"] == [name]


def test_the_saved_class_is_preferred(folder: Path, tmp_path: Path) -> None:
    model = saucier.load(folder, head="BertLMHeadModel", dtype="float32", device="cpu")
    model.save(tmp_path / "saved")
    again = saucier.load(tmp_path / "saved", head="language", dtype="float32", device="cpu")
    assert again.config == model.config
    assert again.provenance.document["architectures"] == ["BertLMHeadModel"]


def test_a_head_that_was_never_trained_is_not_made_up(folder: Path) -> None:
    with pytest.raises(saucier.InputError, match=r"classifier\.weight is missing"):
        saucier.load(folder, head="token_classification")


def test_an_unknown_kind_is_refused_with_the_nearest(folder: Path) -> None:
    with pytest.raises(saucier.InputError, match="did you mean 'language'"):
        saucier.load(folder, head="langauge")


def test_a_config_that_makes_no_model_says_why(folder: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    document = json.loads((folder / "config.json").read_text())
    (broken / "config.json").write_text(json.dumps(document | {"hidden_size": -1}))
    (broken / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes())
    with pytest.raises(saucier.InputError, match="dim: Input should be greater than 0"):
        saucier.load(broken, head="language")


@pytest.mark.parametrize("family", ["bert", "gpt2", "t5", "bart", "longformer", "switch_transformers", "modernbert"])
def test_a_billion_layers_are_refused_before_they_are_written_out(family: str, shared: Path) -> None:
    document = json.loads((shared / "golden" / family / "config.json").read_text())
    layout, published = LAYOUTS[document["model_type"]], document["architectures"][0]
    counts = [name for name in ("num_hidden_layers", "n_layer", "num_layers", "encoder_layers") if name in document]
    assert counts
    for name in counts:
        for count in (10**9, 10**12):
            with pytest.raises(saucier.InputError, match=f"{name} is {count}"):
                published_tree(layout, document | {name: count}, published, "config.json")
