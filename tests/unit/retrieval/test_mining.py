"""Mined negatives: none that may be right, as many as asked for; rows that a fine-tuning reads; verbs end to end."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file

import saucier
from saucier.cli import main
from saucier.errors import InputError
from saucier.families.bert import bert
from saucier.families.dpr import dpr
from saucier.retrieval.collection import Collection, Passage, Question
from saucier.retrieval.fusion import Ranking
from saucier.retrieval.mining import MiningOptions, mine, split_topics
from saucier.retrieval.retriever import Retriever, SentenceRetriever
from saucier.text.config import WordPiece
from saucier.text.rows.bucketed import BatchLimits, LengthPlan
from saucier.text.tokenizer.training import train_tokenizer
from saucier.training.loop import Run

ANIMALS = ("cat", "dog", "cow", "hen", "fox", "owl", "bee", "ant")
PLACES = ("barn", "wood", "town")
SENTENCES = {(animal, place): f"the {animal} sleeps in the {place}" for animal in ANIMALS for place in PLACES}


def passages(texts: Sequence[str]) -> tuple[Passage, ...]:
    """Passages without titles, called by their places."""
    return tuple(Passage(str(place), "", text) for place, text in enumerate(texts))


KNOWN = Collection("known", passages(("the moon is grey", "the sun is yellow", "grey cats sleep", "cold tea", "")),
                   (Question("a", "what is grey?", {"0": 1.0}, ("the moon",)),
                    Question("b", "nobody knows"),
                    Question("c", "what sleeps?", {"2": 1.0, "1": 1.0}, ("Cats", "grey"))))
ORDER = Ranking(np.zeros((2, 5)), np.array([[2, 0, 1, 4, 3], [0, 3, 2, 1, 4]]))


def test_no_negative_may_be_right() -> None:
    """Not relevant, without an answer, with some text; and those that are left, whatever the seed."""
    found = {json.dumps(row) for seed in range(20)
             for row in mine(KNOWN, [ORDER], "retriever", MiningOptions(2, 5, seed=seed)).rows}
    rows = [json.loads(one) for one in found]
    assert {one["question"] for one in rows} == {"what is grey?", "what sleeps?"}
    assert {tuple(sorted(one["negative"])) for one in rows if one["question"] == "what is grey?"} == {
        ("cold tea", "grey cats sleep"), ("cold tea", "the sun is yellow"), ("grey cats sleep", "the sun is yellow")}
    sleeps = [one for one in rows if one["question"] == "what sleeps?"]
    assert {one["passage"] for one in sleeps} == {"grey cats sleep", "the sun is yellow"}
    assert all("cold tea" in one["negative"] for one in sleeps)


def test_what_is_left_out_is_counted_and_made_up_for() -> None:
    """`the moon is grey` holds an answer of the last question, which has two right passages."""
    found = mine(KNOWN, [ORDER], "retriever", MiningOptions(2, 5))
    assert found.counts["hold an answer"] == 1 and found.counts["drawn from the whole collection"] == 2
    assert all(len(row["negative"]) == 2 for row in found.rows) and len(found.rows) == 3
    with pytest.raises(InputError, match="5 passages are too few for 4 negatives"):
        mine(KNOWN, [ORDER], "retriever", MiningOptions(4, 5))
    with pytest.raises(InputError, match="are not of the 2 questions"):
        mine(KNOWN, [Ranking(np.zeros((3, 1)), np.zeros((3, 1), dtype=np.int64))], "retriever", MiningOptions())


def test_a_reranker_takes_out_what_is_nearly_as_good() -> None:
    """Its scores are written, the right passage's first."""
    worth = {text: float(number) for number, text in enumerate(("cold tea", "the sun is yellow", "grey cats sleep",
                                                                "the moon is grey"))}

    def score(questions: Sequence[str], texts: Sequence[str]) -> Any:
        return np.array([worth[one] for one in texts])

    alone = Collection("alone", KNOWN.passages, KNOWN.questions[:1])
    order = Ranking(ORDER.scores[:1], ORDER.places[:1])
    for margin, kept in ((0.5, {"cold tea", "the sun is yellow", "grey cats sleep"}), (1.5, {"cold tea",
                                                                                             "the sun is yellow"})):
        drawn, counts = set(), []
        for seed in range(20):
            found = mine(alone, [order], "retriever", MiningOptions(1, 5, margin, seed), score=score)
            drawn |= {*found.rows[0]["negative"]}
            counts.append(found.counts["nearly as good by the reranker"])
            assert found.rows[0]["teacher_scores"] == [3.0, worth[found.rows[0]["negative"][0]]]
        assert drawn == kept and {*counts} == {3 - len(kept)}


def test_a_rerankers_right_choice_is_anywhere() -> None:
    """So that its place says nothing."""
    alone = Collection("alone", KNOWN.passages, KNOWN.questions[:1])
    order = Ranking(ORDER.scores[:1], ORDER.places[:1])
    rows = [mine(alone, [order], "reranker", MiningOptions(2, 5, seed=seed)).rows[0] for seed in range(30)]
    assert {row["answer"] for row in rows} == {0, 1, 2}
    assert all(row["choices"][row["answer"]] == "the moon is grey" and len({*row["choices"]}) == 3 for row in rows)


def test_topics_are_halves_of_what_lies_together() -> None:
    """Four heaps in a plane, in any order, are found again; a topic is never too large, and none is needed of one."""
    draw = np.random.default_rng(0)
    heaps = draw.permutation(np.repeat(np.arange(4), 10))
    vectors = np.array([[0, 0], [9, 1], [100, 0], [109, 1]])[heaps] + draw.normal(0, 0.1, (40, 2))
    topics = split_topics(vectors, 10)
    assert {len({*topics[heaps == heap].tolist()}) for heap in range(4)} == {1} and len({*topics.tolist()}) == 4
    assert np.bincount(split_topics(vectors, 7)).max() <= 7 and not split_topics(vectors, 40).any()
    rows = mine(KNOWN, [ORDER], "retriever", MiningOptions(0, 5), topics=np.array([1, 0, 0, 1, 0])).rows
    assert [(row["passage"], row["topic"]) for row in rows] == [
        ("the moon is grey", "1"), ("the sun is yellow", "0"), ("grey cats sleep", "0")]
    assert all("negative" not in row for row in rows)


def test_a_batch_is_about_one_topic() -> None:
    """Every row once an epoch, in batches of one topic whose order and places change, where lengths say nothing."""
    topics = np.tile([2, 0, 1], 4)
    plan = LengthPlan(np.arange(1, 13)[:, None], BatchLimits(batch=4), seed=3, topics=topics)
    assert plan.batches == 3
    epochs = [[plan.shuffled_batch(step).tolist() for step in range(3 * epoch, 3 * epoch + 3)] for epoch in range(2)]
    for batches in epochs:
        assert sorted(unit for batch in batches for unit in batch) == [*range(12)]
        assert all(len({*topics[batch].tolist()}) == 1 for batch in batches)
    assert epochs[0] != epochs[1]


@pytest.fixture(scope="module")
def farm(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A collection whose questions name the animal and the place of one passage; a tiny BERT that knows the words."""
    root = tmp_path_factory.mktemp("farm")
    folder, model = root / "farm", root / "bert"
    folder.mkdir()
    texts = [*SENTENCES.values()]
    questions = {f"q{number}": f"which {animal} {place}" for number, (animal, place) in enumerate(SENTENCES)}
    lines = {"corpus": [{"_id": str(number), "title": "", "text": text} for number, text in enumerate(texts)],
             "queries": [{"_id": name, "text": text} for name, text in questions.items()]}
    for name, rows in lines.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    judged = "".join(f"q{number}\t{number}\t1\n" for number in range(len(texts)))
    (folder / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\n" + judged, encoding="utf-8")
    tokenizer = train_tokenizer(WordPiece(vocab=70), [*texts, *questions.values()] * 4)
    saucier.build(bert(vocab=tokenizer.vocab_size, dim=32, layers=1, heads=2, hidden=64, length=32, dropout=0.1),
                  seed=1).save(model)
    tokenizer.save(model)
    return folder, model


FAST = ("training.optimizer.learning_rate=0.003", "training.dtype=float32")


def run(*words: object) -> int:
    """Run the command line."""
    return main([str(word) for word in words])


@pytest.mark.slow
def test_the_verbs_end_to_end(farm: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A retriever, negatives that it finds, a reranker of these, filtered negatives, a student; all measured."""
    folder, model = farm
    first, rows, reranker, again, student = (tmp_path / name for name in ("first", "a.jsonl", "reranker", "b.jsonl",
                                                                          "student"))
    assert run("retrieve", "train", "retriever", folder, "training.epochs=30", "training.batch=24",
               "training.micro_batch=5", *FAST, "--model", model, "--out", first) == 0
    assert run("retrieve", "mine", folder, "--out", rows, "--for", "reranker", "--model", first, "--negatives", 3,
               "--depth", 6) == 0
    assert len(rows.read_text().splitlines()) == 24
    assert run("retrieve", "train", "reranker", rows, "training.epochs=8", "training.batch=8", *FAST, "--model", model,
               "--out", reranker) == 0
    assert run("retrieve", "mine", folder, "--out", again, "--model", first, "--reranker", reranker, "--negatives", 2,
               "--margin", 0) == 0
    assert all(len(json.loads(line)["teacher_scores"]) == 3 for line in again.read_text().splitlines())
    assert run("finetune", "embedding", "task.learns.kind=teacher", "task.score=teacher_scores", "training.epochs=2",
               *FAST, "--model", model, "--data", again, "--out", student) == 0
    capsys.readouterr()
    assert run("retrieve", "evaluate", folder, "--model", model_of(first), "--reranker", reranker, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    values = {one["name"]: one["scores"][0]["value"] for one in found["systems"]}
    assert values["first"] > 0.4 and (found["questions"], found["passages"]) == (24, 24)
    assert [one["name"] for one in found["systems"]] == [
        "BM25", "first", "BM25 + first, reciprocal rank", "BM25 + first", "reranker", "BM25 + first + reranker"]
    report = saucier.evaluate_retriever(folder, models=[str(first)], reranker=reranker)
    assert report.systems[-1].against == "BM25 + first, first 20" and len(report.systems[-1].weights) == 5
    assert "24 questions, 24 passages" in repr(report)
    by_kernels = saucier.evaluate_retriever(folder, models=[str(first)], reranker=reranker, format="float32")
    for name in ("first", "reranker"):
        np.testing.assert_allclose(by_kernels.rankings[name].scores, report.rankings[name].scores, atol=1e-4)
    fed = saucier.evaluate_retriever(folder, models=[str(first)], feedback=1, tuned_by="recall@1")
    assert [fed.systems[-1].name, fed.systems[-1].against] == ["BM25 + first, feedback of 1", "BM25 + first"]
    assert fed.systems[-1].difference.value == 0  # the first passage is the one that is asked
    cut = saucier.evaluate_retriever(folder, models=[str(first)], sentences=True)
    assert [(one.name, one.against) for one in cut.systems[2:]] == [
        ("first, by sentences", "first"), ("BM25 + first, by sentences, reciprocal rank", "first, by sentences"),
        ("BM25 + first, by sentences", "BM25")]
    assert cut.systems[2].difference.value == 0  # each passage is one sentence
    by_topic = tmp_path / "c.jsonl"
    assert run("retrieve", "mine", folder, "--out", by_topic, "--model", first, "--topics", 6, "--negatives", 0) == 0
    named = [json.loads(line) for line in by_topic.read_text().splitlines()]
    assert {*named[0]} == {"question", "passage", "topic"} and {*Counter(one["topic"] for one in named).values()} == {6}
    settings = ("training.epochs=1", "training.batch=6", *FAST)
    out = tmp_path / "topics"
    assert run("retrieve", "train", "retriever", by_topic, *settings, "--model", first, "--out", out) == 0
    assert "topic: topic" in (out / "finetune.yaml").read_text()
    assert run("retrieve", "train", "reranker", again, "--model", model, "--out", tmp_path / "wrong") == 2
    assert "holds rows of a retriever" in capsys.readouterr().err


class Counting:
    """An encoder that keeps what it was given."""

    def __init__(self) -> None:
        self.read: list[str] = []

    def embed_tensor(self, texts: list[str], batch: int) -> torch.Tensor:
        self.read += texts
        return torch.tensor([[float(len(text)), 1.0] for text in texts])


def test_passages_get_vectors_once() -> None:
    """Other questions to them embed the questions alone; other passages are others, equal in number or not."""
    encoder: Any = Counting()
    opened = Retriever(encoder, encoder)
    asked = Collection("drawn", passages(("a", "bb", "ccc")), (Question("1", "?"),))
    assert opened.rank(asked, 2).places.tolist() == [[2, 1]]
    assert opened.rank(asked.ask_passages([1]), 2).places.tolist() == [[2, 1]]
    assert encoder.read == ["a", "bb", "ccc", "?", "bb"]
    other = replace(asked, passages=tuple(reversed(asked.passages)))
    assert opened.rank(other, 2).places.tolist() == [[0, 1]]


class Letters:
    """An encoder of how often letters occur."""

    def embed_tensor(self, texts: Sequence[str], batch: int = 32) -> torch.Tensor:
        return torch.tensor([[float(text.count(one)) for one in "abcdef"] for text in texts])


@pytest.mark.parametrize("most", [1, 40, 1 << 24])
def test_the_best_sentence_counts_beside_the_whole(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against the definition, whatever is held at once; a passage without a sentence is its own."""
    monkeypatch.setattr("saucier.retrieval.retriever.MOST_SCORES", most)
    letters: Any = Letters()
    texts = ("Aa bb. Bbbb! Cc fa.", "abc abc", "", "Fed. Fed? Cab.\n\n", "a. b c")
    cut = (("Aa bb.", "Bbbb!", "Cc fa."), texts[1:2], texts[2:3], ("Fed.", "Fed?", "Cab."), texts[4:])
    questions = ("a cab", "bbb", "deaf", "", "cc d")
    asked = Collection("drawn", passages(texts), tuple(Question(str(n), one) for n, one in enumerate(questions)))

    def inner(one: str, other: str) -> float:
        return float((letters.embed_tensor([one]) @ letters.embed_tensor([other]).T).item())

    expected = np.array([[inner(question, text) + max(inner(question, one) for one in some)
                          for text, some in zip(texts, cut, strict=True)] for question in questions])
    found = SentenceRetriever(Retriever(letters, letters)).rank(asked, 3)
    order = np.argsort(-expected, axis=1, kind="stable")[:, :3]
    assert found.places.tolist() == order.tolist()
    assert found.scores.tolist() == np.take_along_axis(expected, order, 1).tolist()


def write_dpr(model: Path, folder: Path) -> Path:
    """Write a tiny encoder as DPR publishes it, with the tokenizer of another model."""
    tokenizer = saucier.load_tokenizer(model)
    config = dpr(32, 1, heads=2, vocab=tokenizer.vocab_size, length=32, hidden=64, dropout=0.2)
    saucier.build(config, seed=1).save(folder)
    tokenizer.save(folder)
    return folder


@pytest.mark.slow
def test_two_encoders_are_written_as_dpr_publishes_them(farm: tuple[Path, Path], tmp_path: Path,
                                                        capsys: pytest.CaptureFixture[str]) -> None:
    """Both learn, both are read by transformers, and their inner products are what is searched by."""
    folder, model = farm
    start, out, tokenizer = write_dpr(model, tmp_path / "dpr"), tmp_path / "out", saucier.load_tokenizer(model)
    assert run("retrieve", "train", "retriever", folder, f"task.learns.passage_encoder={start}",
               "task.learns.similarity=inner_product", "task.learns.scale=1", "training.epochs=3", "training.batch=24",
               "training.micro_batch=8", *FAST, "--model", start, "--out", out) == 0
    known = load_file(start / "model.safetensors")
    vectors = []
    for name, read in (("model", transformers.DPRQuestionEncoder), ("passages", transformers.DPRQuestionEncoder)):
        learned = load_file(out / name / "model.safetensors")
        assert any(not torch.equal(learned[key], known[key]) for key in known)
        with torch.no_grad():
            ids = torch.tensor([tokenizer.encode("the cat sleeps in the barn")])
            vectors.append(read.from_pretrained(out / name).eval()(ids).pooler_output)
        ours = saucier.embed(out / name, ["the cat sleeps in the barn"])
        torch.testing.assert_close(ours, vectors[-1], rtol=1e-4, atol=1e-4)
    assert not torch.allclose(vectors[0], vectors[1], atol=1e-3)
    report = saucier.evaluate_retriever(folder, models=[str(out / "model")], passage_model=out / "passages")
    alone = saucier.evaluate_retriever(folder, models=[str(out / "model")])
    assert not np.array_equal(report.rankings["out"].scores, alone.rankings["out"].scores)
    rows = out / "rows" / "train.jsonl"
    capsys.readouterr()
    assert run("predict", out, rows) == 2 and "was trained with a second encoder" in capsys.readouterr().err
    assert run("retrieve", "train", "retriever", folder, f"task.learns.passage_encoder={start}",
               "pruning.kind=movement", "--model", start, "--out", tmp_path / "never") == 2


@pytest.mark.slow
def test_a_stopped_training_of_two_encoders_goes_on_to_the_bit(farm: tuple[Path, Path], tmp_path: Path,
                                                               monkeypatch: pytest.MonkeyPatch) -> None:
    """Dropout, cached gradients and both encoders included; the rows are mined again, and are the same."""
    folder, model = farm
    start = write_dpr(model, tmp_path / "dpr")

    def train(out: Path) -> dict[str, torch.Tensor]:
        saucier.train_retriever("retriever", folder, [
            f"task.learns.passage_encoder={start}", "training.epochs=4", "training.batch=8", "training.micro_batch=3",
            *FAST], model=start, out=out, quiet=True)
        return {f"{name}.{key}": value for name in ("model", "passages")
                for key, value in load_file(out / name / "model.safetensors").items()}

    whole, update = train(tmp_path / "whole"), Run.update

    def stopped(run: Run) -> None:
        if run.state.step == 8:
            raise KeyboardInterrupt
        update(run)

    monkeypatch.setattr(Run, "update", stopped)
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "stopped")
    monkeypatch.setattr(Run, "update", update)
    assert (tmp_path / "stopped" / "checkpoints").is_dir()
    found = train(tmp_path / "stopped")
    assert found.keys() == whole.keys() and all(torch.equal(value, whole[name]) for name, value in found.items())


def model_of(folder: Path) -> Path:
    """The model's own folder in that of a training."""
    return folder / "model"


@pytest.mark.parametrize(("words", "said"), [
    (("evaluate", "{farm}", "--passage-model", "{bert}"), "--passage-model: belongs to one encoder of questions"),
    (("evaluate", "{farm}", "--model", "nowhere/at/all"), "nowhere/at/all: no such folder"),
    (("evaluate", "{farm}", "--model", "{bert}"), "has no embedding head"),
    (("evaluate", "{farm}", "--reranker", "{bert}"), "scores no pairs of texts"),
    (("evaluate", "{farm}", "--sentences"), "nothing gives sentences vectors"),
    (("evaluate", "{farm}", "--format", "int8"), "--format: no model is read"),
    (("evaluate", "{farm}", "--reread", "5"), "--reread: nothing reads again"),
    (("mine", "{bert}", "--out", "{out}"), "corpus.jsonl: no such file"),
    (("mine", "{farm}", "--out", "{out}", "--topics", "8"), "--topics: nothing tells what passages are about"),
    (("mine", "{farm}", "--out", "{out}", "--for", "reranker", "--negatives", "0"), "learns from wrong passages"),
    (("train", "retriever", "{farm}", "--model", "{bert}", "--out", "{out}", "--negatives", "30"), "are too few for")])
def test_what_cannot_be_done_is_said_in_one_line(farm: tuple[Path, Path], tmp_path: Path, words: tuple[str, ...],
                                                 said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Before anything is trained or written."""
    places = {"farm": str(farm[0]), "bert": str(farm[1]), "out": str(tmp_path / "out")}
    assert run("retrieve", *(word.format(**places) for word in words)) == 2
    errors = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1 and said in errors[0]
    assert not (tmp_path / "out").exists()
