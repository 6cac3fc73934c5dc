"""Text in several languages: sampling shares, corpora, stores, and batches whose rows mix the languages.

Axes: N languages or pairs, B rows, L positions, D directions.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from saucier.errors import InputError
from saucier.files import read_object, write_json
from saucier.text.config import LanguageData, PairData, TextData, list_languages
from saucier.text.reading.corpus import BuiltinReader, Part, TextCorpus, View, check_first_row
from saucier.text.reading.documents import Counts, Document
from saucier.text.reading.python_texts import read_python_code, read_python_documentation
from saucier.text.rows.batch import Batches, Ints, Rows, make_generator, stack_rows, take_share
from saucier.text.rows.store import PairStore, TokenStore

NAMES = "languages.json"
BUILTIN: Mapping[str, BuiltinReader] = {"python": read_python_code, "english": read_python_documentation}


def compute_sampling_shares(sizes: NDArray[np.generic], alpha: float) -> NDArray[np.float64]:
    """Return how often each language is sampled: q_i = p_i^alpha / sum p_j^alpha. Shapes: sizes [N] -> [N].

    Source: Lample and Conneau 2019, §3.1, arXiv:1901.07291. Each is read q_i / p_i times as often as its size would
    have it, which is lambda_i of Liu et al. 2020, eq 1 (§2.1), arXiv:2001.08210. XLM counts sentences, mBART bytes of
    text; here they are tokens.
    """
    powers = (sizes / sizes.sum()) ** alpha
    found: NDArray[np.float64] = powers / powers.sum()
    return found


class LanguageCorpus:
    """The documents of a `LanguageData`, each language separately, cut into what is trained on and what is held out.

    `texts` is the text of `train`, for a tokenizer, with small languages repeated; `how` says what is held out.
    """

    def __init__(self, data: LanguageData, *, seed: int = 0) -> None:
        """Look at each language once. Errors: those of `TextCorpus`; `InputError` for a file in two languages."""
        self.data = data
        _check_languages(data)
        self.members = {name: TextCorpus(data.of(name), seed=seed, builtin=BUILTIN.get(name, read_python_documentation))
                        for name in list_languages(data)}
        self.how = "of each language " + " and ".join(dict.fromkeys(one.how for one in self.members.values()))
        self.texts: View[str] = View(self._texts)

    def _texts(self, counts: Counts) -> Iterator[str]:
        """Repeat languages until their characters have the target shares; the one that needs it least is read once."""
        sizes = np.array([sum(map(len, one.texts)) for one in self.members.values()])
        rates = compute_sampling_shares(sizes, self.data.tokenizer_alpha) / sizes
        for one, times in zip(self.members.values(), rates / rates.min(), strict=True):
            yield from repeat_texts(one.texts, float(times))

    def documents(self, part: Part) -> Iterator[Document]:
        """Yield documents of a part, or their beginnings, in turns of languages, until the shortest is at its end."""
        whole = ((document for document in one.part(part) if document.part == 0) for one in self.members.values())
        for together in zip(*whole, strict=False):
            yield from together


def repeat_texts(texts: View[str], times: float) -> Iterator[str]:
    """Yield every text `times` times; of a last, partial round a share that is spread evenly."""
    for first in range(int(np.ceil(times))):
        share = min(1.0, times - first)
        for number, text in enumerate(texts):
            if int((number + 1) * share) > int(number * share):
                yield text


class LanguageStore:
    """A store for each language, in a folder of its name; `len` counts the documents of all."""

    def __init__(self, folder: Path) -> None:
        """Open `folder`. Errors: `InputError` where it is not whole."""
        self.folder = Path(folder)
        self.members = {str(name): TokenStore(self.folder / str(name))
                        for name in read_object(self.folder / NAMES)["languages"]}

    def __len__(self) -> int:
        return sum(map(len, self.members.values()))

    @property
    def bytes(self) -> int:
        """UTF-8 bytes of the whole text."""
        return sum(one.bytes for one in self.members.values())

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Tokens of each language. Shapes: [N]."""
        return np.array([len(one.tokens) for one in self.members.values()], dtype=np.int64)


def write_language_store(folder: Path, corpus: LanguageCorpus,
                         write: Callable[[TextCorpus, Path], TokenStore]) -> LanguageStore:
    """Write the store of each language. Errors: those of `write`, with the language's name."""
    for name, one in corpus.members.items():
        try:
            write(one, folder / name)
        except InputError as error:
            raise InputError(error.what, where=f"{error.where} (language {name})", remedy=error.remedy) from error
    write_json(folder / NAMES, {"languages": [*corpus.members]})
    return LanguageStore(folder)


def _check_languages(data: LanguageData) -> None:
    """Refuse a single language, and a file that is given for two."""
    names = list_languages(data)
    if len(names) < 2:
        raise InputError(f"holds the language {names[0]} alone", where="data.languages",
                         remedy="add another one, or use kind: text")
    seen: dict[str, str] = {}
    for name, files in data.languages.items():
        for file in files:
            if seen.setdefault(file, name) != name:
                raise InputError(f"is given as {seen[file]} and as {name}", where=file,
                                 remedy="name it under one language of data.languages")


PERIOD = 1 << 14
"""Rows in which the shares hold exactly, but for rounding; a language has one row of them at least."""
LANGUAGES = 3
"""Stream of random numbers."""


def set_language(rows: Rows, language: int | None) -> Rows:
    """Give each token of rows the number of their language."""
    return rows if language is None else replace(rows, languages=np.full_like(rows.tokens, language))


class LanguageBatches(Batches[Rows]):
    """Endless batches over several languages; every language goes through its own text in its own order.

    XLM draws a language for each batch, mBART for each row, as here.
    """

    def __init__(self, members: Sequence[Batches[Rows]], shares: NDArray[np.float64], *, batch: int,
                 seed: int = 0, language_ids: bool = False) -> None:
        """Draw from `members`, whose batches are one row each; `shares` [N] add up to 1.

        `language_ids`: whether rows hold the language of their tokens, by its number among `members`.
        """
        self._members, self._batch, self._seed, self._language_ids = members, batch, seed, language_ids
        self._quota = split_by_shares(shares, PERIOD)
        self._periods = functools.lru_cache(maxsize=2)(self._draw_period)

    @property
    def steps_per_epoch(self) -> int:
        """Steps that show as many rows as all languages have; a small one is read more than once by then."""
        return -(-sum(one.steps_per_epoch for one in self._members) // self._batch)

    @property
    def counts(self) -> dict[str, int]:
        """The counts of all languages together."""
        names = dict.fromkeys(name for one in self._members for name in one.counts)
        return {name: sum(one.counts.get(name, 0) for one in self._members) for name in names}

    def _draw_period(self, number: int) -> Ints:
        """Draw one period: the language of each of its rows, and which of the language's rows it is. -> [2, rows]."""
        languages = make_generator(self._seed, LANGUAGES, number).permutation(np.repeat(np.arange(len(self._quota)),
                                                                                        self._quota))
        places = np.empty_like(languages)
        for language, count in enumerate(self._quota):
            places[languages == language] = number * count + np.arange(count)
        return np.stack([languages, places])

    def drawn(self, first: int, last: int) -> tuple[Ints, Ints]:
        """Return language and place of the rows from number `first` of the whole training to `last` (not included)."""
        found = [self._periods(period) for period in range(first // PERIOD, -(-last // PERIOD))]
        start = first // PERIOD * PERIOD
        languages, places = np.concatenate(found, axis=1)[:, first - start:last - start]
        return languages, places

    def rows(self, step: int, rank: int = 0, world: int = 1) -> Rows:
        """Give the rows of batch `step` that process `rank` of `world` works on."""
        mine = take_share(self._batch, rank, world)
        languages, places = self.drawn(step * self._batch, (step + 1) * self._batch)
        found = []
        for number in range(mine.start, mine.stop):
            language = int(languages[number])
            rows = set_language(self._members[language].rows(int(places[number])),
                                language if self._language_ids else None)
            found.append(replace(rows, row=number + self._batch * rows.row))
        return stack_rows(found)


def split_by_shares(shares: NDArray[np.float64], total: int) -> Ints:
    """Cut `total` by shares into whole numbers, one at least, the largest remainders up. Shapes: [N] -> [N]."""
    exact = shares / shares.sum() * (total - len(shares))
    found: Ints = exact.astype(np.int64) + 1
    largest = np.argsort(found - exact, kind="stable")[:total - int(found.sum())]
    found[largest] += 1
    return found


def read_directions(store: PairStore) -> Ints:
    """Return with which languages source and target of each pair begin. Shapes: -> [N, 2]."""
    return np.stack([side.tokens[side.offsets[:-1]].astype(np.int64) for side in (store.source, store.target)], axis=1)


def count_repeats(pairs: Ints, alpha: float) -> Ints:
    """Return how often each pair is in an epoch, so that directions have their shares. Shapes: [N, 2] -> [N].

    Every pair is there once at least; where a direction needs a fractional number of times, the pairs repeated once
    more are spread evenly over it. Source: Arivazhagan et al. 2019, arXiv:1907.05019, with alpha = 1 / T.
    """
    _, which, sizes = np.unique(pairs, axis=0, return_inverse=True, return_counts=True)
    which = which.reshape(-1)
    rates = compute_sampling_shares(sizes, alpha) / sizes
    times = (rates / rates.min())[which]
    order = np.argsort(which, kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(len(order)) - (np.cumsum(sizes) - sizes)[which[order]]
    whole = times.astype(np.int64)
    share = times - whole
    found: Ints = whole + ((place + 1) * share).astype(np.int64) - (place * share).astype(np.int64)
    return found


def check_first_rows(data: TextData | PairData | LanguageData) -> None:
    """Read the first document or pair of each file, so that a wrong name or column is said before torch is imported.

    Raises `InputError` as reading does.
    """
    match data:
        case LanguageData():
            for name in list_languages(data):
                check_first_row(data.of(name))
        case _:
            check_first_row(data)
