"""Damaged files and bad values: a part of what `tools/fuzz.py` runs, and that the tool sees what it is there to see."""

from __future__ import annotations

import mmap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tools import fuzz
from tools.fuzzing import KINDS, cases, folders, kind_of

from saucier.errors import InputError

FEW = {"folders": 50, "state": 12, "adapters": 25, "tasks": 5, "recipes": 20, "calls": 100}
"""Cases of the ordinary suite; each kind takes a second or two."""


def verdicts(kind: str, numbers: range, place: Path) -> list[cases.Verdict]:
    job = fuzz.Job(kind, 0, place)
    return [job.one(kind_of(kind), number) for number in numbers]


def told(kind: str, found: list[cases.Verdict]) -> list[str]:
    return [f"{kind} seed 0 case {one.number}: {one.told}: {fault}" for one in found for fault in one.faults]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_few(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = verdicts(kind, range(FEW[kind]), tmp_path)
    assert told(kind, found) == []
    assert sum(one.refused for one in found) > FEW[kind] // 4 and any(one.sound for one in found)


@pytest.mark.nightly
@pytest.mark.parametrize("kind", KINDS)
def test_more(kind: str, tmp_path: Path) -> None:
    """In processes of their own, as the tool runs them."""
    found = list(fuzz.Job(kind, 0, tmp_path).all(range(FEW[kind], FEW[kind] + 500)))
    assert len(found) == 500 and told(kind, found) == []


def test_many_families_are_damaged() -> None:
    assert len(folders.made()) > 100
    if not folders.GOLDEN.is_dir():
        pytest.skip("the golden checkpoints are not beside this checkout")
    assert len(folders.golden()) > 100


def refuse(text: str) -> None:
    raise InputError(text, where="here", remedy="mend it")


def spin(seconds: float) -> None:
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def fill(size: int) -> None:
    """Take memory that no earlier test has left to the process."""
    with mmap.mmap(-1, size) as taken:
        taken.write(b"x" * size)


@pytest.mark.parametrize(("step", "says"), [
    (lambda: None, "sound"), (lambda: refuse("is wrong"), "refused"), (lambda: refuse("a\nb\x1b[31m"), "refused"),
    (lambda: {}["a"], "KeyError: 'a'"), (lambda: spin(9), "LateError"), (lambda: time.sleep(9), "LateError"),
    (lambda: fill(8 << 20), "memory: "), (lambda: int("x"), "ValueError"),
])
def test_verdicts(step: cases.Step, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cases, "SECONDS", 0.1)
    monkeypatch.setattr(cases, "CLOCK", 0.3)
    assert cases.judged(cases.Case("", (step,), size=10, room=4 << 20), step)[0].startswith(says)


def test_an_error_without_remedy_is_a_fault() -> None:
    assert "without remedy" in str(cases.fault_of(InputError("is wrong", where="here"), many_lines=False))
    assert cases.fault_of(InputError("a: is wrong", more=["b: too"]), many_lines=True) is None


@contextmanager
def kind_that(draw: cases.Draw) -> Iterator[None]:
    before, fuzz.kind_of = fuzz.kind_of, lambda name: draw
    try:
        yield
    finally:
        fuzz.kind_of = before


def test_a_process_that_dies_is_told_with_its_case(tmp_path: Path) -> None:
    def draw(drawn: object, stock: Path, place: Path) -> cases.Case:
        number = int((tmp_path / "number").read_text())
        (tmp_path / "number").write_text(str(number + 1))
        return cases.Case("", ((lambda: fuzz.os.kill(fuzz.os.getpid(), 9)) if number == 2 else lambda: None,))

    (tmp_path / "number").write_text("0")
    with kind_that(draw):
        found = list(fuzz.Job("folders", 0, tmp_path / "work").all(range(5)))
    assert [one.number for one in found] == [0, 1, 2, 3, 4]
    assert [len(one.faults) for one in found] == [0, 0, 1, 0, 0] and "signal 9" in found[2].faults[0]


@pytest.mark.slow
@pytest.mark.parametrize(("kept", "faults"), [(True, 0), (False, 1)])
def test_memory_that_a_process_takes_once_is_no_fault(kept: bool, faults: int, tmp_path: Path) -> None:
    """So do libraries that are loaded late; what a damaged file makes us take, it makes us take each time."""
    loaded: list[bool] = []

    def take() -> None:
        if not loaded:
            fill(24 << 20)
        loaded.extend([True] * kept)

    def draw(drawn: object, stock: Path, place: Path) -> cases.Case:
        return cases.Case("", (take,), room=16 << 20)

    assert len(fuzz.Job("folders", 0, tmp_path).one(draw, 0).faults) == faults


def test_cases_depend_on_kind_seed_and_number_alone(tmp_path: Path) -> None:
    first = [one.told for one in verdicts("calls", range(3, 6), tmp_path)]
    assert [one.told for one in verdicts("calls", range(5, 2, -1), tmp_path)] == first[::-1]
