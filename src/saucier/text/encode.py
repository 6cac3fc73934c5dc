"""Documents and pairs -> token stores: encoded in groups on all cores, streamed to disk."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from saucier.text.read import Document, Pair
from saucier.text.store import PairStore, Piece, Progress, TokenStore, write_pair_store, write_store
from saucier.text.tokenizer import Tokenizer
from saucier.text.told import Told

GROUP = 1 << 20
"""Characters that are encoded at a time."""
SENTENCE_END = re.compile(r"(?:[.!?]['\")\]]*\s+|\n\s*)(?=\S)")


T = TypeVar("T")


def frame(tokenizer: Tokenizer) -> tuple[int | None, int | None]:
    """Give the ids that a language model's documents begin and end with: `bos` (or else `eos`), and `eos`.

    The beginning makes the first real token something that is predicted, too, as bits per byte must count it.
    """
    begin = tokenizer.bos_id if tokenizer.bos_id is not None else tokenizer.eos_id
    return begin, tokenizer.eos_id


def write_documents(folder: Path, documents: Iterable[Document], tokenizer: Tokenizer, *, begin: int | None = None,
                    end: int | None = None, sentences: bool = False, progress: Progress | None = None) -> TokenStore:
    """Encode documents (without the tokenizer's template) into a store.

    `begin` and `end` are ids put around each document: `*frame(tokenizer)` for language models, none for the others.
    `sentences`: also store where sentences start, which `SentencePairs` needs.
    Errors: those of reading; `InputError` where there is no token at all; `WorkError` for a full disk.
    """
    pieces = _pieces(documents, tokenizer, sentences)
    return write_store(folder, _framed(pieces, begin, end), vocab=tokenizer.vocab_size, progress=progress)


def write_pairs(folder: Path, pairs: Iterable[Pair], tokenizer: Tokenizer, *,
                progress: Progress | None = None) -> PairStore:
    """Encode pairs, each text inside its tokenizer's template, into a store of pairs.

    Where languages are told, each text begins with its own.
    Errors: as `write_documents`; `InputError` for a language that the tokenizer has no token of.
    """
    vocabs = tokenizer.vocab_size, tokenizer.target.vocab_size
    return write_pair_store(folder, _pair_pieces(pairs, tokenizer), vocabs=vocabs, progress=progress)


def sentence_starts(text: str) -> list[int]:
    """Find where sentences start: at the beginning, and behind `.`, `!`, `?` and line ends, in any language."""
    return [0, *(match.end() for match in SENTENCE_END.finditer(text))]


def _groups(items: Iterable[T], characters: Callable[[T], int]) -> Iterator[list[T]]:
    """Gather items until they hold `GROUP` characters."""
    group: list[T] = []
    size = 0
    for item in items:
        group.append(item)
        size += characters(item)
        if size >= GROUP:
            yield group
            group, size = [], 0
    if group:
        yield group


def _pieces(documents: Iterable[Document], tokenizer: Tokenizer, sentences: bool) -> Iterator[Piece]:
    for group in _groups(documents, lambda document: len(document.text)):
        texts = [document.text for document in group]
        encoded = sentence_ids(texts, tokenizer) if sentences else \
            [(ids, []) for ids in tokenizer.encode_batch(texts, add_special_tokens=False)]
        for document, (ids, starts) in zip(group, encoded, strict=True):
            yield Piece(ids, len(document.text.encode("utf-8")), document.part == 0, starts, _unknown(ids, tokenizer))


def sentence_ids(texts: list[str], tokenizer: Tokenizer) -> list[tuple[list[int], list[int]]]:
    """Encode sentence by sentence, so that a sentence starts with a token of its own. Gives ids and sentence starts."""
    cut = [_sentences(text) for text in texts]
    encoded = iter(tokenizer.encode_batch([one for text in cut for one in text], add_special_tokens=False))
    result = []
    for sentences in cut:
        ids: list[int] = []
        starts = []
        for _ in sentences:
            sentence = next(encoded)
            starts += [len(ids)] if sentence else []
            ids += sentence
        result.append((ids, starts))
    return result


def _sentences(text: str) -> list[str]:
    starts = sentence_starts(text)
    return [text[start:end] for start, end in zip(starts, [*starts[1:], len(text)], strict=True)]


def _unknown(ids: list[int], tokenizer: Tokenizer) -> int:
    return 0 if tokenizer.unk_id is None or tokenizer.unk_id == tokenizer.eos_id else ids.count(tokenizer.unk_id)


def _framed(pieces: Iterable[Piece], begin: int | None, end: int | None) -> Iterator[Piece]:
    """Put `begin` and `end` around every document, which may consist of several pieces."""
    first, last = [[] if number is None else [number] for number in (begin, end)]
    started = False
    for piece in pieces:
        if piece.starts and started and last:
            yield Piece(last, starts=False)
        if piece.starts and first:
            yield Piece(first)
            piece = replace(piece, starts=False)
        yield piece
        started = True
    if started and last:
        yield Piece(last, starts=False)


def _pair_pieces(pairs: Iterable[Pair], tokenizer: Tokenizer) -> Iterator[tuple[Piece, Piece]]:
    told: Told | None = None
    for group in _groups(pairs, lambda pair: len(pair.source) + len(pair.target)):
        sources = _whole_texts([pair.source for pair in group], tokenizer)
        targets = _whole_texts([pair.target for pair in group], tokenizer.target)
        for pair, *sides in zip(group, sources, targets, strict=True):
            if pair.languages is not None:
                told = told or Told(tokenizer)
                sides = [replace(side, ids=told.begun(side.ids, name, pair.where))
                         for side, name in zip(sides, pair.languages, strict=True)]
            yield sides[0], sides[1]


def _whole_texts(texts: list[str], tokenizer: Tokenizer) -> list[Piece]:
    return [Piece(ids, len(text.encode("utf-8")), unknown=_unknown(ids, tokenizer))
            for text, ids in zip(texts, tokenizer.encode_batch(texts), strict=True)]
