"""What was cooked here and converted, CTranslate2's converter opens, and its engine writes the same tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.cli.conftest import Saucier

import saucier as library

ctranslate2 = pytest.importorskip("ctranslate2", reason="the engine is not installed")
pytest.importorskip("transformers", reason="CTranslate2's converter reads through it")
SMALL = ("model.dim=32", "model.layers=2", "model.heads=2", "training.steps=3", "training.batch=4",
         "training.length=32", "training.dtype=float32", "evaluation.baselines=[]")
NEW = 12


@pytest.mark.slow
@pytest.mark.parametrize(("name", "words"), [
    ("gpt2-nano", ("tokenizer.vocab=290", "tokenizer.special.unk=<|endoftext|>",
                   "tokenizer.special.bos=<|endoftext|>")),
    ("llama-nano", ("tokenizer.vocab=290", "model.hidden=64")),
    ("t5-nano", ("tokenizer.vocab=60", "model.head_dim=16", "model.hidden=64")),
    ("bart-nano", ("tokenizer.vocab=300", "tokenizer.special.unk=<unk>", "model.hidden=64")),
])
def test_same_tokens(name: str, words: tuple[str, ...], saucier: Saucier, text_file: Path, tmp_path: Path) -> None:
    run, folder = tmp_path / "run", tmp_path / "model"
    cooked = saucier("cook", name, "--no-calibrate", "--data", text_file, "--out", run, *SMALL, *words)
    assert cooked.code == 0, cooked.err
    assert saucier("convert", run, folder).code == 0
    ctranslate2.converters.TransformersConverter(str(folder)).convert(str(tmp_path / "theirs"))
    model, tokenizer = library.load(folder, dtype="float32"), library.load_tokenizer(folder)
    for text in text_file.read_text(encoding="utf-8").splitlines()[:4]:
        ids = tokenizer.encode(text)[:20]
        row = library.generate(model, torch.tensor([ids]), max_new_tokens=NEW)[0].tolist()
        ours = [str(tokenizer.id_to_token(number)) for number in (row if model.config.encoder else row[len(ids):])]
        tokens = [str(tokenizer.id_to_token(number)) for number in ids]
        theirs = written(tmp_path / "theirs", tokens, decoder=model.config.encoder is None)
        assert len(theirs) > 1 and ours[-len(theirs):] == theirs


def written(folder: Path, tokens: list[str], *, decoder: bool) -> list[str]:
    """Return what the engine writes behind the tokens, or (an encoder-decoder) of them, greedily."""
    found: Any
    if decoder:
        engine = ctranslate2.Generator(str(folder), device="cpu", intra_threads=1)
        found = engine.generate_batch([tokens], max_length=NEW, sampling_topk=1, include_prompt_in_result=False)
        return list(found[0].sequences[0])
    engine = ctranslate2.Translator(str(folder), device="cpu", intra_threads=1)
    found = engine.translate_batch([tokens], max_decoding_length=NEW, beam_size=1)
    return list(found[0].hypotheses[0])
