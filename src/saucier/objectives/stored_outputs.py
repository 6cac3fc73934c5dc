"""`OutputStore`: what a teacher gives for each row, computed once, on the disk, and read through a memory map.

A row is known by a digest of all that the teacher reads of it, so that another row, other tokens of the same text or
hidden tokens drawn otherwise are never served by mistake; a store belongs to one teacher and to what is kept of it.
Letters: B rows of a batch, L length, H heads, R rows that a value has, K tokens that are kept.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from saucier.checkpoints.weight_files import write_tensors
from saucier.errors import InputError
from saucier.files import write_atomically
from saucier.objectives.base import MASK_OF_INPUT
from saucier.objectives.observed_pass import ObservedPass, read_pass, restore_pass

SHARD_BYTES = 256 * 2**20
"""A file is written when it has so many: as many are in memory, and are lost when the work is stopped."""
KEY_BYTES = 16
DESCRIBED = "outputs"
"""The note of a file that describes its values."""
MASKS = frozenset(MASK_OF_INPUT.values())


@dataclass(frozen=True, slots=True)
class RowKeys:
    """The rows of a batch as a store knows them."""

    keys: Sequence[bytes]
    lengths: Mapping[str, Sequence[int]]
    """Real tokens of each row, by the name of the input."""
    widths: Mapping[str, int]
    """L of each input."""

    @classmethod
    def of(cls, inputs: Mapping[str, Any]) -> RowKeys:
        """Read them off what a teacher reads. Raises `InputError` for an input that is not one of rows."""
        lead, rows = inputs["input_ids"].shape[:-1], prod(inputs["input_ids"].shape[:-1])
        lengths, widths = dict[str, list[int]](), dict[str, int]()
        for name, mask in MASK_OF_INPUT.items():
            if name in inputs:
                widths[name] = inputs[name].shape[-1]
                real = inputs.get(mask)
                lengths[name] = [widths[name]] * rows if real is None else real.reshape(rows, -1).sum(-1).tolist()
        digests = [hashlib.blake2b(digest_size=KEY_BYTES) for _ in range(rows)]
        for name, value in sorted(inputs.items()):
            if not isinstance(value, Tensor) or name in MASKS:
                continue
            if value.numel() % rows:
                raise InputError(f"the input {name} is not one of rows", where="distillation.stored",
                                 remedy="leave it out")
            side = choose_side(name, inputs)
            wide = value.dim() > len(lead) and value.shape[len(lead)] == widths[side]
            lines = value.detach().cpu().reshape(rows, widths[side] if wide else 1, -1).contiguous()
            for digest, line, length in zip(digests, lines.numpy(), lengths[side], strict=True):
                part = line[:length] if wide else line
                digest.update(f"{name} {value.dtype} {part.shape} ".encode() + part.tobytes())
        return cls([one.digest() for one in digests], lengths, widths)

    def of_groups(self, count: int) -> Sequence[bytes]:
        """Return the keys of so many groups of rows, of one row each where there are as many."""
        size = len(self.keys) // count
        return self.keys if size == 1 else [
            hashlib.blake2b(b"".join(self.keys[start:start + size]), digest_size=KEY_BYTES).digest()
            for start in range(0, len(self.keys), size)]


def choose_side(name: str, inputs: Mapping[str, Any]) -> str:
    """Return the input whose tokens a value of this name belongs to: of answers that of the last stack."""
    reads = name in inputs and not name.startswith("decoder_")
    return "decoder_input_ids" if "decoder_input_ids" in inputs and not (
        reads or name.startswith("encoder.")) else "input_ids"


@dataclass(slots=True)
class Column:
    """One kind of value, of all rows."""

    axes: int
    """Axes that are tokens: none [R, ...], one [R, L, ...], or two [R, H, L, L]."""
    tail: tuple[int, ...]
    """The other axes but the first."""
    dtype: torch.dtype
    per_unit: int
    """Rows that are read for one value: those of a group of choices."""
    places: dict[bytes, tuple[Tensor, int, int]] = field(default_factory=dict)
    """Row -> all values of a file, and where its own begin and end."""

    def count(self, length: int) -> int:
        """Return how many numbers a row of so many tokens has."""
        return prod(self.tail) * prod([length] * self.axes)

    def cut(self, row: Tensor, length: int) -> Tensor:
        """Return the part of a row that real tokens have."""
        match self.axes:
            case 0:
                return row
            case 1:
                return row[:length]
        return row[..., :length, :length]

    def pad(self, found: Sequence[Tensor], lengths: Sequence[int], width: int) -> Tensor:
        """Put rows together, padding being 0. Shapes: R times [numbers] -> [R, ...] with L = `width`."""
        shape = (*self.tail, width, width) if self.axes == 2 else (*[width] * self.axes, *self.tail)
        whole = found[0].new_zeros(len(found), *shape)
        for target, row, length in zip(whole, found, lengths, strict=True):
            place = self.cut(target, length)
            place.copy_(row.view_as(place))
        return whole


@dataclass(slots=True)
class OutputStore:
    """Values of rows in the files of a folder."""

    folder: Path
    names: tuple[str, ...]
    """What is kept of a pass."""
    cast: torch.dtype | None = None
    """The number format of the files; None: as the teacher gives them."""
    columns: dict[str, Column] = field(default_factory=dict)

    @classmethod
    def open(cls, folder: Path, names: Iterable[str], cast: torch.dtype | None) -> OutputStore:
        """Open a folder, which may be empty yet. Raises `InputError` for a damaged file."""
        found = cls(folder, tuple(names), cast)
        for path in sorted(folder.glob("*.safetensors")):
            found.add_file(path)
        return found

    def add_file(self, path: Path) -> None:
        """Map a file into memory. Raises `InputError` where it is damaged."""
        try:
            with safe_open(path, framework="pt") as file:
                described = json.loads(file.metadata()[DESCRIBED])
                for name in self.names:
                    values, ends = file.get_tensor(f"{name}.values"), file.get_tensor(f"{name}.ends").tolist()
                    keys = file.get_tensor(f"{name}.keys").numpy()
                    column = self.columns.setdefault(name, Column(dtype=values.dtype, **described[name] | {
                        "tail": tuple(described[name]["tail"])}))
                    column.places |= {key.tobytes(): (values, start, end) for key, start, end in zip(
                        keys, [0, *ends[:-1]], ends, strict=True)}
        except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
            raise InputError(f"the stored outputs of a teacher are damaged ({error})", where=str(path),
                             remedy="remove the file: what is missing is computed again") from error

    def describe(self, passed: ObservedPass, rows: RowKeys) -> None:
        """Note of what shape values are, by a pass. Raises `InputError` for values that are not those of its tokens."""
        for name in self.names:
            value = read_pass(passed, name)
            whole = name == "embeddings" or (name == "logits" and value.dim() == 2)  # of a text, not of its tokens
            axes, width = 2 if ".scores." in name else int(not whole), rows.widths[choose_side(name, passed.inputs)]
            if axes and value.shape[-1 if axes == 2 else 1] != width:
                raise InputError(f"the teacher's {name} has other places than its tokens", where="distillation.stored",
                                 remedy="leave it out")
            tail = value.shape[1:2] if axes == 2 else value.shape[1 + axes:]
            self.columns.setdefault(name, Column(axes, tuple(tail), self.cast or value.dtype,
                                                 len(rows.keys) // len(value)))

    def lacks(self, rows: RowKeys) -> bool:
        """Say whether a row of a batch is not there."""
        return not self.columns or any(
            key not in column.places for column in self.columns.values()
            for key in rows.of_groups(len(rows.keys) // column.per_unit))

    def count_bytes(self, batches: Iterable[RowKeys]) -> int:
        """Return how many bytes the values of some rows have, each row counted once."""
        total = 0
        seen: dict[str, set[bytes]] = {name: set() for name in self.columns}
        for rows in batches:
            for name, column in self.columns.items():
                for key, length in zip(rows.of_groups(len(rows.keys) // column.per_unit),
                                       self.lengths_of(name, rows), strict=True):
                    if key not in seen[name]:
                        seen[name].add(key)
                        total += column.count(length) * column.dtype.itemsize
        return total

    def lengths_of(self, name: str, rows: RowKeys) -> Sequence[int]:
        """Return the real tokens of each value of a column; of values of groups they do not matter."""
        return rows.lengths[choose_side(name, rows.lengths)][::self.columns[name].per_unit]

    def write(self, passes: Iterable[ObservedPass]) -> None:
        """Keep the values of passes, in files of `SHARD_BYTES`; rows that are there stay as they are."""
        shard = Shard()
        for passed in passes:
            rows = RowKeys.of(passed.inputs)
            self.describe(passed, rows)
            for name, column in self.columns.items():
                value = read_pass(passed, name).detach()
                value = (value if self.cast is None or not value.is_floating_point() else value.to(self.cast)).cpu()
                for key, row, length in zip(rows.of_groups(len(value)), value, self.lengths_of(name, rows),
                                            strict=True):
                    if key not in column.places:
                        shard.add(name, key, column.cut(row, length).reshape(-1))
            if shard.size >= SHARD_BYTES:
                self.write_shard(shard)
                shard = Shard()
        if shard.size:
            self.write_shard(shard)

    def write_shard(self, shard: Shard) -> None:
        """Write a file, named by its rows, and map it."""
        tensors, digest = dict[str, Tensor](), hashlib.blake2b(digest_size=KEY_BYTES)
        for name in self.names:
            found = shard.rows.get(name, {})
            keys = b"".join(found)
            digest.update(keys)
            tensors[f"{name}.keys"] = torch.frombuffer(bytearray(keys), dtype=torch.uint8).view(-1, KEY_BYTES) \
                if keys else torch.zeros(0, KEY_BYTES, dtype=torch.uint8)
            tensors[f"{name}.values"] = torch.cat([*found.values()]) if found \
                else torch.zeros(0, dtype=self.columns[name].dtype)
            tensors[f"{name}.ends"] = torch.tensor([len(row) for row in found.values()], dtype=torch.int64).cumsum(0)
        described = {name: {"axes": column.axes, "tail": column.tail, "per_unit": column.per_unit}
                     for name, column in self.columns.items()}
        path = self.folder / f"{digest.hexdigest()}.safetensors"
        self.folder.mkdir(parents=True, exist_ok=True)
        write_atomically(path, lambda place: write_tensors(tensors, place, {DESCRIBED: json.dumps(described)}))
        self.add_file(path)

    def read(self, names: Iterable[str], inputs: Mapping[str, Any]) -> ObservedPass:
        """Return a pass with the stored values of a batch. Raises `InputError` for a row that is not there."""
        rows, found = RowKeys.of(inputs), dict[str, Tensor]()
        for name in names:
            column = self.columns[name]
            try:
                places = [column.places[key] for key in rows.of_groups(len(rows.keys) // column.per_unit)]
            except KeyError as error:
                raise InputError("a row is not among the stored outputs of the teacher", where=str(self.folder),
                                 remedy="leave distillation.stored out where rows change while they are learned"
                                 ) from error
            width = rows.widths[choose_side(name, inputs)]
            whole = column.pad([values[start:end] for values, start, end in places], self.lengths_of(name, rows), width)
            plain = whole.float() if self.cast is not None and whole.is_floating_point() else whole
            found[name] = plain.to(inputs["input_ids"].device)
        return restore_pass(dict(inputs), found)


@dataclass(slots=True)
class Shard:
    """Values that will be in one file: of each column row by row."""

    rows: dict[str, dict[bytes, Tensor]] = field(default_factory=dict)
    size: int = 0
    """Bytes of them."""

    def add(self, name: str, key: bytes, values: Tensor) -> None:
        """Take the values of a row, once."""
        found = self.rows.setdefault(name, {})
        if key not in found:
            found[key] = values.clone()
            self.size += values.nbytes
