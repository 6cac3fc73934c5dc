"""Rows of several languages: each row of a batch is of a language that is drawn for it, by the wanted shares.

Axes: B rows, L positions, N languages.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from saucier.text.rows import Batches, Ints, Rows, generator, share, stacked

PERIOD = 1 << 14
"""Rows in which the shares hold exactly, but for rounding; a language has one row of them at least."""
LANGUAGES = 3
"""Stream of random numbers."""


@dataclass(frozen=True, slots=True)
class OneLanguage:
    """Batches whose tokens are all of one language, which their rows tell where it is given."""

    batches: Batches[Rows]
    language: int | None = None

    @property
    def steps_per_epoch(self) -> int:
        """As many as there are."""
        return self.batches.steps_per_epoch

    @property
    def counts(self) -> dict[str, int]:
        """Those of the batches."""
        return self.batches.counts

    def rows(self, step: int, rank: int = 0, world: int = 1) -> Rows:
        """Give the rows of batch `step` that process `rank` of `world` works on."""
        return told(self.batches.rows(step, rank, world), self.language)

    def __getitem__(self, step: int) -> Rows:
        """Give the whole batch of one step."""
        return self.rows(step)


def told(rows: Rows, language: int | None) -> Rows:
    """Let rows tell their language."""
    return rows if language is None else replace(rows, languages=np.full_like(rows.tokens, language))


class LanguageBatches:
    """Endless batches over several languages; every language goes through its own text in its own order.

    XLM draws a language for each batch, mBART for each row, as here.
    """

    def __init__(self, members: Sequence[Batches[Rows]], shares: NDArray[np.float64], *, batch: int,
                 seed: int = 0) -> None:
        """Draw from `members`, whose batches are one row each; `shares` [N] add up to 1."""
        self._members = members
        self._batch, self._seed = batch, seed
        self._quota = quotas(shares, PERIOD)
        self._drawn = functools.lru_cache(maxsize=2)(self._period)

    @property
    def steps_per_epoch(self) -> int:
        """Steps that show as many rows as all languages have; a small one has come more than once by then."""
        return -(-sum(one.steps_per_epoch for one in self._members) // self._batch)

    @property
    def counts(self) -> dict[str, int]:
        """The counts of all languages together."""
        names = dict.fromkeys(name for one in self._members for name in one.counts)
        return {name: sum(one.counts.get(name, 0) for one in self._members) for name in names}

    def _period(self, number: int) -> Ints:
        """Draw one period: the language of each of its rows, and which of the language's rows it is. -> [2, rows]."""
        languages = generator(self._seed, LANGUAGES, number).permutation(np.repeat(np.arange(len(self._quota)),
                                                                                   self._quota))
        places = np.empty_like(languages)
        for language, count in enumerate(self._quota):
            places[languages == language] = number * count + np.arange(count)
        return np.stack([languages, places])

    def drawn(self, first: int, last: int) -> tuple[Ints, Ints]:
        """Return language and place of the rows from number `first` of the whole training to `last` (not included)."""
        found = [self._drawn(period) for period in range(first // PERIOD, -(-last // PERIOD))]
        start = first // PERIOD * PERIOD
        languages: Ints = np.concatenate([one[0] for one in found])
        places: Ints = np.concatenate([one[1] for one in found])
        cut = slice(first - start, last - start)
        return languages[cut], places[cut]

    def rows(self, step: int, rank: int = 0, world: int = 1) -> Rows:
        """Give the rows of batch `step` that process `rank` of `world` works on."""
        mine = share(self._batch, rank, world)
        languages, places = self.drawn(step * self._batch, (step + 1) * self._batch)
        found = []
        for number in range(mine.start, mine.stop):
            rows = self._members[languages[number]].rows(int(places[number]))
            found.append(replace(rows, row=number + self._batch * rows.row))
        return stacked(found)

    def __getitem__(self, step: int) -> Rows:
        """Give the whole batch of one step."""
        return self.rows(step)


def quotas(shares: NDArray[np.float64], total: int) -> Ints:
    """Cut `total` by shares into whole numbers, one at least, the largest remainders up. Shapes: [N] -> [N]."""
    exact = shares / shares.sum() * (total - len(shares))
    found: Ints = exact.astype(np.int64) + 1
    largest = np.argsort(found - exact, kind="stable")[:total - int(found.sum())]
    found[largest] += 1
    return found
