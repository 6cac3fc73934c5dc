"""Tokenizers read from files: the ids and texts that the reference library gives for them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from unicodedata import normalize

import pytest

from saucier.errors import InputError
from saucier.text.config import (
    BERT_TOKENS,
    BPE,
    GPT2_TOKENS,
    T5_TOKENS,
    ByteBPE,
    Bytes,
    Characters,
    SpecialTokens,
    TokenizerConfig,
    Unigram,
    WordPiece,
)
from saucier.text.tokenizer.offsets import Token
from saucier.text.tokenizer.tokenizer import Tokenizer, load_tokenizer
from saucier.text.tokenizer.training import split_text, train_tokenizer

GOLDEN = ("tokenizer-byte-bpe", "tokenizer-wordpiece", "tokenizer-unigram-t5")


@pytest.mark.parametrize("name", GOLDEN)
def test_ids_and_texts_of_published_tokenizers(shared: Path, name: str) -> None:
    folder = shared / "golden" / name
    golden = json.loads((folder / "golden.json").read_text())
    tokenizer = load_tokenizer(folder)
    assert len(golden["strings"]) == 200
    for case in golden["strings"]:
        assert tokenizer.encode(case["text"]) == case["ids"]
        assert tokenizer.encode(case["text"], add_special_tokens=False) == case["ids_no_special"]
        assert [tokenizer.id_to_token(number) for number in case["ids_no_special"]] == case["tokens"]
        assert tokenizer.decode(case["ids"]) == case["decoded_skip_special"]
        assert tokenizer.decode(case["ids"], skip_special_tokens=False) == case["decoded"]
        assert tokenizer.decode(case["ids_no_special"], skip_special_tokens=False) == case["decoded_no_cleanup"]
    assert tokenizer.encode_batch([case["text"] for case in golden["strings"]]) == [
        case["ids"] for case in golden["strings"]
    ]
    assert tokenizer.vocab_size == golden["vocab_size"]
    assert tokenizer.special_ids == sorted(golden["all_special_ids"])


@pytest.mark.parametrize("name", GOLDEN)
def test_pairs_of_published_tokenizers(shared: Path, name: str) -> None:
    golden = json.loads((shared / "golden" / name / "golden.json").read_text())
    tokenizer = load_tokenizer(shared / "golden" / name)
    cases = [case for case in golden["pairs"] if not case["kwargs"]]
    assert cases
    for case in cases:
        assert tokenizer.encode(case["text"], pair=case["text_pair"]) == case["input_ids"]


def test_special_ids_by_role(shared: Path) -> None:
    bert = load_tokenizer(shared / "golden/tokenizer-wordpiece")
    assert (bert.pad_id, bert.unk_id, bert.cls_id, bert.sep_id, bert.mask_id, bert.eos_id) == (0, 1, 2, 3, 4, None)
    t5 = load_tokenizer(shared / "golden/tokenizer-unigram-t5")
    assert (t5.pad_id, t5.eos_id, t5.bos_id, t5.sentinel_ids) == (0, 1, None, list(range(609, 599, -1)))


def test_clean_up_joins_punctuation_but_never_for_byte_pairs(texts: list[str]) -> None:
    wordpiece = train_tokenizer(WordPiece(vocab=600), texts)
    wordpiece.backend.decoder = None
    ids = wordpiece.encode("it 's here , is it not ?", add_special_tokens=False)
    assert " ?" in wordpiece.decode(ids)
    assert " ?" not in Tokenizer(wordpiece.backend, wordpiece.names, clean_up=True).decode(ids)
    pairs = Tokenizer(train_tokenizer(ByteBPE(vocab=300), texts).backend, {}, clean_up=True)
    assert pairs.decode(pairs.encode("why , ?")) == "why , ?"


@pytest.mark.slow
@pytest.mark.parametrize(
    "config",
    [
        ByteBPE(vocab=400, special=GPT2_TOKENS),
        WordPiece(vocab=600, special=BERT_TOKENS),
        Unigram(vocab=500, special=T5_TOKENS.model_copy(update={"sentinels": 5})),
    ],
)
def test_saved_tokenizer_is_the_same_for_us_and_for_the_reference(
    tmp_path: Path, texts: list[str], config: ByteBPE | WordPiece | Unigram
) -> None:
    transformers = pytest.importorskip("transformers")
    tokenizer = train_tokenizer(config, texts)
    tokenizer.save(tmp_path)
    ours, theirs = load_tokenizer(tmp_path), transformers.AutoTokenizer.from_pretrained(tmp_path)
    for text in ("", "A class's  method.\n\treturns `self`", "Größe 中文 🙂", texts[3][:500]):
        assert ours.encode(text) == tokenizer.encode(text) == theirs(text)["input_ids"]
        ids = tokenizer.encode(text)
        assert ours.decode(ids) == tokenizer.decode(ids) == theirs.decode(ids, skip_special_tokens=True)
        assert ours.encode(text, pair="and more") == theirs(text, "and more")["input_ids"]
    assert (ours.names, ours.special_ids, ours.vocab_size) == (tokenizer.names, tokenizer.special_ids, len(theirs))
    assert ours.sentinel_ids == tokenizer.sentinel_ids
    assert (ours.eos_id, ours.pad_id, ours.mask_id) == (theirs.eos_token_id, theirs.pad_token_id, theirs.mask_token_id)


def test_old_configs_write_special_tokens_as_objects(tmp_path: Path, texts: list[str]) -> None:
    train_tokenizer(ByteBPE(vocab=300), texts).save(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": {"content": "<|endoftext|>", "lstrip": false}}')
    assert load_tokenizer(tmp_path).eos_id == 0


def test_half_a_surrogate_is_an_input_error(texts: list[str]) -> None:
    tokenizer = train_tokenizer(ByteBPE(vocab=300), texts)
    for call in (lambda: tokenizer.encode("ab\ud800"), lambda: tokenizer.encode_batch(["ab\ud800"])):
        with pytest.raises(InputError, match=r"character 2 is '\\ud800', half of a surrogate pair"):
            call()


def test_a_run_folder_will_do(tmp_path: Path, texts: list[str]) -> None:
    train_tokenizer(ByteBPE(vocab=300), texts).save(tmp_path / "tokenizer")
    assert load_tokenizer(tmp_path).vocab_size == 300


def test_faults_of_a_folder(tmp_path: Path, write: Callable[[str, str], str]) -> None:
    with pytest.raises(InputError, match="no such folder"):
        load_tokenizer(tmp_path / "nowhere")
    with pytest.raises(InputError, match=r"has no tokenizer\.json"):
        load_tokenizer(tmp_path)
    write("tokenizer.json", "{")
    with pytest.raises(InputError, match=r"tokenizer\.json:1: not JSON"):
        load_tokenizer(tmp_path)
    write("tokenizer.json", "{}")
    with pytest.raises(InputError, match=r"tokenizer\.json: is not a tokenizer"):
        load_tokenizer(tmp_path)


def test_tokens_by_name(texts: list[str]) -> None:
    tokenizer = train_tokenizer(ByteBPE(vocab=300, special=SpecialTokens(eos="<e>", extra=("<x>", "<y>"))), texts)
    assert [tokenizer.token_to_id(name) for name in ("<e>", "<x>", "<y>", "<z>")] == [0, 1, 2, None]
    assert tokenizer.encode("a<x>")[1:] == [1]


WRITTEN = "The café's naïve dog — 3 Bäume, 日本語 \N{LATIN SMALL LIGATURE FI}ne  text!\n"


def trained(config: TokenizerConfig) -> Tokenizer:
    return train_tokenizer(config, [WRITTEN * 5] * 4)


@pytest.mark.parametrize("config", [ByteBPE(vocab=300), BPE(vocab=58), WordPiece(vocab=58), Bytes(), Characters()])
def test_tokens_know_their_characters(config: TokenizerConfig) -> None:
    """Every letter is in a token, in order; a token of letters is what its characters are."""
    tokenizer = trained(config)
    found = tokenizer.split(WRITTEN)
    assert [one.id for one in found] == tokenizer.encode(WRITTEN, add_special_tokens=False)
    assert all(one.token == tokenizer.id_to_token(one.id) and one.start < one.end for one in found)
    assert {place for one in found for place in range(one.start, one.end)} >= {
        place for place, letter in enumerate(WRITTEN) if letter.isalnum()}
    assert [one.start for one in found] == sorted(one.start for one in found)
    for one in found:
        letters = one.token.removeprefix("##").removeprefix("Ġ").removesuffix("</w>")
        if letters.isascii() and letters.isalpha():
            plain = normalize("NFKD", WRITTEN[one.start:one.end]).encode("ascii", "ignore").decode().strip().casefold()
            assert letters.casefold() in {plain, "f", "i"}, one  # either letter has the whole ligature


def test_tokens_that_are_not_in_the_text(shared: Path) -> None:
    unigram = load_tokenizer(shared / "golden/tokenizer-unigram-t5")
    found = unigram.split("a cat", add_special_tokens=True)
    assert found[-1] == Token(1, "</s>", 0, 0)
    alone = next(one for one in found if one.token == "▁")
    assert (alone.start, alone.end) == (2, 2)


def test_rows_are_decoded_together(shared: Path) -> None:
    bert = load_tokenizer(shared / "golden/tokenizer-wordpiece")
    batch = bert(["the class", "the method returns a class"])
    assert bert.decode_batch(batch.input_ids) == [bert.decode(row) for row in batch.input_ids] == [
        "the class", "the method returns a class"]
    with pytest.raises(InputError, match=r"^rows: is int 3; give rows of ids"):
        bert.decode_batch(3)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"^ids: is int 3; give a list of ids"):
        bert.decode_batch([3])  # type: ignore[list-item]


def test_what_a_tokenizer_says_of_itself() -> None:
    tokenizer = trained(ByteBPE(vocab=300))
    assert repr(tokenizer) == "Tokenizer(byte-level BPE, vocab_size=300, special={'eos': '<|endoftext|>'})"
    assert len(tokenizer) == tokenizer.vocab_size == len(tokenizer.get_vocab()) == 300
    assert [*tokenizer.get_vocab()][:2] == ["<|endoftext|>", tokenizer.id_to_token(1)]
    said = repr(trained(WordPiece(vocab=58)))
    assert said.startswith("Tokenizer(WordPiece, vocab_size=58, special={'pad': '[PAD]', ")


def test_parts_of_a_character_are_shown_as_bytes() -> None:
    assert [token for _, token in split_text(trained(Bytes()), "é!")] == ["\\xc3", "\\xa9", "!"]
