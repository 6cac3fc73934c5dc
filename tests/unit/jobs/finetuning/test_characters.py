"""A tagger over a model that reads characters: words that no vocabulary has are told by how they end."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from saucier import config as c
from saucier.families.unpublished import elmo
from saucier.jobs.finetuning.finetune import finetune
from saucier.jobs.finetuning.predict import predict_answers
from saucier.jobs.finetuning.settings import read_finetuning_words
from saucier.model import build
from saucier.text.config import Words
from saucier.text.tokenizer.training import train_tokenizer

ENDS = {"VERB": "ing", "ADVERB": "ly", "NOUN": "ness"}


def strange_words(count: int, seed: int) -> list[tuple[str, str]]:
    """Return (word, tag) where the end of a random word is its tag."""
    draw = random.Random(seed)
    tags = [draw.choice(list(ENDS)) for _ in range(count)]
    return [("".join(draw.choice("abdfkmoprtu") for _ in range(5)) + ENDS[tag], tag) for tag in tags]


def column_file(path: Path, words: list[tuple[str, str]]) -> Path:
    path.write_text("".join(f"{word}\t{tag}\n" + ("\n" if number % 6 == 5 else "")
                            for number, (word, tag) in enumerate(words)))
    return path


@pytest.mark.slow
def test_words_of_no_vocabulary_are_tagged_by_their_characters(tmp_path: Path) -> None:
    """All are the same unknown token by their ids, so that a table of tokens could tell nothing."""
    train, dev = strange_words(480, 1), strange_words(120, 2)
    assert not {word for word, _ in train} & {word for word, _ in dev}
    tokenizer = train_tokenizer(Words(vocab=8), ["the cook stirs the soup quite"])
    network = c.CharacterNetwork(width=8, filters=((1, 8), (3, 24)), highways=1, longest=14)
    build(elmo(dim=32, cells=24, vocab=tokenizer.vocab_size, characters=network), seed=1).save(tmp_path / "elmo")
    tokenizer.save(tmp_path / "elmo")
    files = {"train": [str(column_file(tmp_path / "train.tsv", train))],
             "held_out": [str(column_file(tmp_path / "dev.tsv", dev))]}
    words = ("training.epochs=6", "training.batch=8", "training.optimizer.learning_rate=0.01",
             "training.dtype=float32")
    settings = read_finetuning_words("tagging", words, str(tmp_path / "elmo"), files)[0]
    done = finetune(settings, tmp_path / "run", quiet=True)
    found = {one["name"]: one["value"] for one in json.loads(done.scores.read_text())["held-out"]["scores"]}
    assert found["tag accuracy"] > 0.9
    assert predict_answers(done.path, [], ["zzzzly zzzzing zzzzness"]).answers[0].prediction == ["ADVERB", "VERB",
                                                                                                 "NOUN"]
