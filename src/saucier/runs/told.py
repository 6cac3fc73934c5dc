"""What a run does otherwise where the languages of its pairs are told: tokenizer, start token, counts by direction."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from saucier.errors import InputError
from saucier.inspection.results import LanguageCounts, TextCounts
from saucier.objectives.base import TokenIds
from saucier.recipes import Recipe
from saucier.text.config import ColumnLanguages, PairData, TokenizerConfig
from saucier.text.corpus import PairCorpus
from saucier.text.read import Pair
from saucier.text.rows import Ints
from saucier.text.store import PairStore
from saucier.text.tokenizer import Tokenizer
from saucier.text.told import Told, directions, repeats, with_languages


def told_languages(recipe: Recipe | None) -> ColumnLanguages | None:
    """Return how a recipe tells the languages of its pairs; None where it does not."""
    return recipe.data.languages if recipe is not None and isinstance(recipe.data, PairData) else None


def token_ids(recipe: Recipe, tokenizer: Tokenizer) -> TokenIds:
    """Return the ids of what is written. Behind the end token stands the target's language, as in M2M-100's release."""
    ids = TokenIds.of(tokenizer.target)
    return ids if told_languages(recipe) is None else replace(ids, start=ids.eos)


def with_told(config: TokenizerConfig, corpus: object) -> TokenizerConfig:
    """Return a tokenizer to be trained, with a token for each language of a corpus, where it tells them.

    Raises `InputError` for columns that are no languages, and for languages that are held out and not learned.
    """
    if not isinstance(corpus, PairCorpus) or corpus.data.languages is None:
        return config
    learned = corpus.languages("train")
    for name in corpus.languages("held_out"):
        if name not in learned:
            raise InputError(f"the language {name} is held out, and nothing is learned of it",
                             where="data.held_out.files", remedy=f"learned are {', '.join(learned)}")
    return with_languages(config, learned)


def check_told(tokenizer: Tokenizer, corpus: object) -> None:
    """Raise `InputError` for a tokenizer that does not tell the languages of a corpus apart."""
    if not isinstance(corpus, PairCorpus) or corpus.data.languages is None:
        return
    told = Told(tokenizer)
    for name in (*corpus.languages("train"), *corpus.languages("held_out")):
        told.language(name, "data.languages")


def direction_counts(recipe: Recipe, train: object, held_out: object,
                     tokenizer: Tokenizer) -> tuple[LanguageCounts, ...]:
    """Count the pairs of each direction, and say how often it comes."""
    told = told_languages(recipe)
    if told is None or not isinstance(train, PairStore) or not isinstance(held_out, PairStore):
        return ()
    ways, measured = directions(train), directions(held_out)
    times = repeats(ways, told.alpha)

    def count(source: int, target: int) -> LanguageCounts:
        mine, theirs = ((one == [source, target]).all(axis=1) for one in (ways, measured))
        return LanguageCounts(name=f"{inside(source, tokenizer)} → {inside(target, tokenizer)}",
                              train=some(train, mine), held_out=some(held_out, theirs),
                              drawn=float(times[mine].sum() / times.sum()))

    return tuple(count(int(source), int(target)) for source, target in
                 np.unique(np.concatenate([ways, measured]), axis=0))


def inside(language: int, tokenizer: Tokenizer) -> str:
    """Return the name of a language from its token."""
    return (tokenizer.id_to_token(language) or "").strip("_<>")


def some(store: PairStore, chosen: NDArray[np.bool_]) -> TextCounts:
    """Count some pairs of a store, source and target together. Shapes: chosen [N]."""
    sides = (store.source, store.target)
    return TextCounts(documents=int(chosen.sum()), tokens=sum(int(side.lengths[chosen].sum()) for side in sides),
                      bytes=sum(int(np.diff(side.byte_offsets)[chosen].sum()) for side in sides))


def times(recipe: Recipe, store: PairStore) -> Ints | None:
    """Return how often each pair comes in an epoch; None: once. Shapes: -> [N]."""
    told = told_languages(recipe)
    return None if told is None else repeats(directions(store), told.alpha)


def by_direction(pairs: Iterator[Pair], most: int | None) -> dict[str, list[Pair]]:
    """Group pairs by direction ("" where none is told), the first so many of each."""
    found: dict[str, list[Pair]] = {}
    for pair in pairs:
        group = found.setdefault(pair.way, [])
        if most is None or len(group) < most:
            group.append(pair)
        elif not pair.way:
            break
    return found
