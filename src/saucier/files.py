"""Writing files so that a crash leaves either the old file or the new one, never half of one; reading JSON.

Every writer of the project goes through here; a full disk becomes one clear error. What is written is at first called
`.NAME.PROCESS.tmp`, next to the place where it will be; a process that is killed leaves it there, and the next one that
writes NAME removes it.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from itertools import chain, count
from pathlib import Path
from typing import Any

from saucier.errors import InputError, WorkError

UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EFBIG, errno.ENOTDIR,
              errno.EEXIST, errno.EISDIR, errno.ENAMETOOLONG)
"""What the place or the disk is to blame for, when nothing can be written."""
LARGEST_JSON = 512 * 2**20
"""Bytes; a tokenizer.json of a large vocabulary has some ten million."""
TEMPORARY = re.compile(r"\.+(?P<name>[^/]+?)(?:\.(?P<process>\d+)\.(?:tmp|old))+(?=/|$)")
"""Names of what is being written; a folder that is being written may itself be a target, and its name be within."""
SWAP, HERE = 2, -100
"""RENAME_EXCHANGE of renameat2 on Linux and RENAME_SWAP of renamex_np on macOS; AT_FDCWD."""


def flush_to_disk(path: Path) -> None:
    """Flush a file or folder to the disk, so that a rename after it is ordered after its content."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def report_disk_errors(target: Path) -> Iterator[None]:
    """Turn a full or read-only disk, or a place that cannot be written, into a `WorkError` that names the target."""
    try:
        yield
    except OSError as error:
        if error.errno in UNWRITABLE:
            raise WorkError(f"cannot write: {os.strerror(error.errno)}", where=TEMPORARY.sub(r"\g<name>", str(target)),
                            remedy="free space or choose another folder; what was there before is untouched") from error
        raise


def refuse_unwritable(target: Path, *, folder: bool) -> None:
    """Raise `InputError` for a place at which no folder, or no file, can be written; nothing is left there.

    Checked before the work begins, so that its result is not lost at the end.
    """
    if "\0" in str(target):
        raise InputError("cannot be written: a name has no null byte", where=repr(str(target))[:200],
                         remedy="give another place")
    try:
        os.fsencode(target)
        known = next(path for path in (target, *target.absolute().parents) if path.exists())
        wrong = "is a file" if not known.is_dir() and (folder or known != target) else \
            "is a folder" if known == target and known.is_dir() and not folder else None
        if wrong is None:
            tempfile.TemporaryFile(dir=known if known.is_dir() else known.absolute().parent).close()
    except (OSError, UnicodeEncodeError) as error:
        raise InputError(f"cannot be written: {getattr(error, 'strerror', error)}", where=str(target)[:200],
                         remedy="give another place") from error
    if wrong is not None:
        raise InputError(wrong, where=str(known), remedy=f"give a new {'folder' if folder else 'file'}")


def path_exists(path: str | Path) -> bool:
    """Say whether something exists at a path; names of any length and any letters, as damaged files have, do not."""
    try:
        return Path(path).exists()
    except (OSError, ValueError, TypeError):
        return False


def is_file(path: str | Path) -> bool:
    """Say whether a path is that of a file, whatever it is called."""
    return path_exists(path) and Path(path).is_file()


def is_folder(path: str | Path) -> bool:
    """Say whether a path is that of a folder, whatever it is called."""
    return path_exists(path) and Path(path).is_dir()


def is_taken(folder: Path) -> bool:
    """Say whether a place holds something or is a file, so that no new folder can be there."""
    return folder.exists() and (folder.is_file() or bool(list_entries(folder)))


def list_entries(folder: Path) -> list[Path]:
    """Return what is in a folder, without what processes are writing or left half written."""
    return [path for path in folder.iterdir() if not TEMPORARY.fullmatch(path.name)]


def find_free_name(target: Path, taken: Callable[[Path], bool] = is_taken) -> Path:
    """Return `NAME`, or the first of `NAME-2`, `NAME-3`, ... that is not taken."""
    names = chain([target.name], (f"{target.name}-{number}" for number in count(2)))
    return next(path for path in map(target.with_name, names) if not taken(path))


def refuse_taken(folder: Path) -> None:
    """Raise `InputError` for a folder that is to be new, and is taken."""
    if is_taken(folder):
        raise InputError("is there already", where=str(folder), remedy="give a new folder")


def refuse_existing(path: Path) -> None:
    """Raise `InputError` for a file that is there."""
    if path.exists():
        raise InputError("is there already", where=str(path), remedy="give another name, or remove it")


def write_atomically(target: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a temporary file or folder next to `target`, sync it, and rename it into place."""
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    with report_disk_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        recover_target(target)
        try:
            write(temporary)
            for path in [*temporary.rglob("*"), temporary] if temporary.is_dir() else [temporary]:
                flush_to_disk(path)
            replace_path(temporary, target)
            flush_to_disk(target.parent)
        finally:
            remove_path(temporary)


def recover_target(target: Path) -> None:
    """Remove what killed processes left of `target` half written; a folder that they had moved aside is put back."""
    found = [(path, match) for path in target.parent.iterdir()
             if (match := TEMPORARY.fullmatch(path.name)) and match["name"] == target.name]
    for path, match in found:
        if int(match["process"]) != os.getpid() and is_process_alive(int(match["process"])):
            continue
        if path.suffix == ".old" and not target.exists():
            os.replace(path, target)
        remove_path(path)


def recover_all(folder: Path) -> None:
    """Do the same for all names in a folder that is finished, in which nothing will be written again."""
    for name in {match["name"] for path in folder.iterdir() if (match := TEMPORARY.fullmatch(path.name))}:
        recover_target(folder / name)


def is_process_alive(process: int) -> bool:
    """Say whether a process of this machine runs."""
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass  # another person's
    return True


def replace_path(source: Path, target: Path) -> None:
    """Rename over `target`. A folder in the way changes places with the new one, and is removed then.

    On Linux and macOS that is one step: there is always a whole folder. On a file system that cannot do it, such as
    NFS, the old folder is moved aside first: for a moment there is none, and after a kill in that moment the next
    writer puts the old one back (`recover_target`).
    """
    if not target.is_dir():
        os.replace(source, target)
        return
    if exchange_paths(source, target):
        aside = source
    else:
        aside = target.with_name(f".{target.name}.{os.getpid()}.old")
        os.replace(target, aside)
        os.replace(source, target)
    flush_to_disk(target.parent)  # the old one goes only once the new one is on the disk
    remove_path(aside)


def exchange_paths(first: Path, second: Path) -> bool:
    """Let two paths of a file system change places in one step; False where that cannot be done."""
    system = ctypes.CDLL(None)
    names = os.fsencode(first), os.fsencode(second)
    if sys.platform == "darwin":
        return hasattr(system, "renamex_np") and bool(system.renamex_np(*names, SWAP) == 0)
    return hasattr(system, "renameat2") and bool(system.renameat2(HERE, names[0], HERE, names[1], SWAP) == 0)


def remove_path(path: Path) -> None:
    """Remove a file or a folder, if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def write_text(target: Path, text: str) -> None:
    """Write UTF-8 text atomically; what is no character, as in file names of other encodings, as `\\udcff`."""
    def write(path: Path) -> None:
        path.write_text(text, encoding="utf-8", errors="backslashreplace")

    write_atomically(target, write)


def write_json(target: Path, value: Any) -> None:
    """Write indented JSON atomically."""
    write_text(target, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def read_object(path: Path, *, finite: bool = True) -> dict[str, Any]:
    """Read a JSON object; a file that is not there is an empty one. Raises `InputError` that names the line or byte.

    `finite`: whether NaN and Infinity, which Python writes and JSON has not, are refused.
    """
    if not path.exists():
        return {}
    if not path.is_file() or path.stat().st_size > LARGEST_JSON:
        raise InputError("no file, or far too large for one of settings", where=str(path), remedy="write it again")
    try:
        text = path.read_bytes().decode("utf-8")
        value = json.loads(text, parse_constant=refuse_constant if finite else None)
        if "\\ud" in text or "\\uD" in text:  # halves of surrogate pairs, which JSON can spell and no text holds
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError as error:
        raise InputError("holds half of a surrogate pair, which is no text", where=str(path),
                         remedy="write it again") from error
    except UnicodeDecodeError as error:
        raise InputError("not UTF-8 text", where=f"{path}, byte {error.start}", remedy="write it again") from error
    except json.JSONDecodeError as error:
        raise InputError(f"not JSON: {error.msg}", where=f"{path}:{error.lineno}", remedy="write it again") from error
    except RecursionError as error:
        raise InputError("not JSON: nested too deeply", where=str(path), remedy="write it again") from error
    except ValueError as error:  # a number of thousands of digits
        raise InputError(f"not JSON: {error}", where=str(path), remedy="write it again") from error
    if not isinstance(value, dict):
        raise InputError("not a JSON object", where=str(path), remedy="write it again")
    return value


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object of a model's folder that must be there. Raises `InputError` that names the file and the line.
    """
    if not path.is_file():
        raise InputError("no such file", where=str(path), remedy="give a model folder or a run folder")
    return read_object(path)


def parse_json(text: str | bytes) -> Any:
    """Parse JSON. Raises `json.JSONDecodeError` for all that cannot be read: deep nesting and endless numbers too."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        raise
    except RecursionError as error:
        raise json.JSONDecodeError("nested too deeply", "", 0) from error
    except ValueError as error:  # a number of thousands of digits, or bytes that are no text
        raise json.JSONDecodeError(str(error), "", 0) from error


def refuse_constant(name: str) -> float:
    """Refuse NaN and Infinity, which are not JSON. Raises `ValueError`."""
    raise ValueError(f"{name} is no number")


def cache_folder(name: str) -> Path:
    """Return a folder for what is compiled, for the user alone: in `$SAUCIER_CACHE`, or in `saucier` in their cache."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(os.environ.get("SAUCIER_CACHE") or Path(base) / "saucier") / name
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder
