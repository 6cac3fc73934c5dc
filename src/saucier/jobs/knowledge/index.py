"""`index`: documents to a store of chunks. A second call reads only what changed; what is gone goes.

The road: find documents, see which changed, read and cut them, embed the chunks, commit them in batches, put the store
in order. It may be killed anywhere: what was committed stays, and the next call goes on.
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from saucier.errors import InputError
from saucier.plain import format_bytes, format_duration
from saucier.result import Result
from saucier.retrieval.chunks import Chunk, Chunking, check_chunking, cut_chunks
from saucier.retrieval.documents import Faults, find_documents, name_kind, read_document
from saucier.retrieval.encoder import (
    PASSPORT_FILE,
    Encoder,
    IndexPassport,
    check_encoder,
    find_passport,
    open_encoder,
    read_passport,
    write_passport,
)
from saucier.retrieval.lance_store import LanceStore
from saucier.retrieval.lance_table import LOCK_FILE, TABLE_FOLDER, lock_writer
from saucier.retrieval.lexical import Language
from saucier.retrieval.store import FileStamp, Store, StoreFacts, make_rows
from saucier.table import Table
from saucier.text.reading.guessing import ReadOptions
from saucier.text.reading.sources import AS_GUESSED

BATCH, MOST_PENDING = 512, 4096
"""Chunks after which whole documents are committed, and after which a part of one is."""
MOST_PATHS = 500
"""Files that are removed together."""
SHOWN = 10
"""Skipped files that are listed on the screen."""
Progress = Callable[[Sequence[Path], str], Iterable[Path]]
"""Gives files, and shows how far they are."""


@dataclass(frozen=True, slots=True)
class IndexOptions:
    """How documents are read and cut. None: as the index has it, or by default."""

    length: int | None = None
    overlap: int | None = None
    language: Language | None = None
    column: str | None = None
    read: ReadOptions = AS_GUESSED
    strict: bool = False
    """Whether a file, a row or a page that cannot be used stops all, before anything is written."""

    def chunking(self, room: int | None, made: Chunking | None) -> Chunking:
        """Return how documents are cut: as before, as a person says, or as much as the encoder reads.

        Raises `InputError` for other lengths than an index has.
        """
        usual = made or fit_chunking(room)
        said = {name: value for name in ("length", "overlap") if (value := getattr(self, name)) is not None}
        found = usual.model_copy(update=said)
        if made is not None and found != made:
            raise InputError(f"was made with chunks of {made.length} tokens that repeat {made.overlap}",
                             where="--length, --overlap", remedy="leave both out, or make a new index")
        check_chunking(found, room)
        return found


def fit_chunking(room: int | None) -> Chunking:
    """Return the usual rules, shortened where an encoder reads less."""
    usual = Chunking()
    length = usual.length if room is None else max(1, min(usual.length, room))
    return Chunking(length=length, overlap=min(usual.overlap, length // 4))


@dataclass(frozen=True, slots=True, repr=False)
class IndexReport(Result):
    """What became of an index."""

    path: Path
    read: int
    """Files that were read: new or changed ones."""
    unchanged: int
    gone: int
    """Files that are no longer there, or can no longer be read: their chunks went."""
    added: int
    """Chunks that were embedded."""
    skipped: dict[str, str]
    """File -> why it was not read."""
    rows: list[str]
    """What is wrong with single rows, which were left out."""
    pages: int
    """Pages of PDF files without text."""
    facts: StoreFacts
    seconds: float

    def view(self) -> Table:
        """Return what `saucier index` prints."""
        facts = self.facts
        lines = [("files", f"{facts.files:,}: {self.read:,} read, {self.unchanged:,} unchanged, {self.gone:,} gone"),
                 ("chunks", f"{facts.chunks:,}, {self.added:,} of them new"),
                 ("size", f"{format_bytes(facts.bytes)}, {format_bytes(facts.version_bytes)} of it older versions"),
                 ("unindexed", f"{facts.unindexed:,} chunks"),
                 ("vectors", "all compared" if facts.recall is None else
                  f"approximate index, recall {facts.recall:.3f} against the exact scan"),
                 ("time", format_duration(self.seconds))]
        return Table(("", ""), lines, folded=(1,), title=str(self.path))

    def remarks(self) -> list[str]:
        """Return which files, rows and pages were left out."""
        found = [f"skipped: {path}: {why}" for path, why in list(self.skipped.items())[:SHOWN]]
        if len(self.skipped) > SHOWN:
            found.append(f"skipped: {len(self.skipped) - SHOWN:,} more files; --json lists them")
        if self.rows:
            found.append(f"{len(self.rows):,} rows left out, the first one: {self.rows[0]}")
        return [*found, *([f"{self.pages:,} pages of PDF files hold no text; they may be pictures"] * bool(self.pages))]


@dataclass(slots=True)
class Pending:
    """Chunks on their way to the store."""

    store: Store
    encoder: Encoder
    known: Mapping[str, FileStamp]
    chunks: list[tuple[str, FileStamp, Chunk, bool]] = field(default_factory=list)
    """Path, stamp, chunk, and whether it is the last one of its file."""
    stale: dict[str, None] = field(default_factory=dict)
    """Files whose chunks so far go with the next commit."""
    added: int = 0

    def add_document(self, path: str, stamp: FileStamp, chunks: Iterable[Chunk]) -> None:
        """Take all chunks of a file; those of a very long one are committed in parts. Takes none if reading fails."""
        before = len(self.chunks)
        if path in self.known:
            self.stale[path] = None
        parts = False
        try:
            for chunk, last in mark_last(chunks):
                self.chunks.append((path, stamp, chunk, last))
                if len(self.chunks) >= MOST_PENDING and not last:
                    self.commit()
                    before, parts = 0, True
        except InputError:
            del self.chunks[before:]
            if path in self.known or parts:
                self.stale[path] = None
            raise
        if len(self.chunks) >= BATCH:
            self.commit()

    def commit(self) -> None:
        """Embed the chunks and write them, in one commit."""
        if not self.chunks and not self.stale:
            return
        texts = [chunk.text for _, _, chunk, _ in self.chunks]
        vectors = self.encoder.embed(texts) if texts else np.empty((0, self.encoder.passport.width), np.float32)
        self.store.replace(make_rows(list_columns(self.chunks), vectors), list(self.stale))
        self.added += len(texts)
        self.chunks.clear()
        self.stale.clear()

    def remove(self, paths: Sequence[str]) -> None:
        """Remove files."""
        for start in range(0, len(paths), MOST_PATHS):
            self.stale |= dict.fromkeys(paths[start:start + MOST_PATHS])
            self.commit()


def mark_last(chunks: Iterable[Chunk]) -> Iterator[tuple[Chunk, bool]]:
    """Yield chunks, each with whether it is the last one."""
    before: Chunk | None = None
    for chunk in chunks:
        if before is not None:
            yield before, False
        before = chunk
    if before is not None:
        yield before, True


def list_columns(chunks: Sequence[tuple[str, FileStamp, Chunk, bool]]) -> dict[str, list[Any]]:
    """Return chunks by the columns of the store."""
    named = {name: [getattr(chunk, name) for _, _, chunk, _ in chunks]
             for name in ("text", "start", "stop", "section", "page", "line")}
    return named | {"id": [chunk.identify(path) for path, _, chunk, _ in chunks], "path": [one[0] for one in chunks],
                    "kind": [name_kind(one[0]) or "txt" for one in chunks], "size": [one[1].size for one in chunks],
                    "changed": [one[1].changed for one in chunks], "digest": [one[1].digest for one in chunks],
                    "last": [one[3] for one in chunks]}


def index_documents(places: Sequence[str], out: Path, model: str | None, options: IndexOptions, *,
                    number_format: str | None = None, show: Progress | None = None,
                    encoder: Encoder | None = None) -> IndexReport:
    """Index documents. `show` shows progress; `encoder`: instead of that of a model.

    Raises `InputError` for no documents, a new index of none that can be read, another encoder than the index has, a
    second writer, and in a strict call for whatever cannot be read; `WorkError` for a full disk.
    """
    begin, (found, skipped) = time.perf_counter(), find_documents(places)
    made = read_passport(out)
    if encoder is None:
        if model is None and made is None:
            raise InputError("which model embeds the documents?", where="--model",
                             remedy="give a folder or hub id in sentence-transformers' form")
        said = number_format if number_format is not None or made is None else made.encoder.format
        encoder = open_encoder(model or find_passport(out).encoder.model, said)
    if made is not None:
        check_encoder(out, made, encoder.passport)
    if made is not None and options.language not in (None, made.language):
        raise InputError(f"was made with {made.language} stems", where="--language", remedy="make a new index")
    passport = made or IndexPassport(encoder=encoder.passport, chunking=options.chunking(encoder.room, None),
                                     language=options.language or "english")
    options.chunking(encoder.room, passport.chunking)
    if options.strict:
        refuse_unreadable(found, skipped, options)
    with lock_writer(out):
        if made is None:
            write_passport(out, passport)
        store = LanceStore.open(out) or LanceStore.create(out, passport.encoder.width, passport.language)
        report = update_store(store, encoder, passport.chunking, found, options, show or (lambda items, what: items))
        named = {str(path): why for path, why in skipped.items()} | report["skipped"]
        if made is None and not store.count():
            remove_index(out)
            raise InputError(f"none of {len(found):,} documents can be read; nothing was written",
                             where=", ".join(places), remedy="give others",
                             more=[f"{path}: {why}" for path, why in list(named.items())[:SHOWN]])
        store.finish()
    return IndexReport(out, **(report | {"skipped": named}), facts=store.describe(),
                       seconds=time.perf_counter() - begin)


def remove_index(out: Path) -> None:
    """Remove an index that was begun, and its folder where nothing else is in it."""
    shutil.rmtree(out / TABLE_FOLDER)
    for name in (PASSPORT_FILE, LOCK_FILE):
        (out / name).unlink()
    with contextlib.suppress(OSError):  # a person's own files stay
        out.rmdir()


def refuse_unreadable(found: Sequence[Path], skipped: Mapping[Path, str], options: IndexOptions) -> None:
    """Read all documents. Raises `InputError` for all that would be skipped."""
    wrong = [f"{path}: {why}" for path, why in skipped.items()]
    for path in found:
        faults = Faults()
        try:
            for _ in read_document(path, column=options.column, options=options.read, faults=faults):
                pass
        except InputError as fault:
            wrong.append(str(fault))
        wrong += [*map(str, faults.rows), *([f"{path}: {faults.pages} pages hold no text"] * bool(faults.pages))]
    if wrong:
        raise InputError(f"{len(wrong):,} files, rows or pages cannot be read; nothing was written", where="--strict",
                         remedy="leave them out, or leave --strict out", more=wrong)


def update_store(store: Store, encoder: Encoder, rules: Chunking, found: Sequence[Path], options: IndexOptions,
                 show: Progress) -> dict[str, Any]:
    """Bring a store up to date with files, and count."""
    known = store.list_files()
    pending, skipped, faults = Pending(store, encoder, known), dict[str, str](), Faults()
    read = unchanged = 0
    lost = [path for path in known if not Path(path).is_file()]
    for path in show(found, "documents"):
        name = str(path)
        try:
            stamp = find_change(path, known.get(name))
            if stamp is None:
                unchanged += 1
                continue
            blocks = read_document(path, column=options.column, options=options.read, faults=faults)
            pending.add_document(name, stamp, cut_chunks(blocks, rules, encoder.measure))
            read += 1
        except InputError as fault:
            skipped[name] = fault.what
    lost += [name for name in skipped if name in known]
    pending.commit()
    pending.remove(lost)
    return {"read": read, "unchanged": unchanged, "gone": len(lost), "added": pending.added, "skipped": skipped,
            "rows": [str(one) for one in faults.rows], "pages": faults.pages}


def find_change(path: Path, known: FileStamp | None) -> FileStamp | None:
    """Return how a file is now; None where it is as it was read: of the same size and time, or the same content.

    Raises `InputError` for one that cannot be read.
    """
    try:
        status = path.stat()
        same = known is not None and known.whole and known.size == status.st_size
        if known is not None and same and known.changed == status.st_mtime_ns:
            return None
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(path), remedy="leave it out") from error
    if known is not None and same and known.digest == digest:
        return None
    return FileStamp(status.st_size, status.st_mtime_ns, digest, 0, whole=False)
