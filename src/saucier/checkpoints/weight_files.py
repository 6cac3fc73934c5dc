"""Files of weights: safetensors or pytorch_model.bin, whole or in shards, read one tensor at a time, and written.

Nothing here trusts a file: names of shards stay inside the folder, a name is in one shard only, pytorch_model.bin is
read by PyTorch's restricted reader, and a full disk is reported as one.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator, Mapping
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError, safe_open

from saucier.errors import InputError
from saucier.files import read_object

if TYPE_CHECKING:
    import torch
    from torch import Tensor


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


def write_tensors(tensors: Mapping[str, Tensor], path: Path, notes: Mapping[str, str] | None = None) -> None:
    """Write a safetensors file, with notes next to the tensors.

    Raises `OSError` with the system's number where the library only gives its text.
    """
    from safetensors.torch import save_file

    try:
        save_file(dict(tensors), path, metadata={"format": "pt", **(notes or {})})
    except SafetensorError as error:
        number = re.search(r"os error (\d+)", str(error))
        if number is None:
            raise
        raise OSError(int(number[1]), str(error), str(path)) from error


def widest_dtype(tensors: Mapping[str, Tensor]) -> torch.dtype:
    """Return the number format that holds all tensors exactly."""
    import torch

    return reduce(torch.promote_types, {tensor.dtype for tensor in tensors.values()})


SAFE, PICKLED = "model.safetensors", "pytorch_model.bin"
BYTES_AT_ONCE, SHARE = 8 * 2**20, 50
"""Bytes, or the part of a file, that are taken before it is mapped again, so that what was read leaves the memory."""
OLD_NAMES = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}
"""Ends of names that the first checkpoints of BERT have, and today's."""
MOST_SHARDS, LONGEST_NAME = 10_000, 200


class SafeShard:
    """A safetensors file, mapped into memory for as long as little of it was read."""

    def __init__(self, path: Path) -> None:
        """Open a file. Raises `InputError` for a missing, truncated or corrupt one."""
        if not path.is_file():
            raise InputError("no such file", where=str(path), remedy="fetch the whole folder")
        self.path, self.taken = path, 0
        self.at_once = max(BYTES_AT_ONCE, path.stat().st_size // SHARE)
        self.file = self.opened()

    def opened(self) -> Any:
        """Map the file."""
        try:
            return safe_open(self.path, framework="pt")
        except (SafetensorError, OSError) as error:
            raise InputError(f"not a whole safetensors file ({error})", where=str(self.path),
                             remedy="copy it again, or use an earlier checkpoint") from error

    def names(self) -> list[str]:
        """Name the tensors."""
        return list(self.file.keys())

    def get(self, name: str) -> Tensor:
        """Return a tensor that the file backs."""
        if self.taken > self.at_once:
            self.file, self.taken = self.opened(), 0
        try:
            tensor: Tensor = self.file.get_tensor(name)
        except (SafetensorError, RuntimeError, ValueError) as error:
            raise InputError(f"{name} cannot be read ({error})", where=str(self.path),
                             remedy="copy it again") from error
        self.taken += tensor.nbytes
        return tensor

    def write(self, name: str, target: Tensor) -> None:
        """Write a tensor into memory of its shape, some rows at a time, so that little of the file is mapped at once.

        Raises `ValueError` for another shape.
        """
        stored = check_shape(self.get(name), target)
        if stored.nbytes <= self.at_once:
            target.copy_(stored)
            return
        rows = max(1, self.at_once * len(target) // stored.nbytes)
        del stored  # it would hold on to its map
        for first in range(0, len(target), rows):
            target[first:first + rows].copy_(self.get(name)[first:first + rows])


class PickledShard:
    """A pytorch_model.bin, read by PyTorch's reader that builds tensors and refuses all other objects."""

    def __init__(self, path: Path) -> None:
        """Open a file. Raises `InputError` for one that is broken, or that holds anything but tensors."""
        import torch

        if not path.is_file():
            raise InputError("no such file", where=str(path), remedy="fetch the whole folder")
        self.path = path
        try:  # files from before PyTorch 1.6 are no archives, and cannot be mapped
            self.tensors = torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
        except Exception as error:  # a broken archive or pickle raises anything; nothing of it was run
            raise InputError("holds something else than tensors, or is broken; it is not opened", where=str(path),
                             remedy="use a folder with model.safetensors") from error
        if not isinstance(self.tensors, dict) or not all(isinstance(name, str) and isinstance(value, torch.Tensor)
                                                         for name, value in self.tensors.items()):
            raise InputError("is not a table of tensors by name", where=str(path), remedy="do not use this file")

    def names(self) -> list[str]:
        """Name the tensors."""
        return list(self.tensors)

    def get(self, name: str) -> Tensor:
        """Return a tensor."""
        return self.tensors[name]  # type: ignore[no-any-return]

    def write(self, name: str, target: Tensor) -> None:
        """Write a tensor into memory of its shape. Raises `ValueError` for another one."""
        target.copy_(check_shape(self.get(name), target))


Shard = SafeShard | PickledShard
"""One file of weights."""


def check_shape(tensor: Tensor, target: Tensor) -> Tensor:
    """Return a tensor of the target's shape. Raises `ValueError` for another one."""
    if tensor.shape != target.shape:
        raise ValueError(f"gives {list(tensor.shape)} instead of {list(target.shape)}")
    return tensor


class Weights:
    """All tensors of a folder by name."""

    def __init__(self, folder: Path, *, stem: tuple[str, str] = (SAFE, PICKLED)) -> None:
        """Open a folder's files, which `stem` names, the preferred first.

        Raises `InputError` where they are missing, broken or contradict each other.
        """
        self.folder = folder
        self.shards = [(SafeShard if path.name.endswith(".safetensors") else PickledShard)(path)
                       for path in shard_paths(folder, stem)]
        self.places: dict[str, tuple[Shard, str]] = {}
        for shard in self.shards:
            for stored in shard.names():
                name = current_name(stored)
                if name in self.places:
                    raise InputError(f"{name} stands there, and in {self.places[name][0].path.name} too",
                                     where=str(shard.path), remedy="fetch the folder again")
                self.places[name] = (shard, stored)

    @property
    def size(self) -> int:
        """Bytes of all files together."""
        return sum(shard.path.stat().st_size for shard in self.shards)

    def dtype(self) -> torch.dtype:
        """Return the number format that holds every weight exactly; float32 where there are none."""
        import torch

        found = {shard.get(stored).dtype for shard, stored in self.places.values()}
        floats = [one for one in found if one.is_floating_point and one.itemsize >= 2]
        return reduce(torch.promote_types, floats) if floats else torch.float32

    def __contains__(self, name: object) -> bool:
        """Say whether there is a tensor of this name."""
        return name in self.places

    def __iter__(self) -> Iterator[str]:
        """Name the tensors."""
        return iter(self.places)

    def __getitem__(self, name: str) -> Tensor:
        """Return a tensor. Raises `KeyError` for an unknown name and `InputError` for what is no weight."""
        shard, stored = self.places[name]
        return check_floating(shard.get(stored), name, shard)

    def read_any(self, name: str) -> Tensor:
        """Return a tensor in whatever number format it has. Raises `KeyError` for an unknown name."""
        shard, stored = self.places[name]
        return shard.get(stored)

    def write(self, name: str, target: Tensor) -> None:
        """Write a tensor into memory of its shape, with little of its file in memory. Raises as `[]`, and `ValueError`.
        """
        shard, stored = self.places[name]
        check_floating(shard.get(stored), name, shard)
        shard.write(stored, target)


def check_floating(tensor: Tensor, name: str, shard: Shard) -> Tensor:
    """Return a tensor that holds weights. Raises `InputError` for any other."""
    if not tensor.is_floating_point() or tensor.element_size() < 2:
        raise InputError(f"{name} is {str(tensor.dtype).removeprefix('torch.')}", where=str(shard.path),
                         remedy="config.json has no quantization_config that says how to read it; copy it again, or "
                                "use the folder in float")
    return tensor


def current_name(name: str) -> str:
    """Return a tensor's name as it is spelled today."""
    ending = next((old for old in OLD_NAMES if name.endswith(old)), None)
    return name if ending is None else name.removesuffix(ending) + OLD_NAMES[ending]


def shard_paths(folder: Path, names: tuple[str, str] = (SAFE, PICKLED)) -> list[Path]:
    """Find the files of weights of a folder; safetensors are preferred. Raises `InputError` where there are none."""
    for name in names:
        index = folder / f"{name}.index.json"
        if (folder / name).is_file():
            return [folder / name]
        if index.is_file():
            return list_shards(index, name.rsplit(".", 1)[-1])
    raise InputError("no such file", where=str(folder / names[0]),
                     remedy=f"the weights are missing ({' or '.join(names)}); fetch the whole folder")


def list_shards(index: Path, ending: str) -> list[Path]:
    """Return the shards that an index names. Raises `InputError` for a name that leads out of the folder."""
    shards = read_object(index).get("weight_map")
    if not isinstance(shards, dict) or not shards or not all(isinstance(name, str) for name in shards.values()):
        raise InputError("weight_map is missing or not a table of file names", where=str(index),
                         remedy="copy the folder again")
    names = sorted(set(shards.values()))
    if len(names) > MOST_SHARDS:
        raise InputError(f"names {len(names):,} shards", where=str(index), remedy="copy the folder again")
    for name in names:
        if Path(name).name != name or not name.endswith(f".{ending}") or "\0" in name or len(name) > LONGEST_NAME:
            raise InputError(f"the shard {name[:80]!r} is outside the folder, or no .{ending}", where=str(index),
                             remedy="do not use this folder")
    return [index.parent / name for name in names]
