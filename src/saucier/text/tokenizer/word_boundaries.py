"""Word boundaries: where words begin and end, read from a vocabulary as a digit for each id, so that a model's side
needs no tokenizer. `0` is inside a word, `1` begins one, `2` ends one, `3` is a whole word.
"""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer as Backend
from tokenizers import models

from saucier.text.rows.batch import Ints

INSIDE, BEGINS, ENDS = 0, 1, 2
"""Bits of a digit."""
SPACES = {"Ġ": "ĠĊĉč", "▁": "▁"}
"""What begins a word in byte-level BPE and in SentencePiece, and which characters of theirs are white space."""


def mark_words(backend: Backend) -> str:
    """Return the digits of all ids, in order; "" where tokens do not tell (bytes, characters).

    Punctuation is a word of its own, also where no white space is before it; in RoBERTa's code it belongs to the
    word before.
    """
    vocab: Mapping[str, int] = backend.get_vocab(with_added_tokens=True)
    rule = choose_mark_rule(backend.model, vocab)
    if rule is None:
        return ""
    special = set(backend.get_added_tokens_decoder())
    digits = ["1"] * (max(vocab.values()) + 1)
    for token, number in vocab.items():
        if number not in special:
            digits[number] = str(rule(token))
    return "".join(digits)


def choose_mark_rule(model: models.Model, vocab: Mapping[str, int]) -> Callable[[str], int] | None:
    """Return how a token's digit follows from its spelling."""
    inside = getattr(model, "continuing_subword_prefix", None)
    if inside:
        return lambda token: INSIDE if token.startswith(inside) else BEGINS
    end = getattr(model, "end_of_word_suffix", None)
    if end:
        return lambda token: ENDS if token.endswith(end) else INSIDE
    for mark, spaces in SPACES.items():
        if any(token.startswith(mark) and len(token) > 1 and token[1] not in spaces for token in vocab):
            return lambda token: mark_after_space(token, mark, spaces)
    return None


def mark_after_space(token: str, mark: str, spaces: str) -> int:
    """Return the digit of a token whose vocabulary marks white space before a word."""
    highest = 127 if mark == "Ġ" else sys.maxunicode  # other characters of byte-level BPE spell a part of a character
    if all(character in spaces or (ord(character) <= highest and unicodedata.category(character)[0] in "PSZ")
           for character in token):
        return BEGINS | ENDS
    return BEGINS if token.startswith(mark) else INSIDE


def find_word_starts(tokens: Ints, inside: NDArray[np.bool_], borders: NDArray[np.bool_],
                     marks: Ints) -> NDArray[np.bool_]:
    """Say where words start. Only tokens that are `inside` the text belong to words; none goes over a border.

    Shapes: tokens, inside, borders [..., L], `borders` True where something new begins; marks [V] -> [..., L].
    """
    digits = marks[tokens]
    begins = (digits & BEGINS > 0) | borders
    begins[..., 1:] |= (digits[..., :-1] & ENDS > 0) | ~inside[..., :-1]
    begins[..., 0] = True
    return begins & inside


def parse_marks(marks: str) -> Ints:
    """Return the digits as numbers. Shapes: -> [V]."""
    return np.frombuffer(marks.encode("ascii"), dtype=np.uint8).astype(np.int64) - ord("0")
