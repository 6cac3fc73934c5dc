"""Files are written whole or not at all, and errors are one line."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from saucier import files
from saucier.errors import InputError, SaucierError, WorkError, suggest_name
from saucier.files import exchange_paths, is_taken, list_entries, replace_path, write_atomically, write_json, write_text


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


@pytest.mark.parametrize(("text", "says"), [
    ("{", "Expecting property name"), ("[" * 100_000, "nested too deeply"), ('{"a":' * 50_000, "nested too deeply"),
    ("9" * 6000, "Exceeds the limit"), (b"\xff\xff", "codec"),
])
def test_json_that_cannot_be_read_is_one_kind_of_error(text: str | bytes, says: str) -> None:
    with pytest.raises(json.JSONDecodeError, match=says):
        files.parse_json(text)


@pytest.mark.parametrize("name", ["\u00e9" * 200, "x" * 5000, "a\x00b", "\ud800", "", "nothing", "file/inside"])
def test_names_that_no_file_has_are_no_files(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    assert not files.is_file(name) and files.path_exists(name) == files.is_folder(name) == (name == "")
    assert files.is_file("file") and not files.is_folder("file") and files.is_folder(tmp_path)


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
    replace_path(tmp_path / "new", tmp_path / "there")
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
    assert suggest_name(name, ["dim", "layers"]) == remedy


def folder_of(text: str) -> Callable[[Path], None]:
    """Return what writes a folder with one file."""
    def write(path: Path) -> None:
        path.mkdir()
        (path / "a.txt").write_text(text, encoding="utf-8")
    return write


def killed_while_writing(target: Path, *, at: int) -> None:
    """Replace a folder in another process that is killed before one of its renames."""
    def rename(*given: object) -> None:
        nonlocal at
        at -= 1
        if at < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        original(*given)

    child = os.fork()
    if child == 0:
        original, os.replace = os.replace, rename
        write_atomically(target, folder_of("new"))
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WTERMSIG(status) == signal.SIGKILL


@pytest.mark.slow
def test_a_folder_that_is_replaced_is_never_missing(tmp_path: Path) -> None:
    """A reader that looks all the time finds the old or the new one, whole."""
    target, seen, over = tmp_path / "folder", Counter[str](), threading.Event()
    write_atomically(target, folder_of("0"))

    def look() -> None:
        while not over.is_set():
            seen["there" if os.path.isdir(target) else "missing"] += 1

    reader = threading.Thread(target=look)
    reader.start()
    for number in range(200):
        write_atomically(target, folder_of(str(number)))
    over.set()
    reader.join()
    if not can_swap(tmp_path):
        pytest.skip("this file system cannot let two folders change places")
    assert seen["missing"] == 0 < seen["there"]
    assert (target / "a.txt").read_text(encoding="utf-8") == "199"
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def can_swap(folder: Path) -> bool:
    """Say whether the file system lets two folders change places."""
    for name in "ab":
        (folder / name).mkdir()
    swapped = exchange_paths(folder / "a", folder / "b")
    for name in "ab":
        (folder / name).rmdir()
    return swapped


@pytest.mark.parametrize("at", [0, 1])
def test_killed_between_two_renames_the_old_folder_is_put_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                               at: int) -> None:
    """Where places cannot be changed in one step: the next writer finds the old one, and leaves the new one alone."""
    monkeypatch.setattr(files, "exchange_paths", lambda first, second: False)
    target = tmp_path / "folder"
    write_atomically(target, folder_of("old"))
    killed_while_writing(target, at=at)
    assert target.exists() == (at == 0)
    found: list[bool] = []

    def fails(path: Path) -> None:
        found.append(target.is_dir())
        raise KeyError("a bug")

    with pytest.raises(KeyError):
        write_atomically(target, fails)
    assert found == [True]
    assert (target / "a.txt").read_text(encoding="utf-8") == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_what_a_killed_process_left_is_no_content_and_goes(tmp_path: Path) -> None:
    """Also what was being written inside of it; what a process that runs is writing stays."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    dead, target = process.pid, tmp_path / "new" / "out"
    target.parent.mkdir()
    for name in (f".out.{dead}.tmp", f"..out.{dead}.tmp.{dead}.tmp", f".out.{os.getpid()}.tmp"):
        (target.parent / name).mkdir()
    (target.parent / f".out.{os.getppid()}.tmp").touch()
    assert not is_taken(target.parent)
    write_text(target, "new")
    assert sorted(path.name for path in target.parent.iterdir()) == [f".out.{os.getppid()}.tmp", "out"]
    assert [path.name for path in list_entries(target.parent)] == ["out"]


def test_an_error_names_what_was_to_be_written(tmp_path: Path) -> None:
    """Not the name that it has meanwhile, where a folder is filled by writers of files."""
    def full(path: Path) -> None:
        raise OSError(errno.ENOSPC, "no")

    with pytest.raises(WorkError) as caught:
        write_atomically(tmp_path / "folder", lambda place: write_atomically(place / "a.txt", full))
    assert caught.value.where == str(tmp_path / "folder" / "a.txt")
    assert not list(tmp_path.iterdir())
