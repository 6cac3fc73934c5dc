"""Where tokens are in their text, and what they spell."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

BYTES = 256
SPACES = "\N{LOWER ONE EIGHTH BLOCK} "
"""What a SentencePiece vocabulary writes for a space, and a space."""


@dataclass(frozen=True, slots=True)
class Token:
    """A token of a text."""

    id: int
    token: str
    """As it is in the vocabulary."""
    start: int
    """Its first character in the text; a token that is a part of a character has the whole of it."""
    end: int
    """The character after its last one; the same as `start` for what is not in the text, such as [CLS]."""


def locate_tokens(ids: Iterable[int], tokens: Sequence[str], offsets: Iterable[tuple[int, int]]) -> list[Token]:
    """Return tokens with their places; a mark of a space that stands alone is put before the character it came with."""
    return [Token(number, token, start, end if token.strip(SPACES) or not token.startswith(SPACES[0]) else start)
            for number, token, (start, end) in zip(ids, tokens, offsets, strict=True)]


def list_byte_characters() -> list[str]:
    """Return the character that byte-level vocabularies write for each byte.

    It is written as itself, or where it is unprintable as the next free character from U+0100 on. Source: Radford et
    al. 2019, the `bytes_to_unicode` table of GPT-2's encoder.
    """
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    free = iter(range(256, 512))
    return [chr(byte if byte in printable else next(free)) for byte in range(BYTES)]


def spell_bytes(token: str) -> str:
    r"""Return what a byte-level token spells, with the bytes of incomplete characters as `\xe9`."""
    bytes_of = {character: byte for byte, character in enumerate(list_byte_characters())}
    if not set(token) <= bytes_of.keys():
        return token
    return bytes(bytes_of[one] for one in token).decode("utf-8", "backslashreplace")
