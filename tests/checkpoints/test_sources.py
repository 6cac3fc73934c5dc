"""Where weights come from: pytorch_model.bin without running anything, shards, old names, and the hub."""

from __future__ import annotations

import json
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import saucier
from saucier.checkpoints.hub import is_hub_id
from saucier.errors import InputError


@pytest.fixture
def bert(shared: Path, tmp_path: Path) -> Path:
    """Return a copy of the golden BERT."""
    shutil.copytree(shared / "golden/bert-masked-lm", tmp_path / "bert", copy_function=shutil.copyfile)
    return tmp_path / "bert"


def first_bytes(folder: Path) -> torch.Tensor:
    model = saucier.load(folder, dtype="float32", device="cpu")
    out: torch.Tensor = model(input_ids=torch.tensor([[5, 6, 7]])).logits
    return out


def as_pickled(folder: Path, save: Callable[[dict[str, Any], Path], None]) -> None:
    """Replace a folder's safetensors by a pytorch_model.bin."""
    save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()


def test_pytorch_files_give_the_same_model(bert: Path) -> None:
    expected = first_bytes(bert)
    as_pickled(bert, torch.save)
    assert torch.equal(first_bytes(bert), expected)
    torch.save(torch.load(bert / "pytorch_model.bin"), bert / "pytorch_model.bin", _use_new_zipfile_serialization=False)
    assert torch.equal(first_bytes(bert), expected)


class Harmful:
    """Runs a command where a careless reader opens it."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Give the command."""
        return os.system, ("touch harmed",)


@pytest.mark.parametrize("archive", [True, False])
def test_a_pickle_that_runs_something_is_refused(bert: Path, archive: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(bert)
    as_pickled(bert, lambda tensors, path: torch.save({**tensors, "x": Harmful()}, path,
                                                      _use_new_zipfile_serialization=archive))
    with pytest.raises(InputError, match=r"pytorch_model\.bin: holds something else than tensors") as caught:
        saucier.load(bert)
    assert not (bert / "harmed").exists() and "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"not a pickle", pickle.dumps([1, 2], 2), pickle.dumps({"a": 1}, 2),
                                     b"PK\x03\x04junk"])
def test_other_files_by_that_name_are_refused(bert: Path, content: bytes) -> None:
    (bert / "model.safetensors").unlink()
    (bert / "pytorch_model.bin").write_bytes(content)
    with pytest.raises(InputError, match=r"pytorch_model\.bin"):
        saucier.load(bert)


def test_names_of_the_first_checkpoints(bert: Path) -> None:
    expected, tensors = first_bytes(bert), load_file(bert / "model.safetensors")
    old = {name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): value
           for name, value in tensors.items()}
    assert set(old) != set(tensors)
    save_file(old, bert / "model.safetensors")
    assert torch.equal(first_bytes(bert), expected)


def sharded(folder: Path) -> dict[str, str]:
    """Split a folder's weights into two shards and return the index."""
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    parts = [dict(list(tensors.items())[:5]), dict(list(tensors.items())[5:])]
    index = {}
    for number, part in enumerate(parts):
        name = f"model-0000{number + 1}-of-00002.safetensors"
        save_file(part, folder / name)
        index |= dict.fromkeys(part, name)
    write_index(folder, index)
    return index


def write_index(folder: Path, index: Any) -> None:
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))


def test_shards(bert: Path) -> None:
    expected = first_bytes(bert)
    index = sharded(bert)
    assert torch.equal(first_bytes(bert), expected)
    first = next(iter(index))
    for changed, message in (({**index, first: "../bert/model.safetensors"}, "is outside the folder"),
                             ({**index, first: "/etc/passwd"}, "is outside the folder"),
                             ({**index, first: "config.json"}, r"or no \.safetensors"),
                             ({**index, first: "model-9.safetensors"}, r"model-9\.safetensors: no such file"),
                             ({}, "weight_map is missing"), ([], "weight_map is missing"), ({"a": 1}, "weight_map")):
        write_index(bert, changed)
        with pytest.raises(InputError, match=message):
            saucier.load(bert)


def test_a_tensor_that_stands_in_two_shards(bert: Path) -> None:
    index = sharded(bert)
    first = load_file(bert / "model-00001-of-00002.safetensors")
    second = load_file(bert / "model-00002-of-00002.safetensors")
    save_file(second | dict([next(iter(first.items()))]), bert / "model-00002-of-00002.safetensors")
    with pytest.raises(InputError, match=r"stands there, and in model-00001-of-00002\.safetensors too"):
        saucier.load(bert)
    assert index


def test_quantized_weights_are_refused(bert: Path) -> None:
    tensors = load_file(bert / "model.safetensors")
    name = next(name for name in tensors if name.endswith("query.weight"))
    save_file({**tensors, name: tensors[name].to(torch.int8)}, bert / "model.safetensors")
    with pytest.raises(InputError, match=r"is int8; config\.json has no quantization_config"):
        saucier.load(bert)


def test_a_config_far_larger_than_the_files_allocates_nothing(bert: Path) -> None:
    config = json.loads((bert / "config.json").read_text())
    (bert / "config.json").write_text(json.dumps(config | {"vocab_size": 10**9}))
    with pytest.raises(InputError, match=r"the config describes [\d,]+ parameters, and the files hold [\d,]+ bytes"):
        saucier.load(bert)


class Hub:
    """Stands in for huggingface_hub.snapshot_download."""

    def __init__(self, folder: Path) -> None:
        """`folder`: what every repository holds."""
        self.folder, self.calls = folder, list[tuple[str, list[str]]]()

    def __call__(self, repository: str, *, allow_patterns: list[str], ignore_patterns: list[str]) -> str:
        """Give the folder."""
        self.calls.append((repository, allow_patterns))
        if repository.endswith("unknown"):
            raise ConnectionError("the hub cannot be reached\nand more")
        return str(self.folder)


def test_hub_ids(bert: Path, monkeypatch: pytest.MonkeyPatch, shared: Path) -> None:
    hub = Hub(bert)
    monkeypatch.setattr("huggingface_hub.snapshot_download", hub)
    assert torch.equal(first_bytes(Path("owner/model")), first_bytes(bert))
    assert [call[0] for call in hub.calls] == ["owner/model"] and "*.json" in hub.calls[0][1]
    assert not any(pattern.endswith(".bin") for pattern in hub.calls[0][1])
    as_pickled(bert, torch.save)
    saucier.load("owner/model", device="cpu")
    assert any(pattern.endswith(".bin") for pattern in hub.calls[-1][1])
    with pytest.raises(InputError, match=r"owner/unknown: cannot be fetched: the hub cannot be reached; check"):
        saucier.load("owner/unknown")
    hub.folder, before = shared / "golden/tokenizer-wordpiece", len(hub.calls)
    assert saucier.load_tokenizer("owner/model").vocab_size == 600
    assert not any("safetensors" in pattern for pattern in hub.calls[before][1])


@pytest.mark.parametrize("path", ["nowhere", "./owner/model", "../owner/model", "a/b/c", "/owner/model",
                                  "tests/nowhere", "owner/", "/etc", "owner/mo del", "~/model"])
def test_paths_of_this_machine_never_reach_the_hub(path: str, monkeypatch: pytest.MonkeyPatch, root: Path) -> None:
    monkeypatch.chdir(root)
    monkeypatch.setattr("huggingface_hub.snapshot_download", lambda *_, **__: pytest.fail("fetched"))
    assert not is_hub_id(path)
    for opened in (saucier.load, saucier.load_tokenizer):
        with pytest.raises(InputError):
            opened(path)
