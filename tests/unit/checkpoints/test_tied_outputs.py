"""Files that hold an output layer of their own, whatever their config says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import saucier
from saucier import config as c
from saucier.checkpoints.published_folder import express_model, write_published
from saucier.checkpoints.weight_files import read_tensors, write_tensors
from saucier.families import FAMILIES, LAYOUTS
from saucier.model import Transformer, build

SIZES = {"t5": {"heads": 2, "head_dim": 4, "hidden": 20}, "llama": {"heads": 2, "hidden": 20, "tied": True}}


def folder_of(family: str, path: Path, *, same: bool) -> Path:
    """Write a small tied model, and an output matrix beside it that is the token table, or is not."""
    model = build(FAMILIES[family](16, 1, vocab=30, **SIZES[family]), seed=1)
    write_published(model, *express_model(model, LAYOUTS[family]), path)
    tensors = dict(read_tensors(path / "model.safetensors"))
    table = model.embed.tokens.weight.detach()
    tensors["lm_head.weight"] = table.clone() if same else table + 1.0
    write_tensors(tensors, path / "model.safetensors")
    return path


def language(model: Transformer) -> c.LanguageHead:
    head = model.config.language_head
    assert head is not None
    return head


@pytest.mark.parametrize("family", SIZES)
def test_another_matrix_makes_an_output_layer_of_its_own(family: str, tmp_path: Path) -> None:
    folder = folder_of(family, tmp_path / "a", same=False)
    assert json.loads((folder / "config.json").read_text()).get("tie_word_embeddings", True)
    model = saucier.load(folder, dtype="float32", device="cpu")
    assert not language(model).tied
    torch.testing.assert_close(model.head.weight, model.embed.tokens.weight + 1.0)


@pytest.mark.parametrize("family", SIZES)
def test_a_copy_of_the_table_stays_tied(family: str, tmp_path: Path) -> None:
    model = saucier.load(folder_of(family, tmp_path / "a", same=True), dtype="float32", device="cpu")
    assert language(model).tied and model.head.weight is model.embed.tokens.weight


def test_scale_and_tying_of_t5_are_two_fields(tmp_path: Path) -> None:
    """A tied T5 with a scaled output that was untied in the file comes back scaled and untied."""
    model = saucier.load(folder_of("t5", tmp_path / "a", same=False), dtype="float32", device="cpu")
    write_published(model, *express_model(model, LAYOUTS["t5"]), tmp_path / "b")
    said = json.loads((tmp_path / "b" / "config.json").read_text())
    assert (said["tie_word_embeddings"], said["scale_decoder_outputs"]) == (False, True)
    assert saucier.load(tmp_path / "b").config == model.config
