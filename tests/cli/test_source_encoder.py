"""A cooked BART learns to read another language by a new encoder, in two stages."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.cli.conftest import TINY, Saucier

import saucier as library


@pytest.mark.slow
def test_a_new_encoder_learns_first(saucier: Saucier, text_file: Path, pair_file: Path, tmp_path: Path) -> None:
    """In the first stage BART's own blocks stay as they were, but for one map and the positions."""
    bart = tmp_path / "bart"
    made = saucier("train", "bart-nano", "--data", text_file, "--out", bart, "--no-calibrate", "data.document=line",
                   "tokenizer.vocab=280", *TINY)
    assert made.code == 0, made.err
    run = tmp_path / "run"
    words = ("cook", "--from", bart, "--source-encoder", 2, "--data", pair_file, "--no-calibrate", "training.steps=3",
             "training.batch=4", "training.length=24", "training.events=off", "sampling.samples=1")
    answer = saucier(*words, "--out", run, "objective.first_stage.share=1.0")
    assert answer.code == 0, answer.err
    before, after = library.load(bart), library.load(run)
    assert after.config.source is not None
    assert len(after.config.source.stack.blocks()) == 2
    known = dict(after.named_parameters())
    moved = {name for name, value in before.named_parameters() if not torch.equal(value, known[name])}
    assert moved == {"embed.positions.weight", "decoder_embed.positions.weight",
                     "encoder.blocks.0.attention.inner.qkv.weight", "encoder.blocks.0.attention.inner.qkv.bias"}
    assert saucier("generate", run, "the cook", "--tokens", 4, "--temperature", 0).code == 0
    assert "--from MODEL" in saucier("cook", "bart-nano", "--source-encoder", 2).error
    own = tmp_path / "own"
    answer = saucier(*words, "--out", own, "objective.first_stage.share=1.0", "tokenizer.kind=wordpiece",
                     "tokenizer.vocab=40")
    assert answer.code == 0, answer.err
    with_its_own_vocabulary(own, bart)
    again = saucier("train", "--from", own, "--data", pair_file, *words[7:], "--out", tmp_path / "on",
                    "training.optimizer.learning_rate=1e-12", "training.optimizer.weight_decay=0")
    assert again.code == 0, again.err
    with_its_own_vocabulary(tmp_path / "on", bart)


def with_its_own_vocabulary(run: Path, bart: Path) -> None:
    """The new encoder reads its own tokens, learned from the sources; the targets and their table stay BART's."""
    model, tokenizer, before = library.load(run), library.load_tokenizer(run), library.load_tokenizer(bart)
    assert model.config.input_embed.vocab == tokenizer.vocab_size == 40
    assert "##" in "".join(tokenizer.backend.get_vocab())
    assert tokenizer.target.backend.get_vocab() == before.backend.get_vocab()
    assert model.config.output_embed.vocab == 280
    torch.testing.assert_close(model.embed.tokens.weight, library.load(bart).embed.tokens.weight)
