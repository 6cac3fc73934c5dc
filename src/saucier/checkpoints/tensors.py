"""Reading safetensors files without trusting them: a damaged file is one clear error."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from safetensors import SafetensorError, safe_open
from torch import Tensor

from saucier.errors import InputError


def read_tensors(path: Path) -> Iterator[tuple[str, Tensor]]:
    """Yield name and tensor one by one, so that only one copy beyond the model is in memory.

    Raises `InputError` for a missing, truncated or corrupt file.
    """
    if not path.is_file():
        raise InputError("no such file", where=str(path), remedy="check the folder, or train again from an earlier checkpoint")
    try:
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118  # not a dict: the file has no iterator
                yield name, file.get_tensor(name)
    except SafetensorError as error:
        raise InputError(f"not a whole safetensors file ({error})", where=str(path), remedy="copy it again, or use an earlier checkpoint") from error
