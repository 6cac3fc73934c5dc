"""The version, the changes and what the package says about itself agree."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

import saucier
from saucier.plain import VERSION


@pytest.fixture(scope="module")
def project(root: Path) -> dict[str, object]:
    """Return pyproject.toml."""
    return tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))


def test_the_version_is_written_once(root: Path, project: dict[str, dict[str, object]]) -> None:
    """In `saucier.plain`, as a literal, which the build reads without importing anything."""
    assert "version" not in project["project"] and project["project"]["dynamic"] == ["version"]
    assert project["tool"]["setuptools"]["dynamic"] == {  # type: ignore[index]
        "version": {"attr": "saucier.plain.VERSION"}}
    source = (root / "src/saucier/plain.py").read_text(encoding="utf-8")
    assert re.findall(r'^VERSION = "(.*)"$', source, re.MULTILINE) == [VERSION] == [saucier.__version__]


def test_the_newest_change_is_that_of_this_version(root: Path) -> None:
    """A version that is not released yet ends in `.dev0`; versions are semantic, and the newest is on top."""
    text = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    told = re.findall(r"^## (\d+\.\d+(?:\.\d+)?)(.*)$", text, re.MULTILINE)
    numbers = [tuple(int(part) for part in f"{number}.0".split(".")[:3]) for number, _ in told]
    assert numbers == sorted(set(numbers), reverse=True)
    match = re.fullmatch(r"(\d+)\.(\d+)\.(\d+)(\.dev0)?", VERSION)
    assert match is not None and tuple(map(int, match.groups()[:3])) == numbers[0]
    assert bool(match[4]) == ("not released" in told[0][1])
    assert not any("not released" in rest for _, rest in told[1:])


def test_what_is_said_of_pythons_is_what_is_required(project: dict[str, dict[str, object]]) -> None:
    """The oldest Python of the classifiers is the one that is required, that mypy and ruff take."""
    told = project["project"]["classifiers"]
    assert isinstance(told, list)
    pythons = sorted(re.findall(r"Python :: 3\.(\d+)$", "\n".join(told), re.MULTILINE), key=int)
    assert project["project"]["requires-python"] == f">=3.{pythons[0]}"
    assert project["tool"]["mypy"]["python_version"] == f"3.{pythons[0]}"  # type: ignore[index]
    assert project["tool"]["ruff"]["target-version"] == f"py3{pythons[0]}"  # type: ignore[index]


def test_no_address_is_given(project: dict[str, dict[str, object]]) -> None:
    """The project has no home page to name yet."""
    assert "urls" not in project["project"]
