"""Stored copies of what nothing trains: fixed positions are checked, a bias that a file lacks is zero."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import saucier
from saucier.checkpoints.published_folder import express_model, write_published
from saucier.checkpoints.weight_files import read_tensors, write_tensors
from saucier.families import FAMILIES, LAYOUTS
from saucier.model import build

TABLE = "model.encoder.embed_positions.weight"


def written(family: str, path: Path) -> dict[str, torch.Tensor]:
    """Write a small model in its published layout and return the tensors of the file."""
    model = build(FAMILIES[family](8, 1, heads=2, vocab=20, length=12), seed=1)
    write_published(model, *express_model(model, LAYOUTS[family]), path)
    return dict(read_tensors(path / "model.safetensors"))


def test_a_table_is_written_where_the_class_has_it(tmp_path: Path) -> None:
    assert written("pegasus", tmp_path / "a")[TABLE].shape == (12, 8)
    assert TABLE not in written("marian", tmp_path / "b")  # MarianMTModel leaves it out


def test_another_table_is_refused(tmp_path: Path) -> None:
    tensors = written("pegasus", tmp_path / "a")
    tensors[TABLE][3, 2] += 0.1
    write_tensors(tensors, tmp_path / "a" / "model.safetensors")
    with pytest.raises(saucier.InputError, match=f"{TABLE} is not the table that the config says"):
        saucier.load(tmp_path / "a")


def test_a_table_in_half_precision_is_taken(tmp_path: Path) -> None:
    tensors = {name: tensor.half() for name, tensor in written("pegasus", tmp_path / "a").items()}
    write_tensors(tensors, tmp_path / "a" / "model.safetensors")
    assert saucier.load(tmp_path / "a").config.embed.positions.length == 12


def test_an_output_bias_that_a_file_lacks_is_zero(tmp_path: Path) -> None:
    tensors = written("marian", tmp_path / "a")
    assert tensors.pop("final_logits_bias").shape == (1, 20)
    write_tensors(tensors, tmp_path / "a" / "model.safetensors")
    assert not saucier.load(tmp_path / "a").head.bias.any()
