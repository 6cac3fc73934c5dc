"""CTRL writes behind a control code as the reference does, from text to text."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

import saucier
from saucier.text.tokenizer.tokenizer import load_tokenizer

sys.path.insert(0, str(Path(__file__).parents[1] / "text"))
from older_files import continued_pairs

CODES = ("Books", "Reviews", "Links")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a small CTRL of random weights, with its older tokenizer files."""
    transformers = pytest.importorskip("transformers")
    continued_pairs(tmp_path, [f"{code} the method returns a class and its name" for code in CODES] * 9)
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "CTRLTokenizer"}')
    words = load_tokenizer(tmp_path).vocab_size
    torch.manual_seed(0)
    config = transformers.CTRLConfig(vocab_size=words, n_embd=32, dff=64, n_layer=2, n_head=2, n_positions=64,
                                     initializer_range=0.5)
    transformers.CTRLLMHeadModel(config).save_pretrained(tmp_path)
    return tmp_path


def test_what_is_written_follows_from_the_code(folder: Path) -> None:
    """With the penalty of repetition that the paper samples with, 1.2 (§4.1)."""
    transformers = pytest.importorskip("transformers")
    ours, tokenizer = saucier.load(folder, dtype="float32"), load_tokenizer(folder)
    theirs, other = transformers.CTRLLMHeadModel.from_pretrained(folder), \
        transformers.CTRLTokenizer.from_pretrained(folder)
    written = []
    for code in CODES:
        ids = torch.tensor([tokenizer.encode(f"{code} the method")])
        assert ids.tolist() == [other(f"{code} the method")["input_ids"]]
        found = saucier.generate(ours, ids, max_new_tokens=12, repetition_penalty=1.2)
        wanted = theirs.generate(ids, max_new_tokens=12, repetition_penalty=1.2, do_sample=False,
                                 pad_token_id=0, eos_token_id=None)
        assert found.tolist() == wanted.tolist()
        written.append(tokenizer.decode(found[0, ids.shape[1]:].tolist()))
    assert len(set(written)) > 1
