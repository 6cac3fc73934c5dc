"""A tiny fine-tuned BERT of four layers, its rows, and chains that are quick."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.jobs.finetuning.conftest import labelled_rows

import saucier
from saucier.families.bert import bert
from saucier.model import build
from saucier.text.config import WordPiece
from saucier.text.tokenizer.training import train_tokenizer

QUICK = ("measure.memory=false", "measure.rounds=3", "measure.rows=8", "measure.batches=[1,8]")
"""Words that make measuring quick."""


def write_rows(path: Path, count: int, seed: int) -> Path:
    """Write rows whose label can be told from one word."""
    path.write_text("label\ttext\n" + "".join(f"{label}\t{text}\n" for label, text in labelled_rows(count, seed)))
    return path


@pytest.fixture(scope="session")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a fine-tuning, with its rows beside it: train.tsv, dev.tsv, test.tsv."""
    base = tmp_path_factory.mktemp("compression")
    for name, count, seed in (("train", 200, 1), ("dev", 60, 2), ("test", 50, 3)):
        write_rows(base / f"{name}.tsv", count, seed)
    tokenizer = train_tokenizer(WordPiece(vocab=110), [text for _, text in labelled_rows(400, 0)])
    config = bert(vocab=tokenizer.vocab_size, dim=32, layers=4, heads=2, hidden=64, length=48, dropout=0.0)
    build(config, seed=1).save(base / "bert")
    tokenizer.save(base / "bert")
    words = ["training.epochs=5", "training.dtype=float32", "training.batch=16",
             "training.optimizer.learning_rate=2e-3"]
    found = saucier.finetune("classification", words, model=base / "bert", data=base / "train.tsv",
                             held_out=base / "dev.tsv", out=base / "tuned", quiet=True)
    assert found.scores["accuracy"] > 0.9
    return base / "tuned"


@pytest.fixture
def chain(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes a chain file of some steps."""
    def write(*steps: str, keep: float = 0.5, name: str = "chain") -> Path:
        path = tmp_path / f"{name}.yaml"
        lines = [f"name: {name}", "about: A test.", f"keep: {keep}", "steps:", *(f"  - {step}" for step in steps)]
        path.write_text("\n".join(lines) + "\n")
        return path

    return write


def learn(epochs: int) -> str:
    """Return how a step of a chain learns, as a part of a line of YAML."""
    return f"training: {{epochs: {epochs}, batch: 16, dtype: float32, optimizer: {{learning_rate: 2e-3}}}}"


def distil(layers: object, epochs: int = 2) -> str:
    """Return a step as a line of YAML."""
    return f"{{kind: distil, layers: {layers}, {learn(epochs)}}}"
