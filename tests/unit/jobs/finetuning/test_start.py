"""A task learned from nothing: a recipe in the place of a model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import saucier
from saucier import config as c
from saucier.errors import InputError
from saucier.families.longformer import longformer
from saucier.jobs.finetuning.data import Splits
from saucier.jobs.finetuning.finetune import finetune
from saucier.jobs.finetuning.settings import Finetuning, make_finetuning, read_finetuning
from saucier.jobs.finetuning.start import add_global_tokens, training_texts
from saucier.model import build
from saucier.recipes.catalogue import FOLDER
from saucier.tasks.build import build_task
from saucier.tasks.definitions import Classification, TaskConfig
from saucier.tasks.examples import Example, Place
from saucier.tasks.labelled_texts import LabelledText
from saucier.tasks.written.definitions import Instruction, LabelToText, StepByStep, Summarization
from saucier.tasks.written.instruction import Conversation, Message
from saucier.tasks.written.text_to_text import WrittenText
from saucier.text.config import ByteBPE, SpecialTokens
from saucier.text.tokenizer.training import train_tokenizer
from saucier.training.hyperparameters import AdamW, Muon

WORDS = ("cheap", "dear")
SMALL = ("recipe.model.dim=32", "recipe.model.heads=2", "recipe.model.layers=1", "recipe.model.hidden=64",
         "recipe.tokenizer.vocab=60", "training.epochs=6", "training.batch=16")


def rows(path: Path, count: int, first: int) -> Path:
    """Write rows whose class is their one telling word."""
    lines = [f"{WORDS[one % 2]}\tnumber {one} is {WORDS[one % 2]} today" for one in range(first, first + count)]
    path.write_text("label\ttext\n" + "\n".join(lines) + "\n", encoding="utf-8")
    return path


def settings(folder: Path, model: str, *words: str) -> Finetuning:
    """Return a classification of made rows."""
    files = {"train": [str(rows(folder / "train.tsv", 192, 0))], "held_out": [str(rows(folder / "dev.tsv", 40, 500))]}
    return make_finetuning({"name": "made", "model": model, "task": {"kind": "classification"}, "data": files}, words)


@pytest.mark.slow
def test_a_recipe_learns_from_nothing(tmp_path: Path) -> None:
    """Its tokenizer knows the training rows alone, its rate is the recipe's, and the result loads as any other."""
    wanted = settings(tmp_path, "bert-nano", *SMALL)
    assert wanted.training.optimizer.learning_rate == saucier.recipe("bert-nano").training.optimizer.learning_rate
    done = finetune(wanted, tmp_path / "run", quiet=True)
    scores = json.loads(done.scores.read_text(encoding="utf-8"))["held-out"]["scores"]
    assert next(one["value"] for one in scores if one["name"] == "accuracy") == 1.0
    assert saucier.load_tokenizer(tmp_path / "run").vocab_size == 60
    assert saucier.load(tmp_path / "run").config.dim == 32
    assert json.loads((tmp_path / "run/passport.json").read_text(encoding="utf-8"))["start"] is None


def test_a_recipe_brings_its_whole_optimizer(tmp_path: Path) -> None:
    """By name, by file, and changed by words; a word changes one key of it, another kind is that kind's own."""
    own = saucier.recipe("t5-nano").training.optimizer
    assert isinstance(own, Muon)
    assert settings(tmp_path, "t5-nano").training.optimizer == own
    (tmp_path / "mine.yaml").write_text((FOLDER / "t5-nano.yaml").read_text())
    assert settings(tmp_path, str(tmp_path / "mine.yaml")).training.optimizer == own
    changed = settings(tmp_path, "t5-nano", "training.optimizer.learning_rate=0.5").training.optimizer
    assert changed == own.model_copy(update={"learning_rate": 0.5})
    rewritten = settings(tmp_path, "t5-nano", "recipe.training.optimizer.others.learning_rate=0.5").training.optimizer
    assert rewritten == own.model_copy(update={"others": own.others.model_copy(update={"learning_rate": 0.5})})
    assert settings(tmp_path, "t5-nano", "training.optimizer.kind=adamw").training.optimizer == AdamW()
    assert settings(tmp_path, ".", "training.optimizer.kind=muon").training.optimizer == Muon()


def test_a_file_of_settings_has_the_usual_optimizer_too(tmp_path: Path) -> None:
    """Unless its own has kind and rate; a saved file keeps every value."""
    file = tmp_path / "mine.yaml"
    plain = "name: made\nmodel: .\ntask: {kind: classification}\ndata: {train: [train.tsv]}\n"

    def read(more: str, *words: str) -> Any:
        file.write_text(plain + more)
        return read_finetuning(file, words).training.optimizer

    assert read("tuning: {kind: lora}\n").learning_rate == read("", "tuning.kind=lora").learning_rate == 1e-3
    assert read("", "model=t5-nano") == saucier.recipe("t5-nano").training.optimizer
    assert read("training: {optimizer: {learning_rate: 0.2}}\ntuning: {kind: lora}\n").learning_rate == 0.2
    saved = read_finetuning(file).as_dict()
    file.write_text(json.dumps(saved))
    assert read_finetuning(file, ["tuning.kind=prefix"]).training.optimizer.learning_rate == 0.2


@pytest.mark.parametrize(("model", "words", "said"), [
    ("bert-nono", (), "no such folder, and no such recipe"),
    ("bert-nano", ("tuning.kind=lora",), "tuning: a model without learned weights has nothing to keep"),
    ("bert-nano", ("recipe.tokenizer.vocab=5000",), "recipe.tokenizer.vocab: a vocabulary of 5000 is more"),
    ("bert-nano", ("recipe.model.dimm=3",), "dimm"),
    (".", ("recipe.model.dim=32",), "recipe: a model that is there cannot be changed"),
])
def test_what_cannot_begin_is_refused(tmp_path: Path, model: str, words: tuple[str, ...], said: str) -> None:
    """One line says what is wrong, and no folder is left."""
    with pytest.raises(InputError, match=said):
        finetune(settings(tmp_path, model, *words), tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()


ONE = Example(Place("rows.tsv", 2), "one")
AROUND: list[tuple[TaskConfig, Example, set[str], set[str]]] = [(Summarization(prefix="sum: "),
                                                                 WrittenText(ONE.place, ONE.name, "a b", ("b",)),
                                                                 {"sum: "}, {"\nTL;DR:\n"}),
                                                                (LabelToText(prefix="is: "),
                                                                 LabelledText(ONE.place, ONE.name, "a b", "c", "b"),
                                                                 {"is: ", "sentence1: ", " sentence2: ", "c"}, {"\n"}),
                                                                (StepByStep(), WrittenText(ONE.place, ONE.name, "a b",
                                                                                           ("b",)),
                                                                 {"[label] "}, {"\n"}),
                                                                (StepByStep(), WrittenText(ONE.place, ONE.name, "a b",
                                                                                           ("b",), "why"),
                                                                 {"[label] ", "[rationale] ", "why"}, {"\n"}),
                                                                (Instruction(), Conversation(ONE.place, ONE.name,
                                                                                             (Message("user", "a b"),
                                                                                              Message("assistant",
                                                                                                      "b"))), {"\n"},
                                                                 {"### User:\n", "### Assistant:\n", "\n\n"}),
                                                                (Classification(), LabelledText(ONE.place, ONE.name,
                                                                                                "a b", None, "b"),
                                                                 set(), set()),]


@pytest.mark.parametrize(("task", "one", "always", "alone"), AROUND, ids=lambda one: getattr(one, "kind", ""))
def test_a_new_tokenizer_learns_the_words_around_a_text(task: TaskConfig, one: Example, always: set[str],
                                                        alone: set[str]) -> None:
    """Such as `task.prefix`, which stands in every row; a decoder alone also reads what stands between."""
    splits = Splits(build_task(task), [one], [], [])
    own = {"a b"} if isinstance(task, Classification) else {"a b", "b"}
    assert {*training_texts(splits, saucier.recipe("gpt-nano").model)} == own | alone | (always - {"\n"})
    if not isinstance(task, Classification):
        assert {*training_texts(splits, saucier.recipe("t5-nano").model)} == own | always


WINDOWED = ("recipe.model.dim=16", "recipe.model.heads=2", "recipe.model.layers=1", "recipe.model.window=[2]",
            "recipe.model.length=34", "recipe.tokenizer.vocab=300", "training.length=32", "training.epochs=0.2")


@pytest.mark.slow
def test_the_first_token_of_a_longformer_sees_the_whole_text(tmp_path: Path) -> None:
    """A class follows from every token, though a window of one layer reaches one neighbour; 33 positions are enough."""
    finetune(settings(tmp_path, "longformer-nano", *WINDOWED), tmp_path / "run", quiet=True)
    model, seen = saucier.load(tmp_path / "run").eval(), []
    model.embed.tokens.register_forward_hook(lambda _, __, found: seen.append(found) or found.retain_grad())
    model(input_ids=torch.arange(5, 25)[None]).logits[0, 0].backward()
    assert (seen[0].grad[0].abs().amax(1) > 0).all()


@pytest.mark.parametrize(("pair", "found"), [
    ("<s> $A </s> </s> $B </s>", "before_separator"), ("<s> $A </s> $B </s>", "first_token")])
def test_a_question_is_global_where_separators_tell_it(pair: str, found: str) -> None:
    special = SpecialTokens(cls="<s>", sep="</s>", single="<s> $A </s>", pair=pair)
    tokenizer = train_tokenizer(ByteBPE(vocab=270, special=special), ["number one is cheap today"] * 9)
    body = longformer(16, 1, heads=2, vocab=tokenizer.vocab_size, length=34, window=2)
    changed = add_global_tokens(body.model_copy(update={"head": c.SpanHead()}), tokenizer)
    assert {one.kind for one in named_globals(changed)} == {found}
    untouched = add_global_tokens(body, tokenizer)
    assert {one.kind for one in named_globals(untouched)} == {"no_tokens"}


def named_globals(config: c.Transformer) -> list[Any]:
    """Return the tokens that are global in each layer where a batch names none."""
    assert config.encoder is not None
    inner = [residual.inner for block in config.encoder.blocks() for residual in block.sublayers]
    return [term.otherwise for part in inner if isinstance(part, c.SelfAttention)
            for term in c.global_terms(part.visibility)]


@pytest.mark.slow
def test_a_body_without_global_tokens_learns_classes_by_its_published_class(tmp_path: Path) -> None:
    """`LongformerModel` leaves global tokens to the batch, its class for texts does not: the weights are the same."""
    tokenizer = train_tokenizer(ByteBPE(vocab=270), ["number one is cheap today"] * 9)
    body = build(longformer(16, 1, heads=2, vocab=tokenizer.vocab_size, length=34, window=2))
    body.head = body.pooler = None
    body.config = body.config.model_copy(update={"head": None, "pooler": None})
    body.save(tmp_path / "body")
    tokenizer.save(tmp_path / "body")
    finetune(settings(tmp_path, str(tmp_path / "body"), "training.length=32", "training.epochs=0.2"),
             tmp_path / "run", quiet=True)
    saved = json.loads((tmp_path / "run/model/config.json").read_text(encoding="utf-8"))
    assert saved["architectures"] == ["LongformerForSequenceClassification"]
