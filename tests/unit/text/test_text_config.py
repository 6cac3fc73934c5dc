"""What a recipe can say about text."""

from __future__ import annotations

import subprocess
import sys

import pytest
from pydantic import TypeAdapter, ValidationError

from saucier.text.config import BPE, Data, PairData, Tail, TextData, TokenizerConfig


def test_kinds_choose_the_type() -> None:
    data = TypeAdapter(Data).validate_python({"kind": "text", "held_out": {"kind": "tail", "fraction": 0.2}})
    assert data == TextData(held_out=Tail(fraction=0.2))
    assert TypeAdapter(TokenizerConfig).validate_python({"kind": "bpe", "vocab": 300}) == BPE(vocab=300)


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": "text", "source": "en"},
        {"kind": "pairs", "column": "text"},
        {"kind": "text", "held_out": {"kind": "tail", "files": ["x"]}},
        {"kind": "text", "held_out": {"fraction": 1.5, "kind": "tail"}},
        {"kind": "nothing"},
    ],
)
def test_what_excludes_itself_cannot_be_said(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(Data).validate_python(wrong)


def test_bytes_have_no_vocabulary_to_choose() -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(TokenizerConfig).validate_python({"kind": "bytes", "vocab": 300})


@pytest.mark.slow
def test_text_needs_no_torch() -> None:
    modules = ["rows.batch", "rows.store", "reading.corpus", "tokenizer", "tokenizer.training"]
    script = "import sys, " + ", ".join(f"saucier.text.{name}" for name in modules) + "; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, check=True).stdout.strip() == b"False"


def test_configs_go_through_json_unchanged() -> None:
    data = PairData(files=("a.tsv",), source="en", target="de", limit=5)
    assert TypeAdapter(Data).validate_json(data.model_dump_json()) == data
