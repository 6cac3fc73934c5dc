"""RAG end to end: questions whose answers stand in passages alone, learned, saved, asked again, and what is refused."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import saucier
from saucier import config as c
from saucier.errors import InputError
from saucier.families.bart import bart
from saucier.families.bert import bert
from saucier.jobs.finetuning.finetune import finetune
from saucier.jobs.finetuning.predict import predict_answers
from saucier.jobs.finetuning.settings import Finetuning, read_finetuning_words
from saucier.model import build
from saucier.retrieval.embed import embed
from saucier.retrieval.encoder import ModelEncoder, open_encoder
from saucier.retrieval.passages import PassageIndex, open_passages, read_passages
from saucier.tasks.examples import Place
from saucier.tasks.open_questions import OpenQuestion
from saucier.tasks.task import Encoding
from saucier.tasks.written.retrieval_augmented import RetrievalAugmentedTask
from saucier.text.config import WordPiece
from saucier.text.tokenizer.training import train_tokenizer

COLOURS = ("red", "blue", "green", "black", "white", "brown")
THINGS = [f"{first} {last}" for first in ("salt", "stock", "lemon", "butter", "onion", "honey", "wine", "cream")
          for last in ("pot", "pan", "jar", "cup", "box", "bowl")]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Passages that say which colour a thing has, questions about things that training never asks for, two models."""
    folder, draw = tmp_path_factory.mktemp("rag"), random.Random(3)
    colours = {thing: draw.choice(COLOURS) for thing in THINGS}
    held_out = THINGS[::7]
    (folder / "corpus").mkdir()
    with (folder / "corpus" / "corpus.jsonl").open("w") as file:
        for number, thing in enumerate(THINGS):
            file.write(json.dumps({"_id": f"d{number}", "title": thing, "text": f"it is {colours[thing]}"}) + "\n")
    for name, things in (("train", [one for one in THINGS if one not in held_out] * 4), ("dev", held_out)):
        with (folder / f"{name}.jsonl").open("w") as file:
            for thing in things:
                file.write(json.dumps({"question": f"which colour has {thing}", "answer": colours[thing]}) + "\n")
    texts = [f"which colour has {thing} / it is {colour} //" for thing, colour in colours.items()]
    tokenizer = train_tokenizer(WordPiece(vocab=100), texts)
    reader = build(bart(vocab=tokenizer.vocab_size, dim=48, layers=2, heads=4, hidden=96, length=32, dropout=0.0))
    with torch.no_grad():  # the family's 0.02 is narrow for so small a model
        for parameter in reader.parameters():
            if parameter.dim() > 1:
                parameter.mul_(4)
    encoder = bert(vocab=tokenizer.vocab_size, dim=48, layers=1, heads=2, hidden=64, length=32, dropout=0.0)
    encoder = encoder.model_copy(update={"pooler": None, "head": c.EmbeddingHead(normalize=True)})
    found = build(encoder, seed=1), build(encoder, seed=2)
    with torch.no_grad():  # what a text is made of counts more than where it stands
        for model in found:
            model.embed.tokens.weight.mul_(20)
    for name, model in zip(("reader", "retriever", "other"), (reader, *found), strict=True):
        model.save(folder / name)
        tokenizer.save(folder / name)
    return {path.name.split(".")[0]: path for path in folder.iterdir()}


def settings(world: dict[str, Path], *words: str) -> Finetuning:
    every = ["training.batch=16", "training.optimizer.learning_rate=0.003", "training.dtype=float32",
             "task.writing.tokens=4", "task.question_length=16", "task.retrieval.count=3",
             f"task.retrieval.passages={world['corpus']}", f"task.retrieval.retriever={world['retriever']}"]
    return read_finetuning_words("retrieval_augmented", [*every, *words], str(world["reader"]),
                                 {"train": [str(world["train"])], "held_out": [str(world["dev"])]})[0]


@pytest.mark.slow
@pytest.mark.parametrize("marginal", ["sequence", "token"])
def test_answers_that_stand_in_passages_alone_are_learned(world: dict[str, Path], tmp_path: Path,
                                                          marginal: str) -> None:
    """Held-out things were never asked for: what is right must have been read. Evidence is the passage of the thing."""
    done = finetune(settings(world, "training.epochs=12", f"task.marginal.kind={marginal}"), tmp_path / "run",
                    quiet=True)
    found = {one["name"]: one["value"] for one in json.loads(done.scores.read_text())["held-out"]["scores"]}
    assert found["exact match"] > 0.85, found
    answers = predict_answers(done.path, [str(world["dev"])])
    rows = [json.loads(line) for line in done.predictions("held-out").read_text().splitlines()]
    assert [one.prediction for one in answers.answers] == [row["prediction"] for row in rows], "saved is what was"
    right = 0
    for example, answer in zip(answers.examples, answers.answers, strict=True):
        evidence: list[dict[str, Any]] = answer.more["evidence"]
        assert len(evidence) == 3
        assert [one["probability"] for one in evidence] == sorted((one["probability"] for one in evidence),
                                                                  reverse=True)
        right += evidence[0]["title"] in example.text
    assert right >= 7
    trained = saucier.load(done.model / "retriever", dtype="float32").state_dict()
    before = saucier.load(world["retriever"], dtype="float32").state_dict()
    assert any(not torch.equal(value, before[name]) for name, value in trained.items()), "the retriever learns"
    index = PassageIndex.read(done.model / "passages")
    assert index.passages == read_passages(world["corpus"])
    again = PassageIndex.build(index.passages, open_encoder(world["retriever"]))
    assert again.passport == index.passport
    torch.testing.assert_close(index.matrix, again.matrix)
    assert not (done.path / "index").exists(), "the run's own copy is gone"


@pytest.mark.slow
def test_answers_are_learned_from_all_passages_at_once(world: dict[str, Path], tmp_path: Path) -> None:
    """Fusion-in-decoder: what was asked is answered (so few things are learned by heart, so that others are not); the
    retriever stays as it was to the bit, and evidence is what it has first.
    """
    done = finetune(settings(world, "training.epochs=10", "task.marginal.kind=fusion"), tmp_path / "run", quiet=True)
    known = [json.loads(line)["answer"] for line in world["train"].read_text().splitlines()]
    found = [one.prediction for one in predict_answers(done.path, [str(world["train"])]).answers]
    assert np.mean([one == other for one, other in zip(found, known, strict=True)]) > 0.9
    trained = saucier.load(done.model / "retriever", dtype="float32").state_dict()
    before = saucier.load(world["retriever"], dtype="float32").state_dict()
    assert all(torch.equal(value, before[name]) for name, value in trained.items())
    answers = predict_answers(done.path, [str(world["dev"])])
    rows = [json.loads(line) for line in done.predictions("held-out").read_text().splitlines()]
    assert [one.prediction for one in answers.answers] == [row["prediction"] for row in rows], "saved is what was"
    for answer in answers.answers:
        shares = [one["prior"] for one in answer.more["evidence"]]
        assert shares == sorted(shares, reverse=True) and "probability" not in answer.more["evidence"][0]


@pytest.mark.parametrize(("words", "around"), [
    ((), ("", " // which colour has salt pot")),
    (('task.after_question="[SEP]"',), ("which colour has salt pot[SEP]", "")),
    (('task.after_question=" /"', 'task.prefix="say "'), ("say which colour has salt pot /", ""))])
def test_a_passage_and_its_question_are_one_text(world: dict[str, Path], words: tuple[str, ...],
                                                 around: tuple[str, str]) -> None:
    """In either order; what stands between them may be a special token. Where the passage is, is known too."""
    chosen = settings(world, *words)
    tokenizer, reader = saucier.load_tokenizer(world["reader"]), saucier.load(world["reader"])
    task, encoding = RetrievalAugmentedTask(chosen.task), Encoding(tokenizer, 32, reader.config)
    passages = open_passages(task.retrieval, task.layout(encoding), encoding)
    task = task.with_passages(passages)
    asked = task.encode([OpenQuestion(Place("a", 1), "1", "which colour has salt pot", ("red",))], encoding)
    batch = asked.batch(np.arange(1))
    found = passages.retriever.find(batch)
    joined = passages.retriever.read(batch, found)
    for number, place in enumerate(found.places[0].tolist()):
        one = passages.rows.index.passages[place]
        ids = joined.inputs["input_ids"][number][joined.inputs["attention_mask"][number].bool()].tolist()
        assert ids == tokenizer.encode(f"{around[0]}{one.title} / {one.text}{around[1]}")
        assert ids[joined.starts[0, number]:joined.ends[0, number]] == tokenizer.encode(
            f"{one.title} / {one.text}", False)


@pytest.fixture(scope="module")
def short(world: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of few steps."""
    return finetune(settings(world, "training.epochs=0.1"), tmp_path_factory.mktemp("short") / "run", quiet=True).path


@pytest.mark.slow
def test_an_index_by_another_encoder_is_refused(world: dict[str, Path], short: Path, tmp_path: Path) -> None:
    shutil.copytree(short / "model", tmp_path / "model")
    other = PassageIndex.build(read_passages(world["corpus"]), open_encoder(world["other"]))
    shutil.rmtree(tmp_path / "model" / "passages")
    other.write(tmp_path / "model" / "passages")
    with pytest.raises(InputError, match="from an encoder with the weights"):
        predict_answers(tmp_path / "model", [], ["which colour has salt pot"])


def test_vectors_of_other_texts_are_refused(short: Path, tmp_path: Path) -> None:
    shutil.copytree(short / "model", tmp_path / "model")
    corpus = tmp_path / "model" / "passages" / "corpus.jsonl"
    corpus.write_text(corpus.read_text().replace("red", "pink"))
    with pytest.raises(InputError, match="do not belong together"):
        predict_answers(tmp_path / "model", [], ["which colour has salt pot"])


def test_a_model_without_its_passages_says_so(short: Path, tmp_path: Path) -> None:
    shutil.copytree(short / "model", tmp_path / "model", ignore=shutil.ignore_patterns("passages"))
    with pytest.raises(InputError, match="the folder has none"):
        predict_answers(tmp_path / "model", [], ["which colour has salt pot"])


@pytest.mark.parametrize(("words", "what"), [
    (["task.retrieval.count=1000"], "1000 passages are to be read, and there are 48"),
    (["task.retrieval.passages=nowhere"], "nowhere"),
    (["task.question_length=30", "training.length=32"], "have no room for a passage"),
])
def test_settings_that_cannot_be_are_refused_before_anything_is_written(world: dict[str, Path], tmp_path: Path,
                                                                        words: list[str], what: str) -> None:
    with pytest.raises(InputError, match=what):
        finetune(settings(world, *words), tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists() or not list((tmp_path / "run").iterdir())


def test_a_model_without_vectors_is_no_retriever(world: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no embedding head"):
        finetune(settings(world, f"task.retrieval.retriever={world['reader']}"), tmp_path / "run", quiet=True)


def test_a_text_longer_than_the_positions_of_a_retriever_is_cut_with_a_warning(world: dict[str, Path]) -> None:
    """Its folder says no length: the tables of positions do."""
    with pytest.warns(UserWarning, match="cut"):
        found = embed(world["retriever"], ["salt " * 60])
    model, tokenizer = saucier.load(world["retriever"], dtype="float32"), saucier.load_tokenizer(world["retriever"])
    ids = tokenizer.encode("salt " * 60)
    with torch.no_grad():
        whole = model(torch.tensor([[*ids[:31], ids[-1]]])).embeddings
    torch.testing.assert_close(found, whole)


def test_in_batch_negatives_are_not_cut_into_pieces(world: dict[str, Path]) -> None:
    with pytest.raises(InputError, match="whole batch in one pass"):
        read_finetuning_words("inverse_cloze", ["training.micro_batch=4"], str(world["retriever"]),
                              {"train": [str(world["corpus"] / "corpus.jsonl")]})


def test_an_index_that_was_written_before_encoders_had_passports_opens(world: dict[str, Path], short: Path,
                                                                       tmp_path: Path) -> None:
    """Its digest was one of a sample of the weights, and the model next to it remembers that one."""
    model = shutil.copytree(short / "model", tmp_path / "model")
    place = model / "passages" / "passport.json"
    stored = json.loads(place.read_text())
    now = stored["encoder"]
    earlier = {"encoder": "ab" * 16, "head": now["head"], "width": now["width"]}
    place.write_text(json.dumps(stored | earlier))
    with pytest.raises(InputError, match="with the weights abababababab"):
        predict_answers(model, [], ["which colour has salt pot"])
    for path in model.rglob("*.json"):
        if path != place:
            path.write_text(path.read_text().replace(now["digest"], earlier["encoder"]))
    assert len(predict_answers(model, [], ["which colour has salt pot"]).answers) == 1
    index = PassageIndex.read(model / "passages")
    index.write(tmp_path / "again")
    assert PassageIndex.read(tmp_path / "again").passport == index.passport
    assert index.passport.encoder.width == now["width"]


def test_an_encoder_that_changes_in_memory_is_another_one(world: dict[str, Path]) -> None:
    encoder = open_encoder(world["retriever"])
    one, same = (ModelEncoder.of(encoder.model, encoder.tokenizer, "memory").passport for _ in range(2))
    assert one == same
    with torch.no_grad():
        next(iter(encoder.model.parameters()))[0, 0] += 1e-4
    assert ModelEncoder.of(encoder.model, encoder.tokenizer, "memory").passport.digest != one.digest
