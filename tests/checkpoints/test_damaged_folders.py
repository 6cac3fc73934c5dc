"""Damaged folders: bytes flipped, files cut or swapped, values replaced. One `InputError`, or a model; no hang."""

from __future__ import annotations

import copy
import json
import random
import shutil
import signal
import struct
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import saucier
from saucier.families.layouts import LAYOUTS

GOLDEN = Path(__file__).parents[2].parent / "shared" / "golden"
HOSTILE: tuple[Any, ...] = (
    -1, 0, 1, 2**31, 2**63, 10**12, 10**400, -(10**9), 0.5, 1e308, "768", "", "x" * 1000, None, True, False, [], [1, 2],
    {}, {"a": 1}, [[["global"], 10**9]], "NaN", "../../etc/passwd", {"0": {"1": {"2": []}}}, "float32", "gelu", [None],
)
SECONDS = 30


@contextmanager
def deadline() -> Iterator[None]:
    """Fail where something takes too long."""

    def late(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"more than {SECONDS} seconds")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def weights_of(folder: Path) -> list[Path]:
    return sorted([*folder.glob("model*.safetensors"), *folder.glob("pytorch_model*.bin")])


def flip(folder: Path, drawn: random.Random) -> None:
    """Change some bytes, mostly in the header."""
    path = drawn.choice(weights_of(folder))
    content = bytearray(path.read_bytes())
    for _ in range(drawn.randrange(1, 6)):
        content[drawn.randrange(min(len(content), drawn.choice([8, 64, 2000, len(content)])))] = drawn.randrange(256)
    path.write_bytes(content)


def cut(folder: Path, drawn: random.Random) -> None:
    """Cut a file off."""
    path = drawn.choice([*weights_of(folder), folder / "config.json"])
    path.write_bytes(path.read_bytes()[: drawn.randrange(path.stat().st_size)])


def grow(folder: Path, drawn: random.Random) -> None:
    """Append bytes, or claim a header of another size."""
    path = drawn.choice(weights_of(folder))
    content = path.read_bytes()
    size = drawn.choice([0, 1, 2**20, 2**40, 2**63, 2**64 - 1])
    path.write_bytes(drawn.choice([content + bytes(drawn.randrange(1, 99)), struct.pack("<Q", size) + content[8:]]))


def header(folder: Path, drawn: random.Random) -> None:
    """Change what the header of a safetensors file says of a tensor."""
    path = drawn.choice(weights_of(folder))
    if path.suffix != ".safetensors":
        return flip(folder, drawn)
    content = path.read_bytes()
    length = struct.unpack("<Q", content[:8])[0]
    head = json.loads(content[8:8 + length])
    name = drawn.choice([key for key in head if key != "__metadata__"])
    match drawn.randrange(7):
        case 0:
            del head[name]
        case 1:
            head[name]["shape"] = drawn.choice([[], [0], [2**40, 2**40], [-1], [1.5], "x", head[name]["shape"][::-1]])
        case 2:
            head[name]["dtype"] = drawn.choice(["I8", "F64", "BF16", "F8_E4M3", "BOOL", "X", 7])
        case 3:
            head[name]["data_offsets"] = drawn.choice([[0, 0], [0, 2**62], [-4, 4], [8, 4], [0], "x"])
        case 4:
            head[drawn.choice(["", "x" * 10000, name + ".weight", "\u0000", "😀"])] = head.pop(name)
        case 5:
            head[f"extra.{name}"] = dict(head[name])
        case 6:
            head["__metadata__"] = drawn.choice([{"a": 1}, [], {"a": "b" * 10**6}])
    written = json.dumps(head).encode()
    path.write_bytes(struct.pack("<Q", len(written)) + written + content[8 + length:])
    return None


def config_value(folder: Path, drawn: random.Random) -> None:
    """Replace, drop or add a value of config.json."""
    path = folder / drawn.choice(["config.json"] * 4 + ["generation_config.json", "model.safetensors.index.json"])
    path = path if path.is_file() else folder / "config.json"
    document = json.loads(path.read_text())
    for _ in range(drawn.randrange(1, 4)):
        key = drawn.choice([*document])
        match drawn.randrange(6):
            case 0:
                document.pop(key)
                if not document:
                    return
            case 1:
                document[f"new_{key}"] = 1
            case 2 if isinstance(document[key], int):
                document[key] = document[key] * drawn.choice([-1, 0, 2, 3, 10**6])
            case 3 if isinstance(document[key], dict) and document[key]:
                document[key][drawn.choice([*document[key]])] = drawn.choice(HOSTILE)
            case _:
                document[key] = copy.deepcopy(drawn.choice(HOSTILE))
    path.write_text(json.dumps(document))


def config_text(folder: Path, drawn: random.Random) -> None:
    """Make config.json something else."""
    text = (folder / "config.json").read_text()
    (folder / "config.json").write_text(drawn.choice([
        "", "[]", "null", "{", "[" * 100_000, '{"a":' * 50_000, text.replace(":", "", 1), text.replace('"', "'"),
        "{}", '{"model_type": "saucier"}', '{"model_type": ["bert"]}', '{"model_type": "bert"}', text.upper(),
        text[:-3] + ', "x": NaN}', text[:-3] + ', "hidden_size": Infinity}',
        text[:-3] + ', "vocab_size": ' + "9" * 6000 + "}",
        '{"model_type": "saucier", "format": 1, "model": {"dim": 1}}', "\ufeff" + text, text + text,
    ]))


def swap(folder: Path, drawn: random.Random) -> None:
    """Take a file of another folder, or put two files in each other's place."""
    other = drawn.choice([one for one in FOLDERS if one not in folder.name])
    source = GOLDEN / other
    match drawn.randrange(4):
        case 0:
            shutil.copyfile(source / "config.json", folder / "config.json")
        case 1:
            shutil.copyfile(weights_of(source)[0], weights_of(folder)[0])
        case 2:
            weights_of(folder)[0].unlink()
        case 3:
            content = (folder / "config.json").read_bytes()
            shutil.copyfile(weights_of(folder)[-1], folder / "config.json")
            weights_of(folder)[0].write_bytes(content)


def index(folder: Path, drawn: random.Random) -> None:
    """Write an index of shards that is wrong."""
    found = weights_of(folder)[0]
    names = drawn.choice([{}, [], None, {"a": found.name}, {"a": "../x.safetensors"}, {"a": 1}, {"a": "/dev/zero"},
                          {"a": "config.json"}, {str(number): f"{number}.safetensors" for number in range(20_000)},
                          {"a": "\x00.safetensors"}, {"a": "x" * 5000 + ".safetensors"}])
    found.rename(folder / "part.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps(drawn.choice([
        {"weight_map": names}, {"weight_map": {"a": "part.safetensors"}}, names])))


FOLDERS = tuple(sorted(path.parent.name for path in GOLDEN.glob("*/config.json")
                       if json.loads(path.read_text()).get("model_type") in LAYOUTS and weights_of(path.parent)))
"""Every golden folder of a family that can be read."""
DAMAGES: tuple[Callable[[Path, random.Random], None], ...] = (
    flip, cut, grow, header, config_value, config_value, config_value, config_text, swap, index)


def damage_and_load(seeds: range, place: Path) -> tuple[int, int]:
    """Damage folders, one for each seed; return how many were refused, and how many loaded all the same."""
    refused = loaded = 0
    for seed in seeds:
        drawn = random.Random(seed)
        folder = place / "model"
        shutil.copytree(GOLDEN / drawn.choice(FOLDERS), folder, copy_function=shutil.copyfile,
                        ignore=shutil.ignore_patterns("golden*"))
        drawn.choice(DAMAGES)(folder, drawn)
        try:
            with deadline(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                saucier.load(folder, dtype="float32", device="cpu")
            loaded += 1
        except saucier.InputError as error:
            if "\n" in str(error) or len(str(error)) > 2000:
                raise AssertionError(f"seed {seed}: {str(error)[:3000]}") from error
            refused += 1
        except BaseException as error:
            raise AssertionError(f"seed {seed}: {type(error).__name__}: {error}") from error
        shutil.rmtree(folder)
    return refused, loaded


pytestmark = pytest.mark.skipif(not GOLDEN.is_dir(), reason="the golden checkpoints are not beside this checkout")


def test_two_hundred(tmp_path: Path) -> None:
    refused, loaded = damage_and_load(range(200), tmp_path)
    assert len(FOLDERS) > 20 and refused > 120 and loaded > 10  # flipped bytes inside the data only change numbers


@pytest.mark.slow
def test_two_thousand(tmp_path: Path) -> None:
    refused, _ = damage_and_load(range(200, 2200), tmp_path)
    assert refused > 1200
