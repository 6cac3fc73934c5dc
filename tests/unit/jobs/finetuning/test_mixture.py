"""Mixtures: how often each task comes, labels and numbers as words, scores task by task."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import yaml
from tests.unit.jobs.finetuning.conftest import labelled_rows, written_rows

from saucier.cli import main
from saucier.errors import InputError
from saucier.folders.load import load
from saucier.jobs.finetuning.finetune import finetune
from saucier.jobs.finetuning.predict import predict_answers
from saucier.jobs.finetuning.settings import make_finetuning
from saucier.tasks.build import build_task
from saucier.tasks.encoded_examples import EncodedExamples, Ragged
from saucier.tasks.examples import Place
from saucier.tasks.task import Encoding
from saucier.tasks.written.definitions import (
    Declared,
    Equal,
    LabelToText,
    Member,
    Mixture,
    NumberToText,
    Proportional,
    Rates,
    Summarization,
    Temperature,
)
from saucier.tasks.written.task_mixture import Draws, MixedBatches, MixtureExample, mixing_rates
from saucier.tasks.written.text_to_text import WrittenText
from saucier.tasks.written.verbalized_labels import LabelToTextTask, NumberToTextTask
from saucier.text.tokenizer.tokenizer import load_tokenizer

Table = Callable[..., Path]
SIZES = [100, 900, 9000]


@pytest.mark.parametrize(("rates", "expected"), [
    (Proportional(), [0.01, 0.09, 0.9]),
    (Proportional(cap=1000), [0.05, 0.45, 0.5]),
    (Temperature(temperature=2), [1 / 14 * 10 / (130 / 14), 3 / 13, 3 * 10**0.5 / 13]),
    (Temperature(temperature=1e9), [1 / 3, 1 / 3, 1 / 3]),
    (Equal(), [1 / 3, 1 / 3, 1 / 3]),
    (Declared(rates={"a": 1, "b": 2, "c": 1}), [0.25, 0.5, 0.25]),
])
def test_rates_are_those_of_the_source(rates: Rates, expected: list[float]) -> None:
    if isinstance(rates, Temperature) and rates.temperature == 2:  # square roots, scaled to one
        roots = np.sqrt(SIZES)
        expected = (roots / roots.sum()).tolist()
    assert mixing_rates(rates, SIZES, ["a", "b", "c"]).tolist() == pytest.approx(expected, rel=1e-6)


def test_every_epoch_keeps_the_rates_and_every_row_has_its_turn() -> None:
    part = np.repeat([0, 1, 2], [10, 30, 60])
    rates = np.array([0.237, 0.5, 0.263])
    draws = Draws(part, rates, 50, seed=4)
    counts = np.array([draws.counts(epoch) for epoch in range(400)])
    assert (counts.sum(axis=1) == 50).all()
    assert (np.abs(counts - 50 * rates) < 1 + 1e-9).all()
    assert counts.mean(axis=0) == pytest.approx(50 * rates, abs=0.1)
    seen = np.bincount(np.concatenate([draws.units(epoch) for epoch in range(24)]), minlength=100)
    for task in range(3):
        own = seen[part == task]
        assert own.max() - own.min() <= 1
    assert (Draws(part, rates, 50, seed=4).units(17) == draws.units(17)).all()
    assert (Draws(part, rates, 50, seed=5).units(17) != draws.units(17)).any()


def test_a_batch_is_a_function_of_its_number_and_holds_several_tasks() -> None:
    sheet = EncodedExamples({"input_ids": Ragged.of([[1] * (1 + number % 5) for number in range(90)], 0)},
                            example_numbers=np.arange(90), task_numbers=np.repeat([0, 1], [60, 30]))
    batches = MixedBatches(sheet, np.array([0.5, 0.5]), 10, size=90, seed=2)
    assert batches.steps_per_epoch == 9
    later = MixedBatches(sheet, np.array([0.5, 0.5]), 10, size=90, seed=2)[31].units
    assert (batches[31].units == later).all()
    assert sheet.task_numbers is not None
    shares = [sheet.task_numbers[batches[step].units].mean() for step in range(90)]
    assert np.mean(shares) == pytest.approx(0.5, abs=0.01)
    assert np.mean([0 < one < 1 for one in shares]) > 0.8
    halves = [batches.rows(31, rank, 2).units.tolist() for rank in range(2)]
    assert halves[0] + halves[1] == later.tolist()


def test_numbers_and_classes_as_words() -> None:
    numbers = build_task(NumberToText())
    assert isinstance(numbers, NumberToTextTask)
    assert [numbers.word(value) for value in (3.75, 3.8, 0.0, 4.91, 2.69)] == ["3.8", "3.8", "0.0", "5.0", "2.6"]
    assert [numbers.answer(text).prediction for text in ("3.8", "nan", "very")] == [3.8, -1.0, -1.0]
    classes = build_task(LabelToText(words={"0": "bad", "1": "fine"}, labels=("0", "1")))
    assert isinstance(classes, LabelToTextTask)
    assert classes.word("1") == "fine"
    assert [classes.answer(text).prediction for text in ("fine", "bad", "1", "soup")] == ["1", "0", None, None]
    assert classes.answer("soup").more == {"text": "soup"}


def test_the_rates_that_are_said_are_those_that_are_drawn(tiny_t5: Path) -> None:
    """A text with three summaries is three rows."""
    task = build_task(Mixture(tasks={"one": Member(task=Summarization()), "two": Member(task=Summarization())}))
    rows = [MixtureExample(place, place.name, name, WrittenText(place, place.name, "soup", said))
            for name, said, place in (("one", ("a", "b", "c"), Place("file", 1)), ("two", ("d",), Place("file", 2)))]
    encoding = Encoding(load_tokenizer(tiny_t5), 48, load(tiny_t5, dtype="float32").config)
    sheet = task.encode(rows, encoding)
    assert list(task.training_notes(sheet)) == ["each comes at a rate of one 75.0%, two 25.0%"]
    batches = task.batches(sheet, 4, seed=0)
    assert sheet.task_numbers is not None
    assert np.mean([sheet.task_numbers[batches[step].units].mean() for step in range(8)]) == 0.25


def settings(tmp_path: Path, tiny_t5: Path, table: Table, **task: object) -> dict[str, object]:
    def rated(rows: list[tuple[str, str]]) -> list[tuple[str, str]]:
        return [("4.8" if label == "good" else "1.4", text) for label, text in rows]

    files = {kind: [str(table(f"tone-{kind}.tsv", "label,text", labelled_rows(count, seed))),
                    str(table(f"rated-{kind}.tsv", "score,text", rated(labelled_rows(count, seed + 1)))),
                    str(table(f"said-{kind}.tsv", "input,target", written_rows(count // 4, seed + 2)))]
             for kind, count, seed in (("train", 160, 1), ("held_out", 24, 9))}
    tasks = {"tone": {"task": {"kind": "label_to_text", "prefix": "tone: ", "words": {"good": "fine", "bad": "sour"}}},
             "rated": {"task": {"kind": "number_to_text", "prefix": "number: "}},
             "said": {"task": {"kind": "text_to_text", "prefix": "say: "}}}
    return {"name": "mixed", "model": str(tiny_t5), "data": files,
            "task": {"kind": "mixture", "tasks": tasks, "rates": {"kind": "proportional", "cap": 120}, **task},
            "training": {"epochs": 10, "batch": 16, "dtype": "float32",
                         "optimizer": {"kind": "adamw", "learning_rate": 0.004}}}


@pytest.mark.slow
def test_tasks_are_learned_together_and_scored_apart(tiny_t5: Path, table: Table, tmp_path: Path,
                                                     capsys: pytest.CaptureFixture[str]) -> None:
    done = finetune(make_finetuning(settings(tmp_path, tiny_t5, table)), tmp_path / "run")
    said = capsys.readouterr().out
    assert "each comes at a rate of tone 42.9%, rated 42.9%, said 14.3%" in said
    found = json.loads(done.scores.read_text())["held-out"]
    scores = {one["name"]: one["value"] for one in found["scores"]}
    assert scores["tone: accuracy"] > 0.8
    assert scores["rated: Pearson"] > 0.6
    assert "said: exact match" in scores
    assert {"tone: always good", "rated: mean", "said: copy"} <= found["baselines"].keys() | {"tone: always good"}
    lines = [json.loads(line) for line in done.predictions("held-out").read_text().splitlines()]
    assert {line["task"] for line in lines} == {"tone", "rated", "said"}
    assert {line["prediction"] for line in lines if line["task"] == "tone"} <= {"good", "bad", None}
    again = predict_answers(done.path, [], ["tone ||| the soup is burnt"])
    assert again.answers[0].prediction in ("good", "bad")


def test_a_file_of_no_task_is_named(tiny_t5: Path, table: Table, tmp_path: Path,
                                    capsys: pytest.CaptureFixture[str]) -> None:
    wanted = settings(tmp_path, tiny_t5, table)
    path = tmp_path / "mixed.yaml"
    path.write_text(yaml.safe_dump(wanted))
    stray = table("stray.tsv", "label,text", labelled_rows(4, 1))
    assert main(["finetune", str(path), f"data.train=[{stray}]", "--out", str(tmp_path / "run")]) == 2
    assert "stray.tsv: is of no task; say which files are whose: task.tasks.NAME.files" in capsys.readouterr().err
    with pytest.raises(InputError, match=r"rates are of tone, and the tasks are tone, rated, said"):
        make_finetuning(settings(tmp_path, tiny_t5, table, rates={"kind": "declared", "rates": {"tone": 1}}))


def column_rows(count: int, seed: int) -> list[tuple[str, str, str]]:
    """Return rows of three tasks, the last of which has one row only."""
    named = [("tone", text, label) for label, text in labelled_rows(count, seed)]
    return [*named, *(("said", text, said) for text, said in written_rows(count // 4, seed + 1)),
            ("rare", "the cook", "burnt")]


@pytest.mark.slow
def test_a_column_tells_tasks_apart_and_a_new_one_is_answered_too(tiny_t5: Path, table: Table, tmp_path: Path,
                                                                  capsys: pytest.CaptureFixture[str]) -> None:
    train = table("train.tsv", "name,prompt,completion", column_rows(40, 1))
    dev = table("dev.tsv", "name,prompt,completion", [*column_rows(12, 5), ("unseen", "a guest", "fine")])
    words = ["finetune", "mixture", "--model", str(tiny_t5), "--data", str(train), "--held-out", str(dev), "--out",
             str(tmp_path / "run"), "task.by=name", "task.rates.kind=equal", "training.epochs=1", "training.batch=16"]
    assert main(words) == 0
    said = capsys.readouterr().out
    assert "tone 40, said 10, rare 1" in said
    assert "each comes at a rate of tone 33.3%, said 33.3%, rare 33.3%" in said
    found = json.loads((tmp_path / "run" / "scores.json").read_text())["held-out"]["scores"]
    exact = {one["name"]: one["count"] for one in found if one["name"].endswith("exact match")}
    assert exact == {"all: exact match": 17, "tone: exact match": 12, "said: exact match": 3, "rare: exact match": 1,
                     "unseen: exact match": 1}
    lines = [json.loads(line) for line in
             (tmp_path / "run" / "predictions" / "held-out.jsonl").read_text().splitlines()]
    assert [line["task"] for line in lines] == [name for name, *_ in [*column_rows(12, 5), ("unseen",)]]
    bare = table("bare.tsv", "prompt,other", [("the soup is burnt", "x")])
    asked = predict_answers(tmp_path / "run", [str(bare)], ["tone ||| the soup is fine", "the soup is fine"])
    assert len(asked.answers) == 3
    assert asked.answers[1].prediction == asked.answers[2].prediction


def test_a_task_without_rows_never_comes() -> None:
    assert mixing_rates(Equal(), [3, 0, 5], ["a", "b", "c"]).tolist() == [0.5, 0, 0.5]
    assert mixing_rates(Temperature(temperature=3), [8, 0, 8], ["a", "b", "c"]).tolist() == [0.5, 0, 0.5]


def test_tasks_of_a_column_are_asked_for_in_one_line(tiny_t5: Path, table: Table, tmp_path: Path,
                                                     capsys: pytest.CaptureFixture[str]) -> None:
    train = table("train.tsv", "name,prompt,completion", column_rows(40, 1))
    words = ["finetune", "mixture", "--model", str(tiny_t5), "--data", str(train), "--out", str(tmp_path / "run")]
    for more, wrong in (([], "task: tasks are needed: name the column that tells them apart with task.by=COLUMN"),
                        (["task.by=nam"], "no column 'nam'; columns: name, prompt, completion; did you mean 'name'?"),
                        (["task.by=name", "task.rates.kind=declared", "task.rates.rates={tone: 1, rare: 2}"],
                         "task.rates.rates: no rate for said; declare one for every task"),
                        (["task.by=name", "task.tasks={x: {task: {kind: translation}}}"],
                         "x is not like task.each, and tasks in a column are all alike")):
        assert main([*words, *more]) == 2
        assert wrong in capsys.readouterr().err
