"""REALM end to end: hidden words that passages tell, learned, saved, asked again, resumed, and what is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.unit.jobs.finetuning.cloze import COLOURS, make_settings, make_world

import saucier
from saucier.errors import InputError, WorkError
from saucier.jobs.finetuning.data import read_examples
from saucier.jobs.finetuning.finetune import finetune
from saucier.jobs.finetuning.passages import attach_passages
from saucier.jobs.finetuning.predict import predict_answers
from saucier.jobs.finetuning.settings import read_finetuning_words
from saucier.objectives.token_ids import IGNORED
from saucier.retrieval.index_versions import build_version
from saucier.retrieval.live_index import LiveIndex
from saucier.retrieval.passages import PassageIndex
from saucier.tasks.build import build_task
from saucier.tasks.masked_retrieval import MaskedRetrievalTask
from saucier.tasks.task import Encoding
from saucier.training.processes import Processes


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return make_world(tmp_path_factory.mktemp("realm"))


def measured(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "predictions" / "held-out.jsonl").read_text().splitlines()]


@pytest.mark.slow
def test_retrieval_fills_in_what_no_sentence_told(world: dict[str, Path], tmp_path: Path) -> None:
    """Held-out things were never named in training; the same model that trains as long without passages cannot know."""
    words = ["training.epochs=10"]
    done = finetune(make_settings(world, *words, "task.retrieval.refresh.every=30"), tmp_path / "with", quiet=True)
    without = finetune(make_settings(world, *words, "task.retrieval.count=1"), tmp_path / "without", quiet=True)
    rows, others = measured(done.path), measured(without.path)
    gaps = [one["loss"] - other["loss"] for one, other in zip(rows, others, strict=True)]
    assert sum(gap < -0.5 for gap in gaps) >= 5, gaps
    assert sum(one["prediction"] == one["gold"][0] for one in rows) >= 5
    assert all(other["prediction"] in COLOURS for other in others), "it knows the words at least"
    assert [one["evidence"][0]["id"] for one in others] == [""] * 7, "the null document alone"
    answers = predict_answers(done.path, [str(world["dev"])]).answers
    assert [one.prediction for one in answers] == [row["prediction"] for row in rows], "saved is what was"
    for answer, row in zip(answers, rows, strict=True):
        assert answer.more["loss"] == pytest.approx(row["loss"], abs=1e-4)
    index = PassageIndex.read(done.model / "passages")
    model = saucier.load(done.model / "retriever", dtype="float32")
    again = build_version(index.passages, model, saucier.load_tokenizer(done.model / "retriever"))
    assert again.passport == index.passport, "the index is that of the trained retriever"
    torch.testing.assert_close(again.matrix, index.matrix)
    before = saucier.load(world["retriever"], dtype="float32").state_dict()
    assert any(not torch.equal(value, before[name]) for name, value in model.state_dict().items())
    evaluation = json.loads((done.path / "metrics.jsonl").read_text().splitlines()[-1])["evaluation"]
    assert evaluation["stale"] == 110 % 30 and evaluation["null"] < 0.5
    assert "made again 3 times by the trainer, every 30 updates" in (done.path / "report.html").read_text()
    assert not (done.path / "versions").exists() and not (done.path / "index").exists()
    answer_questions(world, done.model, tmp_path)
    (typed,) = predict_answers(done.path, [], ["the colour of salt pot was [MASK]"]).answers
    assert typed.prediction in COLOURS and "loss" not in typed.more


def answer_questions(world: dict[str, Path], model: Path, folder: Path) -> None:
    """What was learned goes on as an open question answerer (eq 78-80): body and retriever are the trained ones."""
    rows = [json.loads(line) for line in world["dev"].read_text().splitlines()]
    (folder / "questions.jsonl").write_text("".join(json.dumps(
        {"question": row["text"].removesuffix(row["spans"][0]), "answer": row["spans"][0]}) + "\n" for row in rows))
    settings, _ = read_finetuning_words(
        "open_question_answering", ["training.epochs=1", "training.length=32", "task.question_length=16",
                                    "task.retrieval.count=3", f"task.retrieval.passages={model / 'passages'}",
                                    f"task.retrieval.retriever={model / 'retriever'}"],
        str(model), {"train": [str(folder / "questions.jsonl")], "held_out": [str(folder / "questions.jsonl")]})
    done = finetune(settings, folder / "answerer", quiet=True)
    made, first = (PassageIndex.read(one / "passages") for one in (done.model, model))
    assert made.passport.texts == first.passport.texts
    torch.testing.assert_close(made.matrix, first.matrix)
    assert predict_answers(done.path, [], ["the colour of salt pot was"]).answers[0].more["evidence"]


@pytest.mark.slow
def test_a_run_that_was_stopped_goes_on_to_the_same_bits(world: dict[str, Path], tmp_path: Path,
                                                         monkeypatch: pytest.MonkeyPatch) -> None:
    """The index is made again in the trainer; the stop is between two such, and after one that is then forgotten."""
    settings = make_settings(world, "training.epochs=3", "task.retrieval.refresh.every=7")
    whole = finetune(settings, tmp_path / "whole", quiet=True)
    finish, stop_after = LiveIndex.finish_step, 15

    def stop(self: LiveIndex, step: int) -> None:
        finish(self, step)
        if step + 1 == stop_after:
            raise WorkError("stopped", where="here", remedy="none")

    with monkeypatch.context() as patch:
        patch.setattr(LiveIndex, "finish_step", stop)
        with pytest.raises(WorkError, match="stopped"):
            finetune(settings, tmp_path / "run", quiet=True)
    assert json.loads((tmp_path / "run" / "versions" / "taken.jsonl").read_text().splitlines()[-1]) == {
        "made": 14, "taken": 14}, "a checkpoint is at 11"
    done = finetune(settings, tmp_path / "run", quiet=True)
    for name in ("", "retriever"):
        first, second = (saucier.load(one.model / name, dtype="float32").state_dict() for one in (whole, done))
        assert all(torch.equal(value, second[key]) for key, value in first.items()), name
    assert torch.equal(*(PassageIndex.read(one.model / "passages").matrix for one in (whole, done)))


@pytest.mark.slow
def test_a_second_process_keeps_the_index_fresh_and_ends_with_the_run(world: dict[str, Path], tmp_path: Path) -> None:
    done = finetune(make_settings(world, "training.epochs=2", "task.retrieval.refresh.kind=process"), tmp_path / "run",
                    quiet=True)
    assert "by a second process; it was" in (done.path / "report.html").read_text()
    index = PassageIndex.read(done.model / "passages")
    stored = json.loads((done.model / "task.json").read_text())["task"]["retrieval"]
    assert index.passport.encoder.digest == stored["encoder"]


def make_task(world: dict[str, Path], *words: str) -> tuple[MaskedRetrievalTask, Encoding]:
    task = build_task(make_settings(world, *words).task)
    assert isinstance(task, MaskedRetrievalTask)
    encoding = Encoding(saucier.load_tokenizer(world["reader"]), 32, saucier.load(world["reader"]).config)
    return task, encoding


def test_each_span_is_hidden_once_and_whole(world: dict[str, Path], tmp_path: Path) -> None:
    """The reader's labels begin where its row does; the retriever reads as many masks; what is cut off is counted."""
    task, encoding = make_task(world, "task.question_length=9")
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"text": "the colour of salt pot was red", "spans": ["colour", "salt pot", "red"]}))
    examples = read_examples(task, [str(path)])
    task = attach_passages(task, encoding, tmp_path, Processes())  # type: ignore[assignment]  # the same class
    encoded, tokenizer = task.encode(examples, encoding), encoding.tokenizer
    ids = tokenizer.encode(examples[0].text, False)
    kept = [number for number in range(3) if number < 2 or len(ids) <= 9]
    assert encoded.unit_values["span"].tolist() == kept
    assert [*encoded.notes] == ([] if len(ids) <= 9 else [
        f"1 sentences are cut to 9 tokens next to a passage, {len(ids) - 9} tokens and {3 - len(kept)} spans"])
    for unit, span in enumerate(kept):
        row = encoded.sequences["input_ids"].row(unit).tolist()
        labels = encoded.sequences["labels"].row(unit).tolist()
        assert labels[0] == IGNORED and len(labels) == len(row) + 1, "the first token comes before"
        hidden = [place for place, label in enumerate(labels[1:]) if label != IGNORED]
        start, end = examples[0].spans[span]
        assert tokenizer.decode([ids[place] for place in hidden]) == examples[0].text[start:end]
        assert [row[place] for place in hidden] == [tokenizer.mask_id] * len(hidden)
        assert [row[place] for place in range(len(row)) if place not in hidden] \
            == [ids[place] for place in range(len(row)) if place not in hidden]
        asked = encoded.sequences["question.input_ids"].row(unit).tolist()
        assert asked.count(tokenizer.mask_id) == len(hidden)


def test_sentences_are_cut_and_those_without_a_span_left_out(world: dict[str, Path], tmp_path: Path) -> None:
    task, _ = make_task(world)
    path = tmp_path / "texts.jsonl"
    path.write_text(json.dumps({"text": "It was red in 1969. It was blue. On May 3, 1970 it was green, not in 1971."}))
    found = read_examples(task, [str(path)])
    assert [(one.text, [one.text[start:end] for start, end in one.spans]) for one in found] == [
        ("It was red in 1969.", ["1969"]), ("On May 3, 1970 it was green, not in 1971.", ["May 3, 1970", "1971"])]


@pytest.mark.parametrize(("words", "what"), [
    (["task.retrieval.passage_encoder=other"], "one encoder learns questions and passages"),
    (["task.retrieval.refresh.kind=sometimes"], "never"),
    (["search.trials=4"], "task.retrieval.refresh: does not go with search"),
    (["range_test.steps=20"], "task.retrieval.refresh: does not go with range_test"),
])
def test_settings_that_cannot_be_are_refused(world: dict[str, Path], words: list[str], what: str) -> None:
    with pytest.raises(InputError, match=what):
        make_settings(world, *words)


def test_what_cannot_be_hidden_or_filled_in_is_refused(world: dict[str, Path], tmp_path: Path) -> None:
    task, encoding = make_task(world)
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"text": "it is red", "spans": ["blue"]}))
    with pytest.raises(InputError, match="'blue' is not in the text"):
        read_examples(task, [str(path)])
    with pytest.raises(InputError, match="nothing is hidden in it"):
        task.from_texts(("it is red",), read_example(world))
    decoder = Encoding(encoding.tokenizer, 32, saucier.recipe("gpt").model)
    with pytest.raises(InputError, match="an encoder alone"):
        task.layout(decoder)
    with pytest.raises(InputError, match="for one trainer, and there are 2"):
        attach_passages(make_task(world, "task.retrieval.refresh.kind=process")[0], encoding, tmp_path,
                        Processes(rank=0, world=2))


def read_example(world: dict[str, Path]) -> Any:
    return read_examples(make_task(world)[0], [str(world["dev"])])[0]


def test_a_retriever_without_a_mask_token_is_refused(world: dict[str, Path], tmp_path: Path) -> None:
    shutil.copytree(world["retriever"], tmp_path / "plain")
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        if (path := tmp_path / "plain" / name).is_file():
            values = json.loads(path.read_text())
            values.pop("mask_token", None)
            path.write_text(json.dumps(values))
    task, encoding = make_task(world, f"task.retrieval.retriever={tmp_path / 'plain'}")
    task = attach_passages(task, encoding, tmp_path, Processes())  # type: ignore[assignment]  # the same class
    with pytest.raises(InputError, match="has no mask token"):
        task.encode([read_example(world)], encoding)
