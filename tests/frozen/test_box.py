"""The box of old artifacts: all that an earlier version wrote opens, and what it had begun ends as it would have.

`box/README.md` says what is in it. All of it is opened in one process under the settings of `tools.same_bits`, in a
copy. Where the box was written by the same build of PyTorch for the same kind of machine, the last bits are compared;
elsewhere values, within `LOOSE`, and a warning says so.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file
from tools.same_bits import settings, stamp

BOX = Path(__file__).parent / "box"
EXPECTED = json.loads((BOX / "expected.json").read_text(encoding="utf-8"))
LOOSE = 1e-3
"""How far values may be apart where bits cannot be equal: of numbers, and of all of an artifact's weights or outputs
together (their distance over their size). Runs end a few steps after they go on, so little has grown by then."""
CLOSE = 1e-6
"""How far figures may be apart that NumPy makes, whose functions have other last bits on other processors."""
SHOWN = 4
"""Lines that are told of one artifact."""
WRITTEN = ("samples", "metrics")
"""What is not compared where bits cannot be equal: a text that was drawn, token by token."""


def opened(folder: Path, **environment: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Open and end everything in a copy of the box, and return what came out."""
    shutil.copytree(BOX, folder / "box")
    program = [sys.executable, str(Path(__file__).with_name("finish.py")), str(folder / "box"), str(folder)]
    done = subprocess.run(program, env=settings() | environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads((folder / "found.json").read_text(encoding="utf-8")), load_file(folder / "found.safetensors")


def differences(where: str, found: Any, expected: Any, *, exact: bool) -> Iterator[str]:
    """Yield what is not as it was."""
    if isinstance(expected, dict) and isinstance(found, dict) and found.keys() >= expected.keys():  # more may be told
        for key in (key for key in expected if exact or key not in WRITTEN):
            yield from differences(f"{where}: {key}", found[key], expected[key], exact=exact)
    elif isinstance(expected, list) and isinstance(found, list) and len(found) == len(expected):
        for number, (one, other) in enumerate(zip(found, expected, strict=True)):
            yield from differences(f"{where}[{number}]", one, other, exact=exact)
    elif isinstance(expected, float) and isinstance(found, float):
        near = CLOSE if exact else LOOSE
        if found != pytest.approx(expected, rel=near, abs=near):
            yield f"{where} is {found!r} and was {expected!r}"
    elif found != expected:
        yield f"{where} is {str(found)[:200]!r} and was {str(expected)[:200]!r}"


def distances(name: str, found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> Iterator[str]:
    """Yield the artifact's tensors that are too far from what they were, all of a file together."""
    mine = {key: value for key, value in expected.items() if key.startswith(f"{name}/")}
    there = {key for key in found if key.startswith(f"{name}/")}
    if there != mine.keys():
        yield f"{name}: other tensors, {sorted(there ^ mine.keys())[:5]}"
    elif mine:
        apart = np.sqrt(sum(float(((found[key] - value) ** 2).sum()) for key, value in mine.items()))
        size = np.sqrt(sum(float((value ** 2).sum()) for value in mine.values()))
        if not apart <= LOOSE * size:
            yield f"{name}: its tensors are {apart / size:.1e} of their size from what they were"


def faults(found: dict[str, Any], tensors: dict[str, np.ndarray], *, exact: bool) -> Iterator[str]:
    """Yield what the artifacts do not do any more, a few lines for each."""
    expected = load_file(BOX / "expected.safetensors")
    for name, wanted in EXPECTED["artifacts"].items():
        there = found.get(name, {"facts": {"error": "is not opened"}, "digests": {}})
        if "error" in there["facts"]:
            yield f"{name}: {there['facts']['error']}"
            continue
        wrong = [*distances(name, tensors, expected),
                 *differences(name, there["facts"], wanted["facts"], exact=exact)]
        if exact:
            wrong += differences(f"{name}: the last bits", there["digests"], wanted["digests"], exact=True)
            other = [key for key in expected if key.startswith(f"{name}/")
                     and not np.array_equal(expected[key], tensors.get(key))]
            wrong += [f"{name}: {len(other)} tensors have other bits, such as {other[0]}"] if other else []
        yield from wrong[:SHOWN]
        yield from [f"{name}: and {len(wrong) - SHOWN} more"] if len(wrong) > SHOWN else []


@pytest.mark.slow
def test_everything_opens_and_ends_as_it_did(tmp_path: Path) -> None:
    found, tensors = opened(tmp_path)
    exact = stamp() == EXPECTED["stamp"]
    if not exact:
        warnings.warn(f"the box was written with {EXPECTED['stamp']}, and this is {stamp()}: values are compared "
                      f"within {LOOSE}, and no bits", stacklevel=1)
    wrong = list(faults(found, tensors, exact=exact))
    assert not wrong, "\n" + "\n".join(wrong)


def test_the_box_is_small_and_names_no_machine() -> None:
    files = [path for path in BOX.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= 5_000_000
    places = re.compile(rb'["\' ]/(tmp|root|home|work|Users|var|mnt)/')
    assert not [str(path) for path in files if places.search(path.read_bytes())]


def test_nothing_in_the_box_is_forgotten() -> None:
    kinds = {name.split("/")[0] for name in EXPECTED["artifacts"]}
    there = {f"{kind}/{path.name}" for kind in kinds for path in (BOX / kind).iterdir() if path.suffix != ".yaml"}
    assert there == EXPECTED["artifacts"].keys()
