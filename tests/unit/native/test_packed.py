"""Matrices kept in the cache folder: read as they were written, or not at all."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import saucier
from saucier.families import FAMILIES
from saucier.files import cache_folder
from saucier.native import packed
from saucier.native.library import load_library
from saucier.native.matrices import Matrix, Panels, lay_out_panels, store_matrix


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(packed, "cache_folder", lambda name: tmp_path)
    return tmp_path


def make() -> dict[str, Matrix | Panels]:
    weights = np.random.default_rng(0).normal(size=(37, 70)).astype(np.float32)
    found: dict[str, Matrix | Panels] = {form: store_matrix(weights, form) for form in ("bfloat16", "int8", "int4")}
    return found | {f"{form} panels": lay_out_panels(store_matrix(weights, form)) for form in ("int8", "int4")}


def test_what_is_read_is_what_was_written(folder: Path) -> None:
    made, path = make(), folder / f"one{packed.SUFFIX}"
    assert packed.write_packed(path, made) == path.stat().st_size
    found = packed.read_packed(path)
    assert list(found) == list(made)
    for name, one in made.items():
        other = found[name]
        assert type(other) is type(one) and (other.format, other.group) == (one.format, one.group)
        assert np.array_equal(other.codes, one.codes) and other.codes.dtype == one.codes.dtype
        assert (other.scales is None) == (one.scales is None)
        assert one.scales is None or np.array_equal(other.scales, one.scales)
        assert not other.codes.flags.writeable and other.codes.ctypes.data % packed.ALIGNED == 0


@pytest.mark.parametrize("size", [0, 5, 300, -1])
def test_a_damaged_file_is_as_if_it_were_not_there(folder: Path, size: int) -> None:
    path = folder / f"one{packed.SUFFIX}"
    packed.write_packed(path, make())
    path.write_bytes(path.read_bytes()[:size - 100 if size < 0 else size])
    assert packed.read_packed(path) == {}
    assert packed.read_packed(folder / "none") == {}


def test_content_is_read_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    weights = folder / "model.safetensors"
    weights.write_bytes(b"one")

    def state() -> list[tuple[str, int, int]]:
        return [(str(weights), weights.stat().st_size, weights.stat().st_mtime_ns)]

    first = packed.digest_files(state())
    copied = folder / "copy.safetensors"
    copied.write_bytes(b"one")
    assert packed.digest_files([(str(copied), 3, copied.stat().st_mtime_ns)]) == first, "content counts, not its place"
    with monkeypatch.context() as patch:
        patch.setattr(hashlib, "file_digest", lambda *_: pytest.fail("read again"))
        assert packed.digest_files(state()) == first
    weights.write_bytes(b"two")
    os.utime(weights, ns=(1, 1))
    assert packed.digest_files(state()) != first
    copied.unlink()
    weights.write_bytes(b"three")
    packed.digest_files(state())
    assert list(json.loads((folder / packed.INDEX).read_text())) == [str(weights)], "what is gone is forgotten"


def test_the_folder_is_bounded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        packed.write_packed(folder / f"{number}{packed.SUFFIX}", make())
        os.utime(folder / f"{number}{packed.SUFFIX}", ns=(number, number))
    packed.read_packed(folder / f"0{packed.SUFFIX}")  # used now
    monkeypatch.setattr(packed, "LARGEST", 3 * (folder / f"0{packed.SUFFIX}").stat().st_size)
    packed.write_packed(folder / f"3{packed.SUFFIX}", make())
    assert sorted(path.stem for path in folder.glob(f"*{packed.SUFFIX}")) == ["0", "2", "3"]


@pytest.mark.slow
def test_two_processes_that_write_at_once_leave_one_whole_file(tmp_path: Path) -> None:
    model, out = tmp_path / "model", tmp_path / "cache"
    saucier.build(FAMILIES["gpt2"](dim=64, layers=2, heads=4, vocab=500), seed=0).save(model)
    load_library()
    shutil.copytree(cache_folder("native"), out / "native")  # compiled kernels
    code = ("import sys, torch, saucier; model = saucier.load(sys.argv[1], format='int8'); "
            "print(saucier.generate(model, torch.tensor([[5, 6, 7]]), max_new_tokens=6).tolist())")
    started = [subprocess.Popen([sys.executable, "-c", code, str(model)], stdout=subprocess.PIPE, text=True,
                                env=os.environ | {"SAUCIER_CACHE": str(out)}) for _ in range(2)]
    said = [one.communicate()[0] for one in started]
    assert said[0] == said[1] and [one.returncode for one in started] == [0, 0]
    files = [one for one in (out / "matrices").iterdir() if one.suffix == packed.SUFFIX]
    assert len(files) == 1 and packed.read_packed(files[0])
    assert not [one for one in (out / "matrices").iterdir() if "tmp" in one.name]
