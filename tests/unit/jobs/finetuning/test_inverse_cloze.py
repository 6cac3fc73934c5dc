"""Inverse cloze: what a unit is, which batches there are, and a retriever that learns from texts alone."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest
import torch

import saucier
from saucier.errors import InputError
from saucier.families.bert import bert
from saucier.jobs.finetuning.finetune import finetune
from saucier.jobs.finetuning.predict import predict_answers
from saucier.jobs.finetuning.settings import read_finetuning_words
from saucier.model import build
from saucier.retrieval.embed import embed
from saucier.tasks.build import build_task
from saucier.tasks.definitions import InverseCloze
from saucier.tasks.examples import Place
from saucier.tasks.inverse_cloze import Block, cut_block
from saucier.tasks.task import Encoding
from saucier.text.config import WordPiece
from saucier.text.tokenizer.training import train_tokenizer

WORDS = ["soup", "salt", "stock", "lemon", "butter", "onion", "honey", "wine", "cream", "flour", "sugar", "rice",
         "bean", "carrot", "leek", "garlic", "thyme", "basil", "pepper", "olive", "vinegar", "mustard", "egg", "milk"]
STOPS = ["the", "a", "some", "with", "and", "more", "of", "for"]


def passages(count: int, seed: int) -> list[dict[str, str]]:
    """Three sentences about two words, each a draw of stop words with one or both of them."""
    draw, found = random.Random(seed), []
    for number in range(count):
        topic = draw.sample(WORDS, 2)
        sentences = []
        for _ in range(3):
            words = [draw.choice(STOPS) for _ in range(6)]
            for word in topic:
                words.insert(draw.randrange(len(words)), word)
            sentences.append(" ".join(words) + ".")
        found.append({"_id": f"d{number}", "title": "", "text": " ".join(sentences)})
    return found


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cloze")
    for name, count, seed in (("train", 300, 1), ("dev", 60, 2)):
        rows = [*passages(count, seed), {"_id": "short", "title": "", "text": "one sentence alone."}]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    tokenizer = train_tokenizer(WordPiece(vocab=90), [row["text"] for row in passages(300, 1)])
    build(bert(vocab=tokenizer.vocab_size, dim=32, layers=1, heads=2, hidden=64, length=96, dropout=0.0)).save(
        folder / "bert")
    tokenizer.save(folder / "bert")
    return folder


def block(text: str, title: str = "") -> Block:
    return cut_block(Place("file", 1), "one", title, text)


def encoding(world: Path) -> Encoding:
    model = saucier.load(world / "bert", dtype="float32")
    return Encoding(saucier.load_tokenizer(world / "bert"), 96, model.config)


def test_a_sentence_asks_and_what_is_left_answers(world: Path) -> None:
    reads = encoding(world)
    examples = [block("the soup. some salt. more rice."), block("a bean. the leek.")]
    for kept, answers in ((0.0, ["some salt. more rice.", "the soup. more rice.", "the soup. some salt.", "the leek.",
                                 "a bean."]),
                          (1.0, ["the soup. some salt. more rice."] * 3 + ["a bean. the leek."] * 2)):
        encoded = build_task(InverseCloze(kept=kept)).encode(examples, reads)
        assert encoded.group == 2 and encoded.example_numbers.tolist() == [0, 0, 0, 1, 1]
        batch = encoded.batch(np.arange(5))
        assert batch["blocks"].tolist() == [0, 0, 0, 1, 1]
        for side, texts in ((0, ["the soup.", "some salt.", "more rice.", "a bean.", "the leek."]), (1, answers)):
            got = [row[mask > 0].tolist() for row, mask in zip(batch["input_ids"][:, side],
                                                               batch["attention_mask"][:, side], strict=True)]
            assert got == [reads.tokenizer.encode(text) for text in texts]


def test_one_sentence_in_ten_stays(world: Path) -> None:
    examples, reads = [block(row["text"]) for row in passages(700, 5)], encoding(world)
    encoded = build_task(InverseCloze()).encode(examples, reads)
    whole = [len(reads.tokenizer.encode(one.without(None))) for one in examples]
    blocks = encoded.sequences["input_ids"].lengths[1::2]
    stays = blocks == np.array(whole)[encoded.example_numbers]
    assert len(stays) == 2100 and 0.08 < stays.mean() < 0.12


def test_every_passage_comes_once_an_epoch_with_another_sentence(world: Path) -> None:
    task = build_task(InverseCloze())
    encoded = task.encode([block(row["text"]) for row in passages(11, 5)], encoding(world))
    batches = task.batches(encoded, 4, seed=3)
    assert batches.steps_per_epoch == 3
    epochs = [np.concatenate([batches[epoch * 3 + step].units for step in range(3)]) for epoch in range(40)]
    for units in epochs:
        assert sorted(encoded.example_numbers[units].tolist()) == list(range(11))
    assert {unit for units in epochs for unit in units.tolist()} == set(range(33))
    shares = [batches.rows(1, rank, 3) for rank in range(3)]
    assert np.concatenate([one.units for one in shares]).tolist() == batches[1].units.tolist()


@pytest.mark.slow
def test_a_retriever_learns_from_texts_alone(world: Path, tmp_path: Path) -> None:
    """The rank of the right passage among 60 that training never had, before and after; the folder embeds texts."""
    words = ["training.epochs=60", "training.batch=50", "training.optimizer.learning_rate=0.005", "task.width=16",
             "training.dtype=float32"]
    settings, _ = read_finetuning_words("inverse_cloze", words, str(world / "bert"), {
        "train": [str(world / "train.jsonl")], "held_out": [str(world / "dev.jsonl")]})
    done = finetune(settings, tmp_path / "run", quiet=True)
    scores = {one["name"]: one["value"] for one in json.loads(done.scores.read_text())["held-out"]["scores"]}
    first = [one.prediction for one in predict_answers(done.path, [str(world / "dev.jsonl")]).answers]
    assert len(first) == 60, "the passage of one sentence is left out"
    recall = sum(rank == 1 for rank in first) / 60
    assert recall > 0.5, scores
    rows = passages(60, 2)
    questions, texts = [row["text"].split(". ")[1] + "." for row in rows], [row["text"] for row in rows]
    found = embed(done.model, questions) @ embed(done.model, texts).T
    assert found.shape == (60, 60) and embed(done.model, questions).shape[1] == 16
    assert (found.argmax(1) == torch.arange(60)).float().mean() > 0.5


def test_a_passage_of_one_sentence_is_refused_where_it_is_asked_for(world: Path) -> None:
    from saucier.tasks.examples import Example

    with pytest.raises(InputError, match="nothing is left"):
        build_task(InverseCloze()).from_texts(("one sentence alone.",), Example(Place("command line", 1), "text 1"))
