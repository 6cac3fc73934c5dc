"""MinHash values of documents, in bands. Axes: N runs of words, M hash functions, B bands.

Source: Broder 1997; the hash functions multiply and shift (Dietzfelbinger et al. 1997).
"""

from __future__ import annotations

import numpy as np

from saucier.text.cleaning.config import NearDuplicates
from saucier.text.cleaning.page import Page
from saucier.text.cleaning.words import Hashes, mixed, runs
from saucier.text.rows import generator

HALF = np.uint64(32)


def shingles(page: Page, words: int) -> Hashes:
    """Return the different runs of words of a text, sorted; a shorter text is one run. Shapes: [N]."""
    return np.unique(runs(page.token_hashes, max(1, min(words, len(page.tokens)))))


def jaccard(left: Hashes, right: Hashes) -> float:
    """Return the share of what two sorted sets have together that is in both. Shapes: [N], [N']."""
    both = len(np.intersect1d(left, right, assume_unique=True))
    return both / max(1, len(left) + len(right) - both)


class MinHash:
    """The hash functions of a rule."""

    def __init__(self, rule: NearDuplicates) -> None:
        """Draw them from the seed of the rule."""
        draw = generator(rule.seed)
        count = rule.bands * rule.rows
        self._rule = rule
        self._factors = draw.integers(0, 2**63, count, dtype=np.uint64)[:, None] * np.uint64(2) + np.uint64(1)
        self._offsets = draw.integers(0, 2**64, count, dtype=np.uint64)[:, None]

    def values(self, page: Page) -> Hashes:
        """Return the least value of each hash function over a text's runs of words. Shapes: [M], 32 bits each."""
        found = shingles(page, self._rule.words)
        if not len(found):
            return np.zeros(len(self._factors), np.uint64)
        least: Hashes = ((self._factors * found + self._offsets) >> HALF).min(axis=1)
        return least

    def bands(self, page: Page) -> Hashes:
        """Return a key for each band; texts with equal keys are candidates. Shapes: [B]."""
        values = self.values(page).reshape(self._rule.bands, self._rule.rows)
        keys = np.arange(self._rule.bands, dtype=np.uint64)
        for row in range(self._rule.rows):
            keys = mixed(keys + values[:, row])
        return keys
