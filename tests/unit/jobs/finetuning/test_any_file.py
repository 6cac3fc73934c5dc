"""Any file: delimiters, encodings, other column names, bad rows, doubtful labels, and predictions over all of it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import saucier
from saucier.jobs.finetuning.data import read_splits
from saucier.jobs.finetuning.finetune import finetune
from saucier.jobs.finetuning.labelled_files import LabelledFiles
from saucier.jobs.finetuning.predict import RowOptions, read_request
from saucier.jobs.finetuning.predictions import predict
from saucier.jobs.finetuning.settings import make_finetuning
from saucier.jobs.finetuning.task_folder import TaskFolder
from saucier.tasks.build import build_task
from saucier.tasks.definitions import Classification, Regression, Tagging
from saucier.tasks.label_checks import describe_label_doubts
from saucier.text.reading.guessing import ReadOptions

from .conftest import labelled_rows

Write = Callable[[str, str | bytes], str]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def into(name: str, content: str | bytes) -> str:
        (tmp_path / name).write_bytes(content.encode() if isinstance(content, str) else content)
        return str(tmp_path / name)

    return into


@pytest.fixture(scope="module")
def tuned(tiny_bert: Path, tmp_path_factory: pytest.TempPathFactory) -> TaskFolder:
    """A classifier that learned from a file of a European spreadsheet, held out by a file with other columns."""
    folder = tmp_path_factory.mktemp("any")
    train, dev = folder / "train.csv", folder / "dev.csv"
    train.write_bytes(("Satz;Klasse\n" + "".join(f'"{text}";{label}\n' for label, text in labelled_rows(60, 1))
                       + "très fine;good\n").encode("cp1252"))
    dev.write_text("label,body\n" + "".join(f"{label},{text}\n" for label, text in labelled_rows(20, 2)))
    settings = make_finetuning({
        "name": "any", "model": str(tiny_bert), "task": {"kind": "classification", "text": "Satz", "label": "Klasse"},
        "data": {"train": [str(train)], "held_out": [str(dev)],
                 "held_out_columns": {"text": "body", "label": "label"}}}, ["training.epochs=1"])
    return finetune(settings, folder / "run", quiet=True)


def test_other_columns_delimiters_and_encodings_are_learned_from(tuned: TaskFolder) -> None:
    assert json.loads(tuned.scores.read_text())["held-out"]["rows"] == 20
    assert "train.csv: delimiter &#39;;&#39;, encoding cp1252" in (tuned.path / "report.html").read_text() \
        or "train.csv: delimiter ';', encoding cp1252" in (tuned.path / "report.html").read_text()


def test_all_columns_are_kept(tuned: TaskFolder, write: Write) -> None:
    rows = [{"id": 7, "Satz": "fine soup", "prediction": "old", "when": 3.5, "gold": "good"},
            {"id": 8, "Satz": "cold soup", "prediction": None, "when": None, "gold": "bad"}]
    found = predict(tuned.path, [write("new.jsonl", "".join(json.dumps(row) + "\n" for row in rows))],
                    out=Path(write("x", "")).with_name("out.jsonl"))
    lines = [json.loads(line) for line in Path(str(found.path)).read_text().splitlines()]
    assert [(one["id"], one["row_prediction"], one["when"], one["gold"], one["Satz"]) for one in lines] == [
        ("7", "old", 3.5, "good", "fine soup"), ("8", None, None, "bad", "cold soup")]
    assert found.answers == [one["prediction"] for one in lines] == found.to_arrow().column("prediction").to_pylist()
    assert json.loads(json.dumps(found.to_dict()))["rows"] == lines


@pytest.mark.slow
def test_text_files_and_standard_input_are_answered_line_by_line(tuned: TaskFolder, write: Write) -> None:
    name = write("new.txt", "fine soup\n\n  cold bread \n")
    found = predict(tuned.path, [name], ["lovely"])
    assert [(row.id, row.extras["texts"]) for row in found.rows] == [
        ("new.txt:1", ("fine soup",)), ("new.txt:3", ("cold bread",)), ("text 1", ("lovely",))]
    assert found.remarks() == ["1 empty lines skipped"]
    code = ("import sys; from saucier.jobs.finetuning.predictions import predict\n"
            "print(*[row.id for row in predict(sys.argv[1], ['-']).rows])")
    done = subprocess.run([sys.executable, "-c", code, str(tuned.path)], input=b"fine soup\nbad\n", capture_output=True,
                          check=True)
    assert done.stdout.decode().split() == ["-:1", "-:2"]


def test_the_column_can_be_named(tuned: TaskFolder, write: Write) -> None:
    name = write("new.csv", "a;b\nfine soup;1\ncold;2\n")
    with pytest.raises(saucier.InputError, match=r"no column 'Satz'; columns: a, b; .*--column text=NAME"):
        predict(tuned.path, [name])
    found = predict(tuned.path, [name], options=RowOptions(columns={"text": "a"}))
    assert [row.extras["b"] for row in found.rows] == ["1", "2"]
    assert found.forms == ("new.csv: delimiter ';'",)
    with pytest.raises(saucier.InputError, match=r"--column: .* reads no column 'txt'; did you mean 'text'"):
        predict(tuned.path, [name], options=RowOptions(columns={"txt": "a"}))


def test_bad_rows_are_refused_together_or_left_out(tuned: TaskFolder, write: Write) -> None:
    name = write("new.tsv", "Satz\tn\nfine\t1\n\t2\nodd\n" + " \t3\n" * 20)
    with pytest.raises(saucier.InputError) as caught:
        predict(tuned.path, [name])
    lines = str(caught.value).splitlines()
    assert lines[0].startswith("data: 22 rows cannot be used; mend them, or let them be left out and counted: ")
    assert lines[1].endswith("new.tsv, line 3, column 'Satz': the text is empty")
    assert lines[2].endswith("new.tsv, line 4: 1 cells, but the header has 2")
    assert (len(lines), lines[-1]) == (12, "and 12 more")
    found = predict(tuned.path, [name], options=RowOptions(drop=True))
    assert (len(found), found.left_out[0]) == (1, "22 rows cannot be used and are left out:")


def read(task: object, **files: object) -> tuple:
    """Read labelled files."""
    return read_splits(build_task(task), LabelledFiles(**files))  # type: ignore[arg-type]


def test_bad_rows_of_all_files_are_one_error(write: Write) -> None:
    good = "text,score\n" + "".join(f"words {number},{number}\n" for number in range(30))
    files = {"train": (write("a.csv", good + "x,nine\n,2\n"),), "held_out": (write("b.csv", good + "x\n"),),
             "test": (write("c.csv", good + "x,inf\n"),)}
    with pytest.raises(saucier.InputError) as caught:
        read(Regression(), **files)
    assert [line.split("/")[-1] for line in str(caught.value).splitlines()[1:]] == [
        "a.csv, line 32, column 'score': the score is 'nine', no number",
        "a.csv, line 33, column 'text': the text is empty", "b.csv, line 32: 1 cells, but the header has 2",
        "c.csv, line 32, column 'score': the score is 'inf', no number"]
    found = read(Regression(), **files, bad_rows="drop")
    assert [len(rows) for rows in (found.train, found.held_out, found.test)] == [30, 30, 30]
    assert {name: len(faults) for name, faults in found.dropped.items()} == {"train": 2, "held-out": 1, "test": 1}


def test_a_first_row_without_a_label_is_a_bad_row_like_others(write: Write) -> None:
    rows = [{"text": "a"}, {"text": "b", "label": "x"}, {"text": "c", "label": None}, {"text": "d", "label": "y"}]
    with pytest.raises(saucier.InputError) as caught:
        read(Classification(), train=(write("a.jsonl", "".join(json.dumps(row) + "\n" for row in rows)),))
    assert [line.split("/")[-1] for line in str(caught.value).splitlines()[1:]] == [
        "a.jsonl, line 1: no column 'label'", "a.jsonl, line 3, column 'label': has no label"]


def test_a_file_of_bad_rows_alone_is_refused_in_any_case(write: Write) -> None:
    with pytest.raises(saucier.InputError, match=r"line 2, column 'text': the text is empty"):
        read(Classification(), train=(write("a.csv", "text,label\n,a\n"),), bad_rows="drop")


def test_unseen_labels_are_counted_and_rows_with_given_labels_are_not_learned(write: Write) -> None:
    train = write("a.csv", "text,label\n" + "".join(f"t{number},{'ab'[number % 2]}\n" for number in range(10)))
    other = write("b.csv", "text,label\nx,a\ny,odd\nz,odd\nw,new\n")
    found = read(Classification(), train=(train,), held_out=(other,))
    lines = list(describe_lines(found))
    assert "  3 rows have labels that no training row has ('odd' 2, 'new' 1): they count as errors" in lines
    with pytest.raises(saucier.InputError, match=r"3 rows cannot be used(.*\n)*.*line 3: label 'odd' is not among"):
        read(Classification(labels=("a", "b")), train=(other,), held_out=(train,))


def describe_lines(splits: object) -> list[str]:
    """Return the lines about labels, which need no tokenizer."""
    from saucier.jobs.finetuning.data import describe_unseen

    return [line for examples in splits.named().values()  # type: ignore[attr-defined]
            for line in describe_unseen(splits, examples)]  # type: ignore[arg-type]


@pytest.mark.parametrize(("labels", "says"), [
    ({"Good": 3, "good": 2, "bad": 9}, ["labels differ only by case: 'Good' (3) and 'good' (2); are they one class?"]),
    ({"good": 3, "go\u200bod": 2}, ["labels differ only by invisible characters: 'good' (3) and 'go\\u200bod' (2); are "
                                    "they one class?"]),
    ({"very good": 3, "very\xa0good": 2, "very  good": 4}, [
        "labels differ only by blanks: 'very good' (3) and 'very\\xa0good' (2) and 'very  good' (4); are they one "
        "class?"]),
    ({"\u202egood": 3, "bad": 2}, ["the label '\\u202egood' holds invisible characters"]),
    ({"نمی\u200cشود": 3, "bad": 2}, []),
    ({f"{number / 7:.2f}": 2 for number in range(71)}, [
        "the 71 labels are numbers such as 0.00, and each is learned as a class of its own; the task regression learns "
        "numbers"]),
    ({str(number): 2 for number in range(71)}, []),
])
def test_doubtful_labels_are_pointed_out(labels: dict[str, int], says: list[str]) -> None:
    assert list(describe_label_doubts(labels, "classes")) == says


def test_plain_text_is_tagged_by_line_and_words_by_sentence(write: Write) -> None:
    task = build_task(Tagging(labels=("O", "B-X")))
    plain = read_request(task, [write("a.txt", "Anna sees Rome\nso it is\n")])
    assert [one.words for one in plain.examples] == [("Anna", "sees", "Rome"), ("so", "it", "is")]
    words = read_request(task, [write("b.txt", "Anna\nsees\n\nRome\n")])
    assert [one.words for one in words.examples] == [("Anna", "sees"), ("Rome",)]


def test_read_options_are_checked(write: Write) -> None:
    table = write("a.dat", "text^label\n" + "".join(f"é{n}^{'ab'[n % 2]}\n" for n in range(9)))
    found = read(Classification(), train=(table,), held_out=(table,), delimiter="^", encoding="utf-8")
    assert found.train[0].text == "é0"
    with pytest.raises(saucier.InputError, match="is no encoding"):
        read(Classification(), train=(table,), encoding="none")
    assert ReadOptions("tab").delimiter == "\t"


@pytest.mark.slow
@pytest.mark.parametrize("wrong", ["text,label\nx\n", "text,label\nx,a\ny,a\n", "text;label\n;a\n",
                                   "other,label\nx,a\n"])
def test_errors_of_files_need_no_torch(wrong: str, write: Write) -> None:
    code = ("import sys\nfrom saucier.jobs.finetuning.data import read_splits\n"
            "from saucier.jobs.finetuning.predict import predict_answers\n"
            "from saucier.jobs.finetuning.labelled_files import LabelledFiles\n"
            "from saucier.tasks.build import build_task\nfrom saucier.tasks.definitions import Classification\n"
            "from saucier.errors import InputError\n"
            "try:\n    read_splits(build_task(Classification()), LabelledFiles(train=(sys.argv[1],)))\n"
            "except InputError as error:\n    print(error)\n"
            "print('torch' in sys.modules)")
    done = subprocess.run([sys.executable, "-c", code, write("a.csv", wrong)], capture_output=True, check=True)
    said = done.stdout.decode().splitlines()
    assert said[-1] == "False"
    assert "a.csv" in said[0]


PROBE = """
import json, sys
from saucier.cli import main
codes = [main(words) for words in json.loads(sys.argv[1])]
print(codes, "torch" in sys.modules)
"""


@pytest.mark.slow
def test_input_errors_of_predict_need_no_torch(tuned: TaskFolder, write: Write) -> None:
    model, good = str(tuned.path), write("good.csv", "Satz\nfine\n")
    cases = [["predict", model, good + "x"], ["predict", model], ["predict", "no/such/thing", good],
             ["predict", model, write("a.csv", "other\nfine\n")],
             ["predict", model, write("b.csv", "Satz,n\n,1\n,2\n")],
             ["predict", model, good, "--column", "pair=none"], ["predict", model, good, "--column", "what=Satz"],
             ["predict", model, good, "--delimiter", ";;"], ["predict", model, good, "--encoding", "utf-9"],
             ["predict", model, good, "--bad-rows", "keep"], ["generate", model, "--file", good + "x"],
             ["score", good + "x"]]
    done = subprocess.run([sys.executable, "-c", PROBE, json.dumps(cases)], text=True, capture_output=True, check=True)
    assert done.stdout.strip() == f"{[2] * len(cases)} False"
    assert [line for line in done.stderr.splitlines() if not line.startswith("error: ")] == []


def test_rows_in_memory_are_answered_and_learned_from(tuned: TaskFolder, tiny_bert: Path, tmp_path: Path) -> None:
    rows = [{"Satz": text, "Klasse": label, "n": number} for number, (label, text) in enumerate(labelled_rows(40, 3))]
    found = saucier.predict(tuned.path, rows, bad_rows="drop")
    assert [row.extras["n"] for row in found.rows] == list(range(40))
    assert len(found.to_arrow()) == 40
    done = saucier.finetune("classification", ["training.epochs=1"], model=tiny_bert, data=rows, out=tmp_path / "run",
                            columns={"text": "Satz", "label": "Klasse"}, quiet=True)
    assert [one.name for one in (tmp_path / "run" / "rows").iterdir()] == [Path(done.settings.data.train[0]).name]
    again = saucier.finetune("classification", ["training.epochs=1"], model=tiny_bert, data=rows, out=tmp_path / "run",
                             columns={"text": "Satz", "label": "Klasse"}, quiet=True)
    assert again.to_dict() == done.to_dict()
    with pytest.raises(saucier.InputError, match="train, row 1: has no columns"):
        saucier.finetune("classification", model=tiny_bert, data=[{}], out=tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_a_model_is_evaluated_on_any_file(tuned: TaskFolder, write: Write) -> None:
    name = write("new.csv", ("body;stars\n" + "".join(f"{text};{label}\n" for label, text in labelled_rows(30, 4))
                             + ";good\n").encode("utf-16"))
    columns = {"text": "body", "label": "stars"}
    with pytest.raises(saucier.InputError, match=r"line 32, column 'body': the text is empty; .*--bad-rows drop"):
        saucier.evaluate(tuned.path, name, columns=columns)
    found = saucier.evaluate(tuned.path, name, columns=columns, bad_rows="drop")
    assert found.amount == 30
    assert [note for note in found.notes if "new.csv: delimiter ';', encoding utf-16" in note]
    rows = [{"body": text, "stars": label} for label, text in labelled_rows(30, 4)]
    again = saucier.evaluate(tuned.path, rows, columns=["body", "label=stars"])
    assert again.scores == found.scores


@pytest.mark.slow
def test_ten_megabytes_of_rows_are_read_fast(write: Write) -> None:
    row = "some words of a text that is not long at all, but has a comma;"
    table = write("a.csv", "text;label\n" + "".join(f"{row}{'ab'[number % 2]}\n" for number in range(150_000)) + ";a\n")
    begin = time.process_time()
    with pytest.raises(saucier.InputError, match="line 150002, column 'text': the text is empty"):
        read(Classification(), train=(table,))
    assert time.process_time() - begin < 6  # on a machine that does much else
