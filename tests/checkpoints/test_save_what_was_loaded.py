"""`load(p).save(q)`: the numbers as they were stored, the tokenizer beside them, and no file of another lost."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import saucier
from saucier import config as c
from saucier import devices
from saucier.adaptation import tuning as a
from saucier.adaptation.rewrite import rewrite
from saucier.adaptation.surgery.operate import operate
from saucier.adaptation.surgery.operations import Positions
from saucier.families import bert, gpt2
from saucier.folders.load import open_adapter
from saucier.folders.save import save_adapter
from saucier.jobs.merge import merge_adapter
from saucier.text.config import BPE
from saucier.text.tokenizer.training import train_tokenizer

LINES = [f"the {one} and the {two} go to the {three}" for one in ("cat", "dog", "fox", "hen") for two in
         ("mouse", "house", "horse") for three in ("market", "river", "hill")]


@pytest.fixture(autouse=True)
def fast_bfloat16(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every processor here multiplies bfloat16 fastest."""
    monkeypatch.setattr(devices, "multiplies_bfloat16", lambda device: True)


def tokenizer(folder: Path) -> None:
    """Put a small tokenizer into a folder."""
    train_tokenizer(BPE(vocab=60), LINES).save(folder)


def published(folder: Path, **more: object) -> Path:
    saucier.build(gpt2(dim=32, layers=1, heads=2, vocab=80, length=16), seed=3, **more).save(folder)  # type: ignore[arg-type]
    return folder


def same_bits(one: Path, other: Path) -> bool:
    first, second = (load_file(folder / "model.safetensors") for folder in (one, other))
    return first.keys() == second.keys() and all(
        first[name].dtype == second[name].dtype and torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64], ids=str)
def test_what_is_loaded_and_saved_is_the_same_bits(dtype: torch.dtype, tmp_path: Path) -> None:
    published(tmp_path / "a", dtype=dtype)
    model = saucier.load(tmp_path / "a", device="cpu")
    assert next(model.parameters()).dtype == dtype
    model.save(tmp_path / "b")
    assert same_bits(tmp_path / "a", tmp_path / "b")


def test_a_folder_of_several_formats_is_read_in_the_widest(tmp_path: Path) -> None:
    published(tmp_path / "a", dtype=torch.bfloat16)
    path = tmp_path / "a" / "model.safetensors"
    tensors = load_file(path)
    last = sorted(tensors)[-1]
    tensors[last] = tensors[last].float() + 2 ** -20
    save_file(tensors, path)
    model = saucier.load(tmp_path / "a", device="cpu")
    assert next(model.parameters()).dtype == torch.float32
    model.save(tmp_path / "b")
    again = load_file(tmp_path / "b" / "model.safetensors")
    assert all(torch.equal(again[name].float(), tensors[name].float()) for name in tensors)


def test_the_fastest_format_is_there_for_who_asks(tmp_path: Path) -> None:
    published(tmp_path / "a")
    assert next(saucier.load(tmp_path / "a", dtype="fastest", device="cpu").parameters()).dtype == torch.bfloat16
    assert next(saucier.load(tmp_path / "a", dtype="stored", device="cpu").parameters()).dtype == torch.float32
    with pytest.raises(saucier.InputError, match="unknown dtype 'fastets'; did you mean 'fastest'"):
        saucier.load(tmp_path / "a", dtype="fastets")


def test_an_adapter_merged_by_loading_is_as_exact_as_saucier_merge(tmp_path: Path) -> None:
    model = saucier.load(published(tmp_path / "base"), device="cpu")
    rewrite(model, by=a.Lora(rank=2), where=("qkv",))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(torch.linspace(-0.1, 0.1, parameter.numel()).view_as(parameter))
    save_adapter(model, tmp_path / "adapter")
    saucier.load(tmp_path / "adapter", device="cpu").save(tmp_path / "loaded")
    merge_adapter(tmp_path / "adapter", tmp_path / "merged")
    one, other = (load_file(tmp_path / name / "model.safetensors") for name in ("loaded", "merged"))
    assert {value.dtype for value in one.values()} == {torch.float32}
    for name, value in other.items():
        torch.testing.assert_close(one[name], value, atol=1e-7, rtol=1e-6)
    assert next(open_adapter(tmp_path / "adapter", device="cpu").parameters()).dtype == torch.float32


def test_the_tokenizer_comes_along(tmp_path: Path) -> None:
    folder = published(tmp_path / "a")
    tokenizer(folder)
    saucier.load(folder, device="cpu").save(tmp_path / "b")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        assert (tmp_path / "b" / name).read_bytes() == (folder / name).read_bytes()
    model = saucier.load(tmp_path / "b", device="cpu")
    model.save(tmp_path / "b")  # onto itself: nothing is lost
    assert saucier.load_tokenizer(tmp_path / "b").encode("the cat") == saucier.load_tokenizer(folder).encode("the cat")


def test_a_saved_sentence_folder_embeds(tmp_path: Path) -> None:
    tree = bert(dim=32, layers=1, heads=2, vocab=80, length=16)
    tree = tree.model_copy(update={"head": c.EmbeddingHead(pooling=(c.Pooling(kind="mean"),), normalize=True,
                                                           length=12),
                                   "pooler": None})
    saucier.build(tree, seed=1).save(tmp_path / "a")
    tokenizer(tmp_path / "a")
    saucier.load(tmp_path / "a", device="cpu").save(tmp_path / "b")
    texts = ["the cat", "the dog and the hen go"]
    assert torch.equal(saucier.embed(tmp_path / "a", texts), saucier.embed(tmp_path / "b", texts))


def test_a_tokenizer_of_another_is_not_replaced(tmp_path: Path) -> None:
    folder = published(tmp_path / "a")
    tokenizer(folder)
    other = published(tmp_path / "b")
    (other / "tokenizer.json").write_text("{}", encoding="utf-8")
    with pytest.raises(saucier.InputError, match=r"b: the folder holds something else \(tokenizer.json\); "
                       "give a new folder"):
        saucier.load(folder, device="cpu").save(other)
    assert (other / "tokenizer.json").read_text(encoding="utf-8") == "{}"


def test_a_model_of_another_shape_leaves_the_tokenizer_to_convert(tmp_path: Path) -> None:
    """Its tokenizer would say the old length."""
    folder = published(tmp_path / "a")
    tokenizer(folder)
    longer, _ = operate(saucier.load(folder, device="cpu"), by=(Positions(length=32),))
    longer.save(tmp_path / "b")
    assert sorted(path.name for path in (tmp_path / "b").iterdir()) == ["config.json", "model.safetensors"]
    assert json.loads((tmp_path / "b" / "config.json").read_text(encoding="utf-8"))["n_positions"] == 32
