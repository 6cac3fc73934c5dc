"""A task learned from nothing: a recipe in the place of a model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import saucier
from saucier.errors import InputError
from saucier.finetuning.config import Finetuning, finetuning
from saucier.finetuning.job import finetune

WORDS = ("cheap", "dear")
SMALL = ("recipe.model.dim=32", "recipe.model.heads=2", "recipe.model.layers=1", "recipe.model.hidden=64",
         "recipe.tokenizer.vocab=60", "training.epochs=6", "training.batch=16")


def rows(path: Path, count: int, first: int) -> Path:
    """Write rows whose class is their one telling word."""
    lines = [f"{WORDS[one % 2]}\tnumber {one} is {WORDS[one % 2]} today" for one in range(first, first + count)]
    path.write_text("label\ttext\n" + "\n".join(lines) + "\n", encoding="utf-8")
    return path


def settings(folder: Path, model: str, *words: str) -> Finetuning:
    """Return a classification of made rows."""
    files = {"train": [str(rows(folder / "train.tsv", 192, 0))], "held_out": [str(rows(folder / "dev.tsv", 40, 500))]}
    return finetuning({"name": "made", "model": model, "task": {"kind": "classification"}, "data": files}, words)


def test_a_recipe_learns_from_nothing(tmp_path: Path) -> None:
    """Its tokenizer knows the training rows alone, its rate is the recipe's, and the result loads as any other."""
    wanted = settings(tmp_path, "bert-nano", *SMALL)
    assert wanted.training.optimizer.learning_rate == saucier.recipe("bert-nano").training.optimizer.learning_rate
    done = finetune(wanted, tmp_path / "run", quiet=True)
    scores = json.loads(done.scores.read_text(encoding="utf-8"))["held-out"]["scores"]
    assert next(one["value"] for one in scores if one["name"] == "accuracy") == 1.0
    assert saucier.load_tokenizer(tmp_path / "run").vocab_size == 60
    assert saucier.load(tmp_path / "run").config.dim == 32
    assert json.loads((tmp_path / "run/passport.json").read_text(encoding="utf-8"))["start"] is None


@pytest.mark.parametrize(("model", "words", "said"), [
    ("bert-nono", (), "no such folder, and no such recipe"),
    ("bert-nano", ("tuning.kind=lora",), "tuning: a model without learned weights has nothing to keep"),
    ("bert-nano", ("recipe.tokenizer.vocab=5000",), "recipe.tokenizer.vocab: a vocabulary of 5000 is more"),
    ("bert-nano", ("recipe.model.dimm=3",), "dimm"),
    (".", ("recipe.model.dim=32",), "recipe: a model that is there cannot be changed"),
])
def test_what_cannot_begin_is_refused(tmp_path: Path, model: str, words: tuple[str, ...], said: str) -> None:
    """One line says what is wrong, and no folder is left."""
    with pytest.raises(InputError, match=said):
        finetune(settings(tmp_path, model, *words), tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()
