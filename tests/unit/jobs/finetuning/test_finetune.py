"""Fine-tuning end to end on a tiny model: it learns, resumes, is saved in the published layout, and answers again."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.jobs.finetuning.conftest import labelled_rows

import saucier
from saucier import config as c
from saucier.cli import main
from saucier.folders.save import save
from saucier.jobs.finetuning.finetune import finetune
from saucier.jobs.finetuning.predict import predict_answers
from saucier.jobs.finetuning.settings import Finetuning, read_finetuning_words
from saucier.jobs.finetuning.task_folder import TaskFolder, copy_task
from saucier.report.card import find_facts
from saucier.text.tokenizer.folder import copy_tokenizer

Table = Callable[..., Path]
WORDS = ["training.epochs=4", "training.batch=16", "training.optimizer.learning_rate=0.003", "training.dtype=float32"]


def settings(model: Path, train: Path, held_out: Path, *words: str, task: str = "classification") -> Finetuning:
    return read_finetuning_words(task, [*WORDS, *words], str(model),
                                 {"train": [str(train)], "held_out": [str(held_out)]})[0]


def scores(folder: TaskFolder, split: str = "held-out") -> dict[str, float]:
    found = json.loads(folder.scores.read_text())[split]["scores"]
    return {one["name"]: one["value"] for one in found}


@pytest.fixture
def files(table: Table) -> tuple[Path, Path]:
    return (table("train.tsv", "label,text", labelled_rows(320, 1)),
            table("dev.tsv", "label,text", labelled_rows(80, 2)))


@pytest.mark.slow
def test_a_task_is_learned_and_the_result_is_a_published_folder(tiny_bert: Path, files: tuple[Path, Path],
                                                                tmp_path: Path) -> None:
    folder = finetune(settings(tiny_bert, *files), tmp_path / "run", quiet=True)
    assert scores(folder)["accuracy"] > 0.95
    config = json.loads((folder.model / "config.json").read_text())
    assert config["architectures"] == ["BertForSequenceClassification"]
    assert config["id2label"] == {"0": "bad", "1": "good"}
    lines = [json.loads(line) for line in folder.predictions("held-out").read_text().splitlines()]
    assert len(lines) == 80
    assert lines[0]["id"] == "dev.tsv:2"
    right = sum(line["prediction"] == line["gold"] for line in lines) / 80
    assert right == pytest.approx(scores(folder)["accuracy"])
    again = predict_answers(folder.path, [str(files[1])])
    assert [one.prediction for one in again.answers] == [line["prediction"] for line in lines]
    model = saucier.load(folder.path, dtype="float32")
    assert model.config.head is not None
    assert not (folder.path / "checkpoints").exists()
    facts = find_facts(folder.model)
    assert [one.name for one in facts.data] == [path.name for path in files] and facts.task == "classification"
    assert facts.scores[0].value == pytest.approx(scores(folder)["accuracy"])
    report = (folder.path / "report.html").read_text()
    assert all(part in report for part in ("always ", "Scores by class", "Confusion matrix", "training loss",
                                           "80 rows"))
    assert "http" not in report.replace("http-equiv", "").replace("http://www.w3.org", "")


@pytest.mark.slow
def test_the_reference_library_gives_the_same_answers(tiny_bert: Path, files: tuple[Path, Path],
                                                      tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    folder = finetune(settings(tiny_bert, *files, "training.epochs=1"), tmp_path / "run", quiet=True)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder.model)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder.model)
    for line in folder.predictions("held-out").read_text().splitlines()[:5]:
        told = json.loads(line)
        with torch.no_grad():
            chances = model(**tokenizer(told["texts"][0], return_tensors="pt")).logits.softmax(-1)[0].tolist()
        assert told["probabilities"] == pytest.approx({model.config.id2label[place]: chance
                                                       for place, chance in enumerate(chances)}, abs=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["own", "published"])
def test_a_body_in_our_own_layout_keeps_the_names_of_its_labels(layout: str, tiny_bert: Path, table: Table,
                                                                files: tuple[Path, Path], tmp_path: Path) -> None:
    """In what is saved, and when other labels are to be learned on."""
    body = saucier.load(tiny_bert, dtype="float32")
    save(body, tmp_path / "body", layout="own")
    copy_tokenizer(tiny_bert, tmp_path / "body")
    folder = finetune(settings(tmp_path / "body", *files, "training.epochs=1"), tmp_path / "run", quiet=True)
    config = json.loads((folder.model / "config.json").read_text())
    assert config["model_type"] == "saucier" or config["id2label"] == {"0": "bad", "1": "good"}
    if layout == "own":
        save(saucier.load(folder.path, dtype="float32"), tmp_path / "again", layout="own")
        copy_tokenizer(folder.model, tmp_path / "again")
        copy_task(folder.model, tmp_path / "again")
    start = tmp_path / "again" if layout == "own" else folder.path
    other = table("other.tsv", "label,text", [(label.upper(), text) for label, text in labelled_rows(60, 1)])
    with pytest.raises(saucier.InputError, match=r"its head knows 2 labels \(bad, good\), and the data have 2 labels"):
        finetune(settings(start, other, other), tmp_path / "other", quiet=True)


@pytest.mark.slow
def test_a_stopped_run_goes_on_and_a_finished_one_is_left_alone(tiny_bert: Path, files: tuple[Path, Path],
                                                                tmp_path: Path) -> None:
    wanted = settings(tiny_bert, *files, "training.epochs=1")
    whole = finetune(wanted, tmp_path / "whole", quiet=True)
    before = whole.scores.stat().st_mtime_ns
    finetune(wanted, tmp_path / "whole", quiet=True)
    assert whole.scores.stat().st_mtime_ns == before
    with pytest.raises(saucier.InputError, match=r"another fine-tuning: training.batch is 16 there, and 8 here"):
        finetune(settings(tiny_bert, *files, "training.epochs=1", "training.batch=8"), tmp_path / "whole", quiet=True)
    with pytest.raises(saucier.InputError, match=r"task.kind is 'classification' there, and 'regression' here"):
        finetune(settings(tiny_bert, *files, task="regression"), tmp_path / "whole", quiet=True)


@pytest.mark.slow
def test_numbers_are_learned(tiny_bert: Path, table: Table, tmp_path: Path) -> None:
    def rated(count: int, seed: int) -> list[tuple[str, str]]:
        return [("4.5" if label == "good" else "1.5", text) for label, text in labelled_rows(count, seed)]

    files = table("train.tsv", "score,text", rated(320, 1)), table("dev.tsv", "score,text", rated(80, 2))
    folder = finetune(settings(tiny_bert, *files, "training.epochs=6", task="regression"), tmp_path / "run", quiet=True)
    assert scores(folder)["Pearson"] > 0.9


@pytest.mark.slow
def test_many_labels_are_learned(tiny_bert: Path, table: Table, tmp_path: Path) -> None:
    def tagged(count: int, seed: int) -> list[tuple[str, str]]:
        return [(",".join([label, *(["cat"] if "cat" in text else [])]), text)
                for label, text in labelled_rows(count, seed)]

    files = table("train.tsv", "labels\ttext", tagged(320, 1)), table("dev.tsv", "labels\ttext", tagged(80, 2))
    wanted = settings(tiny_bert, *files, "training.epochs=16", "training.optimizer.learning_rate=0.001",
                      task="many_labels")
    folder = finetune(wanted, tmp_path / "run", quiet=True)
    assert scores(folder)["micro F1"] > 0.9


@pytest.mark.parametrize(("header", "rows", "says"), [
    ("kind,words", [("a", "b")], "no column for the text and for the label; columns: kind, words"),
    ("label,text", [("good", "fine soup"), ("good", "lovely soup")], "has one class only, 'good'"),
    ("label,text", [("good", "fine"), ("bad", " ")], "line 3, column 'text': the text is empty"),
    ("label,text", [("good", "fine"), ("", "sour")], "line 3, column 'label': has no label"),
])
def test_wrong_files_are_named(header: str, rows: list[tuple[str, str]], says: str, tiny_bert: Path, table: Table,
                               files: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train = table("wrong.tsv", header, rows)
    code = main(["finetune", "classification", "--model", str(tiny_bert), "--data", str(train), "--held-out",
                 str(files[1]), "--out", str(tmp_path / "run")])
    errors = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert (code, len(errors)) == (2, 1)
    assert says in errors[0]


@pytest.mark.slow
def test_a_label_that_only_the_held_out_file_has_is_an_error_of_the_model(
        tiny_bert: Path, table: Table, files: tuple[Path, Path], tmp_path: Path,
        capsys: pytest.CaptureFixture[str]) -> None:
    strange = table("strange.tsv", "label,text", [("good", "fine"), ("odd", "soup"), ("bad", "sour")])
    folder = finetune(settings(tiny_bert, files[0], strange, "training.epochs=1"), tmp_path / "run")
    assert "1 row has labels that no training row has ('odd' 1): they count as errors" in capsys.readouterr().out
    rows = [json.loads(line) for line in folder.predictions("held-out").read_text().splitlines()]
    assert [row["gold"] for row in rows] == ["good", "odd", "bad"]
    assert scores(folder)["accuracy"] <= 2 / 3
    alone = table("alone.tsv", "label,text", [("odd", "soup")])
    with pytest.raises(saucier.InputError, match=r"alone.tsv, line 2: label 'odd' is not among the 2"):
        finetune(settings(tiny_bert, files[0], alone), tmp_path / "other", quiet=True)


@pytest.mark.slow
def test_a_head_with_other_labels_is_kept_only_on_request(tiny_bert: Path, table: Table, files: tuple[Path, Path],
                                                          tmp_path: Path) -> None:
    first = finetune(settings(tiny_bert, *files, "training.epochs=1"), tmp_path / "first", quiet=True)
    rows = [("good", "fine"), ("bad", "sour"), ("odd", "soup")] * 8
    more = table("more.tsv", "label,text", rows)
    with pytest.raises(saucier.InputError, match=r"its head knows 2 labels \(bad, good\), and the data have 3"):
        finetune(settings(first.path, more, more), tmp_path / "second", quiet=True)
    assert not (tmp_path / "second").exists()  # so that what the error advises can be done in the same folder
    folder = finetune(settings(first.path, more, more, "fresh_head=true", "training.epochs=1"), tmp_path / "third",
                      quiet=True)
    assert len(json.loads((folder.model / "config.json").read_text())["id2label"]) == 3


def test_equal_texts_stay_on_one_side(tiny_bert: Path, table: Table, tmp_path: Path) -> None:
    from saucier.jobs.finetuning.data import read_splits
    from saucier.tasks.build import build_task

    rows = labelled_rows(200, 3)
    train = table("train.tsv", "label,text", rows + rows)
    wanted = read_finetuning_words("classification", [], str(tiny_bert), {"train": [str(train)]})[0]
    splits = read_splits(build_task(wanted.task), wanted.data)
    sides = [{one.text for one in side} for side in (splits.train, splits.held_out)]
    assert not sides[0] & sides[1]
    assert 10 <= len(splits.held_out) <= 80


def test_refused_rows_leave_no_folder_behind(tiny_bert: Path, table: Table, tmp_path: Path) -> None:
    wrong = table("wrong.tsv", "label,text", [("good", "fine"), ("good", "lovely")])
    with pytest.raises(saucier.InputError, match="one class only"):
        finetune(settings(tiny_bert, wrong, wrong), tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
@pytest.mark.parametrize("keys", [("good", "bad"), ("0", "one"), ("", "1"), ("-1", "0"), ("0.0", "1")])
def test_labels_that_are_not_numbered_are_one_line(tiny_bert: Path, tmp_path: Path, table: Table,
                                                   keys: tuple[str, str]) -> None:
    """In a published config, for `predict` and as the start of a fine-tuning."""
    folder = tmp_path / "published"
    shutil.copytree(tiny_bert, folder)
    head = c.ClassificationHead(classes=2, pick=c.PickVector(kind="pooled"), dropout=0.0)
    model = saucier.load(tiny_bert)
    classifier = saucier.build(model.config.model_copy(update={"head": head}))
    classifier.save(tmp_path / "whole")
    shutil.copyfile(tmp_path / "whole" / "model.safetensors", folder / "model.safetensors")
    config = json.loads((tmp_path / "whole" / "config.json").read_text(encoding="utf-8"))
    config["id2label"] = dict(zip(keys, ("good", "bad"), strict=True))
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    wrong = next(key for key in keys if not key.isdecimal())
    told = f"{folder}: id2label has the key {wrong!r}, which is no number; number the labels of config.json from 0"
    with pytest.raises(saucier.InputError) as error:
        predict_answers(folder, [], ["very rich soup"])
    assert str(error.value) == told
    train = table("train.tsv", "label,text", [("good", "rich soup"), ("bad", "cold bread")] * 8)
    with pytest.raises(saucier.InputError) as error:
        finetune(settings(folder, train, train), tmp_path / "run")
    assert str(error.value) == told
