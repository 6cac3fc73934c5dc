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


@pytest.mark.slow
def test_gibbs_fills_in_what_is_open(saucier: Saucier, masked: Path) -> None:
    """What is given stays; no special token is written; a seed draws the same again."""
    words = ("generate", masked, "the [MASK] stirs [MASK] [MASK] .", "--strategy", "gibbs steps=9", "--seed", 1)
    first = saucier(*words, "--samples", 3, "--json")
    texts = json.loads(first.out)["texts"]
    assert len(texts) == 3
    assert all(text.startswith("the") and " stirs" in text and "[" not in text for text in texts), texts
    assert saucier(*words, "--samples", 3, "--json").out == first.out


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_translation_is_written_whole(saucier: Saucier, pair_file: Path, tmp_path: Path) -> None:
    """The whole job; scores after each number of iterations; and the same from the command line."""
    answer = saucier("cook", "mask-predict-nano", "--data", pair_file, "--out", tmp_path / "run", "--no-calibrate",
                     "tokenizer.vocab=60", "model.dim=32", "model.heads=2", "model.layers=1", "training.steps=4",
                     "training.batch=4", "sampling.samples=1", "training.events=off")
    assert answer.code == 0, answer.err
    scores = json.loads((tmp_path / "run" / "evaluation.json").read_text(encoding="utf-8"))["scores"]
    assert [score["name"] for score in scores if "BLEU" in score["name"]] == [
        "BLEU, 1 iteration", "BLEU, 4 iterations", "BLEU, 10 iterations"]
    assert "accuracy of the target's length" in answer.out
    words = ("generate", tmp_path / "run", "the cook stirs milk", "--strategy", "mask_predict iterations=2")
    written = saucier(*words)
    assert written.code == 0, written.err
    assert json.loads(saucier(*words, "--json").out)["texts"] == [written.out.removesuffix("\n")]
    assert "writes one text" in saucier(*words, "--samples", 2).error
    for idle in (("--beams", 4), ("--stop", "milk")):
        assert f"{idle[0]}: this model writes a text whole" in saucier(*words, *idle).error
