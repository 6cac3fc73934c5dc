"""Text in several languages: how often each comes, its documents, its stores. Rows are drawn in `language_rows`.

Axes: N languages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from saucier.errors import InputError
from saucier.files import read_object, write_json
from saucier.text.config import LanguageData, languages_of
from saucier.text.corpus import Own, TextCorpus, View
from saucier.text.documentation import python_documentation
from saucier.text.heads import python_code
from saucier.text.read import Counts, Document
from saucier.text.split import Part
from saucier.text.store import TokenStore

NAMES = "languages.json"
OWN: Mapping[str, Own] = {"python": python_code, "english": python_documentation}


def sampling_shares(sizes: NDArray[np.generic], alpha: float) -> NDArray[np.float64]:
    """Return how often each language is to come: q_i = p_i^alpha / sum p_j^alpha. Shapes: sizes [N] -> [N].

    Source: Lample and Conneau 2019, §3.1, arXiv:1901.07291. Each is read q_i / p_i times as often as its size would
    have it, which is lambda_i of Liu et al. 2020, eq 1 (§2.1), arXiv:2001.08210. XLM counts sentences, mBART bytes of
    text; here they are tokens.
    """
    powers = (sizes / sizes.sum()) ** alpha
    found: NDArray[np.float64] = powers / powers.sum()
    return found


class LanguageCorpus:
    """The documents of a `LanguageData`, each language by itself, cut into what is trained on and what is held out.

    `texts` is the text of `train`, for a tokenizer, with small languages repeated; `how` says what is held out.
    """

    def __init__(self, data: LanguageData, *, seed: int = 0) -> None:
        """Look at each language once. Errors: those of `TextCorpus`; `InputError` for a file in two languages."""
        self.data = data
        _check_apart(data)
        self.members = {name: TextCorpus(data.of(name), seed=seed, own=OWN.get(name, python_documentation))
                        for name in languages_of(data)}
        self.how = "of each language " + " and ".join(dict.fromkeys(one.how for one in self.members.values()))
        self.texts: View[str] = View(self._texts)

    def _texts(self, counts: Counts) -> Iterator[str]:
        """Repeat languages until their characters are in the wanted ratio; the one that needs it least is read once."""
        sizes = np.array([sum(map(len, one.texts)) for one in self.members.values()])
        wanted = sampling_shares(sizes, self.data.tokenizer_alpha) / sizes
        for one, times in zip(self.members.values(), wanted / wanted.min(), strict=True):
            yield from repeated(one.texts, float(times))

    def documents(self, part: Part) -> Iterator[Document]:
        """Yield documents of a part, or their beginnings, in turns of languages, until the shortest is at its end."""
        whole = ((document for document in one.part(part) if document.part == 0) for one in self.members.values())
        for together in zip(*whole, strict=False):
            yield from together


def repeated(texts: View[str], times: float) -> Iterator[str]:
    """Yield every text `times` times; of a last, broken round a share that is spread evenly."""
    for first in range(int(np.ceil(times))):
        share = min(1.0, times - first)
        for number, text in enumerate(texts):
            if int((number + 1) * share) > int(number * share):
                yield text


class LanguageStore:
    """A store for each language, in a folder that is called by it; `len` counts the documents of all."""

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


def _check_apart(data: LanguageData) -> None:
    """Refuse a single language, and a file that is given for two."""
    names = languages_of(data)
    if len(names) < 2:
        raise InputError(f"holds the language {names[0]} alone", where="data.languages",
                         remedy="add another one, or use kind: text")
    seen: dict[str, str] = {}
    for name, files in data.languages.items():
        for file in files:
            if seen.setdefault(file, name) != name:
                raise InputError(f"is given as {seen[file]} and as {name}", where=file,
                                 remedy="name it under one language of data.languages")
