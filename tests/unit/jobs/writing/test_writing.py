"""A model that writes several texts at once writes each as if it were alone."""

from __future__ import annotations

from pathlib import Path

from saucier.families.gpt2 import gpt2
from saucier.jobs.writing.writer import Writer
from saucier.model import build
from saucier.opened import OpenModel
from saucier.tasks.written.task import pad_rows
from saucier.text.config import WordPiece
from saucier.text.tokenizer.training import train_tokenizer

TEXTS = ("the cook", "the cook stirs the sauce and waits", "a guest waits")


def test_a_decoder_alone_goes_on_with_each_text_where_it_ends() -> None:
    tokenizer = train_tokenizer(WordPiece(vocab=50), TEXTS * 3)
    model = build(gpt2(16, 2, heads=2, vocab=tokenizer.vocab_size, length=64), seed=3).eval()
    writer = Writer(OpenModel(Path(), model, tokenizer), longest=8)
    ids, mask = pad_rows([[5, 6], [7]], 0, left=True)
    assert ids[1, 1] == 7 and mask.tolist() == [[1, 1], [0, 1]]
    options = {"eos_token_id": None}
    assert writer.translate(TEXTS, options) == [writer.translate([text], options)[0] for text in TEXTS]
