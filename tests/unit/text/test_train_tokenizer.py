"""Training tokenizers: each kind against its definition, exact vocabularies, repeatable, every string back again."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saucier.errors import InputError
from saucier.text.config import BPE, ByteBPE, Bytes, Characters, SpecialTokens, TokenizerConfig, Unigram, WordPiece
from saucier.text.tokenizer.tokenizer import Tokenizer
from saucier.text.tokenizer.training import train_tokenizer

SIZED: list[Any] = [ByteBPE(vocab=500), BPE(vocab=500), WordPiece(vocab=500), Unigram(vocab=500)]
KINDS = [config.kind for config in SIZED]
SPEAKING = "The quick brown fox — jumps over the lazy dog; it isn't 100% certain, is it?\n\n  No.\t"


def model(tokenizer: Tokenizer) -> dict[str, Any]:
    """Give the vocabulary and the merges as the tokenizer's file has them."""
    found: dict[str, Any] = json.loads(tokenizer.backend.to_str())["model"]
    return found


@pytest.fixture(scope="module")
def byte_level(texts: list[str]) -> list[Tokenizer]:
    """Train the two kinds that spell every string."""
    return [train_tokenizer(ByteBPE(vocab=1000), texts), train_tokenizer(Bytes(), [])]


@given(st.text())
def test_byte_level_gives_back_every_unicode_string(byte_level: list[Tokenizer], text: str) -> None:
    for tokenizer in byte_level:
        ids = tokenizer.encode(text, add_special_tokens=False)
        assert tokenizer.decode(ids, skip_special_tokens=False) == text


@given(st.lists(st.characters(codec="utf-8"), max_size=4))
def test_byte_level_gives_back_every_character_pair(byte_level: list[Tokenizer], characters: list[str]) -> None:
    text = " ".join(characters) + "".join(characters)
    assert all(tokenizer.decode(tokenizer.encode(text)) == text for tokenizer in byte_level)


def test_bytes_are_bytes(byte_level: list[Tokenizer]) -> None:
    tokenizer = byte_level[1]
    assert tokenizer.vocab_size == 258
    assert tokenizer.encode("Zé<") == [byte + 2 for byte in "Zé<".encode()]
    assert (tokenizer.pad_id, tokenizer.eos_id) == (0, 1)


@pytest.mark.slow
@pytest.mark.parametrize("config", SIZED, ids=KINDS)
def test_vocabulary_is_exactly_as_asked(config: Any, texts: list[str]) -> None:
    special = config.special.model_copy(update={"sentinels": 7, "extra": ("<more>",)})
    tokenizer = train_tokenizer(config.model_copy(update={"special": special}), texts)
    assert tokenizer.vocab_size == 500
    assert tokenizer.sentinel_ids == list(range(499, 492, -1))
    assert tokenizer.encode("<extra_id_0>", add_special_tokens=False) == [499]


@pytest.mark.parametrize("config", SIZED, ids=KINDS)
def test_more_vocabulary_than_the_text_gives_is_one_clear_error(config: Any) -> None:
    little = ["to be or not to be, that is the question " * 3]
    with pytest.raises(
        InputError, match=r"tokenizer\.vocab: a vocabulary of 90000 is more than this text gives \((\d+)\); set"
    ):
        train_tokenizer(config.model_copy(update={"vocab": 90_000}), little)


@pytest.mark.parametrize("config", SIZED, ids=KINDS)
def test_the_size_in_the_remedy_works(config: Any) -> None:
    little = ["to be or not to be, that is the question " * 3]
    with pytest.raises(InputError) as caught:
        train_tokenizer(config.model_copy(update={"vocab": 90_000}), little)
    size = int(str(caught.value).split("set tokenizer.vocab=")[1].split()[0])
    assert train_tokenizer(config.model_copy(update={"vocab": size}), little).vocab_size == size


@pytest.mark.parametrize("config", SIZED, ids=KINDS)
def test_too_small_a_vocabulary_is_one_clear_error(config: Any, texts: list[str]) -> None:
    for vocab in (3, 20):
        with pytest.raises(InputError, match=f"a vocabulary of {vocab} is too small"):
            train_tokenizer(config.model_copy(update={"vocab": vocab}), texts)


@pytest.mark.parametrize("config", [*SIZED, Characters()])
def test_no_text_is_one_clear_error(config: Any) -> None:
    with pytest.raises(InputError, match="the text is empty"):
        train_tokenizer(config, [])


@pytest.mark.slow
@pytest.mark.parametrize("config", [*SIZED, Bytes(), Characters()])
def test_training_is_repeatable(config: TokenizerConfig, texts: list[str]) -> None:
    """Also from a one-way iterator."""
    states = {train_tokenizer(config, source).backend.to_str() for source in (texts, texts, iter(texts))}
    assert len(states) == 1


def test_byte_pairs_merge_the_most_frequent_pair_each_time(texts: list[str]) -> None:
    """Replay of listing 1 of Sennrich et al. 2016 (the end mark joined to the last symbol, as in their later code)."""
    words = Counter(word for text in texts[:3] for word in text.split())
    tokenizer = train_tokenizer(BPE(vocab=220), texts[:3])
    spelled = {(*word[:-1], word[-1] + "</w>"): count for word, count in words.items()}
    merges = [tuple(merge) for merge in model(tokenizer)["merges"]]
    assert len(merges) > 50
    for merge in merges:
        pairs: Counter[tuple[str, str]] = Counter()
        for symbols, count in spelled.items():
            for pair in itertools.pairwise(symbols):
                pairs[pair] += count
        assert pairs[merge] == max(pairs.values())  # type: ignore[index]
        joined: Counter[tuple[str, ...]] = Counter()
        for symbols, count in spelled.items():
            joined[merged(symbols, merge)] += count
        spelled = dict(joined)
    for word in list(words)[:300]:
        pieces = next(symbols for symbols in spelled if "".join(symbols) == word + "</w>")
        assert [tokenizer.id_to_token(number) for number in tokenizer.encode(word, add_special_tokens=False)] == list(
            pieces
        )


def merged(symbols: tuple[str, ...], pair: tuple[str, ...]) -> tuple[str, ...]:
    """Join every occurrence of a pair, from the left."""
    result: list[str] = []
    for symbol in symbols:
        if result and (result[-1], symbol) == pair:
            result[-1] += symbol
        else:
            result.append(symbol)
    return tuple(result)


def test_wordpiece_takes_the_longest_known_piece(texts: list[str]) -> None:
    tokenizer = train_tokenizer(WordPiece(vocab=700), texts)
    vocab = model(tokenizer)["vocab"]
    for word in {word.lower() for word in texts[5].split() if word.isalpha()}:
        pieces, start = [], 0
        while start < len(word):
            mark = "##" if start else ""
            end = next(end for end in range(len(word), start, -1) if mark + word[start:end] in vocab)
            pieces.append(mark + word[start:end])
            start = end
        assert [tokenizer.id_to_token(number) for number in tokenizer.encode(word, add_special_tokens=False)] == pieces


@pytest.mark.slow
def test_unigram_takes_the_likeliest_pieces(texts: list[str]) -> None:
    tokenizer = train_tokenizer(Unigram(vocab=700), texts)
    score = dict(model(tokenizer)["vocab"])
    for word in {word for word in texts[5].split() if word.isalpha()}:
        text = "▁" + word
        best = [0.0] + [-1e9] * len(text)
        for end in range(1, len(text) + 1):
            best[end] = max(best[start] + score.get(text[start:end], -1e9) for start in range(end))
        got = sum(
            score[tokenizer.id_to_token(number) or ""] for number in tokenizer.encode(word, add_special_tokens=False)
        )
        assert got == pytest.approx(best[-1])


def test_characters(texts: list[str]) -> None:
    tokenizer = train_tokenizer(Characters(), ["hello world\n", "été"])
    assert tokenizer.vocab_size == 2 + len(set("hello world\nété"))
    assert tokenizer.decode(tokenizer.encode("le monde\n")) == "le ode\n"
    assert tokenizer.encode("mel", add_special_tokens=False)[0] == tokenizer.unk_id
    assert tokenizer.decode(tokenizer.encode("hello  world\n\nété")) == "hello  world\n\nété"


@pytest.mark.slow
@pytest.mark.parametrize("config", [BPE(vocab=500), Unigram(vocab=500)])
def test_round_trip_up_to_white_space(config: TokenizerConfig, texts: list[str]) -> None:
    tokenizer = train_tokenizer(config, [*texts, SPEAKING])
    assert " ".join(tokenizer.decode(tokenizer.encode(SPEAKING)).split()) == " ".join(SPEAKING.split())


def test_kinds_that_cannot_spell_all_need_an_unknown_token() -> None:
    for config in (
        BPE(special=SpecialTokens()),
        WordPiece(special=SpecialTokens()),
        Characters(special=SpecialTokens()),
    ):
        with pytest.raises(InputError, match=r"tokenizer\.special\.unk: this kind of tokenizer needs an unknown token"):
            train_tokenizer(config, ["text"])


def test_template_of_an_unknown_token_is_refused(texts: list[str]) -> None:
    config = ByteBPE(vocab=300, special=SpecialTokens(single="[CLS] $A"))
    with pytest.raises(InputError, match=r"tokenizer\.special: the template uses '\[CLS\]', which is no special token"):
        train_tokenizer(config, texts)


def test_one_token_may_have_several_roles(texts: list[str]) -> None:
    tokenizer = train_tokenizer(ByteBPE(vocab=300, special=SpecialTokens(bos="<|>", eos="<|>", pad="<|>")), texts)
    assert (tokenizer.bos_id, tokenizer.eos_id, tokenizer.pad_id, tokenizer.special_ids) == (0, 0, 0, [0])
