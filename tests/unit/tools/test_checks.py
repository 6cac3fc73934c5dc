"""The checks of `make check` find what they are there to find, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools import check_docstrings, check_size


def faults(check: object, tmp_path: Path, text: str) -> list[str]:
    """Return what a check says about a file with this text, without the path."""
    path = tmp_path / "sample.py"
    path.write_text(text, encoding="utf-8")
    found: list[str] = check(path)  # type: ignore[operator]
    return [fault.removeprefix(str(path)).split(": ", 1)[-1] for fault in found]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('"""M."""\ndef f():\n    """D."""\n', []),
        ("", []),
        ("x = 1\n", ["the module has no docstring"]),
        ('"""M."""\ndef f():\n    pass\n', ["f has no docstring"]),
        ('"""M."""\ndef _f():\n    pass\n', []),
        ('"""M."""\ndef f():\n    """D."""\n    def inner():\n        pass\n', []),
        ('"""M."""\nclass A:\n    def f(self):\n        """D."""\n', ["A has no docstring"]),
        ('"""M."""\nclass A:\n    """D."""\n    def f(self):\n        pass\n', ["A.f has no docstring"]),
        ('"""M."""\nclass A:\n    """D."""\n    def __init__(self):\n        pass\n', []),
        ('"""M."""\nclass A:\n    """D."""\n    def __len__(self):\n        pass\n', []),
        ('"""M."""\nclass _A:\n    def f(self):\n        pass\n', []),
        ('"""M."""\n@overload\ndef f(x: int) -> int: ...\n', []),
    ],
)
def test_missing_docstrings_are_found(tmp_path: Path, text: str, expected: list[str]) -> None:
    """Public names need one; private ones, dunders, overloads and inner functions do not."""
    assert faults(check_docstrings.check, tmp_path, text) == expected


@pytest.mark.parametrize(("body", "count"), [
    ("    x: int = 0\n", 1),
    ('    x: int = 0\n    """What x is."""\n', 0),
    ('    x: int = 0\n    """What x is."""\n    y: int = 1\n', 1),
    ('    kind: str = "a"\n', 0),
    ("    _x: int = 0\n", 0),
    ("    told: int = 0\n", 0),
])
def test_fields_of_configs_are_explained(tmp_path: Path, body: str, count: int) -> None:
    """By the string below, or by name in the class docstring."""
    text = f'"""M."""\nclass A(Config):\n    """A thing, with `told`."""\n{body}'
    assert len(faults(check_docstrings.check, tmp_path, text)) == count


def test_long_files_and_functions_are_found(tmp_path: Path) -> None:
    """One line over the limit is one too many; docstrings do not count for functions."""
    body = "\n".join("    x = 1" for _ in range(check_size.FUNCTION_LINES))
    told = '    """One.\n\n    Two.\n    """\n'
    assert faults(check_size.check, tmp_path, f"def f():\n{told}{body}\n") == []
    assert faults(check_size.check, tmp_path, f"def f():\n{told}{body}\n    y = 2\n") == ["f: 51 lines, over 50"]
    assert faults(check_size.check, tmp_path, "x = 1\n" * check_size.FILE_LINES) == []
    found = faults(check_size.check, tmp_path, "x = 1\n" * (check_size.FILE_LINES + 1))
    assert [fault.endswith("401 lines, over 400") for fault in found] == [True]


@pytest.mark.parametrize(("signature", "expected"), [
    ("a, b, c, d, e, f, g, h", []),
    ("a, b, *, c, d, e, f, g, h, i", ["9 parameters, over 8"]),
    ("a, b=1, c=2", []),
    ("a, b=1, c=2, d=3", ["3 optional parameters by position, over 2: put `*,` before them"]),
    ("a, *, b=1, c=2, d=3", []),
])
def test_wide_signatures_are_found(tmp_path: Path, signature: str, expected: list[str]) -> None:
    """At most eight parameters, and options by name."""
    found = faults(check_size.check, tmp_path, f"def f({signature}):\n    return 1\n")
    assert [fault.removeprefix("f: ") for fault in found] == expected


def test_self_is_not_a_parameter(tmp_path: Path) -> None:
    """Methods have the same limit as functions."""
    text = "class A:\n    def f(self, a, b, c, d, e, f, g, h):\n        return 1\n"
    assert faults(check_size.check, tmp_path, text) == []


def test_every_exception_is_still_needed(root: Path) -> None:
    """A named exception that no longer applies is removed."""
    for key in check_size.EXCEPTIONS:
        name, function = key.split(": ")
        named = [item
                 for item in check_size.definitions(check_size.ast.parse((root / name).read_text(encoding="utf-8")))
                 if item.name == function]
        assert named, key
        assert check_size.signature_faults(named[0]), key
