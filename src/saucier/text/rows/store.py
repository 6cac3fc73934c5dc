"""`TokenStore`: documents and pairs encoded on all cores and streamed to the disk; read through a memory map.

A store is a folder: `tokens.bin` (little-endian uint16 or uint32, by vocabulary), `documents.bin` and `bytes.bin`
(int64: where each document starts in the tokens, and in the UTF-8 bytes of the text; one entry more than
documents), `sentences.bin` (int64: where sentences start; may be empty) and `store.json`. It is written once,
atomically, and never changed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain, islice, pairwise
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from saucier.errors import InputError
from saucier.files import read_object, report_disk_errors, write_atomically
from saucier.text.reading.documents import Document, Pair
from saucier.text.rows.batch import Ints
from saucier.text.tokenizer.language_tokens import LanguageTokens
from saucier.text.tokenizer.tokenizer import Tokenizer

VERSION = 1
DTYPES = ("uint16", "uint32")
"""Number formats of the ids of tokens."""
Progress = Callable[[int, int], None]
"""Called now and then while a store is written, with the documents and the tokens so far."""
FILES = ("tokens", "documents", "bytes", "sentences")
REPORT_EVERY = 200
"""Pieces between two calls of a `Progress`."""


@dataclass(frozen=True, slots=True)
class Piece:
    """The ids of a document, or of a part of one."""

    ids: Sequence[int]
    bytes: int = 0
    """UTF-8 bytes of the text they were made from."""
    starts: bool = True
    """Whether this starts a document or continues the one before."""
    sentences: Sequence[int] = ()
    """Where in `ids` sentences start."""
    unknown: int = 0
    """How many ids are the unknown token."""


class StoreWriter:
    """Appends pieces to the files of a store."""

    def __init__(self, folder: Path, vocab: int) -> None:
        """Begin a store in a new `folder`. `vocab` decides the width of an id on the disk."""
        folder.mkdir(parents=True)
        self._folder, self._vocab = folder, vocab
        self._type = np.dtype("<u2" if vocab <= 1 << 16 else "<u4")
        self._files = {name: (folder / f"{name}.bin").open("wb") for name in FILES}
        self.tokens = self.bytes = self.documents = self.unknown = 0

    def append(self, piece: Piece) -> None:
        """Add one piece. Errors: `InputError` for an id outside the vocabulary."""
        ids = np.asarray(piece.ids, dtype=np.int64)
        if ids.size and (ids.min() < 0 or ids.max() >= self._vocab):
            raise InputError(f"token id {int(ids.max())} is outside the vocabulary of {self._vocab}",
                             where="token store", remedy="encode with the tokenizer that the store is written for")
        if piece.starts:
            self._mark()
            self.documents += 1
        self._numbers("sentences", np.asarray(piece.sentences, dtype="<i8") + self.tokens)
        self._files["tokens"].write(ids.astype(self._type).tobytes())
        self.tokens += ids.size
        self.bytes += piece.bytes
        self.unknown += piece.unknown

    def _mark(self) -> None:
        self._numbers("documents", np.array([self.tokens], dtype="<i8"))
        self._numbers("bytes", np.array([self.bytes], dtype="<i8"))

    def _numbers(self, name: str, numbers: NDArray[Any]) -> None:
        self._files[name].write(numbers.astype("<i8").tobytes())

    def close(self) -> None:
        """Write the last marks and `store.json`. Errors: `InputError` where there is no token at all."""
        self._mark()
        for file in self._files.values():
            file.close()
        if not self.tokens:
            raise InputError("the text gives no tokens", where="token store", remedy="give more text")
        about = {"version": VERSION, "dtype": self._type.name, "vocab": self._vocab, "tokens": self.tokens,
                 "documents": self.documents, "bytes": self.bytes, "unknown": self.unknown}
        (self._folder / "store.json").write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")


def write_stores(folder: Path, vocabs: Mapping[str, int], rows: Iterable[Sequence[Piece]],
                 progress: Progress | None = None) -> None:
    """Stream rows of pieces to stores, one piece to each: only one row is in memory.

    `vocabs`: the folder of each store below `folder` -> its vocabulary. All appear whole, or not at all.
    Errors: `InputError` for an id outside its vocabulary or no tokens at all; `WorkError` for a full disk.
    """
    def write(temporary: Path) -> None:
        with report_disk_errors(folder):
            writers = [StoreWriter(temporary / name, vocab) for name, vocab in vocabs.items()]
            for number, pieces in enumerate(rows, start=1):
                for writer, piece in zip(writers, pieces, strict=True):
                    writer.append(piece)
                if progress and number % REPORT_EVERY == 0:
                    progress(writers[0].documents, sum(writer.tokens for writer in writers))
            for writer in writers:
                writer.close()
        if progress:
            progress(writers[0].documents, sum(writer.tokens for writer in writers))

    write_atomically(folder, write)


class TokenStore:
    """A written store, opened for reading. `tokens` stays on the disk: slices of it are read when they are used.

    Shapes: tokens [tokens]; offsets, byte_offsets [documents + 1]; sentences [sentences].
    """

    def __init__(self, folder: Path) -> None:
        """Open `folder`. Errors: `InputError` where it is not a store, or not a whole one."""
        self.folder = Path(folder)
        about = _read_description(self.folder)
        self.vocab: int = about["vocab"]
        self.unknown: int = about["unknown"]
        self.tokens: NDArray[Any] = self._map("tokens", np.dtype(about["dtype"]).newbyteorder("<"))
        self.offsets: Ints = self._map("documents", np.dtype("<i8"))
        self.byte_offsets: Ints = self._map("bytes", np.dtype("<i8"))
        self.sentences: Ints = self._map("sentences", np.dtype("<i8"))
        if len(self.tokens) != about["tokens"] or len(self.offsets) != about["documents"] + 1:
            raise self._damaged("its files are cut short")
        if self.offsets[0] != 0 or self.offsets[-1] != len(self.tokens) or (np.diff(self.offsets) < 0).any():
            raise self._damaged("its documents do not follow each other")

    def _map(self, name: str, kind: np.dtype[Any]) -> NDArray[Any]:
        path = self.folder / f"{name}.bin"
        if not path.is_file() or path.stat().st_size % kind.itemsize:
            raise self._damaged("its files are cut short")
        if path.stat().st_size == 0:
            return np.zeros(0, dtype=kind)
        return np.memmap(path, dtype=kind, mode="r")

    def _damaged(self, how: str) -> InputError:
        return InputError(f"the token store is damaged: {how}", where=str(self.folder),
                          remedy="delete it; it is made again from the text")

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def bytes(self) -> int:
        """UTF-8 bytes of the whole text."""
        return int(self.byte_offsets[-1])

    @property
    def lengths(self) -> Ints:
        """Tokens of each document. Shapes: [documents]."""
        return np.diff(self.offsets).astype(np.int64)

    def document(self, number: int) -> Ints:
        """Read the ids of one document. Raises as `read`."""
        return self.read(slice(self.offsets[number], self.offsets[number + 1]))

    def read(self, places: Ints | slice) -> Ints:
        """Read the ids at some places. Raises `InputError` for ids that the vocabulary does not have."""
        ids = np.asarray(self.tokens[places], dtype=np.int64)
        if ids.size and int(ids.max()) >= self.vocab:
            raise self._damaged(f"it holds the token {int(ids.max())} of a vocabulary of {self.vocab}")
        return ids

    def counts(self) -> dict[str, int]:
        """Give what there is, for a report."""
        return {"documents": len(self), "tokens": len(self.tokens), "bytes": self.bytes, "unknown": self.unknown}


def _read_description(folder: Path) -> dict[str, Any]:
    path = folder / "store.json"
    if not path.is_file():
        raise InputError("is not a token store (it has no store.json)", where=str(folder), remedy="check the path")
    about = read_object(path)
    if about.get("version") != VERSION:
        raise InputError(f"is a token store of version {about.get('version')}, this is version {VERSION}",
                         where=str(folder), remedy="delete it; it is made again from the text")
    counts = [about.get(name) for name in ("vocab", "unknown", "tokens", "documents")]
    if about.get("dtype") not in DTYPES or not all(type(one) is int and one >= 0 for one in counts):
        raise InputError("the token store is damaged: its store.json", where=str(path),
                         remedy="delete the store; it is made again from the text")
    return about


class PairStore:
    """Two stores side by side: document i of `source` belongs to document i of `target`."""

    def __init__(self, folder: Path) -> None:
        """Open `folder`. Errors: `InputError` where it does not hold two whole stores of equal length."""
        self.folder = Path(folder)
        self.source = TokenStore(self.folder / "source")
        self.target = TokenStore(self.folder / "target")
        if len(self.source) != len(self.target):
            raise InputError(f"{len(self.source)} sources, but {len(self.target)} targets", where=str(self.folder),
                             remedy="delete the store; it is made again from the text")

    def __len__(self) -> int:
        return len(self.source)

    def counts(self) -> dict[str, int]:
        """Give what there is, for a report."""
        sides = {"source": self.source.counts(), "target": self.target.counts()}
        return {"pairs": len(self), **{f"{side}_{name}": count for side, counts in sides.items()
                                       for name, count in counts.items() if name != "documents"}}


GROUP = 1 << 20
"""Characters that are encoded at a time."""
SENTENCE_END = re.compile(r"(?:[.!?]['\")\]]*\s+|\n\s*)(?=\S)")

T = TypeVar("T")


def get_document_frame(tokenizer: Tokenizer) -> tuple[int | None, int | None]:
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
    pieces = _encode_pieces(documents, tokenizer, sentences)
    rows = ((piece,) for piece in _add_frame(pieces, begin, end))
    write_stores(folder, {".": tokenizer.vocab_size}, rows, progress)
    return TokenStore(folder)


def write_pairs(folder: Path, pairs: Iterable[Pair], tokenizer: Tokenizer, *,
                progress: Progress | None = None) -> PairStore:
    """Encode pairs, each text inside its tokenizer's template, into a store of pairs.

    Where languages are named, each text begins with its own.
    Errors: as `write_documents`; `InputError` for a language that the tokenizer has no token of.
    """
    vocabs = {"source": tokenizer.vocab_size, "target": tokenizer.target.vocab_size}
    write_stores(folder, vocabs, _encode_pairs(pairs, tokenizer), progress)
    return PairStore(folder)


def find_sentence_starts(text: str) -> list[int]:
    """Find where sentences start: at the beginning, and after `.`, `!`, `?` and line ends, in any language."""
    return [0, *(match.end() for match in SENTENCE_END.finditer(text))]


def _group_items(items: Iterable[T], characters: Callable[[T], int]) -> Iterator[list[T]]:
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


def _encode_pieces(documents: Iterable[Document], tokenizer: Tokenizer, sentences: bool) -> Iterator[Piece]:
    for group in _group_items(documents, lambda document: len(document.text)):
        texts = [document.text for document in group]
        encoded = encode_sentences(texts, tokenizer) if sentences else \
            [(ids, []) for ids in tokenizer.encode_batch(texts, add_special_tokens=False)]
        for document, (ids, starts) in zip(group, encoded, strict=True):
            yield Piece(ids, len(document.text.encode("utf-8")), document.part == 0, starts,
                        _count_unknown(ids, tokenizer))


def encode_sentences(texts: list[str], tokenizer: Tokenizer) -> list[tuple[list[int], list[int]]]:
    """Encode sentence by sentence, so that a sentence starts with a token of its own. Gives ids and sentence starts."""
    cut = [[text[start:end] for start, end in pairwise([*find_sentence_starts(text), len(text)])] for text in texts]
    encoded = iter(tokenizer.encode_batch(list(chain.from_iterable(cut)), add_special_tokens=False))
    result = []
    for sentences in cut:
        parts = list(islice(encoded, len(sentences)))
        ends = accumulate(map(len, parts))
        starts = [end - len(part) for part, end in zip(parts, ends, strict=True) if part]
        result.append((list(chain.from_iterable(parts)), starts))
    return result


def _count_unknown(ids: list[int], tokenizer: Tokenizer) -> int:
    return 0 if tokenizer.unk_id is None or tokenizer.unk_id == tokenizer.eos_id else ids.count(tokenizer.unk_id)


def _add_frame(pieces: Iterable[Piece], begin: int | None, end: int | None) -> Iterator[Piece]:
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


def _encode_pairs(pairs: Iterable[Pair], tokenizer: Tokenizer) -> Iterator[tuple[Piece, Piece]]:
    tokens: LanguageTokens | None = None
    for group in _group_items(pairs, lambda pair: len(pair.source) + len(pair.target)):
        sources = _join_parts([pair.source for pair in group], tokenizer)
        targets = _join_parts([pair.target for pair in group], tokenizer.target)
        for pair, *sides in zip(group, sources, targets, strict=True):
            if pair.languages is not None:
                tokens = tokens or LanguageTokens(tokenizer)
                sides = [replace(side, ids=[tokens.language(name, pair.where), *side.ids[1:]])
                         for side, name in zip(sides, pair.languages, strict=True)]
            yield sides[0], sides[1]


def _join_parts(texts: list[str], tokenizer: Tokenizer) -> list[Piece]:
    return [Piece(ids, len(text.encode("utf-8")), unknown=_count_unknown(ids, tokenizer))
            for text, ids in zip(texts, tokenizer.encode_batch(texts), strict=True)]
