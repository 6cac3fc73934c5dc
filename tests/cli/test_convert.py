"""`saucier convert`, and the verbs that look at published folders."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tests.cli.conftest import Saucier

import saucier as library


@pytest.fixture
def bert(shared: Path, tmp_path: Path) -> Path:
    """Return a golden model with a tokenizer beside it."""
    shutil.copytree(shared / "golden/bert-masked-lm", tmp_path / "bert", copy_function=shutil.copyfile)
    for name in ("vocab.txt", "tokenizer_config.json"):
        shutil.copyfile(shared / "golden/tokenizer-wordpiece" / name, tmp_path / "bert" / name)
    return tmp_path / "bert"


def logits(folder: Path) -> torch.Tensor:
    out: torch.Tensor = library.load(folder, dtype="float32", device="cpu")(torch.tensor([[4, 5, 6]])).logits
    return out.detach()


def test_there_and_back(saucier: Saucier, bert: Path, tmp_path: Path) -> None:
    answer = saucier("convert", bert, tmp_path / "own", "--to", "own")
    assert answer.code == 0
    assert "float32" in answer.out and "our own layout" in answer.out and "vocab.txt" in answer.out
    assert json.loads((tmp_path / "own" / "config.json").read_text())["model_type"] == "saucier"
    done = json.loads(saucier("convert", tmp_path / "own", tmp_path / "back", "--json").out)
    assert (done["layout"], done["dtype"]) == ("bert", "float32")
    assert done["size"] == sum(path.stat().st_size for path in (tmp_path / "back").iterdir())
    assert torch.equal(logits(bert), logits(tmp_path / "back")) and torch.equal(logits(bert), logits(tmp_path / "own"))
    assert library.load_tokenizer(tmp_path / "back").encode("a") == library.load_tokenizer(bert).encode("a")


def test_another_number_format(saucier: Saucier, bert: Path, tmp_path: Path) -> None:
    answer = saucier("convert", bert, tmp_path / "half", "--dtype", "bfloat16")
    assert answer.code == 0 and "bfloat16" in answer.out and "BertForMaskedLM" in answer.out
    assert json.loads(saucier("convert", tmp_path / "half", tmp_path / "again", "--json").out)["dtype"] == "bfloat16"
    assert (tmp_path / "half/model.safetensors").stat().st_size < 0.6 * (bert / "model.safetensors").stat().st_size


@pytest.mark.parametrize(("arguments", "message"), [
    (("DST",), "is there already"), (("new", "--to", "gpt2"), "cannot be written as gpt2"),
    (("new", "--to", "publishd"), "did you mean 'published'"), (("new", "--dtype", "int3"), "unknown dtype"),
    (("new", "--head", "BertForMusic"), "no head 'BertForMusic'"),
])
def test_faults(saucier: Saucier, bert: Path, tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    (tmp_path / "DST").mkdir()
    (tmp_path / "DST" / "mine.txt").write_text("x")
    answer = saucier("convert", bert, tmp_path / arguments[0], *arguments[1:])
    assert answer.code == 2 and message in answer.error
    assert not (tmp_path / "new").exists()


@pytest.mark.slow
def test_showing_a_published_folder_needs_neither_weights_nor_torch(bert: Path, saucier: Saucier) -> None:
    (bert / "model.safetensors").unlink()
    shown = json.loads(saucier("show", bert, "--json").out)
    assert "BertForMaskedLM" in shown["name"]
    assert saucier("diff", bert, "bert").code == 0
    program = (f"import sys; from saucier.cli import main; assert main(['show', {str(bert)!r}]) == 0; "
               "assert 'torch' not in sys.modules")
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
    answer = saucier("plan", bert)
    assert answer.code == 2 and "saucier show" in answer.error
