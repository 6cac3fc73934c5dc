"""Text for the tests of text: Python's own documentation, and files made from it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from saucier.text.documentation import python_documentation


@pytest.fixture(scope="session")
def texts() -> list[str]:
    """About 200 kB of English."""
    return [document.text for document in python_documentation()][:40]


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, str | bytes], str]:
    """Write a file below the test's folder and give its name."""

    def written(name: str, content: str | bytes) -> str:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return str(path)

    return written
