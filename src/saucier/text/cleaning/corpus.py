"""From pieces to a corpus: repetition taken out, the rest put in order and written, everything counted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from saucier.text.cleaning.cleaner import Dropped, Place
from saucier.text.cleaning.config import Cleaning, FewSentences, RepeatedSpans
from saucier.text.cleaning.duplicates import Repetition, find_repetition
from saucier.text.cleaning.page import Page
from saucier.text.cleaning.pages import page_judge
from saucier.text.cleaning.piece import put_line, rejection
from saucier.text.cleaning.sentences import without_sentences
from saucier.text.cleaning.shards import line_of, write_shards
from saucier.text.cleaning.survivors import Survivors
from saucier.text.cleaning.tally import Tally
from saucier.text.cleaning.verdict import Fault

REJECTED = "rejected"
"""The folder of what was dropped, so that `*.jsonl` beside it is the corpus alone."""
REJECTED_FILE = "documents.jsonl"


@dataclass(slots=True)
class Corpus:
    """What came of a cleaning."""

    tally: Tally
    shards: list[Path]


def write_corpus(pieces: Sequence[Path], cleaning: Cleaning, folder: Path, *, keep_rejected: bool) -> Corpus:
    """Write the shards and the rejected documents of some pieces into a new folder."""
    survivors = Survivors(pieces)
    tally = Tally()
    for one in survivors.tallies:
        tally += one
    (folder / REJECTED).mkdir(parents=True)
    repetition = find_repetition(survivors, cleaning, folder / "keys")
    tally.unchecked = repetition.unchecked
    with (folder / REJECTED / REJECTED_FILE).open("wb") as rejected:
        for record in survivors.rejections():
            put_line(rejected, record)
        last = _Last(survivors, cleaning, repetition, tally)
        kept = last.kept()
        shards = write_shards(kept, survivors.size, cleaning, folder)
        for record in last.rejections(keep_rejected):
            put_line(rejected, record)
    return Corpus(tally, shards)


class _Last:
    """The last pass over the documents: those that repeat others go, repeated sentences go, the rest is counted."""

    def __init__(self, survivors: Survivors, cleaning: Cleaning, repetition: Repetition, tally: Tally) -> None:
        self._survivors, self._repetition, self._tally = survivors, repetition, tally
        self._span = next((rule.sentences for rule in cleaning.rules if isinstance(rule, RepeatedSpans)), 0)
        self._judges = [(rule.kind, page_judge(rule)) for rule in cleaning.rules if isinstance(rule, FewSentences)]
        self._dropped: list[tuple[int, Dropped]] = []

    def kept(self) -> Iterator[tuple[int, bytes]]:
        """Yield the lines of the corpus with their numbers."""
        for number, record in enumerate(self._survivors.records()):
            dropped = self._repeats(number) or self._shortened(number, record)
            if dropped is None:
                self._tally.after.add(record["text"], record["words"])
                yield number, line_of(record)
                continue
            self._dropped.append((number, dropped))
            found = self._tally.rules[dropped.rule]
            found.documents += 1
            found.show(_place(record).example(record["text"], dropped.fault.reason))

    def rejections(self, keep: bool) -> Iterator[dict[str, Any]]:
        """Yield the records of the documents that this pass dropped."""
        for number, dropped in self._dropped:
            record = self._survivors.record(number)
            yield rejection(record["document"], _place(record), dropped, record["text"], keep)

    def _repeats(self, number: int) -> Dropped | None:
        rule = self._repetition.rule.get(number)
        if rule is None:
            return None
        original = self._survivors.record(int(self._repetition.original[number]))
        return Dropped(rule, Fault(f"repeats document {original['document']}, {original['source']}, line "
                                   f"{original['line']}"))

    def _shortened(self, number: int, record: dict[str, Any]) -> Dropped | None:
        """Take repeated sentences out; what is too short then goes, too."""
        spans = self._repetition.spans
        begin, end = np.searchsorted(spans[:, 0], (number, number + 1))
        if begin == end:
            return None
        page = Page(record["text"])
        gone = sorted({int(first) + place for first in spans[begin:end, 1] for place in range(self._span)})
        found = self._tally.rules["repeated_spans"]
        found.sentences += len(gone)
        found.show(_place(record).example(_sentences(page, gone[:self._span]), f"{len(gone)} sentences removed"))
        page.text = record["text"] = without_sentences(page, set(gone))
        record["words"] = len(page.words)
        if not page.text:
            return Dropped("repeated_spans", Fault("every sentence stands in earlier documents"))
        for kind, judge in self._judges:
            if fault := judge(page):
                return Dropped(kind, Fault(f"{fault.reason}, after repeated ones were removed"))
        return None


def _sentences(page: Page, numbers: Sequence[int]) -> str:
    starts = [0, *page.sentence_ends]
    return " ".join(page.text[starts[number]:page.sentence_ends[number]].strip() for number in numbers)


def _place(record: dict[str, Any]) -> Place:
    return Place(record["source"], record["line"])
