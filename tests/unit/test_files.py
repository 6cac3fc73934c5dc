"""Files are written whole or not at all, and errors are one line."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from saucier.errors import InputError, SaucierError, WorkError, nearest
from saucier.files import replace, write_atomically, write_json, write_text


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    """The new text stands there, nothing else is left, and missing folders are made."""
    target = tmp_path / "new" / "a.txt"
    write_text(target, "first, and longer")
    write_text(target, "second ü")
    assert target.read_bytes() == "second ü".encode()
    assert [path.name for path in target.parent.iterdir()] == ["a.txt"]


def test_json_ends_in_a_line_end(tmp_path: Path) -> None:
    """Readable, with letters as they are."""
    write_json(tmp_path / "a.json", {"ü": [1, 2]})
    text = (tmp_path / "a.json").read_text(encoding="utf-8")
    assert '"ü"' in text
    assert text.endswith("}\n")


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    """Whatever goes wrong in the middle, the old content stays and no half file is left."""
    target = tmp_path / "a.txt"
    write_text(target, "old")

    def half(path: Path) -> None:
        path.write_text("ne", encoding="utf-8")
        raise KeyError("a bug")

    with pytest.raises(KeyError):
        write_atomically(target, half)
    assert target.read_text(encoding="utf-8") == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


def test_a_folder_is_replaced_whole(tmp_path: Path) -> None:
    """What the old folder held beside the new files is gone."""
    target = tmp_path / "folder"

    def filled(name: str) -> None:
        def write(path: Path) -> None:
            path.mkdir()
            (path / name).write_text(name, encoding="utf-8")
        write_atomically(target, write)

    filled("a")
    filled("b")
    assert [path.name for path in target.iterdir()] == ["b"]
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_a_file_replaces_a_folder(tmp_path: Path) -> None:
    """The folder in the way is moved aside first."""
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "x").touch()
    (tmp_path / "new").write_text("n", encoding="utf-8")
    replace(tmp_path / "new", tmp_path / "there")
    assert (tmp_path / "there").read_text(encoding="utf-8") == "n"


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS])
def test_a_full_disk_is_one_line(tmp_path: Path, number: int) -> None:
    """With the target and a remedy; the old file stays."""
    target = tmp_path / "a.txt"
    write_text(target, "old")

    def full(path: Path) -> None:
        raise OSError(number, "no")

    with pytest.raises(WorkError) as caught:
        write_atomically(target, full)
    assert str(target) in str(caught.value)
    assert "free space" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert target.read_text(encoding="utf-8") == "old"


def test_errors_say_what_where_and_remedy() -> None:
    """In this order, in one line, with the exit code that the command line returns."""
    error = InputError("is empty", where="a.txt", remedy="give a file with text")
    assert str(error) == "a.txt: is empty; give a file with text"
    assert str(WorkError("stopped")) == "stopped"
    assert (SaucierError.exit_code, WorkError.exit_code, InputError.exit_code) == (1, 1, 2)


@pytest.mark.parametrize(("name", "remedy"), [("layes", "did you mean 'layers'?"), ("zzz", "known: dim, layers")])
def test_a_wrong_name_gets_the_nearest(name: str, remedy: str) -> None:
    """Or the whole list, when none is near."""
    assert nearest(name, ["dim", "layers"]) == remedy
