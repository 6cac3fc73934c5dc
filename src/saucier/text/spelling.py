"""The characters of tokens, for models that read them: bytes of UTF-8 between marks. Numpy alone.

Letters: N words, C characters of a word.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from saucier.config.characters import BEGIN_TEXT, BEGIN_WORD, END_TEXT, END_WORD, PADDING
from saucier.text.tokenizer import Tokenizer

Spellings = NDArray[np.int16]
"""Symbols of words, [N, C]."""


def spelled(words: Sequence[str], longest: int = 50) -> Spellings:
    """Spell words, whether a vocabulary has them or not: a mark, their bytes, a mark, padding; what is too long is cut.

    Source: Peters et al. 2018, §3.4, arXiv:1802.05365, and its code release. Shapes: -> [N, C].
    """
    found = np.full((len(words), longest), PADDING, dtype=np.int16)
    for row, word in zip(found, words, strict=True):
        fill(row, list(word.encode("utf-8")))
    return found


def fill(row: Spellings, symbols: Sequence[int]) -> None:
    """Write one word's symbols between its marks. Shapes: row [C]."""
    kept = symbols[:len(row) - 2]
    row[0], row[1:1 + len(kept)], row[1 + len(kept)] = BEGIN_WORD, kept, END_WORD


def tokens_spelled(tokenizer: Tokenizer, ids: Sequence[int], longest: int) -> Spellings:
    """Spell tokens as the vocabulary writes them; those that begin and end a text have symbols of their own.

    Ids that no token has are spelled as the empty word. Shapes: -> [N, C].
    """
    borders = {number: symbol for number, symbol in ((tokenizer.bos_id, BEGIN_TEXT), (tokenizer.eos_id, END_TEXT))
               if number is not None}
    found = spelled([tokenizer.id_to_token(number) or "" for number in ids], longest)
    for row, number in zip(found, ids, strict=True):
        if number in borders:
            row[:] = PADDING
            fill(row, [borders[number]])
    return found
