"""Where words begin, by the spelling of tokens, against what each tokenizer itself says."""

from __future__ import annotations

import numpy as np
import pytest

from saucier.text.config import BPE, ByteBPE, Bytes, Characters, TokenizerConfig, Unigram, WordPiece
from saucier.text.tokenizer.tokenizer import Tokenizer
from saucier.text.tokenizer.training import train_tokenizer
from saucier.text.tokenizer.word_boundaries import find_word_starts, parse_marks


def starts_in(tokenizer: Tokenizer, text: str) -> tuple[list[str], list[bool]]:
    """Return the tokens of a text, and whether each begins a word."""
    ids = np.array(tokenizer.encode(text, add_special_tokens=False))
    everywhere = np.ones(len(ids), dtype=bool)
    found = find_word_starts(ids, everywhere, ~everywhere, parse_marks(tokenizer.word_marks))
    return [str(tokenizer.id_to_token(number)) for number in ids.tolist()], found.tolist()


def joined(tokenizer: Tokenizer, text: str) -> list[str]:
    """Put the tokens of each word together."""
    words: list[str] = []
    for token, begins in zip(*starts_in(tokenizer, text), strict=True):
        words += [""] if begins else []
        words[-1] += token.removeprefix("##").removesuffix("</w>")
    return words


def test_wordpiece_words_are_those_of_the_tokenizer(texts: list[str]) -> None:
    tokenizer = train_tokenizer(WordPiece(vocab=1000), texts)
    for text in texts[:5]:
        found = starts_in(tokenizer, text)[1]
        numbers = tokenizer.backend.encode(text, add_special_tokens=False).word_ids
        assert found == [place == 0 or number != numbers[place - 1] for place, number in enumerate(numbers)]


TEXT = "The returned object, foo.bar(x), isn't callable."


@pytest.mark.slow
@pytest.mark.parametrize(("config", "mark"), [(ByteBPE(vocab=500), "Ġ"), (Unigram(vocab=500), "▁")])
def test_words_begin_behind_white_space_and_punctuation_stands_alone(config: TokenizerConfig, mark: str,
                                                                     texts: list[str]) -> None:
    words = [word for one in joined(train_tokenizer(config, texts), TEXT) if (word := one.strip(mark))]
    assert "".join(words) == TEXT.replace(" ", "")
    assert {"The", "returned", "object", "callable"} <= set(words)
    assert [word for word in words if word[0].isalpha()][:6] == ["The", "returned", "object", "foo", "bar", "x"]
    assert "." in words


def test_words_of_bpe_end_with_its_suffix(texts: list[str]) -> None:
    assert joined(train_tokenizer(BPE(vocab=500), texts), TEXT) == TEXT.split()


def test_a_character_of_several_bytes_is_part_of_its_word(texts: list[str]) -> None:
    words = joined(train_tokenizer(ByteBPE(vocab=300), texts), "the café—naïve")
    assert len(words) == 2


@pytest.mark.parametrize("config", [Bytes(), Characters()])
def test_bytes_and_characters_show_no_words(config: TokenizerConfig, texts: list[str]) -> None:
    assert train_tokenizer(config, texts).word_marks == ""


@pytest.mark.slow
def test_there_is_a_digit_for_every_id(texts: list[str]) -> None:
    for config in (WordPiece(vocab=700), ByteBPE(vocab=500), Unigram(vocab=500), BPE(vocab=500)):
        tokenizer = train_tokenizer(config, texts)
        assert len(tokenizer.word_marks) == tokenizer.vocab_size
        assert set(tokenizer.word_marks) <= set("0123")
