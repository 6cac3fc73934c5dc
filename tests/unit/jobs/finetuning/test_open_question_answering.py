"""ORQA end to end: answers that stand in passages, which the retriever finds better for it; resumed, saved, refused."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest
import torch

import saucier
from saucier import config as c
from saucier.errors import InputError
from saucier.families.bert import bert
from saucier.jobs.evaluation.evaluate import evaluate
from saucier.jobs.finetuning.finetune import finetune
from saucier.jobs.finetuning.predict import predict_answers
from saucier.jobs.finetuning.settings import Finetuning, read_finetuning_words
from saucier.model import build
from saucier.retrieval.collection import Passage
from saucier.retrieval.encoder import EncoderPassport, open_encoder
from saucier.retrieval.passages import OpenPassages, PassageIndex, Passport, ReaderRows
from saucier.tasks.open_questions import QuestionFirst
from saucier.tasks.task import Encoding
from saucier.text.config import WordPiece
from saucier.text.tokenizer.tokenizer import Tokenizer
from saucier.text.tokenizer.training import train_tokenizer
from saucier.training.loop import Run

COLOURS = ("red", "blue", "green", "black", "white", "brown")
THINGS = [f"{first} {last}" for first in ("salt", "stock", "lemon", "butter", "onion", "honey", "wine", "cream", "bean",
                                               "milk", "tea", "rice")
          for last in ("pot", "pan", "jar", "cup", "box", "bowl", "tin", "bag", "dish", "can")]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Passages with two colours each, one of which the thing has; questions about things that training never asks for.
    """
    folder, draw = tmp_path_factory.mktemp("orqa"), random.Random(3)
    colours = {thing: draw.sample(COLOURS, 2) for thing in THINGS}
    held_out = THINGS[::9]
    (folder / "corpus").mkdir()
    with (folder / "corpus" / "corpus.jsonl").open("w") as file:
        for number, (thing, (one, other)) in enumerate(colours.items()):
            text = f"the {thing} is {one}, not {other}" if number % 2 else f"not {other}: the {thing} is {one}"
            file.write(json.dumps({"_id": f"d{number}", "title": "", "text": text}) + "\n")
    for name, things in (("train", [one for one in THINGS if one not in held_out] * 2), ("dev", held_out)):
        with (folder / f"{name}.jsonl").open("w") as file:
            rows = [(f"which colour has {thing}", colours[thing][0]) for thing in things]
            for question, answer in [*rows, ("which colour has the sea", "violet")]:
                file.write(json.dumps({"question": question, "answers": [answer]}) + "\n")
    texts = [f"which colour has {thing} the is not : , {colour}" for thing, both in colours.items() for colour in both]
    tokenizer = train_tokenizer(WordPiece(vocab=120), [*texts, "sea violet"])
    encoder = bert(vocab=tokenizer.vocab_size, dim=48, layers=2, heads=4, hidden=96, length=32, dropout=0.0)
    reader = build(encoder, seed=1)
    head = c.EmbeddingHead(maps=(c.DenseMap(width=24, activation="identity"),), normalize=True)
    retriever = build(encoder.model_copy(update={"pooler": None, "head": head}), seed=2)
    with torch.no_grad():  # the family's 0.02 is narrow for so small a model; what is read counts more than where
        for parameter in reader.parameters():
            if parameter.dim() > 1:
                parameter.mul_(4)
        retriever.embed.tokens.weight.mul_(20)
    for name, model in (("reader", reader), ("retriever", retriever)):
        model.save(folder / name)
        tokenizer.save(folder / name)
    return {path.name.split(".")[0]: path for path in folder.iterdir()}


def settings(world: dict[str, Path], *words: str) -> Finetuning:
    every = ["training.batch=16", "training.optimizer.learning_rate=0.002", "training.dtype=float32",
             "task.question_length=12", "task.longest_answer=2", "task.retrieval.count=4", "task.retrieval.rate=0.2",
             f"task.retrieval.passages={world['corpus']}", f"task.retrieval.retriever={world['retriever']}"]
    return read_finetuning_words("open_question_answering", [*every, *words], str(world["reader"]),
                                 {"train": [str(world["train"])], "held_out": [str(world["dev"])]})[0]


@pytest.mark.slow
def test_answers_and_their_passages_are_learned_from_answers_alone(world: dict[str, Path], tmp_path: Path,
                                                                   capsys: pytest.CaptureFixture[str]) -> None:
    """Every colour stands in many passages: that of the thing is found, and the colour in it that is right."""
    done = finetune(settings(world, "training.epochs=10"), tmp_path / "run")
    said = " ".join(capsys.readouterr().out.split())
    assert "1 of 213 questions have an answer that is in no passage" in said
    assert "1 of 15 questions have an answer that is in no passage" in said, "of held-out rows too"
    found = {one["name"]: one["value"] for one in json.loads(done.scores.read_text())["held-out"]["scores"]}
    assert found["exact match"] >= 0.7, found
    answers = predict_answers(done.path, [str(world["dev"])])
    rows = [json.loads(line) for line in done.predictions("held-out").read_text().splitlines()]
    assert [one.prediction for one in answers.answers] == [row["prediction"] for row in rows], "saved is what was"
    texts = {row["_id"]: row["text"] for row in map(json.loads, (world["corpus"] / "corpus.jsonl").open())}
    right = 0
    for example, answer in zip(answers.examples, answers.answers, strict=True):
        for one in answer.more["evidence"]:
            assert texts[one["id"]][one["start"]:one["end"]] == answer.prediction
        assert abs(sum(one["probability"] for one in answer.more["evidence"]) - answer.confidence) < 2e-3
        assert answer.more["best"][0]["text"] == answer.prediction
        right += example.text.removeprefix("which colour has ") in answer.more["evidence"][0]["text"]
    assert right >= 11
    again = evaluate(str(done.path), [str(world["dev"])])
    assert {one.name: one.value for one in again.scores}["exact match"] == found["exact match"]
    trained = saucier.load(done.model / "retriever", dtype="float32").state_dict()
    before = saucier.load(world["retriever"], dtype="float32").state_dict()
    assert any(not torch.equal(value, before[name]) for name, value in trained.items()), "the retriever learns"
    index = PassageIndex.read(done.model / "passages")
    torch.testing.assert_close(index.matrix, PassageIndex.build(
        index.passages, open_encoder(world["retriever"])).matrix)  # the passages' vectors stay


@pytest.mark.slow
def test_a_run_goes_on_to_the_bit(world: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped between two checkpoints and started again, it ends with the weights of one that was not."""
    wanted = settings(world, "training.epochs=2")
    whole = finetune(wanted, tmp_path / "whole", quiet=True)
    update = Run.update

    def stopped(run: Run) -> None:
        if run.state.step == 17:
            raise KeyboardInterrupt
        update(run)

    monkeypatch.setattr(Run, "update", stopped)
    with pytest.raises(KeyboardInterrupt):
        finetune(wanted, tmp_path / "part", quiet=True)
    monkeypatch.setattr(Run, "update", update)
    assert (tmp_path / "part" / "checkpoints" / "step-14" / "retriever").is_dir()
    part = finetune(wanted, tmp_path / "part", quiet=True)
    for name in ("model.safetensors", "retriever/model.safetensors"):
        assert (whole.model / name).read_bytes() == (part.model / name).read_bytes(), name
    assert whole.scores.read_text() == part.scores.read_text()


@pytest.mark.parametrize(("words", "what"), [
    (["task.retrieval.count=1000"], "1000 passages are to be read, and there are 120"),
    (["task.retrieval.passages=nowhere"], "nowhere"),
    (["task.question_length=30", "training.length=32"], "have no room for a passage"),
    (["task.early=0"], "task.early"),
    (["task.longest_answer=0"], "task.longest_answer"),
])
def test_settings_that_cannot_be_are_refused_before_anything_is_written(world: dict[str, Path], tmp_path: Path,
                                                                        words: list[str], what: str) -> None:
    with pytest.raises(InputError, match=what):
        finetune(settings(world, *words), tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists() or not list((tmp_path / "run").iterdir())


def opened(texts: list[str], tokenizer: Tokenizer, length: int = 32) -> OpenPassages:
    """Passages for a reader, without a retriever."""
    body = bert(vocab=tokenizer.vocab_size, dim=8, layers=1, heads=2, hidden=16, length=length)
    passages = tuple(Passage(f"d{number}", "", text) for number, text in enumerate(texts))
    encoder = EncoderPassport(model="", digest="", width=1, head={}, length=None)
    passport = Passport(encoder=encoder, passages=len(passages), texts="")
    index = PassageIndex(passages, torch.zeros(len(passages), 1), passport)
    rows = ReaderRows.of(index, Encoding(tokenizer, length, body), QuestionFirst(4))
    return OpenPassages(None, tokenizer, rows, length)  # type: ignore[arg-type]  # nothing is searched


def test_answers_are_found_where_their_tokens_stand_as_words(world: dict[str, Path]) -> None:
    """By brute force over all spans; what begins or ends inside a word is none, and neither is one over two passages.
    """
    texts = ["The red car, a red   car.", "carpet reds car", "", "redcar", "pot red", "car Red", "zoo zoo"]
    tokenizer = train_tokenizer(WordPiece(vocab=44), ["red car pot a the , .", "red car pot acre apt toads"] * 2)
    assert tokenizer.split("carpet")[0].end == tokenizer.split("redcar")[0].end == 3, "they begin with words"
    passages = opened(texts, tokenizer)
    assert tokenizer.encode("zebra") == tokenizer.encode("zoo"), "both are unknown, and none is the other"
    asked = [["red"], ["car", "pot"], ["red car"], ["zebra"], ["a red"]]
    found = passages.find_answers(asked)
    for number, answers in enumerate(asked):
        names = ("answer_passages", "answer_starts", "answer_ends")
        spans = {tuple(map(int, one)) for one in np.stack([found[name].row(number) for name in names], 1)}
        wanted = set()
        for place, text in enumerate(texts):
            offsets = tokenizer.encode_with_offsets([text])[0].offsets
            for first in range(len(offsets)):
                for last in range(first, len(offsets)):
                    start, end = offsets[first][0], offsets[last][1]
                    words = " ".join(text[start:end].lower().split())
                    around = text[max(0, start - 1):start] + text[end:end + 1]
                    if words in answers and not any(letter.isalnum() for letter in around):
                        wanted.add((place, first, last))
                        assert text[slice(*passages.cut_span(place, first, last))] == text[start:end]
        assert spans == wanted, answers
    assert [len(found["answer_passages"].row(number)) for number in range(5)] == [4, 5, 2, 0, 1]
