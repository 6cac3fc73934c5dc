"""Span answers: files in three forms, windows, no answer, and the answers that the reference library's logits give."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest
from tests.unit.jobs.finetuning.conftest import WORDS

import saucier
from saucier.families.bert import bert
from saucier.jobs.finetuning.data import read_examples, read_splits
from saucier.jobs.finetuning.finetune import finetune
from saucier.jobs.finetuning.predict import answer_examples, open_task, predict_answers
from saucier.jobs.finetuning.settings import read_finetuning_words
from saucier.jobs.finetuning.task_folder import TaskFolder
from saucier.tasks.build import build_task
from saucier.tasks.definitions import QuestionAnswering
from saucier.tasks.examples import Tally
from saucier.tasks.question_answering import NO_CHARACTER, QuestionAnsweringTask, best_spans
from saucier.tasks.task import Encoding
from saucier.text.tokenizer.tokenizer import load_tokenizer

TREATS = ("fine", "lovely", "rich")


def paragraph(draw: random.Random, name: str, size: int, *, none: bool = False) -> dict:
    words = [draw.choice(WORDS) for _ in range(size)]
    words[place] = f"Very {words[place]}" if words[place := draw.randrange(size)] == "soup" else words[place]
    answer = "" if none else draw.choice(TREATS)
    words[place:place] = [answer] if answer else []
    context = " ".join(words)
    answers = [{"text": answer, "answer_start": context.index(answer)}] if answer else []
    return {"title": "", "context": context, "qas": [{"id": name, "question": "the cook is", "answers": answers}]}


def paragraphs(count: int, seed: int, *, size: tuple[int, int] = (4, 14), share: float = 0.0) -> list[dict]:
    draw = random.Random(seed)
    return [paragraph(draw, f"q{seed}-{number}", draw.randint(*size), none=draw.random() < share)
            for number in range(count)]


def lines(path: Path, rows: list[dict]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


def read(path: Path, task: QuestionAnswering | None = None, tally: Tally | None = None) -> list:
    return read_examples(QuestionAnsweringTask(task or QuestionAnswering()), [str(path)], tally=tally)


@pytest.fixture(scope="module")
def answerer(tiny_bert: Path, tmp_path_factory: pytest.TempPathFactory) -> TaskFolder:
    folder = tmp_path_factory.mktemp("answers")
    files = (lines(folder / "train.jsonl", paragraphs(240, 1, share=0.3)),
             lines(folder / "dev.jsonl", paragraphs(40, 2, size=(4, 40), share=0.3)))
    words = ["training.epochs=6", "training.batch=16", "training.optimizer.learning_rate=0.004",
             "training.dtype=float32", "training.length=32", "task.stride=8"]
    wanted = read_finetuning_words("question_answering", words, str(tiny_bert),
                                   {"train": [str(files[0])], "held_out": [str(files[1])]})
    return finetune(wanted[0], folder / "run", quiet=True)


@pytest.mark.slow
def test_answers_are_learned_also_that_there_is_none(answerer: TaskFolder) -> None:
    found = json.loads(answerer.scores.read_text())["held-out"]
    scores = {one["name"]: one["value"] for one in found["scores"]}
    assert scores["exact match (answerable)"] > 0.9
    assert scores["exact match (unanswerable)"] > 0.6
    assert "sentence likest to the question" in found["baselines"]
    rows = [json.loads(line) for line in answerer.predictions("held-out").read_text().splitlines()]
    assert {row["prediction"] for row in rows} <= {*TREATS, ""} or scores["exact match"] < 1
    assert all(row["prediction"] in row["texts"][1] for row in rows)
    assert rows[0]["id"] == "q2-0"


def test_the_reference_library_finds_the_same_answers(answerer: TaskFolder) -> None:
    transformers = pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    model = transformers.AutoModelForQuestionAnswering.from_pretrained(answerer.model)
    tokenizer = transformers.AutoTokenizer.from_pretrained(answerer.model)
    rows = [json.loads(line) for line in answerer.predictions("held-out").read_text().splitlines()]
    short = [row for row in rows if len(row["texts"][1].split()) < 20][:8]
    assert short
    for row in short:
        batch = tokenizer(*row["texts"], return_tensors="pt", return_offsets_mapping=True)
        offsets = batch.pop("offset_mapping")[0].tolist()
        with torch.no_grad():
            output = model(**batch)
        starts, ends = output.start_logits[0].double().numpy(), output.end_logits[0].double().numpy()
        inside = [place for place, part in enumerate(batch.sequence_ids(0)) if part == 1]
        score, first, last = max((starts[a] + ends[b], -a, b) for a in inside for b in inside if a <= b < a + 30)
        best = row["texts"][1][offsets[-first][0]:offsets[last][1]]
        assert row["prediction"] == ("" if starts[0] + ends[0] > score else best)


def test_answers_do_not_depend_on_the_batch(answerer: TaskFolder, tmp_path: Path) -> None:
    path = lines(tmp_path / "asked.jsonl", paragraphs(12, 5, size=(4, 60)))
    whole = predict_answers(answerer.path, [str(path)])
    opened = open_task(answerer.path)
    alone = [answer_examples(opened, [one]).answers[0] for one in read(path)]
    assert [one.prediction for one in whole.answers] == [one.prediction for one in alone]
    assert [one.confidence for one in whole.answers] == pytest.approx([one.confidence for one in alone], abs=1e-4)
    assert sum(one.prediction in TREATS for one in alone) > 6
    typed = predict_answers(answerer.path, [], ["the cook is ||| My Cat was here, RICH soup"]).answers[0].prediction
    assert typed in "My Cat was here, RICH soup"
    with pytest.raises(saucier.InputError, match="a question and its text are needed"):
        predict_answers(answerer.path, [], ["only one"])


def test_windows_hold_the_answer_and_name_their_characters(tiny_bert: Path, tmp_path: Path) -> None:
    tokenizer = load_tokenizer(tiny_bert)
    task = QuestionAnsweringTask(QuestionAnswering(stride=6))
    examples = read(lines(tmp_path / "a.jsonl", paragraphs(20, 3, size=(20, 40))))
    sheet = task.encode(examples, Encoding(tokenizer, 24, bert()))
    assert sheet.truncation.targets == 0
    owned: dict[int, list[int]] = {}
    answered = 0
    for unit in range(len(sheet)):
        one = examples[int(sheet.example_numbers[unit])]
        starts, ends, mine = (sheet.position_data[name].row(unit) for name in ("starts", "ends", "owned"))
        assert len(starts) == len(sheet.sequences["input_ids"].row(unit)) <= 24
        owned.setdefault(int(sheet.example_numbers[unit]), []).extend(starts[mine == 1].tolist())
        first, last = int(sheet.unit_values["start_positions"][unit]), int(sheet.unit_values["end_positions"][unit])
        if first:
            answered += 1
            assert one.context[starts[first]:ends[last]] == one.answers[0].text
        else:
            inside = starts != NO_CHARACTER
            begin, end = one.answers[0].start, one.answers[0].start + len(one.answers[0].text)
            assert last == 0
            assert not (inside & (starts == begin)).any() or not (inside & (ends == end)).any()
    assert answered >= len(examples)
    for number, one in enumerate(examples):
        places = tokenizer.encodings([one.context], False)[0].offsets
        assert sorted(owned[number]) == [start for start, _ in places]


def test_a_piece_is_where_it_was_read_also_where_its_words_come_before(tiny_bert: Path, tmp_path: Path) -> None:
    task = QuestionAnsweringTask(QuestionAnswering())
    context = "soup and cook the soup"
    (example,) = read(lines(tmp_path / "a.jsonl", [{"question": "the cook", "context": context, "answers": ["soup"]}]))
    sheet = task.encode([example], Encoding(load_tokenizer(tiny_bert), 24, bert()))
    places = {name: values.row(0) for name, values in sheet.position_data.items()}
    logits = np.where(places["starts"] == context.rindex("soup"), 9.0, 0.0)
    pieces, none = task.pieces(example, logits, logits, places)
    assert pieces[0] == ("soup", 18.0, context.rindex("soup")) and none == 0


def test_an_answer_that_no_window_holds_is_counted(tiny_bert: Path, tmp_path: Path) -> None:
    long = " ".join(["soup"] * 30)
    path = lines(tmp_path / "a.jsonl", [{"question": "the cook", "context": long, "answers": [long]}])
    sheet = QuestionAnsweringTask(QuestionAnswering()).encode(read(path),
                                                             Encoding(load_tokenizer(tiny_bert), 16, bert()))
    assert (sheet.truncation.targets, sheet.truncation.what) == (1, "answers")


def test_the_best_spans_are_those_of_trying_all() -> None:
    random_ = np.random.default_rng(0)
    for longest in (1, 3, 50):
        starts, ends = random_.normal(size=(2, 17))
        starts[4], ends[9] = -np.inf, -np.inf
        every = sorted(((starts[a] + ends[b], a, b) for a in range(17) for b in range(a, min(17, a + longest))
                        if a != 4 and b != 9), key=lambda one: -one[0])
        assert [(first, last) for _, first, last in best_spans(starts, ends, longest, 6)] == [
            (a, b) for _, a, b in every[:6]]


def test_the_three_forms_of_files_are_read_alike(tmp_path: Path) -> None:
    rows = paragraphs(6, 4, share=0.4)
    whole = tmp_path / "squad.json"
    whole.write_text(json.dumps({"version": "v2", "data": [{"title": "a", "paragraphs": rows}]}, indent=1), "utf-8")
    flat = [{"id": one["qas"][0]["id"], "question": one["qas"][0]["question"], "context": one["context"],
             "answers": {"text": [answer["text"] for answer in one["qas"][0]["answers"]],
                         "answer_start": [answer["answer_start"] for answer in one["qas"][0]["answers"]]}}
            for one in rows]
    found = [[(one.name, one.question, one.context, one.answers) for one in read(path)]
             for path in (whole, lines(tmp_path / "lines.jsonl", rows), lines(tmp_path / "flat.jsonl", flat))]
    assert found[0] == found[1] == found[2]
    assert any(not answers for *_, answers in found[0])


def test_questions_without_a_name_are_numbered_from_one(tmp_path: Path) -> None:
    asked = [{"question": text, "answers": []} for text in ("Who cooks?", "Who eats?")]
    path = lines(tmp_path / "a.jsonl", [{"context": "The cook waits.", "qas": asked}])
    assert [one.name for one in read(path)] == ["a.jsonl:1:1", "a.jsonl:1:2"]


def test_a_json_file_of_one_question_is_a_row(tmp_path: Path) -> None:
    """It is an object, too, as SQuAD's own form is, and it has no `data`."""
    path = lines(tmp_path / "a.json", [{"question": "Who cooks?", "context": "The cook waits.", "answers": "cook"}])
    assert [(one.question, [said.text for said in one.answers]) for one in read(path)] == [("Who cooks?", ["cook"])]


def test_answers_that_are_elsewhere_are_found_and_counted(tmp_path: Path) -> None:
    row = {"question": "what?", "context": "soup and soup and soup", "answers": [{"text": "soup", "answer_start": 10}]}
    tally = Tally()
    one = read(lines(tmp_path / "a.jsonl", [row]), tally=tally)[0]
    assert one.answers[0].start == 9
    assert sum(tally.values()) == 1
    tally = Tally()
    assert read(lines(tmp_path / "b.jsonl", [row | {"answers": "soup"}]), tally=tally)[0].answers[0].start == 0
    assert list(tally) == ["answers have no place: taken where their text stands first"]


def test_an_answer_that_is_not_in_its_text_is_named_or_dropped(tmp_path: Path) -> None:
    good, bad = ({"question": "what?", "context": "soup and bread", "answers": [text]} for text in ("soup", "wine"))
    path = lines(tmp_path / "a.jsonl", [good, bad, good, bad])
    with pytest.raises(saucier.InputError, match=r"2 rows cannot be used; .*\n.*a.jsonl, line 2, column 'answers': the "
                       r"answer 'wine' does not stand in its text\n.*line 4"):
        read(path)
    tally = Tally()
    assert len(read(path, QuestionAnswering(misplaced="drop"), tally)) == 2
    assert tally["answers do not stand in their text: dropped"] == 2


@pytest.mark.parametrize(("row", "says"), [
    ({"question": "what?", "context": "soup"}, "no column for the answers; columns: question, context"),
    ({"question": "what?", "context": "soup", "answers": 3}, "line 1: the answers are int"),
    ({"question": "", "context": "soup", "answers": []}, "line 1, column 'question': the question is empty"),
    ({"context": "soup", "qas": [{"id": "x"}]}, "question x: no 'question' of the kind str"),
    ({"context": "soup", "qas": 3}, "line 1: no 'qas' of the kind list"),
])
def test_wrong_rows_are_named(row: dict, says: str, tmp_path: Path) -> None:
    with pytest.raises(saucier.InputError) as caught:
        read(lines(tmp_path / "a.jsonl", [row]))
    assert says in str(caught.value)


def test_questions_about_one_text_stay_on_one_side(tiny_bert: Path, tmp_path: Path) -> None:
    rows = [{"question": f"what {number}", "context": f"soup {number % 20} and bread", "answers": ["soup"]}
            for number in range(100)]
    path = lines(tmp_path / "a.jsonl", rows)
    wanted = read_finetuning_words("question_answering", [], str(tiny_bert), {"train": [str(path)]})[0]
    splits = read_splits(build_task(wanted.task), wanted.data)
    sides = [{one.context for one in side} for side in (splits.train, splits.held_out)]
    assert not sides[0] & sides[1]
