"""Encoder-decoders that begin with the weights of cooked models, from the command line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tests.cli.conftest import TINY, Saucier

import saucier as library
from saucier.cli import main
from saucier.jobs.pretraining.initialization import continued_recipe, warm_start_recipe
from saucier.recipes import Recipe, recipe

SHORT = ("training.steps=3", "training.batch=4", "training.length=24", "training.events=off", "sampling.samples=1")


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory, text_file: Path) -> Path:
    """Return the run of a tiny BERT."""
    out = tmp_path_factory.mktemp("warm") / "bert"
    words = ["train", "bert-nano", "--data", str(text_file), "--out", str(out), "--no-calibrate", "data.document=line",
             "objective.next_sentence=null", "tokenizer.vocab=60", *TINY]
    assert main(words) == 0
    return out


@pytest.mark.slow
def test_bert2bert_is_cooked_and_translates(saucier: Saucier, bert: Path, pair_file: Path, tmp_path: Path) -> None:
    """The whole job in one command; a text ends, since [SEP] ends it; the run repeats and goes on by its recipe."""
    run = tmp_path / "run"
    answer = saucier("cook", "--encoder", bert, "--decoder", bert, "--data", pair_file, "--out", run, "--no-calibrate",
                     *SHORT)
    assert answer.code == 0, answer.err
    assert "tensors begin with loaded weights" in answer.out
    model, tokenizer = library.load(run), library.load_tokenizer(run)
    assert model.generation["eos_token_id"] == tokenizer.sep_id
    assert model.generation["decoder_start_token_id"] == tokenizer.cls_id
    assert saucier("generate", run, "the cook stirs", "--tokens", 5, "--temperature", 0).code == 0
    assert recipe(run / "recipe.yaml").warm_start is not None


@pytest.mark.slow
def test_a_side_can_be_cold_and_sides_can_share(saucier: Saucier, bert: Path, pair_file: Path, tmp_path: Path) -> None:
    """Before any update the weights are those of BERT on the side that has them, and of nobody on the other."""
    words = ("train", "--encoder", bert, "--data", pair_file, "--no-calibrate", *SHORT,
             "training.optimizer.learning_rate=1e-12", "training.optimizer.weight_decay=0")
    table = library.load(bert).embed.tokens.weight
    for name, more in (("rnd", ()), ("share", ("--decoder", bert, "--shared"))):
        answer = saucier(*words, "--out", tmp_path / name, *more)
        assert answer.code == 0, answer.err
        model = library.load(tmp_path / name)
        torch.testing.assert_close(model.embed.tokens.weight, table)
        if model.decoder_embed is not None:
            assert not torch.allclose(model.decoder_embed.tokens.weight, table, atol=1e-3)
        assert (model.decoder_embed is None) == (name == "share")


def test_a_side_can_stay_as_it_was(saucier: Saucier, bert: Path, pair_file: Path, tmp_path: Path) -> None:
    """A new decoder learns from an encoder that is trained, by a mix of its layers that learns too, and all of it goes
    on as a whole model; what lies beside a model needs one that is there.
    """
    words = ("train", "--encoder", bert, "--decoder", bert, "--data", pair_file, "--no-calibrate", *SHORT)
    answer = saucier(*words, "--out", tmp_path / "run", "tuning.kind=freeze", 'tuning.where=["embed.*","encoder.*"]',
                     "model.mix={}")
    assert answer.code == 0, answer.err
    before, after = library.load(bert, dtype="float32").state_dict(), library.load(tmp_path / "run").state_dict()
    kept = [name for name in after if name.startswith(("embed.", "encoder."))]
    assert kept and all(torch.equal(before[name], after[name]) for name in kept)
    assert not torch.equal(before["encoder.blocks.0.attention.inner.qkv.weight"],
                           after["decoder.blocks.0.attention.inner.qkv.weight"])
    assert after["mix.weights"].abs().min() > 0
    further = ("finetune", "text_to_text", "--data", pair_file, "--out", tmp_path / "further", "--model")
    assert f"is an adapter, and a whole model is needed; write one first: saucier convert {tmp_path}" in saucier(
        *further, tmp_path / "run").error
    assert saucier("convert", tmp_path / "run", tmp_path / "whole").code == 0
    assert saucier(*further, tmp_path / "whole", "training.epochs=0.2", "training.length=24").code == 0
    assert library.load(tmp_path / "further").mix is not None
    assert "this one is new; use tuning.kind=freeze" in saucier(*words, "--out", tmp_path / "no",
                                                                "tuning.kind=lora").error
    assert not (tmp_path / "no").exists()


@pytest.mark.parametrize("make", [lambda bert, words: warm_start_recipe(bert, bert, overrides=words),
                                  lambda bert, words: continued_recipe(bert, words)])
def test_settings_of_one_run_are_not_those_of_the_next(bert: Path, make: Callable[..., Recipe]) -> None:
    """Python makes several recipes in one process."""
    before = make(bert, ())
    other = make(bert, ("training.optimizer.learning_rate=1e-9", "training.schedule.warmup=7"))
    assert other.training.optimizer.learning_rate == 1e-9 and other.training.schedule != before.training.schedule
    assert make(bert, ()) == before


def test_the_same_shape_begins_cold(saucier: Saucier, bert: Path, pair_file: Path, tmp_path: Path) -> None:
    answer = saucier("train", "--encoder", bert, "--decoder", bert, "--data", pair_file, "--out", tmp_path / "cold",
                     "--no-calibrate", "warm_start.encoder=null", "warm_start.decoder=null", *SHORT)
    assert answer.code == 0, answer.err
    assert "0 of" in answer.out


def test_what_cannot_be_is_one_line(saucier: Saucier, bert: Path, cooked: Path, pair_file: Path) -> None:
    assert "the recipe follows from the models" in saucier("cook", "transformer-nano", "--encoder", bert).error
    assert "no sides to share" in saucier("cook", "--shared", "--data", pair_file).error
    assert "different tokenizers" in saucier("cook", "--encoder", bert, "--decoder", cooked, "--shared", "--data",
                                             pair_file).error
