"""What the tests of the command line share: a way to run it in this process, a little text, and one cooked run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from saucier.cli import main

TINY = ("model.dim=32", "model.heads=2", "model.layers=1", "model.length=32", "training.length=32", "training.steps=4",
        "training.batch=4", "sampling.tokens=12", "sampling.samples=1", "sampling.prompts=[]",
        "evaluation.baselines=[]",
        "training.events=off")
"""Overrides that make any recipe with learned positions small enough to be cooked in a second."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a verb did."""

    code: int
    out: str
    err: str

    @property
    def error(self) -> str:
        """The one line that says what is wrong; fails where there is more or less than that."""
        lines = [line for line in self.err.splitlines() if line.startswith("error: ")]
        assert len(lines) == 1, self.err
        return lines[0].removeprefix("error: ")


Saucier = Callable[..., Answer]


@pytest.fixture
def saucier(capsys: pytest.CaptureFixture[str]) -> Saucier:
    """Return a function that runs the command line as a person would, and tells code and output."""

    def run(*arguments: object) -> Answer:
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Answer(code, captured.out, captured.err)

    return run


def rhymes(count: int) -> str:
    """Return text that is easy to learn: `count` lines of three words."""
    subjects, verbs, objects = ("the cook", "a guest", "the cat"), ("stirs", "tastes", "spills"), ("the sauce",
                                                                                                   "some soup", "milk")
    return "".join(f"{subjects[n % 3]} {verbs[n // 3 % 3]} {objects[n // 9 % 3]}.\n" for n in range(count))


@pytest.fixture(scope="session")
def text_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a small text file."""
    path = tmp_path_factory.mktemp("text") / "kitchen.txt"
    path.write_text(rhymes(120), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def stories_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a small text file of paragraphs, each of four sentences."""
    path = tmp_path_factory.mktemp("text") / "stories.txt"
    lines = rhymes(480).splitlines()
    path.write_text("\n\n".join("\n".join(lines[place:place + 4]) for place in range(0, 480, 4)), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def pair_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a small file of pairs: words, and the same words turned round."""
    path = tmp_path_factory.mktemp("pairs") / "pairs.tsv"
    lines = [line.rstrip(".") for line in rhymes(60).splitlines()]
    path.write_text("there\tback\n" + "".join(f"{line}\t{' '.join(reversed(line.split()))}\n" for line in lines),
                    encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def cooked(text_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of one finished run. Nobody may change it."""
    out = tmp_path_factory.mktemp("runs") / "first"
    assert main(["cook", "shakespeare", "--data", str(text_file), "--out", str(out), "--no-calibrate", *TINY]) == 0
    return out
