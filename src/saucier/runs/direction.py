"""From which language into which a multilingual model translates: how it is told, by the tokens of its family."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from saucier.errors import InputError
from saucier.model import Transformer
from saucier.objectives.base import TokenIds
from saucier.objectives.config import MultilingualDenoising, singles
from saucier.recipes import Recipe
from saucier.runs.told import told_languages
from saucier.text.language_tokens import language_id, language_tokens, marian_tokens, marked
from saucier.text.tokenizer import Tokenizer

SOURCE, TARGET = "--source-language", "--target-language"


class Speaker(Protocol):
    """A model, and what is known of it."""

    @property
    def model(self) -> Transformer:
        """What writes."""

    @property
    def tokenizer(self) -> Tokenizer:
        """Its tokenizer."""

    @property
    def recipe(self) -> Recipe | None:
        """By which it was trained; None: nobody knows."""


@dataclass(frozen=True, slots=True)
class Direction:
    """What a source gets, and with what the target begins."""

    source: int | None = None
    """Stands in the frame of the source, in the place of the language that the tokenizer puts there."""
    before: tuple[int, ...] = ()
    """Stands before the source (Marian: what is to be written)."""
    behind: tuple[int, ...] = ()
    """Stands behind a source without a frame (a run that has learned to mend texts of several languages)."""
    known: Mapping[str, int] = field(default_factory=dict)
    """All languages, by token."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of generation that begin the target."""

    def encode(self, text: str, tokenizer: Tokenizer) -> list[int]:
        """Return the ids of a source in its frame. Raises `InputError` where the frame names no language."""
        if self.behind:
            return [*tokenizer.encode(text, add_special_tokens=False), *self.behind]
        ids = [*self.before, *tokenizer.encode(text)]
        if self.source is None:
            return ids
        found = marked(ids, self.source, self.known)
        if found is None:
            raise InputError("the tokenizer does not tell sources of several languages apart", where=SOURCE,
                             remedy="leave it out")
        return found

    def written(self, text: str, tokenizer: Tokenizer) -> list[int]:
        """Return the ids of a target as it is written: begun with its language, where that is forced."""
        ids = tokenizer.encode(text)
        forced = self.options.get("forced_bos_token_id")
        return ids if forced is None else marked(ids, forced, self.known) or ids


def direction(opened: Speaker, source: str | None, target: str | None) -> Direction | None:
    """Understand what a person asks for; None where they ask for nothing.

    Raises `InputError` for a model that knows no languages, or not these, and for one that is told both, and is not.
    """
    if told_languages(opened.recipe) is not None:
        needed(source, target, language_tokens(opened.tokenizer))
    if source is None and target is None:
        return None
    where = SOURCE if target is None else TARGET
    if opened.model.config.encoder is None or opened.model.config.decoder is None:
        raise InputError("only an encoder-decoder translates between languages", where=where, remedy="leave it out")
    for objective in singles(opened.recipe.objective) if opened.recipe else ():
        if isinstance(objective, MultilingualDenoising):
            return mending(opened, objective, source, target)
    known = language_tokens(opened.tokenizer)
    if opened.tokenizer.has_own_target and known:
        raise InputError("its sides have tokenizers of their own, and languages are told by tokens of one", where=where,
                         remedy="leave it out")
    if not known and (fronts := marian_tokens(opened.tokenizer)):
        return in_front(fronts, source, target)
    if not known:
        raise InputError("the tokenizer has no tokens of languages", where=where,
                         remedy="leave it out, or use a multilingual model")
    begins = {} if target is None else begun(opened, language_id(target, known, TARGET), known)
    return Direction(None if source is None else language_id(source, known, SOURCE), known=known, options=begins)


def needed(source: str | None, target: str | None, known: Iterable[str]) -> None:
    """Raise `InputError` where only one language is given, or none."""
    if source is None or target is None:
        raise InputError("this model is told both languages", where=SOURCE if source is None else TARGET,
                         remedy=f"name one of {', '.join(token.strip('_<>') for token in known)}")


def begun(opened: Speaker, target: int, known: Mapping[str, int]) -> dict[str, Any]:
    """Return how a target begins: with its language alone where the model begins so, else behind its start token.

    mBART's decoder starts with the language (Liu et al. 2020, §2.2); those of mBART-50, M2M-100 and NLLB start with
    the end token, and the language is forced behind it (Tang et al. 2020, §2; Fan et al. 2021, §3.1).
    """
    start = opened.model.generation.get("decoder_start_token_id")
    if start is None or start in known.values():
        return {"decoder_start_token_id": target, "forced_bos_token_id": None}
    return {"decoder_start_token_id": start, "forced_bos_token_id": target}


def in_front(known: Mapping[str, int], source: str | None, target: str | None) -> Direction:
    """Tell a Marian model what to write. Source: Tiedemann and Thottingal 2020 (OPUS-MT), §3."""
    if source is not None:
        raise InputError("the model is told the language to write alone", where=SOURCE, remedy="leave it out")
    assert target is not None, "one of both is asked for"
    return Direction(before=(language_id(target, known, TARGET),))


def mending(opened: Speaker, objective: MultilingualDenoising, source: str | None, target: str | None) -> Direction:
    """Tell a run that has learned to mend texts: the language ends the source, and begins the target."""
    ids = TokenIds.of(opened.tokenizer)
    known = {token: ids.extra_id(token) for token in objective.tokens}
    needed(source, target, known)
    assert source is not None and target is not None, "looked at"
    end = () if ids.eos is None else (ids.eos,)
    return Direction(behind=(*end, language_id(source, known, SOURCE)), known=known,
                     options={"decoder_start_token_id": language_id(target, known, TARGET)})
