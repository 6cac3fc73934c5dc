"""Tokenizers that learn more words: what is saved, what stays, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from saucier.errors import InputError
from saucier.text.config import BPE, T5_TOKENS, ByteBPE, Characters, Unigram, WordPiece
from saucier.text.tokenizer.tokenizer import Tokenizer, load_tokenizer
from saucier.text.tokenizer.training import train_tokenizer
from saucier.text.tokenizer.vocabulary import extend_tokenizer, spell_new_tokens

KITCHEN = ["the cook stirs the sauce and the guest tastes some soup, a little more salt please"] * 30 + [
    "".join(f"w{number} " for number in range(50))]
DOMAIN = ["the mitochondrial ribosome of cardiomyocytes; mitochondrial ribosomes, cardiomyocytes!",
          "the ribosome tastes the soup"] * 12
WORDS = ("mitochondrial", "cardiomyocytes", "ribosome")
SIZED: list[Any] = [ByteBPE(vocab=320), BPE(vocab=90), WordPiece(vocab=90), Unigram(vocab=60)]


def trained(config: Any) -> Tokenizer:
    return train_tokenizer(config, KITCHEN + DOMAIN[:1])


@pytest.mark.parametrize("config", SIZED, ids=lambda config: config.kind)
def test_the_domain_is_spelled_in_fewer_tokens_and_the_rest_as_before(config: Any, tmp_path: Path) -> None:
    old = trained(config)
    count = 15 if config.kind in ("byte_bpe", "bpe") else 3
    new = extend_tokenizer(old, DOMAIN, count)
    assert new.vocab_size == old.vocab_size + count
    assert len(new.encode(DOMAIN[0])) < 0.7 * len(old.encode(DOMAIN[0]))
    untouched = "a little more salt please"
    assert new.encode(untouched) == old.encode(untouched)
    assert [new.id_to_token(number) for number in range(old.vocab_size)] == [
        old.id_to_token(number) for number in range(old.vocab_size)]
    assert new.decode(new.encode(DOMAIN[0])) == old.decode(old.encode(DOMAIN[0]))
    new.save(tmp_path)
    assert load_tokenizer(tmp_path).encode(DOMAIN[0]) == new.encode(DOMAIN[0])


@pytest.mark.parametrize("config", SIZED, ids=lambda config: config.kind)
def test_each_new_token_is_spelled_by_old_ones(config: Any) -> None:
    old = trained(config)
    new = extend_tokenizer(old, DOMAIN, 3)
    for number, pieces in enumerate(spell_new_tokens(old, new), start=old.vocab_size):
        assert len(pieces) > 1
        joined = "".join(str(old.backend.id_to_token(piece)).removeprefix("##") for piece in pieces)
        assert joined == new.backend.id_to_token(number)


def test_whole_words_that_save_most_come_first() -> None:
    old = trained(WordPiece(vocab=90))
    new = extend_tokenizer(old, DOMAIN, 2)
    assert [new.id_to_token(number) for number in range(old.vocab_size, new.vocab_size)] == sorted(WORDS[:2])


@pytest.mark.parametrize("config", SIZED, ids=lambda config: config.kind)
def test_the_same_text_gives_the_same_tokens(config: Any) -> None:
    old = trained(config)
    assert extend_tokenizer(old, DOMAIN, 3).backend.to_str() == extend_tokenizer(old, iter(DOMAIN), 3).backend.to_str()


def test_sentinels_keep_their_ids() -> None:
    config = Unigram(vocab=68, special=T5_TOKENS.model_copy(update={"sentinels": 5}))
    old = trained(config)
    new = extend_tokenizer(old, DOMAIN, 2)
    assert new.sentinel_ids == old.sentinel_ids
    assert new.encode("mitochondrial <extra_id_0>")[-2] == old.sentinel_ids[0]


@pytest.mark.parametrize("kind", [ByteBPE, WordPiece])
def test_tokens_that_were_added_behind_the_vocabulary_keep_their_ids(kind: Any) -> None:
    special = T5_TOKENS.model_copy(update={"sentinels": 5, "unk": "[UNK]" if kind is WordPiece else T5_TOKENS.unk})
    old = trained(kind(vocab=330 if kind is ByteBPE else 100, special=special))
    new = extend_tokenizer(old, DOMAIN, 3)
    ids = old.backend.get_vocab(with_added_tokens=True)
    assert {token: new.backend.get_vocab(with_added_tokens=True)[token] for token in ids} == ids
    assert len(set(new.backend.get_vocab(with_added_tokens=True).values())) == new.vocab_size
    for text in DOMAIN:
        assert new.decode(new.encode(text)) == old.decode(old.encode(text))


def test_too_few_words_say_how_many_there_are() -> None:
    with pytest.raises(InputError, match=r"only \d+ words that are worth a token"):
        extend_tokenizer(trained(WordPiece(vocab=90)), DOMAIN, 500)


def test_characters_learn_no_words() -> None:
    with pytest.raises(InputError, match="cannot learn more words"):
        extend_tokenizer(train_tokenizer(Characters(), DOMAIN), DOMAIN, 5)
