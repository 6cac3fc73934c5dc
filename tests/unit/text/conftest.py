"""Text for the tests of text: Python's own documentation, and files made from it."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.unit.text.places import VOCAB, Make, write_store

from saucier.text.reading.python_texts import read_python_documentation
from saucier.text.rows.store import Piece, TokenStore


@pytest.fixture(scope="session")
def texts() -> list[str]:
    """About 200 kB of English."""
    return [document.text for document in read_python_documentation()][:40]


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, str | bytes], str]:
    """Write a file below the test's folder and give its name."""

    def written(name: str, content: str | bytes) -> str:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return str(path)

    return written


@pytest.fixture(scope="session")
def make(tmp_path_factory: pytest.TempPathFactory) -> Make:
    """Write a store of documents of these lengths; every token of it is its own place in the store."""

    def made(lengths: list[int]) -> TokenStore:
        ends = np.cumsum([0, *lengths])
        pieces = [
            Piece(range(start, end), sentences=range(0, end - start, 5)) for start, end in itertools.pairwise(ends)
        ]
        return write_store(tmp_path_factory.mktemp("stores") / "s", pieces, vocab=VOCAB)

    return made
