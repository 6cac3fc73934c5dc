"""A tiny BERT in its published layout, and labelled files whose labels can be told from one word."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from saucier.families.bert import bert
from saucier.families.gpt2 import gpt2
from saucier.families.t5 import t5
from saucier.model import build
from saucier.text.config import ByteBPE, Unigram, WordPiece
from saucier.text.tokenizer.training import train_tokenizer

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


SAID = {"good": "very rich soup", "bad": "cold bread"}


def written_rows(count: int, seed: int) -> list[tuple[str, str]]:
    """Return (input, target) rows; what is to be written hangs on one word."""
    return [(text, SAID[label]) for label, text in labelled_rows(count, seed)]


def spoken_texts() -> list[str]:
    """Return text that tokenizers are trained on."""
    spelled = ["a b c d e f g h i j k l m n o p q r s t u v w x y z 0 1 2 3 4 5 6 7 8 9 : . [ ]"]
    return [text for _, text in labelled_rows(400, 0)] + spelled


@pytest.fixture(scope="session")
def tiny_t5(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a tiny T5 with its tokenizer."""
    folder = tmp_path_factory.mktemp("tiny") / "t5"
    tokenizer = train_tokenizer(Unigram(vocab=75), spoken_texts())
    config = t5(32, 2, heads=2, head_dim=16, vocab=tokenizer.vocab_size, hidden=64, dropout=0.0)
    assert build(config, seed=1).save(folder) == "t5"
    tokenizer.save(folder)
    return folder


@pytest.fixture(scope="session")
def tiny_gpt2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a tiny GPT-2 with its tokenizer."""
    folder = tmp_path_factory.mktemp("tiny") / "gpt2"
    tokenizer = train_tokenizer(ByteBPE(vocab=300), spoken_texts())
    config = gpt2(32, 2, heads=2, vocab=tokenizer.vocab_size, length=200, dropout=0.0)
    assert build(config, seed=1).save(folder) == "gpt2"
    tokenizer.save(folder)
    return folder
