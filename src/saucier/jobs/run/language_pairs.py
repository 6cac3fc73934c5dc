"""Languages of pairs in a run: language tokens and the start token, counts by direction, and the direction of a
translation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from saucier.errors import InputError
from saucier.objectives.base import TokenIds
from saucier.objectives.config import MultilingualDenoising, list_single_objectives
from saucier.opened import OpenModel
from saucier.recipes import Recipe
from saucier.report.results import LanguageCounts, TextCounts
from saucier.text.config import ColumnLanguages, PairData, TokenizerConfig
from saucier.text.languages import count_repeats, read_directions
from saucier.text.reading.corpus import PairCorpus
from saucier.text.reading.documents import Pair
from saucier.text.rows.store import PairStore
from saucier.text.tokenizer.language_tokens import (
    LanguageTokens,
    add_language_tokens,
    find_language_id,
    find_language_tokens,
    find_marian_tokens,
    mark_language,
)
from saucier.text.tokenizer.tokenizer import Tokenizer


def pair_languages(recipe: Recipe | None) -> ColumnLanguages | None:
    """Return how a recipe marks the languages of its pairs; None where it does not."""
    return recipe.data.languages if recipe is not None and isinstance(recipe.data, PairData) else None


def written_token_ids(recipe: Recipe, tokenizer: Tokenizer) -> TokenIds:
    """Return the ids of what is written. After the end token comes the target's language, as in M2M-100's release."""
    ids = TokenIds.of(tokenizer.target)
    return ids if pair_languages(recipe) is None else replace(ids, start=ids.eos)


def with_language_tokens(config: TokenizerConfig, corpus: object) -> TokenizerConfig:
    """Return a tokenizer to be trained, with a token for each language of a corpus, where it marks them.

    Raises `InputError` for columns that are no languages, and for languages that are held out and not learned.
    """
    if not isinstance(corpus, PairCorpus) or corpus.data.languages is None:
        return config
    learned = corpus.languages("train")
    for name in corpus.languages("held_out"):
        if name not in learned:
            raise InputError(f"the language {name} is held out, and nothing is learned of it",
                             where="data.held_out.files", remedy=f"learned are {', '.join(learned)}")
    return add_language_tokens(config, learned)


def check_language_tokens(tokenizer: Tokenizer, corpus: object) -> None:
    """Raise `InputError` for a tokenizer that has no tokens for the languages of a corpus."""
    if not isinstance(corpus, PairCorpus) or corpus.data.languages is None:
        return
    tokens = LanguageTokens(tokenizer)
    for name in (*corpus.languages("train"), *corpus.languages("held_out")):
        tokens.language(name, "data.languages")


def count_directions(recipe: Recipe, train: object, held_out: object,
                     tokenizer: Tokenizer) -> tuple[LanguageCounts, ...]:
    """Count the pairs of each direction, and say how often it comes."""
    languages = pair_languages(recipe)
    if languages is None or not isinstance(train, PairStore) or not isinstance(held_out, PairStore):
        return ()
    ways, measured = read_directions(train), read_directions(held_out)
    times = count_repeats(ways, languages.alpha)

    def count(source: int, target: int) -> LanguageCounts:
        learned, scored = ((one == [source, target]).all(axis=1) for one in (ways, measured))
        return LanguageCounts(name=f"{language_name(source, tokenizer)} → {language_name(target, tokenizer)}",
                              train=count_pairs(train, learned), held_out=count_pairs(held_out, scored),
                              drawn=float(times[learned].sum() / times.sum()))

    return tuple(count(int(source), int(target)) for source, target in
                 np.unique(np.concatenate([ways, measured]), axis=0))


def language_name(language: int, tokenizer: Tokenizer) -> str:
    """Return the name of a language from its token."""
    return (tokenizer.id_to_token(language) or "").strip("_<>")


def count_pairs(store: PairStore, chosen: NDArray[np.bool_]) -> TextCounts:
    """Count some pairs of a store, source and target together. Shapes: chosen [N]."""
    sides = (store.source, store.target)
    return TextCounts(documents=int(chosen.sum()), tokens=sum(int(side.lengths[chosen].sum()) for side in sides),
                      bytes=sum(int(np.diff(side.byte_offsets)[chosen].sum()) for side in sides))


def group_by_direction(pairs: Iterator[Pair], most: int | None) -> dict[str, list[Pair]]:
    """Group pairs by direction ("" where it is not known), the first `most` of each."""
    found: dict[str, list[Pair]] = {}
    for pair in pairs:
        group = found.setdefault(pair.direction, [])
        if most is None or len(group) < most:
            group.append(pair)
        elif not pair.direction:
            break
    return found


SOURCE_OPTION, TARGET_OPTION = "--source-language", "--target-language"


@dataclass(frozen=True, slots=True)
class Direction:
    """What a source gets, and with what the target begins."""

    source: int | None = None
    """Is in the frame of the source, in the place of the language that the tokenizer puts there."""
    before: tuple[int, ...] = ()
    """Comes before the source (Marian: what is to be written)."""
    after: tuple[int, ...] = ()
    """Comes after a source without a frame (a run that has learned to mend texts of several languages)."""
    known: Mapping[str, int] = field(default_factory=dict)
    """All languages, by token."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of generation that begin the target."""

    def encode(self, text: str, tokenizer: Tokenizer) -> list[int]:
        """Return the ids of a source in its frame. Raises `InputError` where the frame names no language."""
        if self.after:
            return [*tokenizer.encode(text, add_special_tokens=False), *self.after]
        ids = [*self.before, *tokenizer.encode(text)]
        if self.source is None:
            return ids
        found = mark_language(ids, self.source, self.known)
        if found is None:
            raise InputError("the tokenizer does not tell sources of several languages apart", where=SOURCE_OPTION,
                             remedy="leave it out")
        return found

    def written(self, text: str, tokenizer: Tokenizer) -> list[int]:
        """Return the ids of a target as it is written: its language first, where that is forced."""
        ids = tokenizer.encode(text)
        forced = self.options.get("forced_bos_token_id")
        return ids if forced is None else mark_language(ids, forced, self.known) or ids


def read_direction(opened: OpenModel, source: str | None, target: str | None) -> Direction | None:
    """Read the requested languages; None where none is requested.

    Raises `InputError` for a model that knows no languages, or not these, and for one that needs both and is given one.
    """
    if pair_languages(opened.recipe) is not None:
        require_languages(source, target, find_language_tokens(opened.tokenizer))
    if source is None and target is None:
        return None
    where = SOURCE_OPTION if target is None else TARGET_OPTION
    if not opened.is_encoder_decoder:
        raise InputError("only an encoder-decoder translates between languages", where=where, remedy="leave it out")
    for objective in list_single_objectives(opened.recipe.objective) if opened.recipe else ():
        if isinstance(objective, MultilingualDenoising):
            return denoising_direction(opened, objective, source, target)
    known = find_language_tokens(opened.tokenizer)
    if opened.tokenizer.has_own_target and known:
        raise InputError("its sides have tokenizers of their own, and languages are told by tokens of one", where=where,
                         remedy="leave it out")
    if not known and (fronts := find_marian_tokens(opened.tokenizer)):
        return marian_direction(fronts, source, target)
    if not known:
        raise InputError("the tokenizer has no tokens of languages", where=where,
                         remedy="leave it out, or use a multilingual model")
    start_options = {} if target is None else \
        target_start_options(opened, find_language_id(target, known, TARGET_OPTION), known)
    return Direction(None if source is None else find_language_id(source, known, SOURCE_OPTION), known=known,
                     options=start_options)


def require_languages(source: str | None, target: str | None, known: Iterable[str]) -> None:
    """Raise `InputError` where only one language is given, or none."""
    if source is None or target is None:
        raise InputError("this model is told both languages", where=SOURCE_OPTION if source is None else TARGET_OPTION,
                         remedy=f"name one of {', '.join(token.strip('_<>') for token in known)}")


def target_start_options(opened: OpenModel, target: int, known: Mapping[str, int]) -> dict[str, Any]:
    """Return how a target begins: with its language alone where the model begins so, else after its start token.

    mBART's decoder starts with the language (Liu et al. 2020, §2.2); those of mBART-50, M2M-100 and NLLB start with
    the end token, and the language is forced after it (Tang et al. 2020, §2; Fan et al. 2021, §3.1).
    """
    start = opened.model.provenance.generation.get("decoder_start_token_id")
    if start is None or start in known.values():
        return {"decoder_start_token_id": target, "forced_bos_token_id": None}
    return {"decoder_start_token_id": start, "forced_bos_token_id": target}


def marian_direction(known: Mapping[str, int], source: str | None, target: str | None) -> Direction:
    """Tell a Marian model which language to write. Source: Tiedemann and Thottingal 2020 (OPUS-MT), §3."""
    if source is not None:
        raise InputError("the model is told the language to write alone", where=SOURCE_OPTION, remedy="leave it out")
    assert target is not None, "one of both is asked for"
    return Direction(before=(find_language_id(target, known, TARGET_OPTION),))


def denoising_direction(opened: OpenModel, objective: MultilingualDenoising, source: str | None,
                        target: str | None) -> Direction:
    """Return a denoising run's direction: the source ends with its language, and the target begins with its own."""
    ids = TokenIds.of(opened.tokenizer)
    known = {token: ids.extra_id(token) for token in objective.tokens}
    require_languages(source, target, known)
    assert source is not None and target is not None, "looked at"
    end = () if ids.eos is None else (ids.eos,)
    return Direction(after=(*end, find_language_id(source, known, SOURCE_OPTION)), known=known,
                     options={"decoder_start_token_id": find_language_id(target, known, TARGET_OPTION)})
