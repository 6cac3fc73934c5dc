"""Reading safetensors files without trusting them, and writing them so that a full disk is seen as one."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from saucier.errors import InputError

NO_NOTES: Mapping[str, str] = MappingProxyType({})


def read_tensors(path: Path) -> Iterator[tuple[str, Tensor]]:
    """Yield name and tensor one by one, so that only one copy beyond the model is in memory.

    Raises `InputError` for a missing, truncated or corrupt file.
    """
    if not path.is_file():
        raise InputError("no such file", where=str(path),
                         remedy="check the folder, or train again from an earlier checkpoint")
    try:
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118  # not a dict: the file has no iterator
                yield name, file.get_tensor(name)
    except SafetensorError as error:
        raise InputError(f"not a whole safetensors file ({error})", where=str(path),
                         remedy="copy it again, or use an earlier checkpoint") from error


def read_notes(path: Path) -> dict[str, str]:
    """Return what stands beside the tensors of a file; nothing where there is no such file."""
    if not path.is_file():
        return {}
    try:
        with safe_open(path, framework="pt") as file:
            return dict(file.metadata() or {})
    except SafetensorError as error:
        raise InputError(f"not a whole safetensors file ({error})", where=str(path), remedy="copy it again") from error


def write_tensors(tensors: Mapping[str, Tensor], path: Path, notes: Mapping[str, str] = NO_NOTES) -> None:
    """Write a safetensors file, with notes beside the tensors.

    Raises `OSError` with the system's number where the library only gives its text.
    """
    try:
        save_file(dict(tensors), path, metadata={"format": "pt", **notes})
    except SafetensorError as error:
        number = re.search(r"os error (\d+)", str(error))
        if number is None:
            raise
        raise OSError(int(number[1]), str(error), str(path)) from error
