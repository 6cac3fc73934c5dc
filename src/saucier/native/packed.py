"""Rounded and laid out matrices, with what else a plan reads, kept in the user's cache folder: one file for each model
and format, mapped read-only.

A file's name is a digest of the content of the model's weight files, of its config and the format, so that nothing
there is ever out of date; processes that map the same file share its memory. Content is read once: an index remembers
the digest of each weight file by its size and the time of its last change.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import platform
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

import numpy as np

from saucier.files import cache_folder, parse_json, read_object, remove_path, write_atomically
from saucier.native.library import SOURCES
from saucier.native.matrices import Array, Format, Matrix, Panels
from saucier.plain import format_bytes

VERSION = 7
"""Of how matrices are rounded and laid out; a change of `matrices.py` that changes numbers raises it."""
LARGEST = 16 * 2**30
"""Bytes of the folder; beyond, the files that were used longest ago are removed."""
SUFFIX, INDEX, ALIGNED = ".matrices", "weight-files.json", 64
KINDS = {"matrix": Matrix, "panels": Panels}
ARRAYS = ("codes", "scales", "shifts", "order")
"""Of a `Matrix` and of `Panels`."""
OWN_PARTS = "own parts"
"""What `auto` may choose instead of a format."""
Made = dict[str, Any]
"""Name -> `Matrix`, `Panels` or an array, as in `Weights.made`."""


def packed_folder() -> Path:
    """Return where the files are; it may be removed at any time."""
    return cache_folder("matrices")


def digest_files(files: Sequence[tuple[str, int, int]]) -> str:
    """Return a digest of the content of files, each given with its size and time of change in nanoseconds."""
    index = packed_folder() / INDEX
    try:
        known = parse_json(index.read_bytes())
    except (OSError, ValueError):
        known = {}
    known = known if isinstance(known, dict) else {}
    found = {name: kept[2] for name, size, changed in files
             if isinstance(kept := known.get(name), list) and kept[:2] == [size, changed] and len(kept) == 3}
    for name, _, _ in files:
        if name not in found:
            with Path(name).open("rb") as file:
                found[name] = hashlib.file_digest(file, "sha256").hexdigest()
    new = {name: [size, changed, found[name]] for name, size, changed in files}
    if any(known.get(name) != entry for name, entry in new.items()):
        kept = {name: entry for name, entry in known.items() if Path(name).is_file()} | new
        write_atomically(index, lambda path: path.write_text(json.dumps(kept), encoding="utf-8"))
    return hashlib.sha256("".join(sorted(map(str, found.values()))).encode()).hexdigest()


def name_packed(model: str, config: str, form: Format) -> Path:
    """Return the file of a model, named by the digest of its weights and its config as text, in a format."""
    found = hashlib.sha256(repr((VERSION, model, config, form)).encode())
    return packed_folder() / f"{form}-{found.hexdigest()[:24]}{SUFFIX}"


def name_choice(model: str, config: str, threads: int) -> Path:
    """Return where the choice of a format for a model on this machine, with these kernels and as many threads, is kept;
    the model is named as in `name_packed`.
    """
    found = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(SOURCES.glob("*.[ch]"))))
    found.update(repr((model, config, platform.node(), platform.machine(), threads)).encode())
    return cache_folder("formats") / f"{found.hexdigest()[:24]}.json"


def read_choice(path: Path) -> str | None:
    """Return what `saucier bench` chose for a model, a format or its own parts; None where it was not measured."""
    found = read_object(path).get("format")
    return found if found in (OWN_PARTS, *get_args(Format)) else None


def read_packed(path: Path) -> Made:
    """Map a file; nothing is read before it is used. What is no whole file of ours is as if it were not there."""
    try:
        with path.open("rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        size = int.from_bytes(mapped[:8], "little")
        document = parse_json(mapped[8:8 + size])
        os.utime(path)  # used now
        return {name: read_entry(one, mapped, start_of_arrays(size)) for name, one in document.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def read_entry(entry: Mapping[str, Any], mapped: mmap.mmap, start: int) -> Matrix | Panels | Array | None:
    """Return one matrix or array of a mapped file. Raises `ValueError` for one that is not wholly inside."""
    def view(stored: tuple[str, list[int], int] | None) -> Array | None:
        if stored is None:
            return None
        dtype, shape, offset = stored
        return np.frombuffer(mapped, np.dtype(dtype), int(np.prod(shape)), start + offset).reshape(shape)

    if entry["kind"] == "array":
        return view(entry["codes"])
    if entry["facts"]["format"] not in get_args(Format):
        raise ValueError("no format of ours")
    made: Matrix | Panels = KINDS[entry["kind"]](**{name: view(entry[name]) for name in ARRAYS}, **entry["facts"])
    return made


def start_of_arrays(size: int) -> int:
    """Return where arrays begin after a document of this size."""
    return -(-(8 + size) // ALIGNED) * ALIGNED


def write_packed(path: Path, made: Made) -> int:
    """Write matrices and arrays as one file, whole or not at all; return its bytes. The folder is kept below `LARGEST`.
    """
    arrays: list[Array] = []
    length = 0

    def place(array: Array | None) -> tuple[str, list[int], int] | None:
        nonlocal length
        if array is None:
            return None
        arrays.append(array)
        begin, length = length, length + -(-array.nbytes // ALIGNED) * ALIGNED
        return array.dtype.str, list(array.shape), begin

    def describe(one: Matrix | Panels | Array) -> dict[str, Any]:
        if not isinstance(one, Matrix | Panels):
            return {"kind": "array", "codes": place(one)}
        facts = {field.name: getattr(one, field.name) for field in fields(one)
                 if field.init and field.name not in ARRAYS}
        return {"kind": "matrix" if isinstance(one, Matrix) else "panels", "facts": facts,
                **{name: place(getattr(one, name)) for name in ARRAYS}}

    document = json.dumps({name: describe(one) for name, one in made.items()}).encode()

    def write(temporary: Path) -> None:
        with temporary.open("wb") as file:
            file.write(len(document).to_bytes(8, "little") + document)
            file.write(bytes(start_of_arrays(len(document)) - file.tell()))
            for array in arrays:
                file.write(array.data)
                file.write(bytes(-array.nbytes % ALIGNED))

    write_atomically(path, write)
    bound_folder(path)
    return path.stat().st_size


def keep_packed(path: Path | None, form: Format, made: Made, kept: Made) -> bool:
    """Write what was made to the user's cache folder, and say so; False where nothing is new, or nothing to be kept."""
    if path is None or not made.keys() - kept.keys():
        return False
    size = write_packed(path, made)
    warnings.warn(f"the matrices in {form} are kept for the next start: {path} ({format_bytes(size)})", stacklevel=7)
    return True


def bound_folder(newest: Path) -> None:
    """Remove the files that were used longest ago while there are more bytes than `LARGEST`; never the newest."""
    found = sorted(packed_folder().glob(f"*{SUFFIX}"), key=lambda path: path.stat().st_mtime_ns)
    held = sum(path.stat().st_size for path in found)
    for path in found:
        if held > LARGEST and path != newest:
            held -= path.stat().st_size
            remove_path(path)
