"""Writing files so that a crash leaves either the old file or the new one, never half of one; reading JSON.

Every writer of the project goes through here; a full disk becomes one clear error.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
from collections.abc import Callable, Iterator
from itertools import chain, count
from pathlib import Path
from typing import Any

from saucier.errors import InputError, WorkError

LARGEST_JSON = 512 * 2**20
"""Bytes; a tokenizer.json of a large vocabulary has some ten million."""


def sync(path: Path) -> None:
    """Flush a file or folder to the disk, so that a rename after it is ordered after its content."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def disk_errors(target: Path) -> Iterator[None]:
    """Turn a full or read-only disk into a `WorkError` that names the target."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EFBIG):
            raise WorkError(f"cannot write: {os.strerror(error.errno)}", where=str(target),
                            remedy="free space or choose another folder; what was there before is untouched") from error
        raise


def is_taken(folder: Path) -> bool:
    """Say whether a place holds something or is a file, so that no new folder can be there."""
    return folder.exists() and (folder.is_file() or any(folder.iterdir()))


def first_free(wanted: Path, taken: Callable[[Path], bool] = is_taken) -> Path:
    """Return `NAME`, or the first of `NAME-2`, `NAME-3`, ... that is not taken."""
    names = chain([wanted.name], (f"{wanted.name}-{number}" for number in count(2)))
    return next(path for path in map(wanted.with_name, names) if not taken(path))


def refuse_taken(folder: Path) -> None:
    """Raise `InputError` for a folder that is to be new, and is taken."""
    if is_taken(folder):
        raise InputError("is there already", where=str(folder), remedy="give a new folder")


def write_atomically(target: Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill a temporary file or folder beside `target`, sync it, and rename it into place."""
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    with disk_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            write(temporary)
            for path in [*temporary.rglob("*"), temporary] if temporary.is_dir() else [temporary]:
                sync(path)
            replace(temporary, target)
            sync(target.parent)
        finally:
            remove(temporary)


def replace(source: Path, target: Path) -> None:
    """Rename over `target`; a folder in the way is moved aside first and removed afterwards."""
    if not target.is_dir():
        os.replace(source, target)
        return
    aside = target.with_name(f".{target.name}.{os.getpid()}.old")
    os.replace(target, aside)
    os.replace(source, target)
    remove(aside)


def remove(path: Path) -> None:
    """Remove a file or a folder, if it is there."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def write_text(target: Path, text: str) -> None:
    """Write UTF-8 text atomically."""
    def write(path: Path) -> None:
        path.write_text(text, encoding="utf-8")

    write_atomically(target, write)


def write_json(target: Path, value: Any) -> None:
    """Write indented JSON atomically."""
    write_text(target, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def read_object(path: Path) -> dict[str, Any]:
    """Read a JSON object; a file that is not there is an empty one. Raises `InputError` that names the line or byte."""
    if not path.exists():
        return {}
    if not path.is_file() or path.stat().st_size > LARGEST_JSON:
        raise InputError("no file, or far too large for one of settings", where=str(path), remedy="write it again")
    try:
        value = json.loads(path.read_bytes().decode("utf-8"), parse_constant=refuse_constant)
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


def refuse_constant(name: str) -> float:
    """Refuse NaN and Infinity, which are not JSON. Raises `ValueError`."""
    raise ValueError(f"{name} is no number")
