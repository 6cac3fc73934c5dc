"""Pairs whose languages are told: tokens made of names, texts behind them, and how often each direction comes.

Axes: N pairs, D directions.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from saucier.errors import InputError
from saucier.text.config import TokenizerConfig
from saucier.text.language_tokens import language_id, language_tokens
from saucier.text.languages import sampling_shares
from saucier.text.rows import Ints
from saucier.text.store import PairStore
from saucier.text.tokenizer import Tokenizer

NAME = re.compile(r"[a-z]{2,3}")
"""What M2M-100 calls a language, between the underscores of its token."""


def with_languages(config: TokenizerConfig, names: Sequence[str]) -> TokenizerConfig:
    """Return a tokenizer with a token for each language; a text begins with that of the first, until another is told.

    Raises `InputError` for a name that makes no token of a language.
    """
    for name in names:
        if not NAME.fullmatch(name):
            raise InputError(f"the column {name!r} is not called by a language", where="data.languages",
                             remedy="call it by two or three small letters, such as en or deu")
    special, tokens = config.special, [f"__{name}__" for name in names]
    told = special.model_copy(update={
        "extra": tuple(dict.fromkeys((*special.extra, *tokens))),
        "single": f"{tokens[0]} {special.single}", "pair": f"{tokens[0]} {special.pair}"})
    return config.model_copy(update={"special": told})


def tells_languages(tokenizer: Tokenizer) -> bool:
    """Say whether a tokenizer puts a text between a token of its language and the end token."""
    frame = tokenizer.encode("")
    return len(frame) > 1 and frame[0] in language_tokens(tokenizer).values() and frame[-1] == tokenizer.eos_id


class Told:
    """Puts a language in the place of the one with which a tokenizer begins every text."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        """Look at the frame. Raises `InputError` where it is not: language, text, end token."""
        self._known = language_tokens(tokenizer)
        self._ids: dict[str, int] = {}
        if not tells_languages(tokenizer):
            raise InputError("the tokenizer does not put texts between a token of their language and the end token",
                             where="data.languages", remedy="begin with a model such as M2M-100, or leave the "
                                                            "languages out")

    def language(self, name: str, where: str) -> int:
        """Return the id of a language. Raises `InputError` for one that the tokenizer has not."""
        if name not in self._ids:
            self._ids[name] = language_id(name, self._known, where)
        return self._ids[name]

    def begun(self, ids: Sequence[int], name: str, where: str) -> list[int]:
        """Return a text in its frame, begun with its own language."""
        return [self.language(name, where), *ids[1:]]


def directions(store: PairStore) -> Ints:
    """Return with which languages source and target of each pair begin. Shapes: -> [N, 2]."""
    return np.stack([side.tokens[side.offsets[:-1]].astype(np.int64) for side in (store.source, store.target)], axis=1)


def repeats(told: Ints, alpha: float) -> Ints:
    """Return how often each pair comes in a round, so that directions come by their shares. Shapes: [N, 2] -> [N].

    Every pair comes once at least; where a direction is wanted some broken number of times, the pairs that come once
    more are spread evenly over it. Source: Arivazhagan et al. 2019, arXiv:1907.05019, with alpha = 1 / T.
    """
    _, which, sizes = np.unique(told, axis=0, return_inverse=True, return_counts=True)
    which = which.reshape(-1)
    wanted = sampling_shares(sizes, alpha) / sizes
    times = (wanted / wanted.min())[which]
    order = np.argsort(which, kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(len(order)) - (np.cumsum(sizes) - sizes)[which[order]]
    whole = times.astype(np.int64)
    share = times - whole
    found: Ints = whole + ((place + 1) * share).astype(np.int64) - (place * share).astype(np.int64)
    return found
