"""Numbers for words and for runs of words: 64 bits each, the same on every machine. Axes: W words, N runs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

Hashes = NDArray[np.uint64]
WORDS = re.compile(r"\w+")
REMEMBERED = 1_000_000
"""Words whose numbers are kept; when there are more, remembering starts anew."""
MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
MIXER = np.uint64(0xBF58476D1CE4E5B9)


class _Numbers(dict[str, int]):
    def __missing__(self, word: str) -> int:
        if len(self) >= REMEMBERED:
            self.clear()
        number = self[word] = int.from_bytes(digest(word)[:8], "little")
        return number


_NUMBERS = _Numbers()


def digest(text: str) -> bytes:
    """Return 16 bytes that stand for a text."""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def hashes(words: Sequence[str]) -> Hashes:
    """Return a number for each word. Shapes: [W]."""
    return np.fromiter(map(_NUMBERS.__getitem__, words), np.uint64, len(words))


def runs(words: Hashes, length: int) -> Hashes:
    """Return a number for each run of `length` words, none where there are fewer. Shapes: [W] -> [N]."""
    count = len(words) - length + 1
    if count <= 0:
        return words[:0]
    total = words[:count].copy()
    for place in range(1, length):
        total *= MULTIPLIER
        total += words[place:place + count]
    return mixed(total)


def mixed(values: Hashes) -> Hashes:
    """Spread every bit over all others, so that high bits are as good as low ones (the finalizer of splitmix64)."""
    values = (values ^ (values >> np.uint64(30))) * MIXER
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
