"""The files of a finished corpus: JSONL, cut into shards, in the order of the documents or shuffled."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from saucier.text.cleaning.config import Cleaning, Shuffle, Unshuffled
from saucier.text.rows import generator

BUCKET = 1 << 26
"""Bytes of documents in memory at once, about, while they are shuffled."""
BLOCK = 1 << 16
"""Documents that draw their keys together."""


def write_shards(lines: Iterable[tuple[int, bytes]], size: int, cleaning: Cleaning, folder: Path) -> list[Path]:
    """Write numbered lines into shards; return their paths. `size` is about how many bytes there will be."""
    match cleaning.order:
        case Unshuffled():
            ordered: Iterable[bytes] = (line for _, line in lines)
        case Shuffle(seed=seed):
            ordered = shuffled(lines, size, seed, folder)
    return _cut(ordered, cleaning, folder)


def _cut(lines: Iterable[bytes], cleaning: Cleaning, folder: Path) -> list[Path]:
    paths: list[Path] = []
    written = cleaning.shard
    with ExitStack() as stack:
        for line in lines:
            if written >= cleaning.shard:
                stack.close()
                paths.append(folder / f"corpus-{len(paths):05}.jsonl{'.zst' if cleaning.compression else ''}")
                file, written = stack.enter_context(_opened(paths[-1], cleaning)), 0
            file.write(line)
            written += len(line)
    return paths


def _opened(path: Path, cleaning: Cleaning) -> IO[bytes]:
    match cleaning.compression:
        case None:
            return path.open("wb")
        case "zst":
            import pyarrow

            opened: IO[bytes] = pyarrow.output_stream(str(path), compression="zstd")
            return opened


def shuffled(lines: Iterable[tuple[int, bytes]], size: int, seed: int, folder: Path) -> Iterator[bytes]:
    """Yield lines in an order that depends on the seed and their numbers only, in memory for one bucket of them.

    Every line draws 64 bits; lines are sorted by them. The highest bits choose a bucket on disk, so that any number of
    buckets gives the same order.
    """
    bits = max(0, (size - 1) // BUCKET).bit_length()
    keys = _Keys(seed)
    files = [(folder / f"shuffle-{number:05}").open("w+b") for number in range(1 << bits)]
    for number, line in lines:
        key = keys[number]
        files[key >> (64 - bits) if bits else 0].write(
            key.to_bytes(8, "little") + number.to_bytes(8, "little") + len(line).to_bytes(8, "little") + line)
    for file in files:
        yield from _sorted(file)
        file.close()
        Path(file.name).unlink()


class _Keys:
    """The keys of documents, drawn in blocks."""

    def __init__(self, seed: int) -> None:
        self._seed, self._block = seed, -1
        self._drawn: NDArray[np.uint64] = np.empty(0, np.uint64)

    def __getitem__(self, number: int) -> int:
        block, place = divmod(number, BLOCK)
        if block != self._block:
            self._block = block
            self._drawn = generator(self._seed, block).integers(0, 2**64, BLOCK, dtype=np.uint64)
        return int(self._drawn[place])


def _sorted(file: IO[bytes]) -> Iterator[bytes]:
    file.seek(0)
    found = []
    while head := file.read(24):
        key, number, length = np.frombuffer(head, "<u8").tolist()
        found.append((key, number, file.read(length)))
    found.sort(key=lambda entry: entry[:2])
    yield from (line for _, _, line in found)


def line_of(record: dict[str, Any]) -> bytes:
    """Return a document as a line of a shard: its text, and where it comes from."""
    kept = {name: record[name] for name in ("text", "source", "line")}
    return json.dumps(kept, ensure_ascii=False).encode("utf-8") + b"\n"
