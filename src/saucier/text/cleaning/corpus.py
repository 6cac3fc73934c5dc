"""From pieces to a corpus: duplicates removed, the rest ordered or shuffled and written as JSONL shards, all
counted.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any, cast

import numpy as np

from saucier.text.cleaning.cleaner import Dropped, Place, Tally
from saucier.text.cleaning.config import Cleaning, FewSentences, RepeatedSpans, Shuffle
from saucier.text.cleaning.duplicates import Repetition, Survivors, find_repetition
from saucier.text.cleaning.page import Fault, Page, remove_sentences
from saucier.text.cleaning.pieces import DOCUMENTS, DROPPED, describe_rejection, put_line
from saucier.text.cleaning.rules import build_page_judge
from saucier.text.rows.batch import make_generator

BUCKET = 1 << 26
"""Bytes of documents in memory at once, about, while they are shuffled."""
BLOCK = 1 << 16
"""Documents that draw their keys together."""


def write_shards(lines: Iterable[tuple[int, bytes]], size: int, cleaning: Cleaning, folder: Path) -> list[Path]:
    """Write numbered lines into shards; return their paths. `size` is about how many bytes there will be."""
    ordered = shuffle_lines(lines, size, cleaning.order.seed, folder) if isinstance(cleaning.order, Shuffle) else \
        (line for _, line in lines)
    paths: list[Path] = []
    written = cleaning.shard
    with ExitStack() as stack:
        for line in ordered:
            if written >= cleaning.shard:
                stack.close()
                paths.append(folder / f"corpus-{len(paths):05}.jsonl{'.zst' if cleaning.compression else ''}")
                file, written = stack.enter_context(_open_shard(paths[-1], cleaning)), 0
            file.write(line)
            written += len(line)
    return paths


def _open_shard(path: Path, cleaning: Cleaning) -> IO[bytes]:
    if cleaning.compression is None:
        return path.open("wb")
    import pyarrow

    return cast("IO[bytes]", pyarrow.output_stream(str(path), compression="zstd"))


def shuffle_lines(lines: Iterable[tuple[int, bytes]], size: int, seed: int, folder: Path) -> Iterator[bytes]:
    """Yield lines in an order that depends on the seed and their numbers only, in memory for one bucket of them.

    Every line draws 64 bits; lines are sorted by them. The highest bits choose a bucket on disk, so that any number of
    buckets gives the same order.
    """
    bits = max(0, (size - 1) // BUCKET).bit_length()

    @functools.lru_cache(maxsize=1)
    def draw_keys(block: int) -> list[int]:
        return list(map(int, make_generator(seed, block).integers(0, 2**64, BLOCK, dtype=np.uint64)))

    files = [(folder / f"shuffle-{number:05}").open("w+b") for number in range(1 << bits)]
    for number, line in lines:
        key = draw_keys(number // BLOCK)[number % BLOCK]
        files[key >> (64 - bits) if bits else 0].write(
            key.to_bytes(8, "little") + number.to_bytes(8, "little") + len(line).to_bytes(8, "little") + line)
    for file in files:
        file.seek(0)
        found = []
        while head := file.read(24):
            key, number, length = np.frombuffer(head, "<u8").tolist()
            found.append((key, number, file.read(length)))
        yield from (line for *_, line in sorted(found, key=lambda entry: entry[:2]))
        file.close()
        Path(file.name).unlink()


REJECTED = "rejected"
"""The folder of what was dropped, so that `*.jsonl` next to it is the corpus alone."""
REJECTED_FILE = "documents.jsonl"


def write_corpus(pieces: Sequence[Path], cleaning: Cleaning, folder: Path, *,
                 keep_rejected: bool) -> tuple[Tally, list[Path]]:
    """Write the shards and the rejected documents of some pieces into a new folder; return the counts and shards."""
    survivors = Survivors(pieces)
    tally = Tally()
    for one in survivors.tallies:
        tally += one
    (folder / REJECTED).mkdir(parents=True)
    repetition = find_repetition(survivors, cleaning, folder / "keys")
    tally.unchecked = repetition.unchecked
    with (folder / REJECTED / REJECTED_FILE).open("wb") as rejected:
        for record in survivors.records(DROPPED):
            put_line(rejected, record)
        writer = _CorpusWriter(survivors, cleaning, repetition, tally)
        size = sum((piece / DOCUMENTS).stat().st_size for piece in pieces)
        shards = write_shards(writer.read_kept(rejected, keep_rejected=keep_rejected), size, cleaning, folder)
    return tally, shards


class _CorpusWriter:
    """The last pass over the documents: drops those that repeat others, removes repeated sentences, counts the rest."""

    def __init__(self, survivors: Survivors, cleaning: Cleaning, repetition: Repetition, tally: Tally) -> None:
        self._survivors, self._repetition, self._tally = survivors, repetition, tally
        self._span = next((rule.sentences for rule in cleaning.rules if isinstance(rule, RepeatedSpans)), 0)
        self._judges = [(rule.kind, build_page_judge(rule)) for rule in cleaning.rules
                        if isinstance(rule, FewSentences)]

    def read_kept(self, rejected: IO[bytes], *, keep_rejected: bool) -> Iterator[tuple[int, bytes]]:
        """Yield the lines of the corpus with their numbers, and write what is dropped to `rejected`."""
        for number, record in enumerate(self._survivors.records()):
            dropped = self._find_original(number) or self._remove_repeated(number, record)
            if dropped is None:
                self._tally.after.add(record["text"], record["words"])
                kept = {name: record[name] for name in ("text", "source", "line")}
                yield number, json.dumps(kept, ensure_ascii=False).encode("utf-8") + b"\n"
                continue
            whole = self._survivors.record(number)
            put_line(rejected, describe_rejection(whole["document"], _locate(whole), dropped, whole["text"],
                                                  keep_rejected))
            found = self._tally.rules[dropped.rule]
            found.documents += 1
            found.keep_example(_locate(record).example(record["text"], dropped.fault.reason))

    def _find_original(self, number: int) -> Dropped | None:
        rule = self._repetition.rule.get(number)
        if rule is None:
            return None
        original = self._survivors.record(int(self._repetition.original[number]))
        return Dropped(rule, Fault(f"repeats document {original['document']}, {original['source']}, line "
                                   f"{original['line']}"))

    def _remove_repeated(self, number: int, record: dict[str, Any]) -> Dropped | None:
        """Remove repeated sentences; a text that is too short then is dropped."""
        spans = self._repetition.spans
        begin, end = np.searchsorted(spans[:, 0], (number, number + 1))
        if begin == end:
            return None
        page = Page(record["text"])
        removed = sorted({int(first) + place for first in spans[begin:end, 1] for place in range(self._span)})
        found = self._tally.rules["repeated_spans"]
        found.sentences += len(removed)
        starts, ends = [0, *page.sentence_ends], page.sentence_ends
        shown = " ".join(page.text[starts[number]:ends[number]].strip() for number in removed[:self._span])
        found.keep_example(_locate(record).example(shown, f"{len(removed)} sentences removed"))
        page.set_text(remove_sentences(page, set(removed)))
        record["text"] = page.text
        record["words"] = len(page.words)
        if not page.text:
            return Dropped("repeated_spans", Fault("every sentence stands in earlier documents"))
        for kind, judge in self._judges:
            if fault := judge(page):
                return Dropped(kind, Fault(f"{fault.reason}, after repeated ones were removed"))
        return None


def _locate(record: dict[str, Any]) -> Place:
    return Place(record["source"], record["line"])
