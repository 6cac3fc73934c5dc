"""A tiny BERT in its published layout, and labelled files whose labels can be told from one word."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from saucier.families.bert import bert
from saucier.model import build
from saucier.text.config import WordPiece
from saucier.text.train_tokenizer import train_tokenizer

WORDS = ("the cook", "a guest", "my cat", "the waiter", "soup", "the sauce", "some bread", "a plate", "is", "was",
         "quite", "very", "tonight", "again", "here")
TONES = {"good": ("fine", "lovely", "rich"), "bad": ("burnt", "sour", "cold")}


def labelled_rows(count: int, seed: int) -> list[tuple[str, str]]:
    """Return (label, text) rows; the tone of one word is the label."""
    draw = random.Random(seed)
    rows = []
    for _ in range(count):
        label = draw.choice(list(TONES))
        words = [draw.choice(WORDS) for _ in range(draw.randint(3, 9))]
        words.insert(draw.randrange(len(words)), draw.choice(TONES[label]))
        rows.append((label, " ".join(words)))
    return rows


@pytest.fixture(scope="session")
def tiny_bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a tiny BERT with its tokenizer."""
    folder = tmp_path_factory.mktemp("tiny") / "bert"
    tokenizer = train_tokenizer(WordPiece(vocab=110), [text for _, text in labelled_rows(400, 0)])
    config = bert(vocab=tokenizer.vocab_size, dim=32, layers=2, heads=2, hidden=64, length=48, dropout=0.0)
    assert build(config, seed=1).save(folder) == "bert"
    tokenizer.save(folder)
    return folder


@pytest.fixture
def table(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes a TSV file: its header, and its rows."""
    def write(name: str, header: str, rows: list[tuple[str, ...]]) -> Path:
        path = tmp_path / name
        path.write_text("\n".join([header.replace(",", "\t"), *("\t".join(row) for row in rows)]) + "\n",
                        encoding="utf-8")
        return path

    return write
