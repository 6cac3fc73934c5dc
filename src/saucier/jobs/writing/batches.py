"""Letting a model write for every line or row of files, in batches; back-translation makes pairs of that."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from saucier.errors import InputError
from saucier.files import refuse_existing, write_text
from saucier.jobs.run.language_pairs import Direction
from saucier.jobs.writing.writer import Writer
from saucier.opened import OpenModel, room
from saucier.result import Result
from saucier.tasks.written.task import map_in_batches
from saucier.text.reading.documents import find_text_column
from saucier.text.reading.guessing import ReadOptions
from saucier.text.reading.sources import AS_GUESSED, find_sources, read_lines
from saucier.text.reading.tables import read_rows, read_text_cell

LONGEST_SOURCE = 512
"""The longest source, in tokens, of a model that can take any length and was not trained here."""


@dataclass(frozen=True, slots=True)
class WrittenTexts:
    """One text for each source."""

    texts: list[str]
    cut: int
    """Sources that were longer than the model takes, and were cut."""

    @property
    def lines(self) -> str:
        """One line for each text; line ends inside a text become spaces."""
        return "".join(" ".join(text.splitlines()) + "\n" for text in self.texts)


def source_texts(files: Sequence[str], column: str | None, options: ReadOptions = AS_GUESSED) -> Iterator[str]:
    """Yield a text for each line of a text file and each row of a table, empty ones too, so that lines stay aligned.

    Raises `InputError` for files that cannot be read.
    """
    for source in find_sources(files, options):
        if source.format == "txt":
            yield from (line.strip() for _, line in read_lines(source))
        else:
            name = column or find_text_column(source, None, "--column ")
            yield from (read_text_cell(row, name, source) or "" for row in read_rows(source, [name]))


def make_batch_writer(opened: OpenModel, direction: Direction | None = None) -> Writer:
    """Return what writes for many sources: they are as long as the model can take, and was trained on."""
    longest = room(opened.model.config, None) or LONGEST_SOURCE
    return Writer(opened, min(longest, opened.trained_length(longest)), direction)


def write_in_batches(writer: Writer, sources: Sequence[str], options: Mapping[str, Any], *,
                     batch: int = 32) -> WrittenTexts:
    """Write for each source by options of generation, nothing for an empty one. Raises `InputError` for several texts.
    """
    if options.get("num_return_sequences", 1) > 1:
        raise InputError("a file gets one text for each source", where="--samples", remedy="leave it out")
    full = [number for number, source in enumerate(sources) if source.strip()]
    cut = sum(len(writer.start(sources[number])) > writer.longest for number in full)

    def write_some(texts: list[str], start: int) -> list[str]:
        drawn = {} if options.get("seed") is None else {"seed": options["seed"] + start}
        return writer.translate(texts, {**options, **drawn})

    texts = [""] * len(sources)
    for number, text in zip(full, map_in_batches([sources[number] for number in full], batch, write_some), strict=True):
        texts[number] = text
    return WrittenTexts(texts, cut)


@dataclass(frozen=True, slots=True)
class SyntheticPairs(Result):
    """Pairs whose source a model has written, and whose target is a text as it was."""

    pairs: list[tuple[str, str]]
    empty: int
    """Texts that nothing was written for, or that hold nothing; they are left out."""
    cut: int
    """Texts that were longer than the model takes."""
    beyond: int
    """Texts that were not looked at, since there were enough."""
    file: Path | None = None
    """Where they were written."""

    def view(self) -> str:
        """Say what was written, and where."""
        return self.words if self.file is None else f"{self.words} → {self.file}"

    @property
    def words(self) -> str:
        """Say what was written, and what became of the rest."""
        lost = {"empty": self.empty, "cut": self.cut, "beyond the limit": self.beyond}
        rest = "".join(f", {count:,} {name}" for name, count in lost.items() if count)
        return f"{len(self.pairs):,} pairs{rest}"


def back_translate(writer: Writer, texts: Sequence[str], options: Mapping[str, Any], *, limit: int | None = None,
                   batch: int = 32) -> SyntheticPairs:
    """Write a source for each text of the target language, by a model of the other direction.

    Source: Sennrich et al. 2016, §3.2, arXiv:1511.06709; beams there, samples in Edunov et al. 2018, §3,
    arXiv:1808.09381.
    """
    chosen = list(texts)[:limit]
    written = write_in_batches(writer, chosen, options, batch=batch)
    lines = ((" ".join(source.split()), " ".join(target.split()))  # that a cell can hold
             for source, target in zip(written.texts, chosen, strict=True))
    pairs = [(source, target) for source, target in lines if source and target]
    return SyntheticPairs(pairs, len(chosen) - len(pairs), written.cut, len(texts) - len(chosen))


def write_pairs_table(path: Path, made: SyntheticPairs, columns: tuple[str, str]) -> SyntheticPairs:
    """Write the pairs as a table, and return them with its place.

    Raises `InputError` for a file that is there, and where there is no pair.
    """
    refuse_existing(path)
    if not made.pairs:
        raise InputError("the model wrote nothing for any of the texts", where=str(path),
                         remedy="use a model that has learned to translate")
    write_text(path, "".join(f"{source}\t{target}\n" for source, target in (columns, *made.pairs)))
    return replace(made, file=path)
