"""Multiple choice: files of many forms, rows in groups, and the same choices as the reference library's."""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path

import pytest
import torch
from tests.unit.jobs.finetuning.conftest import TONES, WORDS

import saucier
from saucier import config as c
from saucier.families.bert import bert
from saucier.jobs.finetuning.data import read_examples
from saucier.jobs.finetuning.finetune import finetune
from saucier.jobs.finetuning.predict import answer_examples, open_task, predict_answers
from saucier.jobs.finetuning.settings import read_finetuning_words
from saucier.jobs.finetuning.task_folder import TaskFolder
from saucier.tasks.definitions import MultipleChoice
from saucier.tasks.multiple_choice import MultipleChoiceTask
from saucier.tasks.task import Encoding
from saucier.text.tokenizer.tokenizer import load_tokenizer


def drawn(count: int, seed: int) -> list[dict]:
    draw, found = random.Random(seed), []
    for number in range(count):
        right = draw.randrange(3)
        tones = ["bad", "bad", "bad"]
        tones[right] = "good"
        choices = [f"{draw.choice(TONES[tone])} {draw.choice(WORDS[:8])}" for tone in tones]
        found.append({"id": f"c{number}", "question": f"{draw.choice(WORDS[:8])} is", "choices": choices,
                      "answer": "ABC"[right]})
    return found


def lines(path: Path, rows: list[dict]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


def read(path: Path, *, labelled: bool = True) -> list:
    return read_examples(MultipleChoiceTask(MultipleChoice()), [str(path)], labelled=labelled)


@pytest.fixture(scope="module")
def chooser(tiny_bert: Path, tmp_path_factory: pytest.TempPathFactory) -> TaskFolder:
    folder = tmp_path_factory.mktemp("choices")
    files = lines(folder / "train.jsonl", drawn(160, 1)), lines(folder / "dev.jsonl", drawn(40, 2))
    words = ["training.epochs=6", "training.batch=16", "training.optimizer.learning_rate=0.003",
             "training.dtype=float32"]
    wanted = read_finetuning_words("multiple_choice", words, str(tiny_bert),
                                   {"train": [str(files[0])], "held_out": [str(files[1])]})
    return finetune(wanted[0], folder / "run", quiet=True)


@pytest.mark.slow
def test_choices_are_learned_and_named_as_in_the_file(chooser: TaskFolder) -> None:
    found = json.loads(chooser.scores.read_text())["held-out"]
    assert found["scores"][0]["value"] > 0.95
    assert len(found["baselines"]) == 2
    rows = [json.loads(line) for line in chooser.predictions("held-out").read_text().splitlines()]
    assert {row["prediction"] for row in rows} == {"A", "B", "C"}
    assert all(row["choice"] == row["texts"][1 + "ABC".index(row["prediction"])] for row in rows)
    config = json.loads((chooser.model / "config.json").read_text())
    assert config["architectures"] == ["BertForMultipleChoice"]


def test_the_reference_library_chooses_the_same(chooser: TaskFolder) -> None:
    transformers = pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    model = transformers.AutoModelForMultipleChoice.from_pretrained(chooser.model)
    tokenizer = transformers.AutoTokenizer.from_pretrained(chooser.model)
    for line in chooser.predictions("held-out").read_text().splitlines()[:5]:
        told = json.loads(line)
        question, *choices = told["texts"]
        batch = tokenizer([question] * 3, choices, return_tensors="pt", padding=True)
        with torch.no_grad():
            chances = model(**{name: value[None] for name, value in batch.items()}).logits.softmax(-1)[0].tolist()
        assert list(told["probabilities"].values()) == pytest.approx(chances, abs=1e-3)


def test_answers_do_not_depend_on_the_batch(chooser: TaskFolder, tmp_path: Path) -> None:
    rows = [{name: value for name, value in row.items() if name != "answer"} for row in drawn(12, 5)]
    path = lines(tmp_path / "asked.jsonl", rows)
    whole = [one.prediction for one in predict_answers(chooser.path, [str(path)]).answers]
    opened = open_task(chooser.path)
    assert whole == [answer_examples(opened, [one]).answers[0].prediction for one in read(path, labelled=False)]
    assert predict_answers(chooser.path, [],
                           ["soup is ||| sour soup ||| cold soup ||| lovely soup"]).answers[0].prediction == "C"


def test_each_choice_is_a_row_behind_its_question(tiny_bert: Path, tmp_path: Path) -> None:
    row = {"article": "soup is rich", "question": "the soup", "options": ["fine", "cold"], "answer": "B"}
    tokenizer = load_tokenizer(tiny_bert)
    task = MultipleChoiceTask(MultipleChoice()).fit_labels(examples := read(lines(tmp_path / "race.jsonl", [row, row])))
    sheet = task.encode(examples, Encoding(tokenizer, 40, bert()))
    batch = sheet.batch(sheet.example_numbers)
    assert batch["input_ids"].shape[:2] == (2, 2)
    assert batch["labels"].tolist() == [1, 1]
    assert sheet.sequences["input_ids"].row(1).tolist() == tokenizer.encode("soup is rich", pair="the soup cold")


@pytest.mark.parametrize("row", [
    {"question": "q", "choices": ["x", "y"], "answer": 1},
    {"question": "q", "choices": ["x", "y"], "answer": "B"},
    {"question": "q", "choices": ["x", "y"], "answer": "y"},
    {"question": "q", "choices": {"label": ["1", "2"], "text": ["x", "y"]}, "answerKey": "2"},
    {"question": "q", "choices": [{"label": "A", "text": "x"}, {"label": "B", "text": "y"}], "answerKey": "B"},
    {"question": "q", "ending0": "x", "ending1": "y", "label": 1},
    {"question": "q", "choice1": "x", "choice2": "y", "label": "1"},
])
def test_files_of_many_forms(row: dict, tmp_path: Path) -> None:
    one = read(lines(tmp_path / "a.jsonl", [row]))[0]
    assert (one.question, one.choices, one.answer) == ("q", ("x", "y"), 1)


def test_choices_of_unlike_lengths_are_read_without_padding() -> None:
    """The encoder meets as many vectors as there are real tokens; a choice gets what it gets alone."""
    body = bert(dim=32, layers=2, heads=2, vocab=50, hidden=64)
    model = saucier.build(body.model_copy(update={"head": c.ChoiceHead()}), seed=0).eval()
    ids, lengths, met = torch.randint(5, 50, (2, 3, 20)), torch.tensor([[20, 3, 5], [2, 4, 9]]), list[int]()
    layer = next(one for one in model.encoder.modules() if isinstance(one, torch.nn.Linear))
    layer.register_forward_pre_hook(lambda _, given: met.append(given[0].shape[:-1].numel()))
    logits = model(ids, torch.arange(20) < lengths[..., None]).logits
    assert met == [int(lengths.sum())]
    for row, choice in itertools.product(range(2), range(3)):
        alone = model(ids[row, choice, :lengths[row, choice]][None, None]).logits
        torch.testing.assert_close(logits[row, choice], alone[0, 0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("rows", "says"), [
    ([{"question": "q", "answer": 1}], "no column for the choices; columns: question, answer"),
    ([{"question": "q", "choices": ["x", "y"], "answer": "D"}], "the answer 'D' names none of its 2 choices"),
    ([{"question": "q", "choices": ["x", "y"], "answer": None}], "line 1: has no answer"),
    ([{"question": "q", "choices": ["x"], "answer": 0}], "line 1: has 1 choices"),
    ([{"question": "q", "choices": "x", "answer": 0}], "line 1: the choices are str"),
    ([{"question": "q", "choices": ["x", " "], "answer": 0}], "line 1: a choice is empty"),
    ([{"words": "q", "choices": ["x", "y"], "answer": 0}], "line 1: has neither a question nor a context"),
    ([{"question": "q", "choices": list(choices), "answer": 0} for choices in ("xy", "xyz")],
     "line 2: has 3 choices, and the others 2"),
])
def test_wrong_rows_are_named(rows: list[dict], says: str, tmp_path: Path) -> None:
    path = lines(tmp_path / "a.jsonl", rows)
    with pytest.raises(saucier.InputError) as caught:
        checked(path)
    assert says in str(caught.value)


def checked(path: Path) -> None:
    examples = read(path)
    MultipleChoiceTask(MultipleChoice()).fit_labels(examples).check_labels(examples)
