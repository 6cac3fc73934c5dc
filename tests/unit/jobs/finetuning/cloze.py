"""A small world for REALM: passages that say which colour a thing has, and sentences in which the colour is hidden."""

from __future__ import annotations

import json
import random
from pathlib import Path

import torch

from saucier import config as c
from saucier.families.bert import bert
from saucier.jobs.finetuning.settings import Finetuning, read_finetuning_words
from saucier.model import build
from saucier.text.config import WordPiece
from saucier.text.tokenizer.training import train_tokenizer

COLOURS = ("red", "blue", "green", "black", "white", "brown")
THINGS = [f"{first} {last}" for first in ("salt", "stock", "lemon", "butter", "onion", "honey", "wine", "cream")
          for last in ("pot", "pan", "jar", "cup", "box", "bowl")]


def make_world(folder: Path) -> dict[str, Path]:
    """Write passages, sentences about things that training never names, a reader and a retriever."""
    draw = random.Random(3)
    colours = {thing: draw.choice(COLOURS) for thing in THINGS}
    held_out = THINGS[::7]
    (folder / "corpus").mkdir()
    with (folder / "corpus" / "corpus.jsonl").open("w") as file:
        for number, thing in enumerate(THINGS):
            file.write(json.dumps({"_id": f"d{number}", "title": thing, "text": f"it is {colours[thing]}"}) + "\n")
    for name, things in (("train", [one for one in THINGS if one not in held_out] * 4), ("dev", held_out)):
        with (folder / f"{name}.jsonl").open("w") as file:
            for thing in things:
                row = {"text": f"the colour of {thing} was {colours[thing]}", "spans": [colours[thing]]}
                file.write(json.dumps(row) + "\n")
    texts = [f"the colour of {thing} was . it is {colour} //" for thing, colour in colours.items()]
    tokenizer = train_tokenizer(WordPiece(vocab=100), texts)
    reader = build(bert(vocab=tokenizer.vocab_size, dim=48, layers=2, heads=4, hidden=96, length=32, dropout=0.0))
    encoder = bert(vocab=tokenizer.vocab_size, dim=48, layers=1, heads=2, hidden=64, length=32, dropout=0.0)
    retriever = build(encoder.model_copy(update={"pooler": None, "head": c.EmbeddingHead(normalize=True)}), seed=1)
    with torch.no_grad():  # the family's 0.02 is narrow for so small a model
        for parameter in reader.parameters():
            if parameter.dim() > 1:
                parameter.mul_(4)
        retriever.embed.tokens.weight.mul_(20)  # what a text is made of counts more than where it stands
    for name, model in (("reader", reader), ("retriever", retriever)):
        model.save(folder / name)
        tokenizer.save(folder / name)
    return {path.name.split(".")[0]: path for path in folder.iterdir()}


def make_settings(world: dict[str, Path], *words: str) -> Finetuning:
    """Return the settings of a training in that world."""
    every = ["training.batch=16", "training.optimizer.learning_rate=0.003", "training.dtype=float32",
             "task.question_length=16", "task.retrieval.count=4", f"task.retrieval.passages={world['corpus']}",
             f"task.retrieval.retriever={world['retriever']}"]
    return read_finetuning_words("masked_retrieval", [*every, *words], str(world["reader"]),
                                 {"train": [str(world["train"])], "held_out": [str(world["dev"])]})[0]
