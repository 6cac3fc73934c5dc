"""The documents that all pieces kept, numbered through, each one in reach. Axes: D documents."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from saucier.text.cleaning.keys import KeyPart
from saucier.text.cleaning.piece import DOCUMENTS, OFFSETS, REJECTED, TALLY, key_file
from saucier.text.cleaning.tally import Tally


@dataclass(frozen=True)
class Survivors:
    """The pieces of a corpus, in the order of the files."""

    pieces: Sequence[Path]

    @cached_property
    def tallies(self) -> list[Tally]:
        """What each piece counted."""
        return [Tally.model_validate_json((piece / TALLY).read_bytes()) for piece in self.pieces]

    @cached_property
    def raw_first(self) -> list[int]:
        """How many raw documents are before each piece."""
        return [0, *accumulate(tally.before.documents for tally in self.tallies)]

    @cached_property
    def first(self) -> list[int]:
        """How many survivors are before each piece; the last one counts all."""
        return [0, *accumulate((piece / OFFSETS).stat().st_size // 8 for piece in self.pieces)]

    def __len__(self) -> int:
        return self.first[-1]

    @property
    def size(self) -> int:
        """The size of all together on disk."""
        return sum((piece / DOCUMENTS).stat().st_size for piece in self.pieces)

    def keys(self, kind: str) -> list[KeyPart]:
        """Return the keys of a rule."""
        return [KeyPart(piece / key_file(kind), first)
                for piece, first in zip(self.pieces, self.first[:-1], strict=True)]

    def record(self, number: int) -> dict[str, Any]:
        """Read one document."""
        place = int(np.searchsorted(self.first, number, side="right")) - 1
        with (self.pieces[place] / OFFSETS).open("rb") as file:
            file.seek(8 * (number - self.first[place]))
            offset = int.from_bytes(file.read(8), "little")
        with (self.pieces[place] / DOCUMENTS).open("rb") as file:
            file.seek(offset)
            return self._numbered(file.readline(), place)

    def records(self) -> Iterator[dict[str, Any]]:
        """Read all documents in order."""
        yield from self._lines(DOCUMENTS)

    def rejections(self) -> Iterator[dict[str, Any]]:
        """Read what is known of all documents that the pieces dropped."""
        yield from self._lines(REJECTED)

    def _lines(self, name: str) -> Iterator[dict[str, Any]]:
        for place, piece in enumerate(self.pieces):
            with (piece / name).open("rb") as file:
                for line in file:
                    yield self._numbered(line, place)

    def _numbered(self, line: bytes, place: int) -> dict[str, Any]:
        """Parse a line, and number its document through from 1."""
        record: dict[str, Any] = json.loads(line)
        record["document"] += self.raw_first[place] + 1
        return record
