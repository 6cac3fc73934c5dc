"""Tokens that name a language: which a multilingual tokenizer has, by which names, and how they mark a source text."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from saucier.errors import InputError, nearest
from saucier.text.tokenizer import Tokenizer

SPELLINGS = (re.compile(r"__([a-z]{2,3})__"), re.compile(r"([a-z]{2,3})_[A-Z]{2}"),
             re.compile(r"([a-z]{3})_[A-Z][a-z]{3}"))
"""How M2M-100, mBART and NLLB spell them; the group is the language's short name."""
IN_FRONT = re.compile(r">>([\w-]+)<<")
"""How multilingual Marian models spell the language to write, which stands before the source's text."""


def language_tokens(tokenizer: Tokenizer) -> dict[str, int]:
    """Return the ids of the special tokens that name a language, by token."""
    return {token: number for token, number in tokenizer.extra_ids.items() if short(token) is not None}


def marian_tokens(tokenizer: Tokenizer) -> dict[str, int]:
    """Return the ids of the tokens that tell a Marian model what to write, by token."""
    names = (tokenizer.id_to_token(number) for number in range(tokenizer.vocab_size))
    found = [name for name in names if name is not None and IN_FRONT.fullmatch(name)]
    return {name: number for name in found if (number := tokenizer.token_to_id(name)) is not None}


def short(token: str) -> str | None:
    """Return a language's short name, such as `de` of `de_DE`, `__de__` and `>>de<<`; None for another token."""
    found = (spelling.fullmatch(token) for spelling in (*SPELLINGS, IN_FRONT))
    return next((match[1] for match in found if match), None)


def language_id(name: str, known: Mapping[str, int], where: str) -> int:
    """Return the id of a language that a person names by its token, by what stands inside, or by its short name.

    Raises `InputError` for a language that is unknown, and for a short name that several have.
    """
    inside = {token.strip("_<>"): number for token, number in known.items()}
    for names in (known, inside):
        if name in names:
            return names[name]
    several = {token: number for token, number in known.items() if name.lower() == (short(token) or "").lower()}
    if len(several) == 1:
        return next(iter(several.values()))
    if several:
        raise InputError(f"{name!r} is several languages here: {', '.join(several)}", where=where, remedy="name one")
    raise InputError(f"the model knows no language {name!r}", where=where, remedy=nearest(name, list(inside)))


def marked(ids: Sequence[int], language: int, known: Mapping[str, int]) -> list[int] | None:
    """Put a language in the place of the one that begins or ends a text in its frame; None where none does."""
    languages = set(known.values())
    row = list(ids)
    for place in (0, -1):
        if row and row[place] in languages:
            row[place] = language
            return row
    return None
