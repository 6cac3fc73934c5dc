"""Keys of documents and of places in them: written to disk while text streams by, brought together afterwards.

Equal keys meet in memory one bucket (a range of keys) at a time, so that memory does not grow with the corpus.
Axes: K keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from saucier.text.cleaning.words import Hashes

KEY = np.dtype([("key", "<u8"), ("check", "<u8"), ("document", "<i8"), ("place", "<i4")])
"""128 bits that stand for some text, the number of the document, and a place in it."""
BUCKET = 1 << 21
"""Keys in memory at once, about."""
PENDING = 1 << 16
Keys = NDArray[np.void]


class KeyFile:
    """A file of keys that grows."""

    def __init__(self, path: Path) -> None:
        """Start a new file."""
        self._file = path.open("wb")
        self._held: list[Keys] = []
        self._size = 0

    def add(self, keys: Hashes, checks: Hashes, document: int) -> None:
        """Append the keys of one document; their places count from 0. Shapes: keys, checks [K]."""
        new = np.empty(len(keys), KEY)
        new["key"], new["check"], new["document"], new["place"] = keys, checks, document, np.arange(len(keys))
        self._held.append(new)
        self._size += len(new)
        if self._size > PENDING:
            self.flush()

    def flush(self) -> None:
        """Write what is held."""
        for keys in self._held:
            self._file.write(keys.tobytes())
        self._held, self._size = [], 0

    def close(self) -> None:
        """Write the rest, and close the file."""
        self.flush()
        self._file.close()


@dataclass(frozen=True, slots=True)
class KeyPart:
    """A file of keys whose documents are counted from `first` on in the corpus."""

    path: Path
    first: int

    def blocks(self, dropped: NDArray[np.int64]) -> Iterator[Keys]:
        """Yield keys with the corpus's numbers, but for those of documents that are `dropped` (>= 0)."""
        with self.path.open("rb") as file:
            while block := file.read(PENDING * KEY.itemsize):
                keys = np.frombuffer(block, KEY).copy()
                keys["document"] += self.first
                yield keys[dropped[keys["document"]] < 0]


def sorted_buckets(parts: Sequence[KeyPart], dropped: NDArray[np.int64], scratch: Path) -> Iterator[Keys]:
    """Yield all keys in buckets that hold equal ones together, each sorted by key, document and place.

    Shapes: dropped [documents of the corpus].
    """
    total = sum(part.path.stat().st_size for part in parts) // KEY.itemsize
    bits = max(0, (total - 1) // BUCKET).bit_length()
    if bits == 0:
        yield _sorted([block for part in parts for block in part.blocks(dropped)])
        return
    scratch.mkdir(parents=True, exist_ok=True)
    files = [(scratch / f"bucket-{number:05}").open("w+b") for number in range(1 << bits)]
    for part in parts:
        for keys in part.blocks(dropped):
            _distribute(keys, files, bits)
    for file in files:
        file.seek(0)
        yield _sorted([np.frombuffer(file.read(), KEY)])
        file.close()
        Path(file.name).unlink()


def _distribute(keys: Keys, files: Sequence[IO[bytes]], bits: int) -> None:
    numbers = keys["key"] >> np.uint64(64 - bits)
    for number in np.unique(numbers):
        files[int(number)].write(keys[numbers == number].tobytes())


def _sorted(blocks: Sequence[Keys]) -> Keys:
    keys = np.concatenate(blocks) if blocks else np.empty(0, KEY)
    order = np.lexsort((keys["place"], keys["document"], keys["check"], keys["key"]))
    found: Keys = keys[order]
    return found


def starts(keys: Keys) -> NDArray[np.int64]:
    """Return for each of some sorted keys where the run of its equals starts. Shapes: [K]."""
    if not len(keys):
        return np.empty(0, np.int64)
    new = (keys["key"][1:] != keys["key"][:-1]) | (keys["check"][1:] != keys["check"][:-1])
    places = np.arange(len(keys))
    places[1:][~new] = 0
    return np.maximum.accumulate(places)
