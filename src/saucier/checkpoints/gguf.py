"""Files in GGUF, the format of llama.cpp: header, metadata and tensors, read without trust, and written.

A file is `GGUF`, version, the numbers of tensors and of metadata, the metadata (name, kind, value), of each tensor its
name, dimensions (the fastest first), number format and offset, and then the numbers, each tensor padded to `alignment`.
Nothing is read outside the file: every count is held against the bytes that are left before anything is allocated for
it, and offsets and sizes are Python's whole numbers, which do not wrap.
Source: docs/gguf.md of the ggml project.
"""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from saucier.checkpoints.gguf_blocks import BLOCKS, NAMES, Blocks
from saucier.errors import InputError
from saucier.files import path_exists

if TYPE_CHECKING:
    from torch import Tensor

ENDING, TOKENS = ".gguf", "tokenizer.ggml.tokens"
MAGIC = b"GGUF"
VERSIONS = (2, 3)
ALIGNMENT = 32
"""Bytes, where the metadata says nothing else."""
MOST_DIMENSIONS, LONGEST_NAME = 4, 64
"""Limits of ggml."""
STRING, ARRAY = 8, 9
U32, I32, F32 = 4, 5, 6
"""Kinds that llama.cpp expects of counts, of kinds of tokens and of factors."""
NUMBERS = {0: "<u1", 1: "<i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", 7: "?", 10: "<u8", 11: "<i8",
           12: "<f8"}
"""Kind of a metadata value -> its number format in numpy."""
DAMAGED = "the file is damaged or not whole; copy it again"


@dataclass(frozen=True, slots=True)
class TensorPlace:
    """Where the numbers of a tensor are."""

    name: str
    shape: tuple[int, ...]
    """The slowest dimension first, as PyTorch has them."""
    kind: int
    """Number format, a key of `BLOCKS`."""
    start: int
    """Bytes from the beginning of the file."""

    @property
    def blocks(self) -> Blocks:
        """Its number format."""
        return BLOCKS[self.kind]

    @property
    def numel(self) -> int:
        """How many numbers it has."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the numbers."""
        return self.numel // self.blocks.count * self.blocks.nbytes


@dataclass(frozen=True, slots=True)
class GgufFile:
    """An opened file: what it says, and where its tensors are."""

    path: Path
    metadata: Mapping[str, Any]
    """Name -> a number, a bool, a string, an array of numpy, or a list of strings."""
    tensors: Mapping[str, TensorPlace]

    def read_blocks(self, name: str) -> NDArray[np.uint8]:
        """Return the bytes of a tensor. Shapes: -> [blocks, bytes of a block]. Raises `InputError` for a short file."""
        place = self.tensors[name]
        try:
            found = np.fromfile(self.path, np.uint8, place.nbytes, offset=place.start)
        except OSError as error:
            raise InputError(f"{name} cannot be read ({error.strerror})", where=str(self.path), remedy=DAMAGED
                             ) from error
        if len(found) != place.nbytes:
            raise InputError(f"{name} is not whole any more", where=str(self.path), remedy=DAMAGED)
        return found.reshape(-1, place.blocks.nbytes)

    def read(self, name: str) -> Tensor:
        """Return a tensor in float16, bfloat16, float32 or float64: as it is stored, or what its blocks stand for."""
        place = self.tensors[name]
        found: Tensor = place.blocks.decode(self.read_blocks(name)).reshape(place.shape)
        return found

    def number(self, name: str, default: float | None = None) -> float | None:
        """Return a number of the metadata, or the one number that an array repeats. Raises `InputError` for no number.
        """
        value = self.metadata.get(name, default)
        if isinstance(value, np.ndarray) and len(value) and bool((value == value[0]).all()):
            value = value[0].item()
        if value is None or (isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)):
            return value
        raise InputError(f"{name} is {str(value)[:40]!r}, and must be one number", where=str(self.path),
                         remedy="layers that differ are not read; use the folder that the file was made from")

    def count(self, name: str, default: int | None = None) -> int | None:
        """Return a whole number of the metadata. Raises `InputError` for any other value."""
        value = self.number(name, default)
        if value is None or isinstance(value, int):
            return value
        raise InputError(f"{name} is {value!r}, and must be a whole number", where=str(self.path), remedy=DAMAGED)


def is_gguf(path: Path) -> bool:
    """Say whether a path is a file that calls itself GGUF, by its name or its first bytes."""
    if not path_exists(path) or not path.is_file():
        return False
    if path.name.lower().endswith(ENDING):
        return True
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


@dataclass(slots=True)
class Header:
    """Reads values one after the other, never beyond the end."""

    file: BinaryIO
    path: Path
    size: int
    position: int = 0

    def fault(self, what: str, remedy: str = DAMAGED) -> InputError:
        """Return the error of a file that is not as it should be."""
        return InputError(what, where=str(self.path), remedy=remedy)

    def take(self, count: int, what: str) -> bytes:
        """Return the next bytes. Raises `InputError` where there are not as many."""
        if count > self.size - self.position:
            raise self.fault(f"{what} goes beyond the end of the file ({count:,} bytes at {self.position:,} of "
                             f"{self.size:,})")
        found = self.file.read(count)
        if len(found) != count:
            raise self.fault(f"{what} cannot be read")
        self.position += count
        return found

    def number(self, form: str, what: str) -> Any:
        """Return the next number, of a format of `struct`."""
        return struct.unpack(form, self.take(struct.calcsize(form), what))[0]

    def text(self, what: str) -> str:
        """Return the next string; bytes that are no UTF-8 are kept as half surrogates, so that they can be found."""
        return self.take(self.number("<Q", what), what).decode("utf-8", errors="surrogateescape")

    def value(self, kind: int, what: str) -> Any:
        """Return the next metadata value."""
        if kind == STRING:
            return self.text(what)
        if kind in NUMBERS:
            found = self.numbers(kind, 1, what)[0]
            return float(str(found)) if kind == F32 else found.item()  # 1e-5 as it was meant, not its float32
        if kind != ARRAY:
            raise self.fault(f"{what} has the unknown kind {kind}")
        inside, count = self.number("<I", what), self.number("<Q", what)
        if inside == STRING:
            self.hold(count, 8, what)
            return [self.text(what) for _ in range(count)]
        if inside not in NUMBERS:
            raise self.fault(f"{what} is an array of the kind {inside}, which is not read")
        return self.numbers(inside, count, what)

    def numbers(self, kind: int, count: int, what: str) -> NDArray[Any]:
        """Return the next numbers. Raises `InputError` for a bool that is neither 0 nor 1."""
        dtype = np.dtype(NUMBERS[kind])
        raw = self.take(count * dtype.itemsize, what)
        if dtype == np.bool_ and raw.strip(b"\0\1"):
            raise self.fault(f"{what} holds a bool that is neither 0 nor 1")
        return np.frombuffer(raw, dtype)

    def hold(self, count: int, least: int, what: str) -> None:
        """Raise `InputError` for a count of things of at least so many bytes that the file has no room for."""
        if count * least > self.size - self.position:
            raise self.fault(f"{what} claims {count:,} entries, more than the file has room for")


def open_gguf(path: Path) -> GgufFile:
    """Read the header of a file. Raises `InputError` for one that is damaged, lies about sizes, or cannot be read."""
    try:
        with path.open("rb") as file:
            return read_header(Header(file, path, os.fstat(file.fileno()).st_size))
    except OSError as error:
        raise InputError(f"cannot be read ({error.strerror})", where=str(path), remedy="give a file") from error


def read_header(header: Header) -> GgufFile:
    """Read metadata and the places of tensors, and hold them against each other."""
    if header.take(len(MAGIC), "the header") != MAGIC:
        raise header.fault("is no GGUF file", "give a file of llama.cpp, or a model folder")
    version = header.number("<I", "the header")
    if version not in VERSIONS:
        swapped = int.from_bytes(version.to_bytes(4, "little"), "big") in VERSIONS
        raise header.fault("is in the byte order of other processors (big-endian)" if swapped else
                           f"has the version {version}, and {' and '.join(map(str, VERSIONS))} are read",
                           "convert it again, by a llama.cpp of today")
    tensors, entries = header.number("<Q", "the header"), header.number("<Q", "the header")
    header.hold(entries, 13, "the metadata")
    header.hold(tensors, 32, "the list of tensors")
    metadata: dict[str, Any] = {}
    for _ in range(entries):
        name = header.text("a name of the metadata")
        if name in metadata:
            raise header.fault(f"the metadata has {name[:80]!r} twice")
        metadata[name] = header.value(header.number("<I", name[:80]), name[:80])
    listed = [read_place(header) for _ in range(tensors)]
    alignment = metadata.get("general.alignment", ALIGNMENT)
    if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
        raise header.fault(f"general.alignment is {str(alignment)[:40]}, and must be a power of two")
    first = -(-header.position // alignment) * alignment
    return GgufFile(header.path, metadata, check_places(header, listed, first, alignment))


def read_place(header: Header) -> TensorPlace:
    """Read what the header says of a tensor; `start` still counts from the first of all."""
    name = header.text("a name of a tensor")
    if not name or len(name) >= LONGEST_NAME:
        raise header.fault(f"a tensor is called {name[:80]!r}, and names have 1 to {LONGEST_NAME - 1} letters")
    count = header.number("<I", name)
    if not 1 <= count <= MOST_DIMENSIONS:
        raise header.fault(f"{name} has {count:,} dimensions, and 1 to {MOST_DIMENSIONS} are possible")
    dimensions = struct.unpack(f"<{count}Q", header.take(8 * count, name))
    kind, start = header.number("<I", name), header.number("<Q", name)
    if kind not in BLOCKS:
        raise header.fault(f"{name} is in the number format {NAMES.get(kind, kind)}, which is not read",
                           f"known: {', '.join(one.name for one in BLOCKS.values())}")
    if 0 in dimensions:
        raise header.fault(f"{name} has a dimension of 0")
    if dimensions[0] % BLOCKS[kind].count:
        raise header.fault(f"{name} has rows of {dimensions[0]:,} numbers, and {BLOCKS[kind].name} stores "
                           f"{BLOCKS[kind].count} together")
    return TensorPlace(name, tuple(reversed(dimensions)), kind, start)


def check_places(header: Header, listed: Iterable[TensorPlace], first: int, alignment: int) -> dict[str, TensorPlace]:
    """Return the tensors by name, with their places in the file. Raises `InputError` where one is not inside it, where
    two share bytes, and for two of one name.
    """
    found: dict[str, TensorPlace] = {}
    for one in listed:
        if one.name in found:
            raise header.fault(f"the tensor {one.name} is there twice")
        if one.start % alignment:
            raise header.fault(f"{one.name} begins at {one.start:,}, which is no multiple of {alignment}")
        if first + one.start + one.nbytes > header.size:
            raise header.fault(f"{one.name} has {one.nbytes:,} bytes at {first + one.start:,}, and the file ends at "
                               f"{header.size:,}")
        found[one.name] = TensorPlace(one.name, one.shape, one.kind, first + one.start)
    ordered = sorted(found.values(), key=lambda one: one.start)
    for one, other in pairwise(ordered):
        if one.start + one.nbytes > other.start:
            raise header.fault(f"{one.name} and {other.name} share bytes")
    return found


@dataclass(frozen=True, slots=True)
class Typed:
    """A metadata value whose kind its Python type does not say."""

    value: Any
    kind: int


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor that is to be written."""

    shape: tuple[int, ...]
    kind: int
    make: Callable[[], NDArray[np.uint8]] = field(repr=False)
    """Gives its bytes when it is written, so that only one is in memory."""


def write_gguf(path: Path, metadata: Mapping[str, Any], tensors: Mapping[str, StoredTensor]) -> None:
    """Write a file. `metadata`: bools, strings, lists of strings, and `Typed` numbers or lists of them."""
    with path.open("wb") as file:
        file.write(MAGIC + struct.pack("<IQQ", VERSIONS[-1], len(tensors), len(metadata)))
        for name, value in metadata.items():
            file.write(spell(name) + spell_value(value))
        offset = 0
        for name, one in tensors.items():
            file.write(spell(name) + struct.pack(f"<I{len(one.shape)}QIQ", len(one.shape), *reversed(one.shape),
                                                 one.kind, offset))
            offset += padded(math.prod(one.shape) // BLOCKS[one.kind].count * BLOCKS[one.kind].nbytes)
        for one in tensors.values():
            file.write(b"\0" * (padded(file.tell()) - file.tell()))
            file.write(one.make().tobytes())
        file.write(b"\0" * (padded(file.tell()) - file.tell()))


def padded(size: int) -> int:
    """Return the next multiple of the alignment."""
    return -(-size // ALIGNMENT) * ALIGNMENT


def spell(text: str) -> bytes:
    """Return a string as it is stored."""
    raw = text.encode("utf-8", errors="surrogateescape")
    return struct.pack("<Q", len(raw)) + raw


def spell_value(value: Any) -> bytes:
    """Return a metadata value as it is stored, its kind first."""
    match value:
        case Typed(value=list() | np.ndarray() as many, kind=kind):
            return struct.pack("<IIQ", ARRAY, kind, len(many)) + np.asarray(many, NUMBERS[kind]).tobytes()
        case Typed(value=one, kind=kind):
            return struct.pack("<I", kind) + np.asarray(one, NUMBERS[kind]).tobytes()
        case bool():
            return struct.pack("<I?", 7, value)
        case str():
            return struct.pack("<I", STRING) + spell(value)
        case list():
            return struct.pack("<IIQ", ARRAY, STRING, len(value)) + b"".join(map(spell, value))
        case _:
            raise AssertionError("as write_gguf says")

