"""Tokens that name a language: which a multilingual tokenizer has, how they mark a source text, and how pairs begin
with the language of each side.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from saucier.errors import InputError, suggest_name
from saucier.text.config import TokenizerConfig
from saucier.text.tokenizer.tokenizer import Tokenizer

SPELLINGS = (re.compile(r"__([a-z]{2,3})__"), re.compile(r"([a-z]{2,3})_[A-Z]{2}"),
             re.compile(r"([a-z]{3})_[A-Z][a-z]{3}"))
"""How M2M-100, mBART and NLLB spell them; the group is the language's short name."""
IN_FRONT = re.compile(r">>([\w-]+)<<")
"""How multilingual Marian models spell the language to write, which comes before the source's text."""


def find_language_tokens(tokenizer: Tokenizer) -> dict[str, int]:
    """Return the ids of the special tokens that name a language, by token."""
    return {token: number for token, number in tokenizer.extra_ids.items() if shorten_language(token) is not None}


def find_marian_tokens(tokenizer: Tokenizer) -> dict[str, int]:
    """Return the ids of the tokens that tell a Marian model what to write, by token."""
    names = (tokenizer.id_to_token(number) for number in range(tokenizer.vocab_size))
    found = [name for name in names if name is not None and IN_FRONT.fullmatch(name)]
    return {name: number for name in found if (number := tokenizer.token_to_id(name)) is not None}


def shorten_language(token: str) -> str | None:
    """Return a language's short name, such as `de` of `de_DE`, `__de__` and `>>de<<`; None for another token."""
    found = (spelling.fullmatch(token) for spelling in (*SPELLINGS, IN_FRONT))
    return next((match[1] for match in found if match), None)


def find_language_id(name: str, known: Mapping[str, int], where: str) -> int:
    """Return the id of a language that a person names by its token, by what is inside, or by its short name.

    Raises `InputError` for a language that is unknown, and for a short name that several have.
    """
    inside = {token.strip("_<>"): number for token, number in known.items()}
    for names in (known, inside):
        if name in names:
            return names[name]
    several = {token: number for token, number in known.items()
               if name.lower() == (shorten_language(token) or "").lower()}
    if len(several) == 1:
        return next(iter(several.values()))
    if several:
        raise InputError(f"{name!r} is several languages here: {', '.join(several)}", where=where, remedy="name one")
    raise InputError(f"the model knows no language {name!r}", where=where, remedy=suggest_name(name, list(inside)))


def mark_language(ids: Sequence[int], language: int, known: Mapping[str, int]) -> list[int] | None:
    """Put a language in the place of the one that begins or ends a text in its frame; None where none does."""
    languages = set(known.values())
    row = list(ids)
    for place in (0, -1):
        if row and row[place] in languages:
            row[place] = language
            return row
    return None


NAME = re.compile(r"[a-z]{2,3}")
"""What M2M-100 calls a language, between the underscores of its token."""


def add_language_tokens(config: TokenizerConfig, names: Sequence[str]) -> TokenizerConfig:
    """Return a tokenizer with a token for each language; a text begins with that of the first, until another is named.

    Raises `InputError` for a name that makes no token of a language.
    """
    for name in names:
        if not NAME.fullmatch(name):
            raise InputError(f"the column {name!r} is not called by a language", where="data.languages",
                             remedy="call it by two or three small letters, such as en or deu")
    special, tokens = config.special, [f"__{name}__" for name in names]
    marked = special.model_copy(update={
        "extra": tuple(dict.fromkeys((*special.extra, *tokens))),
        "single": f"{tokens[0]} {special.single}", "pair": f"{tokens[0]} {special.pair}"})
    return config.model_copy(update={"special": marked})


def frames_with_language(tokenizer: Tokenizer) -> bool:
    """Say whether a tokenizer puts a text between a token of its language and the end token."""
    frame = tokenizer.encode("")
    return len(frame) > 1 and frame[0] in find_language_tokens(tokenizer).values() and frame[-1] == tokenizer.eos_id


class LanguageTokens:
    """The ids of the languages with which a tokenizer can begin a text."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        """Look at the frame. Raises `InputError` where it is not: language, text, end token."""
        self._known = find_language_tokens(tokenizer)
        self._ids: dict[str, int] = {}
        if not frames_with_language(tokenizer):
            raise InputError("the tokenizer does not put texts between a token of their language and the end token",
                             where="data.languages", remedy="begin with a model such as M2M-100, or leave the "
                             "languages out")

    def language(self, name: str, where: str) -> int:
        """Return the id of a language. Raises `InputError` for one that the tokenizer has not."""
        if name not in self._ids:
            self._ids[name] = find_language_id(name, self._known, where)
        return self._ids[name]
