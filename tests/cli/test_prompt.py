"""`saucier prompt` on a run: the whole job by likelihood and by generation, its files, and its faults."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.conftest import Saucier, rhymes

import saucier as package
from saucier.adaptation import tuning as a
from saucier.adaptation.rewrite import rewrite
from saucier.families import gpt2
from saucier.folders.save import save_adapter
from saucier.text.config import BPE
from saucier.text.tokenizer.training import train_tokenizer

TASK = """
name: kitchen
evaluate: rows.tsv
train: rows.tsv
template: "{{ who }} stirs the"
answer: " {{ answer }}"
gold: what
separator: "\\n"
"""
ROWS = "who\twhat\nthe cook\tsauce\na guest\tsoup\nthe cat\tmilk\n"


@pytest.fixture
def task(tmp_path: Path) -> Path:
    """A task of three questions."""
    (tmp_path / "rows.tsv").write_text(ROWS)
    return tmp_path / "task.yaml"


@pytest.mark.slow
def test_choices_are_compared(saucier: Saucier, cooked: Path, task: Path, tmp_path: Path) -> None:
    task.write_text(TASK + "choices: [sauce, soup, milk]\nby: {kind: likelihood, normalization: {kind: byte}}\n")
    answer = saucier("prompt", task, "--model", cooked, "--shots", "0,1", "--draws", "2", "--out", tmp_path / "out",
                     "--json")
    found = json.loads(answer.out)
    assert answer.code == 0 and [one["shots"] for one in found["settings"]] == [0, 1]
    assert found["baselines"][0] == {"name": "chance", "value": 1 / 3, "low": 1 / 3, "high": 1 / 3, "count": 3,
                                     "unit": "rows"}
    rows = [json.loads(line) for line in (tmp_path / "out/results.jsonl").read_text().splitlines()]
    assert len(rows) == 3 + 2 * 3 and rows[0]["text"] == "the cook stirs the"
    for row in rows:
        by_byte = [nats / len(text.encode()) for nats, text in zip(row["nats"], row["answers"], strict=True)]
        assert row["scores"] == pytest.approx(by_byte)
        assert row["prediction"] == ("sauce", "soup", "milk")[by_byte.index(max(by_byte))]
    again = saucier("prompt", task, "--model", cooked, "--shots", "0,1", "--draws", "2", "--out", tmp_path / "again")
    assert (tmp_path / "again/results.jsonl").read_text() == (tmp_path / "out/results.jsonl").read_text()
    assert "0-shot accuracy" in again.out and "1-shot accuracy" in again.out and "always 'sauce'" in again.out
    assert saucier("score", tmp_path / "out/results.jsonl", "--kind", "classes").code == 0


@pytest.mark.slow
def test_without_a_folder_every_time_has_its_own(saucier: Saucier, cooked: Path, task: Path, tmp_path: Path,
                                                 monkeypatch: pytest.MonkeyPatch) -> None:
    task.write_text(TASK + "choices: [sauce, soup, milk]\n")
    monkeypatch.chdir(tmp_path)
    for name in ("prompt-kitchen", "prompt-kitchen-2", "prompt-kitchen-3"):
        assert not (tmp_path / "runs" / name).exists()
        assert saucier("prompt", task, "--model", cooked).code == 0
        assert (tmp_path / "runs" / name / "results.jsonl").is_file()
    refused = saucier("prompt", task, "--model", cooked, "--out", "runs/prompt-kitchen")
    assert refused.code == 2 and "is there already" in refused.err


def test_answers_are_written(saucier: Saucier, cooked: Path, task: Path, tmp_path: Path) -> None:
    task.write_text(TASK + 'by: {kind: generation, tokens: 6, stop: ["."]}\n')
    answer = saucier("prompt", task, "--model", cooked, "--shots", "1", "--out", tmp_path / "out")
    assert answer.code == 0 and "1-shot exact match" in answer.out and "1-shot F1" in answer.out
    rows = [json.loads(line) for line in (tmp_path / "out/results.jsonl").read_text().splitlines()]
    assert all("." not in row["prediction"] and row["text"].endswith("stirs the") for row in rows)
    assert all(row["text"].count("\n") == 1 - row["dropped"] for row in rows), "one example, where it fits"


def test_faults_are_one_line(saucier: Saucier, cooked: Path, task: Path, shared: Path, tmp_path: Path) -> None:
    task.write_text(TASK)
    wrong = saucier("prompt", task, "--model", cooked)
    assert wrong.code == 2 and "choices are compared, and there are none" in wrong.error
    task.write_text(TASK + "choices: [sauce, soup, milk]\n")
    wrong = saucier("prompt", task, "--model", shared / "golden/bert-masked-lm")
    assert wrong.code == 2 and "fills gaps" in wrong.error
    wrong = saucier("prompt", task, "--model", cooked, "--shots", "one")
    assert wrong.code == 2 and "'one' is no list of numbers" in wrong.error
    wrong = saucier("prompt", tmp_path / "none.yaml", "--model", cooked)
    assert wrong.code == 2 and "none.yaml: there is no such file" in wrong.error


def test_an_adapter_is_asked_on_a_base_that_has_moved(saucier: Saucier, task: Path, tmp_path: Path) -> None:
    """With the base's tokenizer where the adapter comes without one."""
    package.build(gpt2(16, 1, heads=2, vocab=60, length=64), seed=2).save(tmp_path / "base")
    train_tokenizer(BPE(vocab=60), rhymes(40).splitlines()).save(tmp_path / "base")
    model = package.load(tmp_path / "base", device="cpu")
    rewrite(model, by=a.Lora(rank=2, where=("qkv",)))
    save_adapter(model, tmp_path / "adapter")
    (tmp_path / "base").rename(tmp_path / "moved")
    task.write_text(TASK + "choices: [sauce, soup, milk]\n")
    lost = saucier("prompt", task, "--model", tmp_path / "adapter", "--out", tmp_path / "out")
    assert lost.code == 2 and "its base model is not there" in lost.error and "--base" in lost.error
    found = saucier("prompt", task, "--model", tmp_path / "adapter", "--base", tmp_path / "moved", "--out",
                    tmp_path / "out", "--json")
    assert found.code == 0 and json.loads(found.out)["questions"] == 3
