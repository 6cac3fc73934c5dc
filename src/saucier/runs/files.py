"""Letting a model write for every line or row of files, in batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from saucier.errors import InputError
from saucier.files import write_text
from saucier.recipes.coherence import learned_length
from saucier.runs.batches import in_batches
from saucier.runs.direction import Direction
from saucier.runs.opened import Opened
from saucier.runs.writing import Manner, Writer
from saucier.text.read import read_documents
from saucier.text.sources import find_sources, lines

LONGEST = 512
"""The longest source, in tokens, of a model that can take any length and was not trained here."""


@dataclass(frozen=True, slots=True)
class Written:
    """One text for each source."""

    sources: list[str]
    texts: list[str]
    cut: int
    """Sources that were longer than the model takes, and were cut."""

    @property
    def lines(self) -> str:
        """One line for each text; line ends inside a text become spaces."""
        return "".join(" ".join(text.splitlines()) + "\n" for text in self.texts)


def source_texts(files: Sequence[str], column: str | None) -> Iterator[str]:
    """Yield a text for each line of a text file, empty ones too, so that lines stay aligned, and each row of a table.

    Raises `InputError` for files that cannot be read.
    """
    for source in find_sources(files):
        if source.format == "txt":
            yield from (line.strip() for _, line in lines(source))
        else:
            yield from (document.text for document in read_documents([source.name], column=column))


@dataclass(frozen=True, slots=True)
class Batched:
    """A model that writes for many sources."""

    opened: Opened
    manner: Manner
    direction: Direction | None = None
    batch: int = 32

    @property
    def writer(self) -> Writer:
        """The model and its tokenizer, and how long a source may be."""
        recipe = self.opened.recipe
        room = learned_length(self.opened.model.config) or LONGEST
        return Writer(self.opened.model, self.opened.tokenizer, min(room, recipe.training.length) if recipe else room,
                      recipe.objective if recipe else None, self.direction)

    def write(self, sources: Sequence[str], told: Callable[[int], None] | None = None) -> Written:
        """Write for each source; nothing for an empty one. Raises `InputError` for several samples."""
        if self.manner.samples > 1:
            raise InputError("a file gets one text for each source", where="--samples", remedy="leave it out")
        writer, options, seed = self.writer, self.manner.asked(self.opened.model.config), self.manner.seed
        full = [number for number, source in enumerate(sources) if source.strip()]
        done, cut = [0], [0]

        def some(texts: list[str]) -> list[str]:
            cut[0] += sum(len(writer.start(text)) > writer.longest for text in texts)
            drawn = {"seed": seed + done[0]} if seed is not None and options.get("do_sample") else {}
            done[0] += len(texts)
            return writer.translate(texts, options | drawn)

        texts = [""] * len(sources)
        for number, text in zip(full, in_batches([sources[number] for number in full], self.batch, some, told),
                                strict=True):
            texts[number] = text
        return Written(list(sources), texts, cut[0])


def write_lines(path: Path, written: Written) -> None:
    """Write one line for each text. Raises `InputError` for a file that is there."""
    refuse_existing(path)
    write_text(path, written.lines)


def refuse_existing(path: Path) -> None:
    """Raise `InputError` for a file that is there."""
    if path.exists():
        raise InputError("is there already", where=str(path), remedy="give another name, or remove it")
