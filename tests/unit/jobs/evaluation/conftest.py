"""Published models with a tokenizer, as a person finds them: golden weights of another library, and the box."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

Folder = Callable[[str, str], Path]


@pytest.fixture(scope="session")
def box(root: Path) -> Path:
    """Return what earlier versions wrote: models, runs, fine-tunings and their files."""
    return root / "tests" / "frozen" / "box"


@pytest.fixture(scope="session")
def golden(shared: Path, box: Path, tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """Return a function that puts one of the box's tokenizers next to golden weights."""

    def make(name: str, tokenizer: str) -> Path:
        folder = tmp_path_factory.mktemp("golden") / name
        shutil.copytree(shared / "golden" / name, folder)
        for file in (box / "tokenizers" / tokenizer).iterdir():
            shutil.copy(file, folder)
        return folder

    return make


@pytest.fixture
def in_box(box: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in the box, whose documents name their files by short paths."""
    monkeypatch.chdir(box)
    return box
