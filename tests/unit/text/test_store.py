"""The token store: what is written is read, its size on disk, and damage is seen."""

from __future__ import annotations

import errno
import functools
import json
import operator
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.text.places import write_store

from saucier.errors import InputError, WorkError
from saucier.text.config import GPT2_TOKENS, ByteBPE, Bytes, WordPiece
from saucier.text.reading.documents import Document, Pair
from saucier.text.rows import store as stores
from saucier.text.rows.store import (
    PairStore,
    Piece,
    TokenStore,
    find_sentence_starts,
    get_document_frame,
    write_documents,
    write_pairs,
)
from saucier.text.tokenizer.tokenizer import Tokenizer
from saucier.text.tokenizer.training import train_tokenizer


@pytest.fixture(scope="module")
def byte_bpe(texts: list[str]) -> Tokenizer:
    """Train a small byte-level tokenizer."""
    return train_tokenizer(ByteBPE(vocab=400, special=GPT2_TOKENS), texts)


@pytest.mark.slow
@given(
    documents=st.lists(
        st.lists(st.lists(st.integers(0, 69_999), max_size=5), min_size=1, max_size=3), min_size=1, max_size=6
    ),
    wide=st.booleans(),
)
def test_what_is_written_is_read(
    tmp_path_factory: pytest.TempPathFactory, documents: list[list[list[int]]], wide: bool
) -> None:
    vocab = 70_000 if wide else 65_536
    documents = [[[number % vocab for number in part] for part in parts] for parts in documents]
    flat = [functools.reduce(operator.iadd, parts, []) for parts in documents]
    pieces = [Piece(part, bytes=7, starts=number == 0) for parts in documents for number, part in enumerate(parts)]
    folder = tmp_path_factory.mktemp("store") / "new"
    if not functools.reduce(operator.iadd, flat, []):
        with pytest.raises(InputError, match="the text gives no tokens"):
            write_store(folder, pieces, vocab=vocab)
        assert not folder.exists()
        return
    store = write_store(folder, pieces, vocab=vocab)
    assert [store.document(number).tolist() for number in range(len(store))] == flat
    assert store.tokens.dtype == (np.uint32 if wide else np.uint16)
    assert (folder / "tokens.bin").stat().st_size == len(functools.reduce(operator.iadd, flat, [])) * (4 if wide else 2)
    assert store.bytes == 7 * len(pieces)
    assert store.byte_offsets[1] == 7 * len(documents[0])
    assert store.lengths.tolist() == [len(document) for document in flat]
    assert isinstance(store.tokens, np.memmap)


def test_ids_outside_the_vocabulary_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="token id 10 is outside the vocabulary of 10"):
        write_store(tmp_path / "s", [Piece([1, 10])], vocab=10)
    assert list(tmp_path.iterdir()) == []


def test_a_store_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    def broken() -> Iterator[Piece]:
        yield Piece([1, 2])
        raise InputError("line 2 is bad")

    write_store(tmp_path / "s", [Piece([5])], vocab=10)
    with pytest.raises(InputError, match="line 2 is bad"):
        write_store(tmp_path / "s", broken(), vocab=10)
    assert TokenStore(tmp_path / "s").document(0).tolist() == [5]
    assert [path.name for path in tmp_path.iterdir()] == ["s"]


def test_a_full_disk_is_one_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: object, piece: Piece) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(stores.StoreWriter, "append", full)
    with pytest.raises(WorkError, match="cannot write: No space left on device"):
        write_store(tmp_path / "s", [Piece([1])], vocab=10)
    assert list(tmp_path.iterdir()) == []


def test_damage_is_seen(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not a token store"):
        TokenStore(tmp_path)
    write_store(tmp_path / "s", [Piece([1, 2, 3])], vocab=10)
    (tmp_path / "s/tokens.bin").write_bytes(b"\0\0")
    with pytest.raises(InputError, match="the token store is damaged"):
        TokenStore(tmp_path / "s")
    (tmp_path / "s/store.json").write_text('{"version": 99}')
    with pytest.raises(InputError, match="is a token store of version 99"):
        TokenStore(tmp_path / "s")


def test_progress_is_told(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    write_store(tmp_path / "s", [Piece([1, 2])] * 500, vocab=10, progress=lambda *now: told.append(now))
    assert told == [(200, 400), (400, 800), (500, 1000)]


def test_documents_are_framed_and_their_bytes_counted(tmp_path: Path, byte_bpe: Tokenizer) -> None:
    parts = [Document("Größe ", "a"), Document("and more", "a", part=1), Document("second", "b")]
    begin, end = get_document_frame(byte_bpe)
    store = write_documents(tmp_path / "s", parts, byte_bpe, begin=begin, end=end)
    assert [byte_bpe.decode(store.document(number), skip_special_tokens=False) for number in range(len(store))] == [
        "<|endoftext|>Größe and more<|endoftext|>",
        "<|endoftext|>second<|endoftext|>",
    ]
    assert np.diff(store.byte_offsets).tolist() == [len("Größe and more".encode()), len("second")]
    assert json.loads((tmp_path / "s/store.json").read_text())["unknown"] == 0


def test_sentences_start_tokens_of_their_own(tmp_path: Path, texts: list[str]) -> None:
    tokenizer = train_tokenizer(WordPiece(vocab=700), texts)
    text = 'One here. "Two there!" Three\nfour? '
    assert [text[start:] for start in find_sentence_starts(text)][1:] == [
        '"Two there!" Three\nfour? ',
        "Three\nfour? ",
        "four? ",
    ]
    store = write_documents(tmp_path / "s", [Document(text, "a"), Document("x", "b")], tokenizer, sentences=True)
    starts = [tokenizer.decode(store.tokens[start : start + 3].tolist()).split()[0] for start in store.sentences]
    assert starts[0] == "one"
    assert len(starts) == 5
    plain = write_documents(tmp_path / "p", [Document(text, "a"), Document("x", "b")], tokenizer)
    assert plain.tokens.tolist() == store.tokens.tolist()


def test_unknown_tokens_are_counted(tmp_path: Path, texts: list[str]) -> None:
    tokenizer = train_tokenizer(WordPiece(vocab=700), texts)
    assert write_documents(tmp_path / "s", [Document("中 is 文", "a")], tokenizer).unknown == 2


def test_pairs_stand_side_by_side(tmp_path: Path, byte_bpe: Tokenizer) -> None:
    pairs = [Pair(f"source {n}", f"target text {n}", "") for n in range(3)]
    store = write_pairs(tmp_path / "s", pairs, byte_bpe)
    other = train_tokenizer(Bytes(), [])
    both = byte_bpe.with_target(other)
    apart = write_pairs(tmp_path / "two", pairs, both)
    assert apart.source.document(0).tolist() == store.source.document(0).tolist() == byte_bpe.encode(pairs[0].source)
    assert apart.target.document(0).tolist() == other.encode(pairs[0].target)
    assert (apart.source.vocab, apart.target.vocab) == (byte_bpe.vocab_size, other.vocab_size)
    assert both.has_own_target and not both.source_side().has_own_target
    assert [byte_bpe.decode(store.source.document(n)) for n in range(3)] == [pair.source for pair in pairs]
    assert [byte_bpe.decode(store.target.document(n)) for n in range(3)] == [pair.target for pair in pairs]
    assert store.counts()["pairs"] == len(store) == 3
    write_store(tmp_path / "t", [Piece([1])], vocab=400)
    (tmp_path / "t").rename(tmp_path / "s/other")
    (tmp_path / "s/target").rename(tmp_path / "s/away")
    (tmp_path / "s/other").rename(tmp_path / "s/target")
    with pytest.raises(InputError, match="3 sources, but 1 targets"):
        PairStore(tmp_path / "s")
