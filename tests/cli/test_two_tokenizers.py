"""Encoder-decoders whose sides have vocabularies of their own, from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from tests.cli.conftest import TINY, Saucier

import saucier as library
from saucier.cli import main
from saucier.recipes import recipe

SHORT = ("--no-calibrate", "training.steps=3", "training.batch=4", "training.length=24", "training.events=off",
         "sampling.samples=1")


def trained(name: str, data: Path, out: Path, *words: str) -> Path:
    """Train a tiny model."""
    assert main(["train", name, "--data", str(data), "--out", str(out), "--no-calibrate", *TINY, *words]) == 0
    return out


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory, text_file: Path) -> Path:
    """Return the run of a tiny BERT."""
    return trained("bert-nano", text_file, tmp_path_factory.mktemp("two") / "bert", "data.document=line",
                   "objective.next_sentence=null", "tokenizer.vocab=60")


@pytest.fixture(scope="module")
def gpt(tmp_path_factory: pytest.TempPathFactory, text_file: Path) -> Path:
    """Return the run of a tiny GPT-2, whose tokenizer has neither a padding token nor one of BERT's ids."""
    return trained("gpt2-nano", text_file, tmp_path_factory.mktemp("two") / "gpt", "data.document=line",
                   "tokenizer.vocab=290")


@pytest.fixture(scope="module")
def bert2gpt(tmp_path_factory: pytest.TempPathFactory, bert: Path, gpt: Path, pair_file: Path) -> Path:
    """Return the run of a model whose encoder is BERT's, and whose decoder is GPT-2's."""
    out = tmp_path_factory.mktemp("two") / "bert2gpt"
    assert main(["cook", "--encoder", str(bert), "--decoder", str(gpt), "--data", str(pair_file), "--out", str(out),
                 *SHORT]) == 0
    return out


@pytest.mark.slow
def test_bert2gpt_has_both_tokenizers_and_both_tables(bert2gpt: Path, bert: Path, gpt: Path) -> None:
    """Each side has its model's vocabulary; what is written begins and ends with GPT-2's end token."""
    model, tokenizer = library.load(bert2gpt), library.load_tokenizer(bert2gpt)
    read, written = library.load_tokenizer(bert), library.load_tokenizer(gpt)
    assert tokenizer.backend.get_vocab() == read.backend.get_vocab()
    assert tokenizer.target.backend.get_vocab() == written.backend.get_vocab()
    assert (model.config.input_embed.vocab, model.config.output_embed.vocab) == (60, 290)
    assert model.generation["eos_token_id"] == written.eos_id == model.generation["decoder_start_token_id"]
    assert tokenizer.target.encode("soup")[-1] == written.eos_id
    assert library.load_tokenizer(bert2gpt / "tokenizer" / "target_tokenizer").encode("the cook") == \
        tokenizer.target.encode("the cook")
    found = recipe(bert2gpt / "recipe.yaml")
    assert found.warm_start is not None
    assert (found.warm_start.tokenizer, found.warm_start.target_tokenizer) == (str(bert), str(gpt))


def test_both_sides_begin_with_their_weights(saucier: Saucier, bert: Path, gpt: Path, pair_file: Path,
                                             tmp_path: Path) -> None:
    answer = saucier("train", "--encoder", bert, "--decoder", gpt, "--data", pair_file, "--out", tmp_path / "run",
                     *SHORT, "training.optimizer.learning_rate=1e-12", "training.optimizer.weight_decay=0")
    assert answer.code == 0, answer.err
    assert "of targets: ready, 290 tokens" in answer.out
    model, reads, writes = (library.load(one) for one in (tmp_path / "run", bert, gpt))
    torch.testing.assert_close(model.embed.tokens.weight, reads.embed.tokens.weight)
    assert model.decoder_embed is not None
    torch.testing.assert_close(model.decoder_embed.tokens.weight, writes.embed.tokens.weight)
    own = dict(model.named_parameters())
    theirs = {name: value for name, value in writes.named_parameters() if name.startswith("decoder.blocks.0.attention")}
    assert theirs
    for name, value in theirs.items():
        torch.testing.assert_close(own[name], value)


@pytest.mark.slow
def test_every_verb_works_on_the_result(saucier: Saucier, bert2gpt: Path, pair_file: Path, tmp_path: Path) -> None:
    """Evaluate, generate, doctor, attention-map and backtranslate know which side is which."""
    for words in (("evaluate", bert2gpt), ("evaluate", bert2gpt, pair_file, "--limit", 3),
                  ("generate", bert2gpt, "the cook stirs", "--tokens", 5, "--temperature", 0),
                  ("generate", bert2gpt, "the cook stirs", "--tokens", 5, "--beams", 2, "--stop", "soup"),
                  ("attention-map", bert2gpt, "the cook stirs", "soup stirs cook")):
        answer = saucier(*words)
        assert answer.code == 0, (words, answer.err)
    found = saucier("doctor", bert2gpt, "--json")
    assert found.code == 0, found.out
    named = {one["name"]: one for one in json.loads(found.out)["findings"]}
    assert named["the tokenizer fits"]["why"] == "60 ids"
    assert named["the tokenizer of targets fits"]["why"] == "290 ids"
    drawing = json.loads(saucier("attention-map", bert2gpt, "the cook", "soup", "--json").out)
    tokenizer = library.load_tokenizer(bert2gpt)
    assert len(drawing["columns"]) == len(tokenizer.encode("the cook"))
    assert len(drawing["rows"]) == len(tokenizer.target.encode("soup"))
    moved = saucier("convert", bert2gpt, tmp_path / "moved")
    assert moved.code == 0, moved.err
    assert library.load_tokenizer(tmp_path / "moved").target.vocab_size == 290
    fewer = saucier("convert", bert2gpt, tmp_path / "fewer", "--vocabulary", pair_file)
    assert fewer.code == 2 and "vocabularies of their own" in fewer.error
    lines = tmp_path / "lines.txt"
    lines.write_text("the cook\na guest\n", encoding="utf-8")
    answer = saucier("backtranslate", bert2gpt, lines, "--out", tmp_path / "made.tsv", "--columns", "there,back")
    assert answer.code == 0, answer.err


@pytest.mark.slow
def test_it_goes_on_and_is_fine_tuned(saucier: Saucier, bert2gpt: Path, pair_file: Path, tmp_path: Path) -> None:
    """`--from` and `finetune` keep both tokenizers; the targets that are shown are spelled by GPT-2's."""
    answer = saucier("train", "--from", bert2gpt, "--data", pair_file, "--out", tmp_path / "on", *SHORT)
    assert answer.code == 0, answer.err
    assert library.load_tokenizer(tmp_path / "on").target.vocab_size == 290
    tuned = tmp_path / "tuned"
    answer = saucier("finetune", "translation", "--model", bert2gpt, "--data", pair_file, "--out", tuned,
                     "task.source=there", "task.target=back", "training.epochs=1", "training.batch=16",
                     "tuning.kind=prompt", "tuning.length=3", "tuning.side.kind=both")
    assert answer.code == 0, answer.err
    assert "Ġ" in answer.out
    assert library.load_tokenizer(tuned).target.vocab_size == 290
    answer = saucier("predict", tuned, pair_file, "--out", tmp_path / "answers.jsonl")
    assert answer.code == 0, answer.err


@pytest.mark.slow
def test_a_recipe_learns_two_tokenizers(saucier: Saucier, pair_file: Path, tmp_path: Path) -> None:
    """One tokenizer is trained on the sources, the other on the targets; each side's table is as large as its own."""
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("a\tb\n" + "abab abba baba\txyxy yxxy zzyx\n" * 30, encoding="utf-8")
    answer = saucier("train", "transformer-nano", "--data", pairs, "--out", tmp_path / "run", "model.dim=32",
                     "model.layers=1", "model.heads=2", "tokenizer.vocab=14", "tokenizer.kind=bpe",
                     "target_tokenizer={kind: bpe, vocab: 15}", "data.deduplicate=false", "objective.packing.length=48",
                     *SHORT)
    assert answer.code == 0, answer.err
    tokenizer, model = library.load_tokenizer(tmp_path / "run"), library.load(tmp_path / "run")
    assert (model.config.input_embed.vocab, model.config.output_embed.vocab) == (14, 15)
    letters = [{letter for token in one.backend.get_vocab() if "<" not in token for letter in token} & {*"abxyz"}
               for one in (tokenizer, tokenizer.target)]
    assert letters == [set("ab"), set("xyz")]


def test_what_cannot_be_is_one_line(saucier: Saucier, bert: Path, gpt: Path, bert2gpt: Path, pair_file: Path,
                                    text_file: Path) -> None:
    shared = saucier("cook", "--encoder", bert, "--decoder", gpt, "--shared", "--data", pair_file)
    assert "different tokenizers" in shared.error
    two = 'target_tokenizer={"kind": "byte_bpe", "vocab": 300}'
    for words, said in ((("gpt2-nano", "--data", text_file, two), "one stack"),
                        (("t5-nano", "--data", text_file, two), "only sequence_to_sequence"),
                        (("transformer-nano", "--data", pair_file, "target_tokenizer.kind=characters"), "characters"),
                        (("--from", bert2gpt, "--data", pair_file, "tokenizer.extend=5"), "no tokens are added")):
        answer = saucier("cook", *words)
        assert answer.code == 2
        assert said in answer.error
    tuned = saucier("finetune", "translation", "--model", "transformer-nano", "--data", pair_file,
                    "recipe.target_tokenizer.kind=byte_bpe", "task.source=there", "task.target=back")
    assert "one tokenizer" in tuned.error
