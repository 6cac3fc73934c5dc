"""`TokenStore`: token ids on the disk, read through a memory map, so that a corpus larger than memory streams.

A store is a folder: `tokens.bin` (little-endian uint16 or uint32, by vocabulary), `documents.bin` and `bytes.bin`
(int64: where each document starts in the tokens, and in the UTF-8 bytes of the text; one entry more than documents),
`sentences.bin` (int64: where sentences start; may be empty) and `store.json`. It is written once, atomically, and never
changed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from saucier.errors import InputError
from saucier.files import disk_errors, read_object, write_atomically
from saucier.text.rows import Ints

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
    """Whether this starts a document or goes on with the one before."""
    sentences: Sequence[int] = ()
    """Where in `ids` sentences start."""
    unknown: int = 0
    """How many ids stand for what the vocabulary cannot spell."""


class StoreWriter:
    """Appends pieces to the files of a store. Use `write_store`, unless two stores are to be written at once."""

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


def write_store(folder: Path, pieces: Iterable[Piece], *, vocab: int, progress: Progress | None = None) -> TokenStore:
    """Stream pieces to disk: nothing but the piece at hand is in memory. The folder appears whole, or not at all.

    Errors: `InputError` for an id outside the vocabulary or no tokens at all; `WorkError` for a full disk.
    """
    def write(temporary: Path) -> None:
        with disk_errors(folder):
            writer = StoreWriter(temporary, vocab)
            for number, piece in enumerate(pieces, start=1):
                writer.append(piece)
                if progress and number % REPORT_EVERY == 0:
                    progress(writer.documents, writer.tokens)
            writer.close()
        if progress:
            progress(writer.documents, writer.tokens)

    write_atomically(folder, write)
    return TokenStore(folder)


class TokenStore:
    """A written store, opened for reading. `tokens` stays on the disk: slices of it are read when they are used.

    Shapes: tokens [tokens]; offsets, byte_offsets [documents + 1]; sentences [sentences].
    """

    def __init__(self, folder: Path) -> None:
        """Open `folder`. Errors: `InputError` where it is not a store, or not a whole one."""
        self.folder = Path(folder)
        about = _about(self.folder)
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
    def documents(self) -> int:
        """How many documents there are."""
        return len(self)

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

    def bytes_between(self, first: int, last: int) -> int:
        """Count the UTF-8 bytes of the text of documents `first` to `last` (not included)."""
        return int(self.byte_offsets[last] - self.byte_offsets[first])

    def counts(self) -> dict[str, int]:
        """Give what there is, for a report."""
        return {"documents": len(self), "tokens": len(self.tokens), "bytes": self.bytes, "unknown": self.unknown}


def _about(folder: Path) -> dict[str, Any]:
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


def write_pair_store(folder: Path, pairs: Iterable[tuple[Piece, Piece]], *, vocabs: tuple[int, int],
                     progress: Progress | None = None) -> PairStore:
    """Stream (source, target) pieces to disk. The folder appears whole, or not at all.

    Errors: `InputError` for an id outside its vocabulary or no tokens at all; `WorkError` for a full disk.
    """
    def write(temporary: Path) -> None:
        with disk_errors(folder):
            writers = StoreWriter(temporary / "source", vocabs[0]), StoreWriter(temporary / "target", vocabs[1])
            for number, pair in enumerate(pairs, start=1):
                for writer, piece in zip(writers, pair, strict=True):
                    writer.append(piece)
                if progress and number % REPORT_EVERY == 0:
                    progress(number, sum(writer.tokens for writer in writers))
            for writer in writers:
                writer.close()
        if progress:
            progress(writers[0].documents, sum(writer.tokens for writer in writers))

    write_atomically(folder, write)
    return PairStore(folder)
