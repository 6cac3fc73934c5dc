"""The kinds of rows that can be made of a text, and what each asks of its store. Data only: no reading here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bare:
    """Nothing stands around a document."""


@dataclass(frozen=True, slots=True)
class Document:
    """A language model's frame: bos (or else eos) before a document, eos behind it."""


@dataclass(frozen=True, slots=True)
class Segment:
    """BERT's frame: cls before a document, sep behind it."""


Frame = Bare | Document | Segment


@dataclass(frozen=True, slots=True)
class Shuffled:
    """Rows come in a drawn order, a new one in every epoch."""


@dataclass(frozen=True, slots=True)
class Consecutive:
    """Each row of a step goes on where the same row of the step before ended."""


Order = Shuffled | Consecutive


@dataclass(frozen=True, slots=True)
class Drawn:
    """Every epoch cuts the text at other places."""


@dataclass(frozen=True, slots=True)
class Fixed:
    """Every epoch cuts the text at the same places."""


@dataclass(frozen=True, slots=True)
class AtDocuments:
    """Rows hold whole documents; those alone are cut that are longer than a row."""


Borders = Drawn | Fixed | AtDocuments


@dataclass(frozen=True, slots=True)
class Running:
    """Rows of one length cut from running text; a row may hold several documents."""

    frame: Frame
    """What stands around each document."""
    borders: Borders = Drawn()
    """Where one row ends and another begins."""
    sentences: bool = False
    """Whether the rows say where sentences start."""
    order: Order = Shuffled()
    """Which rows follow which."""


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """A wrong second piece comes from another document."""


@dataclass(frozen=True, slots=True)
class Swapped:
    """A wrong second piece is the one before the first."""


Wrong = Elsewhere | Swapped


@dataclass(frozen=True, slots=True)
class TwoSegments:
    """Rows of two pieces of text, each of whole sentences, that fill the row; the second follows the first, or not."""

    real: float
    """Share of the rows whose second piece follows the first."""
    wrong: Wrong = Elsewhere()
    """What stands in the others."""
    short: float = 0.1
    """How often a row is cut to a random length, so that short inputs are learned, too: as in BERT's script."""


@dataclass(frozen=True, slots=True)
class TwoSentences:
    """Rows of two single sentences; the second follows the first, or not. More rows make up for what is not full."""

    real: float
    """Share of the rows whose second sentence follows the first."""
    wrong: Wrong = Elsewhere()
    """What stands in the others."""


@dataclass(frozen=True, slots=True)
class FullSentences:
    """Rows of whole sentences, from one document on into the next."""


@dataclass(frozen=True, slots=True)
class DocumentSentences:
    """Rows of whole sentences of one document. More rows make up for what is not full."""


@dataclass(frozen=True, slots=True)
class Pairs:
    """A source and a target text in each row."""

    whole: bool = False
    """Whether a pair that lacks a side is an error; else it is left out and counted."""


TwoPieces = TwoSegments | TwoSentences
OnePiece = FullSentences | DocumentSentences
Material = Running | TwoPieces | OnePiece | Pairs


@dataclass(frozen=True, slots=True)
class Keeping:
    """How a text is stored so that some kinds of rows can be cut from it."""

    frame: Frame
    sentences: bool
    """Whether it is known where sentences start."""


def keeping(materials: Sequence[Material]) -> Keeping:
    """Return how the text is stored for all these rows; the frame is that of the first."""
    first = materials[0]
    frame = first.frame if isinstance(first, Running) else Bare()
    return Keeping(frame, any(wants_sentences(one) for one in materials))


def wants_sentences(material: Material) -> bool:
    """Say whether rows cannot be cut without knowing where sentences start."""
    return isinstance(material, TwoPieces | OnePiece) or (isinstance(material, Running) and material.sentences)
