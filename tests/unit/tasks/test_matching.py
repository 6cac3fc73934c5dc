"""Predictions beside golds: found by id or by order, read as their kind, and every fault with its file and line."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from saucier.errors import InputError
from saucier.jobs.score import ScoreReport, score_files
from saucier.tasks.matching import TAKES
from saucier.tasks.prediction_files import PredictionRow, read_golds, read_predictions, write_predictions
from saucier.tasks.scores import KINDS

TABLE = "label\ttext\n1\tgood\n0\tbad\n1\tfine\n"


def predictions(folder: Path, rows: Sequence[Any], name: str = "a.jsonl") -> str:
    """Write rows; a value that is no object is a prediction alone."""
    objects = [row if isinstance(row, dict) else {"prediction": row} for row in rows]
    (folder / name).write_text("".join(json.dumps(row) + "\n" for row in objects), encoding="utf-8")
    return str(folder / name)


def labelled(folder: Path, text: str, name: str = "dev.tsv") -> str:
    (folder / name).write_text(text, encoding="utf-8")
    return str(folder / name)


def values(found: ScoreReport) -> dict[str, float]:
    return {one.name: one.value for one in found.scores[0]}


def test_rows_are_matched_by_id_in_any_order(tmp_path: Path) -> None:
    gold = labelled(tmp_path, TABLE)
    rows = [{"id": "dev.tsv:4", "prediction": "1"}, {"id": "dev.tsv:2", "prediction": "1"},
            {"id": "dev.tsv:3", "prediction": 0}]
    found = score_files((predictions(tmp_path, rows),), gold)
    assert (found.kind, found.matched, values(found)["accuracy"]) == ("classes", "by id", 1.0)
    assert found.read_as == f"{gold}, column 'label'"
    by_order = score_files((predictions(tmp_path, ["1", "1", None]),), gold)
    assert (by_order.matched, by_order.missing) == ("by order", (1,))
    assert values(by_order)["accuracy"] == pytest.approx(1 / 3)


def test_a_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    rows = [PredictionRow("b", "a", "x:1", {"text": "é\u2028"}), PredictionRow(None),
            PredictionRow([0.5, 1.0], None, has_gold=True)]
    write_predictions(tmp_path / "p.jsonl", rows)
    found = read_predictions(str(tmp_path / "p.jsonl"))
    assert [(one.prediction, one.gold, one.id, one.has_gold) for one in found] == [
        ("b", "a", "x:1", True), (None, None, None, False), ([0.5, 1.0], None, None, True)]
    assert found[0].extras == {"text": "é\u2028"}


def test_conll_and_squad_files_are_golds(tmp_path: Path) -> None:
    conll = labelled(tmp_path, "EU\tNNP\tB-ORG\nrejects\tVBZ\tO\n\nBonn\tNNP\tB-LOC\n")
    golds = read_golds(conll)
    assert [gold.gold for gold in golds.rows] == [["B-ORG", "O"], ["B-LOC"]]
    assert [gold.ids[0] for gold in golds.rows] == ["dev.tsv:1", "dev.tsv:4"]
    found = score_files((predictions(tmp_path, [["B-ORG", "O"], ["O"]]),), conll)
    assert (found.kind, values(found)["entity F1"]) == ("tags", pytest.approx(2 / 3))
    questions = [{"id": "q1", "question": "?", "answers": [{"text": "a cat", "answer_start": 0}]},
                 {"id": "q2", "question": "!", "answers": []}]
    squad = labelled(tmp_path, json.dumps({"context": "x", "qas": questions}) + "\n", "squad.jsonl")
    rows = [{"id": "q2", "prediction": ""}, {"id": "q1", "prediction": "the cat"}]
    found = score_files((predictions(tmp_path, rows),), squad)
    assert (found.kind, values(found)["exact match"]) == ("spans", 1.0)


@pytest.mark.parametrize(("qas", "message"), [
    (3, "line 1: no 'qas' of the kind list where SQuAD's form has one"),
    (["q1"], "line 1: no 'question' of the kind str"),
    ([{"id": "q1", "question": "?", "answers": [{"answer_start": 0}]}], "line 1, question q1: the answers are dict"),
    ([{"id": "q1", "question": "?", "answers": 7}], "line 1, question q1: the answers are int; write a text"),
])
def test_a_squad_file_of_another_form_is_named(tmp_path: Path, qas: Any, message: str) -> None:
    squad = labelled(tmp_path, json.dumps({"context": "x", "qas": qas}) + "\n", "squad.jsonl")
    with pytest.raises(InputError) as error:
        read_golds(squad)
    assert message in str(error.value)


@pytest.mark.parametrize(("golds", "answers", "kind"), [
    (["yes", "no", "yes"], ["no", "no", "yes"], "classes"),
    ([1, 0, 1], [1, 1, 1], "classes"),
    ([1.5, 0.5, 1.0], [1, 2, 3], "numbers"),
    ([["O", "O"], ["B-X", "O"]], [["O", "O"], ["O", "O"]], "tags"),
    ([["a", "b"], []], [["a"], ["b"]], "many_labels"),
    ([["a", "b"], []], ["a", ""], "spans"),
    (["A man is walking in the park .", "Two dogs run over the green grass ."], ["A man .", "Two dogs ."], "texts"),
    ([[1, 0], [0, 1]], [[0.5, 0.1], [0.2, 0.1]], "rankings")])
def test_the_kind_of_task_is_guessed(tmp_path: Path, golds: list[Any], answers: list[Any], kind: str) -> None:
    pytest.importorskip("sacrebleu")
    rows = [{"prediction": answer, "gold": gold} for gold, answer in zip(golds, answers, strict=True)]
    found = score_files((predictions(tmp_path, rows),))
    assert (found.kind, found.guessed, found.read_as) == (kind, True, "in the predictions")


def test_every_kind_of_task_can_be_read_from_files() -> None:
    assert TAKES.keys() == KINDS.keys()


def test_rows_become_rankings(tmp_path: Path) -> None:
    gold = labelled(tmp_path, "label\tquestion\n0\ta\n1\ta\n1\tb\n0\tb\n")
    found = score_files((predictions(tmp_path, [1, 2, 3, 4]),), gold, group="question")
    assert values(found) == {"MAP": 0.75, "MRR": 0.75}
    with pytest.raises(InputError, match=r"no column 'query'; there are question; group by"):
        score_files((predictions(tmp_path, [1, 2, 3, 4]),), gold, group="query")


def test_metrics_can_be_chosen(tmp_path: Path) -> None:
    rows = [{"prediction": ["I-X", "I-X"], "gold": ["B-X", "I-X"]}]
    files = (predictions(tmp_path, rows),)
    found = score_files(files, metrics=("Entity-F1", "entity-f1-iob2"))
    assert values(found) == {"entity F1": 1.0, "entity F1 (iob2)": 0.0}
    with pytest.raises(InputError, match="no metric 'entity-f2' of tags; did you mean 'entity-f1'"):
        score_files(files, metrics=("entity-f2",))


def test_two_files_are_compared(tmp_path: Path) -> None:
    gold = labelled(tmp_path, "label\ttext\n" + "".join(f"{n % 2}\ttext {n}\n" for n in range(40)))
    right = [str(n % 2) for n in range(40)]
    wrong = ["1" if n < 12 else one for n, one in enumerate(right)]
    first, second = predictions(tmp_path, right, "good.jsonl"), predictions(tmp_path, wrong, "bad.jsonl")
    found = score_files((first, second), gold)
    [accuracy] = [one for one in found.compared if one.name == "accuracy"]
    assert accuracy.difference == pytest.approx(6 / 40) and accuracy.verdict == "good is better"
    assert accuracy.p == pytest.approx(2 / 2**6, abs=0.01), "of 2⁶ exchanges two are as far apart"
    assert found.disagreeing == 6 and {one.id for one in found.apart} <= {f"dev.tsv:{n + 2}" for n in range(0, 12, 2)}
    assert all(one.worth == pytest.approx(1 / 40) and one.text.startswith("text ") for one in found.apart)
    back = score_files((second, first), gold)
    assert back.compared[0].difference == -accuracy.difference and back.compared[0].verdict == "good is better"
    same = score_files((first, first), gold)
    assert {one.verdict for one in same.compared} == {"not told apart by these rows"} and same.apart == ()


WRONG = [
    (["1", "0"], "a.jsonl: 2 predictions for 3 golds, and no ids"),
    ([{"id": "dev.tsv:2", "prediction": "1"}], "dev.tsv, line 3: no prediction for dev.tsv:3, dev.tsv:4;"),
    ([{"id": "dev.tsv:2", "prediction": "1"}, {"id": "dev.tsv:9", "prediction": "1"}],
     "a.jsonl, line 2: dev.tsv:9 not among the golds"),
    ([{"id": "x", "prediction": "1"}, {"id": "x", "prediction": "1"}], "a.jsonl, line 2: the id 'x' stands in"),
    (["1", {"predicted": "1"}, "1"], "a.jsonl, line 2: has no 'prediction'; it has predicted; rename 'predicted'"),
    (["1", ["1"], "1"], "a.jsonl, line 2: the prediction of dev.tsv:3 is a list, not a label"),
    (["1", 0.5, "1"], "a.jsonl, line 1: the prediction of dev.tsv:2 is the text 'one', not a number"),
]


@pytest.mark.parametrize(("rows", "message"), WRONG)
def test_what_is_wrong_is_told_with_its_line(tmp_path: Path, rows: list[Any], message: str) -> None:
    gold = labelled(tmp_path, TABLE)
    rows = ["one", *rows[1:]] if 0.5 in rows else rows
    with pytest.raises(InputError) as error:
        score_files((predictions(tmp_path, rows),), gold)
    assert message in str(error.value).replace(f"{tmp_path}/", "")


def test_other_faults(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"line 1: has no 'gold'; name the labelled file with --gold"):
        score_files((predictions(tmp_path, ["a"]),))
    with pytest.raises(InputError, match=r"line 1: 1 tags for the 2 of its gold"):
        score_files((predictions(tmp_path, [{"prediction": ["O"], "gold": ["O", "O"]}]),), kind="tags")
    with pytest.raises(InputError, match=r"which column holds the golds\? There are en, de; say which"):
        read_golds(labelled(tmp_path, "en\tde\nA\tEin\n", "pairs.tsv"))
    with pytest.raises(InputError, match="no column 'fr'"):
        read_golds(str(tmp_path / "pairs.tsv"), "fr")
    with pytest.raises(InputError, match=r"line 2: has a word without a tag: 'b'"):
        read_golds(labelled(tmp_path, "a O\nb\n\n", "x.conll"))
    first, second = (predictions(tmp_path, [{"prediction": "x", "gold": gold}], f"{gold}.jsonl") for gold in "xy")
    with pytest.raises(InputError, match=r"y.jsonl, line 1: has gold 'y' for 'row 1', but .* has 'row 1' with 'x'"):
        score_files((first, second))
    with pytest.raises(InputError, match="no kind of task 'class'"):
        score_files((first,), kind="class")
