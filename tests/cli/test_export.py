"""`saucier export`, and GGUF files in the place of model folders."""

from __future__ import annotations

import json
import re
import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from tests.cli.conftest import Saucier
from tests.unit.text.test_gguf_tokenizers import byte_bpe, wordpiece

import saucier as library
from saucier.checkpoints.gguf_layouts import FAMILIES as IN_GGUF
from saucier.families import FAMILIES
from saucier.jobs.export.ctranslate2_folder import FAMILIES as IN_CTRANSLATE2
from saucier.jobs.export.graph import FAMILIES as IN_ONNX

TEXT = "The soup was hot, and she said that it was.\n\nDon't wait: 12 minutes are enough.\n"


@pytest.fixture
def gpt2(tmp_path: Path) -> Path:
    """Return a small GPT-2 with its tokenizer."""
    tokenizer, folder = byte_bpe(), tmp_path / "gpt2"
    model = library.build(FAMILIES["gpt2"](32, 2, heads=2, vocab=tokenizer.vocab_size, length=64))
    for parameter in model.parameters():
        parameter.data.mul_(4)  # so that likeliest tokens are not near each other
    model.generation = {"eos_token_id": 0, "bos_token_id": 0}
    model.save(folder)
    tokenizer.save(folder)
    return folder


@pytest.fixture
def bert(tmp_path: Path) -> Path:
    """Return a small BERT with both heads and its tokenizer."""
    tokenizer, folder = wordpiece(), tmp_path / "bert"
    library.build(FAMILIES["bert"](32, 2, heads=2, vocab=tokenizer.vocab_size, length=64)).save(folder)
    tokenizer.save(folder)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("form", ["float32", "q8_0"])
def test_gguf(form: str, saucier: Saucier, gpt2: Path, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(TEXT)
    answer = saucier("export", gpt2, "--to", "gguf", "--format", form, "--out", tmp_path / "m.gguf", "--text",
                     tmp_path / "text.txt", "--json")
    assert answer.code == 0, answer.err
    said = json.loads(answer.out)
    proof = said["proof"]
    assert said["formats"] == ({"F32": 28} if form == "float32" else {"Q8_0": 9, "F32": 19})
    assert proof["texts"] == proof["same_ids"] == 2 and proof["tokens"] > 20
    if form == "float32":
        assert proof["flips"] == 0 and proof["divergence"] < 1e-5 and proof["same_greedy"] == proof["greedy"] > 10
    else:
        assert 0 < proof["divergence"] < 1e-2
    assert json.loads((tmp_path / "m.gguf.proof.json").read_text()) == said
    assert ("pip install llama-cpp-python" in str(said["unproved"])) == (find_spec("llama_cpp") is None)


@pytest.mark.slow
def test_a_file_in_the_place_of_a_folder(saucier: Saucier, gpt2: Path, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    assert saucier("export", gpt2, "--to", "gguf", "--out", path).code == 0
    assert "GPT2LMHeadModel" in saucier("show", path).out
    words = ("the soup", "--tokens", "8", "--temperature", "0")
    written = saucier("generate", gpt2, *words)
    assert written.code == 0 and saucier("generate", path, *words).out == written.out
    done = saucier("convert", path, tmp_path / "back", "--json")
    assert done.code == 0 and json.loads(done.out)["layout"] == "gpt2"
    ids = torch.tensor([[5, 9, 3]])
    first, second = (library.load(place, dtype="float32", device="cpu")(ids).logits for place in (gpt2,
                                                                                                 tmp_path / "back"))
    assert torch.equal(first, second)
    library.load(path).save(tmp_path / "saved")
    assert library.load_tokenizer(tmp_path / "saved").encode(TEXT) == library.load_tokenizer(gpt2).encode(TEXT)
    assert saucier("export", path, "--to", "gguf", "--out", tmp_path / "again.gguf").code == 0
    assert (tmp_path / "again.gguf").stat().st_size == path.stat().st_size


@pytest.mark.slow
def test_ctranslate2(saucier: Saucier, gpt2: Path, bert: Path, tmp_path: Path) -> None:
    for package in ("ctranslate2", "transformers"):
        pytest.importorskip(package)
    answer = saucier("export", gpt2, "--to", "ctranslate2", "--out", tmp_path / "ct", "--json")
    assert answer.code == 0, answer.err
    proof = json.loads(answer.out)["proof"]
    assert proof["engine"].startswith("CTranslate2") and proof["flips"] == 0 and proof["difference"] < 1e-3
    assert proof["same_greedy"] == proof["greedy"] > 20 and (tmp_path / "ct/proof.json").is_file()
    refused = saucier("export", bert, "--to", "ctranslate2", "--out", tmp_path / "bert-ct")
    assert refused.code == 2 and "--head none" in refused.error
    vectors = saucier("export", bert, "--to", "ctranslate2", "--head", "none", "--out", tmp_path / "bert-ct", "--json")
    assert vectors.code == 0 and json.loads(vectors.out)["proof"]["difference"] < 1e-4


@pytest.mark.nightly
def test_onnx(saucier: Saucier, gpt2: Path, bert: Path, tmp_path: Path) -> None:
    for package in ("onnx", "onnxscript", "onnxruntime"):
        pytest.importorskip(package)
    for folder in (gpt2, bert):
        out = tmp_path / f"{folder.name}-onnx"
        answer = saucier("export", folder, "--to", "onnx", "--head", "language", "--out", out, "--json")
        assert answer.code == 0, answer.err
        proof = json.loads(answer.out)["proof"]
        assert proof["flips"] == 0 and proof["difference"] < 1e-4
        assert json.loads((out / "inputs.json").read_text())["output"] == "logits"


@pytest.mark.slow
@pytest.mark.parametrize(("arguments", "message"), [
    (("--to", "gguff"), "gguf"), (("--to", "gguf", "--format", "q4_k"), "no number format 'q4_k'"),
    (("--to", "onnx", "--format", "int8"), "no number format 'int8'"),
    (("--to", "gguf", "--out", "taken"), "give a new file"),
    (("--to", "onnx", "--out", "taken"), "is there already"),
])
def test_faults(arguments: tuple[str, ...], message: str, saucier: Saucier, gpt2: Path, tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken/mine.txt").write_text("x")
    words = [str(tmp_path / word) if word == "taken" else word for word in arguments]
    out = () if "--out" in arguments else ("--out", tmp_path / "new")
    answer = saucier("export", gpt2, *words, *out)
    assert answer.code == 2 and message in answer.error and not (tmp_path / "new").exists()


def test_a_package_that_is_not_there(saucier: Saucier, gpt2: Path, tmp_path: Path,
                                     monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("graph", "ctranslate2_folder"):
        monkeypatch.setattr(f"saucier.jobs.export.{module}.find_spec", lambda name: None)
    for kind in ("onnx", "ctranslate2"):
        answer = saucier("export", gpt2, "--to", kind, "--out", tmp_path / "new")
        assert answer.code == 2 and "saucier[export]" in answer.error


@pytest.mark.slow
def test_without_a_tokenizer(saucier: Saucier, gpt2: Path, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    shutil.copytree(gpt2, bare)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (bare / name).unlink()
    answer = saucier("export", bare, "--to", "gguf", "--out", tmp_path / "m.gguf")
    assert answer.code == 0 and "no tokenizer in the source" in answer.out


def test_the_table_of_the_page(root: Path) -> None:
    def reads(name: str) -> str:
        if name not in IN_GGUF or IN_GGUF[name].is_of is not None:
            return "yes" if name in IN_GGUF else "–"
        return "as " + next(other for other, one in IN_GGUF.items()
                            if one.architecture == IN_GGUF[name].architecture and one.is_of is not None)

    names = sorted({*IN_GGUF, *IN_CTRANSLATE2, *IN_ONNX})
    expected = [[name, reads(name), *("yes" if name in one else "–" for one in (IN_GGUF, IN_CTRANSLATE2, IN_ONNX))]
                for name in names]
    rows = re.findall(r"^\| ([\w-]+) \| (\w.*|–) \| (yes|–) \| (yes|–) \| (yes|–) \|$",
                      (root / "docs/exchange.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert [list(row) for row in rows] == expected
