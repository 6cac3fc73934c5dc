"""`saucier attention-map`: a picture and figures of where a model looks, and one line for what cannot be drawn."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.conftest import Saucier

PAIRS = "en\tde\n" + "".join(f"the {one} sleeps\tdas {two} schläft\n" for one, two in (
    ("dog", "Hund"), ("child", "Kind"), ("horse", "Pferd"), ("sheep", "Schaf")) for _ in range(6))
SMALL = ("model.dim=16", "training.steps=2", "training.batch=4", "training.length=24", "tokenizer.vocab=60",
         "evaluation.limit=2", "sampling.samples=0", "training.events=off", "--no-calibrate")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return a run of a model with attention, and of one without."""
    from saucier.cli import main

    folder = tmp_path_factory.mktemp("maps")
    (folder / "pairs.tsv").write_text(PAIRS, encoding="utf-8")
    found = {name: folder / name for name in ("lstm-luong-nano", "rnn-nano")}
    for name, run in found.items():
        assert main(["cook", name, "--data", str(folder / "pairs.tsv"), "--out", str(run), *SMALL]) == 0
    return found


@pytest.mark.slow
def test_the_map_of_a_pair(saucier: Saucier, runs: dict[str, Path], tmp_path: Path) -> None:
    """One row for each token of the target, one column for each of the source; rows sum to one."""
    run = runs["lstm-luong-nano"]
    found = json.loads(saucier("attention-map", run, "the dog sleeps", "das Hund", "--json").out)
    assert "".join(found["columns"]) == "thedogsleeps</s>"
    assert "".join(found["rows"]) == "dasHund</s>"
    assert [round(sum(row), 4) for row in found["weights"]] == [1.0] * len(found["rows"])
    assert "looks at" in saucier("attention-map", run, "the dog sleeps").out
    pytest.importorskip("matplotlib")
    answer = saucier("attention-map", run, "the dog sleeps", "das Hund", "--out", tmp_path / "map.svg")
    assert answer.code == 0
    assert (tmp_path / "map.svg").read_text().startswith("<?xml")


def test_what_cannot_be_drawn_is_said(saucier: Saucier, runs: dict[str, Path]) -> None:
    """A thought vector has no map, and there is one attention with one head."""
    for arguments, words in (((runs["rnn-nano"], "the dog"), "no attention to its encoder"),
                             ((runs["lstm-luong-nano"], "the dog", "--layer", 3), "no attention 3"),
                             ((runs["lstm-luong-nano"], "the dog", "--head", 1), "no head 1")):
        answer = saucier("attention-map", *arguments)
        assert answer.code == 2
        assert words in answer.error
