"""Scores of models for a task: the reference's predictions, a fine-tuning's own figures, labels under other names."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.unit.jobs.evaluation.conftest import Folder

from saucier.errors import InputError
from saucier.jobs.evaluation.evaluate import evaluate
from saucier.jobs.evaluation.measurement import EvaluationOptions
from saucier.opened import open_model


def write_rows(path: Path, header: str, rows: list[tuple[str, ...]]) -> str:
    """Write a table, and return its name."""
    path.write_text("\n".join(["\t".join(header.split(",")), *map("\t".join, rows)]) + "\n", encoding="utf-8")
    return str(path)


def test_accuracy_is_that_of_the_reference(golden: Folder, box: Path, tmp_path: Path) -> None:
    transformers: Any = pytest.importorskip("transformers")
    folder = golden("bert-sequence-classification", "wordpiece")
    texts = list(dict.fromkeys((box / "kitchen.txt").read_text(encoding="utf-8").splitlines()))[:40]
    model, tokenizer = transformers.BertForSequenceClassification.from_pretrained(folder).eval(), \
        open_model(folder).tokenizer
    with torch.no_grad():
        said = [int(model(torch.tensor([tokenizer.encode(text)])).logits.argmax()) for text in texts]
    labels = [said[number] if number % 3 else (said[number] + 1) % 3 for number in range(len(texts))]
    right = sum(one == other for one, other in zip(said, labels, strict=True)) / len(texts)
    named = [(f"LABEL_{label}", text) for label, text in zip(labels, texts, strict=True)]
    found = evaluate(str(folder), [write_rows(tmp_path / "named.tsv", "label,text", named)])
    assert found["accuracy"].value == pytest.approx(right)
    assert found["accuracy"].low < right < found["accuracy"].high
    numbered = [(str(label), text) for label, text in zip(labels, texts, strict=True)]
    again = evaluate(str(folder), [write_rows(tmp_path / "numbered.tsv", "label,text", numbered)])
    assert again["accuracy"].value == pytest.approx(right)
    assert "LABEL_1 = 1" in " ".join(again.notes)
    words = [(("low", "middle", "high")[label], text) for label, text in zip(labels, texts, strict=True)]
    file = write_rows(tmp_path / "words.tsv", "level,said", words)
    with pytest.raises(InputError, match=r"no column for the text and for the label; columns: level, said"):
        evaluate(str(folder), [file])
    with pytest.raises(InputError, match=r"no label of the file \(.*middle.*\).*LABEL_0, LABEL_1.*task.labels="):
        evaluate(str(folder), [file], EvaluationOptions(["task.label=level", "task.text=said"]))
    last = evaluate(str(folder), [file], EvaluationOptions(["task.label=level", "task.text=said",
                                                            "task.labels=[low, middle, high]"]))
    assert last["accuracy"].value == pytest.approx(right)
    with pytest.raises(InputError, match="2 names, and the model has 3 outputs"):
        evaluate(str(folder), [file], EvaluationOptions(["task.label=level", "task.labels=[low, high]"]))


@pytest.mark.slow
@pytest.mark.parametrize("task", ["classification", "tagging", "regression", "ranking", "many_labels", "embedding",
                                  "question_answering", "multiple_choice", "translation", "summarization"])
def test_a_fine_tuning_gives_its_own_figures_again(in_box: Path, task: str) -> None:
    then = json.loads(Path("tasks", task, "scores.json").read_text())["held-out"]
    found = evaluate(f"tasks/{task}", options=EvaluationOptions(baselines=True, dtype="float32"))
    assert {one.name: one.value for one in found.scores} == pytest.approx(
        {one["name"]: one["value"] for one in then["scores"]}, abs=1e-6)
    assert [name for name, _ in found.baselines] == list(then["baselines"])
    assert found.to_dict()["kind"] == task


def test_rows_with_labels_that_are_not_known_are_errors(in_box: Path, tmp_path: Path) -> None:
    rows = [line.split("\t") for line in Path("dev/tones.tsv").read_text().splitlines()]
    header, *body = rows
    place = header.index("label")
    strange = [tuple("odd" if number < 3 and column == place else cell for column, cell in enumerate(row))
               for number, row in enumerate(body)]
    found = evaluate("tasks/classification", [write_rows(tmp_path / "odd.tsv", ",".join(header), strange)])
    whole = evaluate("tasks/classification", ["dev/tones.tsv"])
    assert whole["accuracy"].value == 1.0
    assert found["accuracy"].value == pytest.approx(1 - 3 / len(body))
    assert "3 rows have labels that the model does not know (odd)" in " ".join(found.notes)
    loud = [tuple(cell.upper() if column == place else cell for column, cell in enumerate(row)) for row in body]
    again = evaluate("tasks/classification", [write_rows(tmp_path / "loud.tsv", ",".join(header), loud)])
    assert again["accuracy"].value == 1.0


def test_a_published_embedder_is_measured_by_the_columns_of_the_file(box: Path, tmp_path: Path) -> None:
    folder = tmp_path / "embedder"
    shutil.copytree(box / "tasks" / "embedding" / "model", folder)
    (folder / "task.json").unlink()
    pairs = [("the cook", "a cook", "4.5"), ("some soup", "milk", "1"), ("a guest", "the guest", "5"),
             ("my cat", "some bread", "0")]
    scored = evaluate(str(folder), [write_rows(tmp_path / "sts.tsv", "sentence1,sentence2,score", pairs)])
    assert [one.name for one in scored.scores] == ["Pearson", "Spearman", "RMSE"]
    ranked = evaluate(str(folder), [write_rows(tmp_path / "pairs.tsv", "anchor,positive", [one[:2] for one in pairs])])
    assert [one.name for one in ranked.scores][:1] == ["MRR"]


@pytest.mark.parametrize(("model", "files", "words"), [
    ("tasks/classification", ("kitchen.txt",), "is plain text, and a model for classification is measured on labelled "
     "rows; give .jsonl"),
    ("models/t5", ("kitchen.txt",), "is plain text, and a model for text_to_text"),
    ("tasks/classification", ("nowhere.tsv",), "nowhere.tsv: no such file"),
    ("tasks/classification/model", (), "on which text or rows.*name a file"),
    ("nowhere", (), "nowhere: no such folder")])
def test_a_wrong_pairing_is_one_line(in_box: Path, model: str, files: tuple[str, ...], words: str) -> None:
    with pytest.raises(InputError, match=words) as error:
        evaluate(model, files)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("changes", "words"), [
    (["task.kind=tagging"], "tagging needs a head of the kind token_classification"),
    (["task.kind=ranked"], "task.kind"), (["task.lable=x"], "task.lable"), (["data.column=x"], "data")])
def test_words_that_the_task_does_not_know_are_refused(in_box: Path, changes: list[str], words: str) -> None:
    with pytest.raises(InputError, match=words):
        evaluate("tasks/classification", ["dev/tones.tsv"], EvaluationOptions(changes))


def test_beams_are_those_of_a_model_that_writes(in_box: Path) -> None:
    with pytest.raises(InputError, match="--beams: a model for classification does not read it"):
        evaluate("tasks/classification", ["dev/tones.tsv"], EvaluationOptions(beams=4))
    greedy, beams = (evaluate("tasks/translation", ["dev/turned.tsv"], EvaluationOptions(beams=count))
                     for count in (1, 4))
    assert [one.name for one in greedy.scores] == [one.name for one in beams.scores]
    assert greedy["chrF"].value != beams["chrF"].value


def test_a_body_without_a_head_names_the_remedy(golden: Folder) -> None:
    with pytest.raises(InputError, match=r"a body without a head.*saucier finetune"):
        evaluate(str(golden("gpt2-model", "bpe")), [str(golden("gpt2", "bpe") / "config.json")])


def test_what_is_asked_in_another_way_is_measured_in_its_run(golden: Folder, box: Path) -> None:
    with pytest.raises(InputError, match="measured in its own run only"):
        evaluate(str(golden("xlnet", "wordpiece")), [str(box / "kitchen.txt")])
