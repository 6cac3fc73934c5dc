"""One file cleaned separately: the documents that its rules leave, those dropped, and keys and MinHash bands to find
repetition with.

A piece is a folder that is there whole or not at all; it depends on the file and the rules only. Keys meet in
memory one bucket at a time. Axes: K keys, N runs of words, M hash functions, B bands.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from saucier.files import write_atomically, write_text
from saucier.text.cleaning.cleaner import Cleaner, Dropped, Place, Tally, shorten_text
from saucier.text.cleaning.config import Cleaning, Duplicates, ExactDuplicates, NearDuplicates, RepeatedSpans
from saucier.text.cleaning.page import Page, compute_exact_key, compute_span_keys, hash_runs
from saucier.text.reading.documents import Counts, Document, read_source_documents
from saucier.text.reading.sources import SourceFile
from saucier.text.rows.batch import Hashes, make_generator, mix_bits

KEY = np.dtype([("key", "<u8"), ("check", "<u8"), ("document", "<i8"), ("place", "<i4")])
"""A 128-bit hash of some text, the number of the document, and a place in it."""
BUCKET = 1 << 21
"""Keys in memory at once, about."""
PENDING = (1 << 16) * KEY.itemsize
"""Bytes of keys that are written or read at once."""
Keys = NDArray[np.void]


@dataclass(frozen=True, slots=True)
class KeyPart:
    """A file of keys whose documents are counted from `first` on in the corpus."""

    path: Path
    first: int

    def blocks(self, dropped: NDArray[np.int64]) -> Iterator[Keys]:
        """Yield keys with the corpus's numbers, but for those of documents that are `dropped` (>= 0)."""
        with self.path.open("rb") as file:
            while block := file.read(PENDING):
                keys = np.frombuffer(block, KEY).copy()
                keys["document"] += self.first
                yield keys[dropped[keys["document"]] < 0]


def read_sorted_buckets(parts: Sequence[KeyPart], dropped: NDArray[np.int64], scratch: Path) -> Iterator[Keys]:
    """Yield all keys in buckets that hold equal ones together, each sorted by key, document and place.

    Shapes: dropped [documents of the corpus].
    """
    total = sum(part.path.stat().st_size for part in parts) // KEY.itemsize
    bits = max(0, (total - 1) // BUCKET).bit_length()
    if bits == 0:
        yield _sort_keys([block for part in parts for block in part.blocks(dropped)])
        return
    scratch.mkdir(parents=True, exist_ok=True)
    files = [(scratch / f"bucket-{number:05}").open("w+b") for number in range(1 << bits)]
    for part in parts:
        for keys in part.blocks(dropped):
            buckets = keys["key"] >> np.uint64(64 - bits)
            for bucket in np.unique(buckets):
                files[int(bucket)].write(keys[buckets == bucket].tobytes())
    for file in files:
        file.seek(0)
        yield _sort_keys([np.frombuffer(file.read(), KEY)])
        file.close()
        Path(file.name).unlink()


def _sort_keys(blocks: Sequence[Keys]) -> Keys:
    keys = np.concatenate(blocks) if blocks else np.empty(0, KEY)
    order = np.lexsort((keys["place"], keys["document"], keys["check"], keys["key"]))
    return keys[order]


def find_run_starts(keys: Keys) -> NDArray[np.int64]:
    """Return for each of some sorted keys where the run of its equals starts. Shapes: [K]."""
    if not len(keys):
        return np.empty(0, np.int64)
    new = (keys["key"][1:] != keys["key"][:-1]) | (keys["check"][1:] != keys["check"][:-1])
    places = np.arange(len(keys))
    places[1:][~new] = 0
    return np.maximum.accumulate(places)


def find_shingles(page: Page, words: int) -> Hashes:
    """Return the different runs of words of a text, sorted; a shorter text is one run. Shapes: [N]."""
    return np.unique(hash_runs(page.token_hashes, max(1, min(words, len(page.tokens)))))


def compute_jaccard(left: Hashes, right: Hashes) -> float:
    """Return the share of what two sorted sets have together that is in both. Shapes: [N], [N']."""
    both = len(np.intersect1d(left, right, assume_unique=True))
    return both / max(1, len(left) + len(right) - both)


class MinHash:
    """The hash functions of a rule."""

    def __init__(self, rule: NearDuplicates) -> None:
        """Draw them from the seed of the rule."""
        draw = make_generator(rule.seed)
        count = rule.bands * rule.rows
        self._rule = rule
        self._factors = draw.integers(0, 2**63, count, dtype=np.uint64)[:, None] * np.uint64(2) + np.uint64(1)
        self._offsets = draw.integers(0, 2**64, count, dtype=np.uint64)[:, None]

    def values(self, page: Page) -> Hashes:
        """Return the least value of each hash function over a text's runs of words. Shapes: [M], 32 bits each."""
        found = find_shingles(page, self._rule.words)
        if not len(found):
            return np.zeros(len(self._factors), np.uint64)
        least: Hashes = ((self._factors * found + self._offsets) >> np.uint64(32)).min(axis=1)
        return least

    def bands(self, page: Page) -> Hashes:
        """Return a key for each band; texts with equal keys are candidates. Shapes: [B]."""
        values = self.values(page).reshape(self._rule.bands, self._rule.rows)
        keys = np.arange(self._rule.bands, dtype=np.uint64)
        for row in range(self._rule.rows):
            keys = mix_bits(keys + values[:, row])
        return keys


DOCUMENTS, DROPPED, OFFSETS, TALLY = "documents.jsonl", "rejected.jsonl", "offsets.bin", "tally.json"
LONGEST = 1 << 24
"""Characters of a document; a longer one continues as another, which is counted."""


@dataclass(frozen=True, slots=True)
class Order:
    """What is to be cleaned, how, and where to."""

    source: SourceFile
    cleaning: Cleaning
    target: Path
    """The folder of the piece."""
    keep_rejected: bool = False
    """Whether the text of dropped documents is kept."""


def clean_piece(order: Order) -> None:
    """Make a piece. Raises `InputError` as reading does, `WorkError` for a full disk."""
    write_atomically(order.target, partial(_write, order))


def name_key_file(kind: str) -> str:
    """Return the name of the file of keys of a rule."""
    return f"keys-{kind}.bin"


def build_keyer(rule: Duplicates) -> Callable[[Page], tuple[Hashes, Hashes]]:
    """Return the function that makes the keys by which a rule finds repetition."""
    match rule:
        case ExactDuplicates():
            return compute_exact_key
        case NearDuplicates():
            found = MinHash(rule)
            return lambda page: (keys := found.bands(page), np.zeros_like(keys))
        case RepeatedSpans(sentences=sentences):
            return lambda page: compute_span_keys(page, sentences)


def _write(order: Order, folder: Path) -> None:
    folder.mkdir()
    tally, counts = Tally(), Counts()
    cleaner = Cleaner(order.cleaning, tally)
    documents = join_parts(read_source_documents(order.source, column=order.cleaning.column,
                                                 unit=order.cleaning.document, counts=counts), tally)
    rules = [rule for rule in order.cleaning.rules if isinstance(rule, Duplicates)]
    with ExitStack() as stack:
        kept, rejected, offsets = (stack.enter_context((folder / name).open("wb"))
                                   for name in (DOCUMENTS, DROPPED, OFFSETS))
        keys = [(build_keyer(rule), stack.enter_context((folder / name_key_file(rule.kind)).open("wb", PENDING)))
                for rule in rules]
        survivors = itertools.count()
        for number, document in enumerate(documents):
            page, place = Page(document.text), Place(document.source, document.line)
            tally.before.add(page.text, len(page.words))
            if dropped := cleaner.clean(page, place):
                put_line(rejected, describe_rejection(number, place, dropped, document.text, order.keep_rejected))
                continue
            survivor = next(survivors)
            for compute_keys, file in keys:
                found, checks = compute_keys(page)
                written = np.empty(len(found), KEY)
                written["key"], written["check"], written["document"] = found, checks, survivor
                written["place"] = np.arange(len(found))
                file.write(written.tobytes())
            offsets.write(kept.tell().to_bytes(8, "little"))
            put_line(kept, {"text": page.text, "source": place.source, "line": place.line, "document": number,
                            "words": len(page.words)})
    tally.empty, tally.repaired = counts.empty, counts.repaired
    write_text(folder / TALLY, tally.model_dump_json())


def join_parts(parts: Iterator[Document], tally: Tally) -> Iterator[Document]:
    """Join the parts of documents, up to the longest that there may be."""
    pending: list[Document] = []
    size = 0
    for part in parts:
        if pending and (part.part == 0 or size + len(part.text) > LONGEST):
            yield _joined(pending)
            tally.cut += part.part > 0
            pending, size = [], 0
        pending.append(part)
        size += len(part.text)
    if pending:
        yield _joined(pending)


def _joined(parts: list[Document]) -> Document:
    return Document("".join(part.text for part in parts), parts[0].source, parts[0].line)


def describe_rejection(number: int, place: Place, dropped: Dropped, text: str, keep: bool) -> dict[str, Any]:
    """Return the record of a dropped document; `number` counts from 0."""
    record = {"document": number, "source": place.source, "line": place.line, "rule": dropped.rule,
              "reason": dropped.fault.reason, "at": dropped.fault.line, "beginning": shorten_text(text)}
    return record | {"text": text} if keep else record


def put_line(file: IO[bytes], record: dict[str, Any]) -> int:
    """Write a JSON line; return its bytes."""
    return file.write(json.dumps(record, ensure_ascii=False).encode("utf-8") + b"\n")
