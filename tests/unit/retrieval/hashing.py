"""An encoder for tests: words hashed to places of a vector. Quick, and known by its name alone."""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from saucier.retrieval.encoder import EncoderPassport

WIDTH = 64


class HashingEncoder:
    """Counts of words, by their digests."""

    room = 60

    def __init__(self, name: str = "hashing", seed: int = 0) -> None:
        self.seed = seed
        self.passport = EncoderPassport(model=name, digest=f"{name}-{seed}", width=WIDTH, head={}, length=62)

    def measure(self, texts: Sequence[str]) -> list[int]:
        return [len(text.split()) for text in texts]

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        found = np.zeros((len(texts), WIDTH), np.float32)
        for row, text in zip(found, texts, strict=True):
            for word in re.findall(r"\w+", text.lower()):
                row[zlib.crc32(f"{self.seed}{word}".encode()) % WIDTH] += 1
        return found / np.maximum(np.linalg.norm(found, axis=1, keepdims=True), 1e-9)


def write_files(folder: Path, count: int, words: str = "stone river lamp cloud engine paper") -> list[Path]:
    """Write small text files, each about something of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    names = words.split()
    found = [folder / f"f{number:04}.txt" for number in range(count)]
    for number, path in enumerate(found):
        path.write_text(f"File number{number} is about the {names[number % len(names)]}. "
                        f"Its code is AX-{1000 + number}. " + "Running water and other things fill it. " * 3)
    return found
