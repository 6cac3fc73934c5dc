"""Masked language models write from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.conftest import TINY, Saucier


@pytest.fixture(scope="module")
def masked(tmp_path_factory: pytest.TempPathFactory, text_file: Path) -> Path:
    """Return the run of a tiny BERT."""
    from saucier.cli import main

    out = tmp_path_factory.mktemp("masked") / "bert"
    words = ["train", "bert-nano", "--data", str(text_file), "--out", str(out), "--no-calibrate", "data.document=line",
             "objective.next_sentence=null", "tokenizer.vocab=60", *TINY]
    assert main(words) == 0
    return out


def test_gibbs_fills_in_what_is_open(saucier: Saucier, masked: Path) -> None:
    """What is given stays; no special token is written; a seed draws the same again."""
    words = ("generate", masked, "the [MASK] stirs [MASK] [MASK] .", "--strategy", "gibbs steps=9", "--seed", 1)
    first = saucier(*words, "--samples", 3, "--json")
    texts = json.loads(first.out)["texts"]
    assert len(texts) == 3
    assert all(text.startswith("the") and " stirs" in text and "[" not in text for text in texts), texts
    assert saucier(*words, "--samples", 3, "--json").out == first.out


def test_metropolis_hastings_says_how_much_was_taken(saucier: Saucier, masked: Path) -> None:
    answer = saucier("generate", masked, "--masks", 4, "--strategy", "metropolis_hastings steps=20 energy=raw")
    assert answer.code == 0, answer.err
    assert "took " in answer.err
    assert answer.out.strip()


@pytest.mark.parametrize(("strategy", "wrong"), [
    ("gobbs", "gobbs"), ("gibbs steps", "'steps' is no setting"), ("gibbs steps=0", "steps"), ("gibbs step=3", "step")])
def test_a_wrong_strategy_is_one_line(saucier: Saucier, masked: Path, strategy: str, wrong: str) -> None:
    answer = saucier("generate", masked, "a [MASK]", "--strategy", strategy)
    assert answer.code == 2
    assert wrong in answer.error


def test_nothing_open_is_said(saucier: Saucier, masked: Path, cooked: Path) -> None:
    assert "--masks" in saucier("generate", masked, "the cat", "--strategy", "gibbs").error
    assert "no mask token" in saucier("generate", cooked, "the cat", "--strategy", "gibbs").error
