"""The way in: input errors come without torch, and what came of a fine-tuning is a result with figures."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.jobs.finetuning.conftest import labelled_rows

from saucier.jobs.finetuning.entry import run_finetuning
from saucier.jobs.finetuning.finished import BaselineVerdict, read_finetuned

Table = Callable[..., Path]
WORDS = ["training.epochs=3", "training.batch=16", "training.optimizer.learning_rate=0.003", "training.dtype=float32"]
PROBE = """
import json, sys
from saucier.errors import InputError
from saucier.jobs.finetuning.entry import run_finetuning
found = []
for words, model, files in json.loads(sys.argv[1]):
    try:
        run_finetuning("classification", words, model=model, files=files)
        found.append("no error")
    except InputError as error:
        found.append(str(error))
print(json.dumps([found, "torch" in sys.modules]))
"""


@pytest.mark.slow
def test_input_errors_need_no_torch(tiny_bert: Path, table: Table) -> None:
    """One process for all of them: it is the imports that take the time."""
    good = str(table("train.tsv", "label,text", labelled_rows(60, 1)))
    odd = str(table("odd.tsv", "label,words", labelled_rows(60, 1)))
    other = str(table("other.tsv", "label,text", [("strange", "rich soup")]))
    one = str(table("one.tsv", "label,text", [("good", text) for _, text in labelled_rows(20, 2)]))
    model = str(tiny_bert)
    cases: list[tuple[list[str], str | None, dict[str, list[str]], str]] = [
        ([], None, {"train": [good]}, "--model is missing"),
        ([], "no/such/folder/at/all", {"train": [good]}, "no such folder, and no such recipe"),
        ([], model, {}, "--data is missing"),
        (["training.epoch=3"], model, {"train": [good]}, "training.epoch"),
        (["training.epochs=many"], model, {"train": [good]}, "training.epochs"),
        ([], model, {"train": [good + "x"]}, "no such file"),
        ([], model, {"train": [odd]}, "no column for the text"),
        (["task.text=nothing"], model, {"train": [good]}, "nothing"),
        ([], model, {"train": [good], "held_out": [other]}, "strange"),
        ([], model, {"train": [one]}, "one class only"),
        (["training.stop.metric=blue"], model, {"train": [good]}, "training.stop.metric"),
        (["training.stop.metric=macro-f1", "training.patience=2"], model, {"train": [good]}, "say the same"),
        (["task.class_weights.odd=2"], model, {"train": [good]}, "task.class_weights"),
    ]
    done = subprocess.run([sys.executable, "-c", PROBE, json.dumps([case[:3] for case in cases])], text=True,
                          capture_output=True, check=True)
    said, torch = json.loads(done.stdout)
    for (*_, expected), message in zip(cases, said, strict=True):
        assert expected in message
        assert len(message.splitlines()) == 1
    assert not torch


@pytest.mark.slow
def test_a_result_has_its_figures(tiny_bert: Path, table: Table, tmp_path: Path,
                                  capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("sklearn")
    files = {"train": [str(table("train.tsv", "label,text", labelled_rows(160, 1)))],
             "held_out": [str(table("dev.tsv", "label,text", labelled_rows(60, 2)))]}
    found = run_finetuning("classification", WORDS, model=str(tiny_bert), files=files, out=tmp_path / "run")
    said = capsys.readouterr().out
    assert found.folder == tmp_path / "run"
    assert found.scores["accuracy"] == found.splits["held-out"].scores[0].value
    [verdict] = found.splits["held-out"].verdicts
    assert verdict.baseline == "TF-IDF, logistic regression"  # the better of the two
    assert found.beats_baseline is verdict.beaten is (verdict.low > 0)
    assert verdict.line() in said
    assert ("try: read texts by the mean of their vectors" in said) is not verdict.beaten
    assert json.loads(json.dumps(found.to_dict()))["splits"]["held-out"]["rows"] == 60
    for path in [*files["train"], *files["held_out"]]:  # what is finished needs no files any more
        Path(path).unlink()
    again = run_finetuning("classification", WORDS, model=str(tiny_bert), files=files, out=tmp_path / "run")
    assert again.to_dict() == found.to_dict() == read_finetuned(tmp_path / "run").to_dict()


def test_a_verdict_is_about_the_whole_interval() -> None:
    lost = BaselineVerdict("TF-IDF", "accuracy", 0.01, -0.01, 0.03, beaten=False)
    assert lost.line() == "did not beat TF-IDF: accuracy +0.0100 (−0.0100 … +0.0300)"
