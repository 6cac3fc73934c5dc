"""One file cleaned by itself: the documents that its rules leave, those dropped, and keys to find repetition with.

A piece is a folder that is there whole or not at all; it depends on the file and the rules only, so that pieces can be
made in any order, by any number of processes and machines.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np

from saucier.files import write_atomically, write_text
from saucier.text.cleaning.cleaner import Cleaner, Dropped, Place
from saucier.text.cleaning.config import Cleaning, Duplicates, ExactDuplicates, NearDuplicates, RepeatedSpans
from saucier.text.cleaning.keys import KeyFile
from saucier.text.cleaning.minhash import MinHash
from saucier.text.cleaning.page import Page
from saucier.text.cleaning.sentences import exact_key, span_keys
from saucier.text.cleaning.tally import Tally, excerpt
from saucier.text.cleaning.words import Hashes
from saucier.text.read import Counts, Document, source_documents
from saucier.text.sources import Source

DOCUMENTS, REJECTED, OFFSETS, TALLY = "documents.jsonl", "rejected.jsonl", "offsets.bin", "tally.json"
LONGEST = 1 << 24
"""Characters of a document; a longer one goes on as another, which is counted."""
Keyer = Callable[[Page], tuple[Hashes, Hashes]]


@dataclass(frozen=True, slots=True)
class Order:
    """What is to be cleaned, how, and where to."""

    source: Source
    cleaning: Cleaning
    target: Path
    """The folder of the piece."""
    keep_rejected: bool = False
    """Whether the text of dropped documents is kept."""


def clean_piece(order: Order) -> None:
    """Make a piece. Raises `InputError` as reading does, `WorkError` for a full disk."""
    write_atomically(order.target, partial(_write, order))


def key_file(kind: str) -> str:
    """Return the name of the file of keys of a rule."""
    return f"keys-{kind}.bin"


def keyer(rule: Duplicates) -> Keyer:
    """Return what makes the keys by which a rule finds repetition."""
    match rule:
        case ExactDuplicates():
            return exact_key
        case NearDuplicates():
            found = MinHash(rule)
            return lambda page: (keys := found.bands(page), np.zeros_like(keys))
        case RepeatedSpans(sentences=sentences):
            return lambda page: span_keys(page, sentences)


def _write(order: Order, folder: Path) -> None:
    folder.mkdir()
    tally, counts = Tally(), Counts()
    cleaner = Cleaner(order.cleaning, tally)
    documents = whole(source_documents(order.source, column=order.cleaning.column, unit=order.cleaning.document,
                                       counts=counts), tally)
    with ExitStack() as stack:
        output = _Output(folder, order, stack)
        for number, document in enumerate(documents):
            page, place = Page(document.text), Place(document.source, document.line)
            tally.before.add(page.text, len(page.words))
            dropped = cleaner.clean(page, place)
            if dropped is None:
                output.keep(page, place, number)
                continue
            output.reject(rejection(number, place, dropped, document.text, order.keep_rejected))
    tally.empty, tally.repaired = counts.empty, counts.repaired
    write_text(folder / TALLY, tally.model_dump_json())


def whole(parts: Iterator[Document], tally: Tally) -> Iterator[Document]:
    """Join the parts of documents, up to the longest that there may be."""
    held: list[Document] = []
    size = 0
    for part in parts:
        if held and (part.part == 0 or size + len(part.text) > LONGEST):
            yield _joined(held)
            tally.cut += part.part > 0
            held, size = [], 0
        held.append(part)
        size += len(part.text)
    if held:
        yield _joined(held)


def _joined(parts: list[Document]) -> Document:
    return Document("".join(part.text for part in parts), parts[0].source, parts[0].line)


def rejection(number: int, place: Place, dropped: Dropped, text: str, keep: bool) -> dict[str, Any]:
    """Return the record of a dropped document; `number` counts from 0."""
    record = {"document": number, "source": place.source, "line": place.line, "rule": dropped.rule,
              "reason": dropped.fault.reason, "at": dropped.fault.line, "beginning": excerpt(text)}
    return record | {"text": text} if keep else record


class _Output:
    """The files of a piece while they are written."""

    def __init__(self, folder: Path, order: Order, stack: ExitStack) -> None:
        self._documents = stack.enter_context((folder / DOCUMENTS).open("wb"))
        self._rejected = stack.enter_context((folder / REJECTED).open("wb"))
        self._offsets = stack.enter_context((folder / OFFSETS).open("wb"))
        rules = [rule for rule in order.cleaning.rules if isinstance(rule, Duplicates)]
        self._keys = [(keyer(rule), KeyFile(folder / key_file(rule.kind))) for rule in rules]
        for _, file in self._keys:
            stack.callback(file.close)
        self._kept = 0

    def keep(self, page: Page, place: Place, number: int) -> None:
        for keys_of, file in self._keys:
            file.add(*keys_of(page), self._kept)
        self._offsets.write(self._documents.tell().to_bytes(8, "little"))
        put_line(self._documents, {"text": page.text, "source": place.source, "line": place.line, "document": number,
                                   "words": len(page.words)})
        self._kept += 1

    def reject(self, record: dict[str, Any]) -> None:
        put_line(self._rejected, record)


def put_line(file: IO[bytes], record: dict[str, Any]) -> int:
    """Write a JSON line; return its bytes."""
    return file.write(json.dumps(record, ensure_ascii=False).encode("utf-8") + b"\n")
