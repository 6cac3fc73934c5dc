"""Kinds of rows that can be cut from a text: as a recipe chooses them, and what each needs from the store. Data
only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from saucier.config.base import Config


class ShuffledRows(Config):
    """Rows of running text, cut at other places in every epoch, in a drawn order; each begins without a memory."""

    kind: Literal["shuffled"] = "shuffled"


class DocumentRows(Config):
    """Rows of whole documents, several in one where they fit, in a drawn order; each row begins without a memory.

    Documents that are longer than a row are divided among rows; what a row has left is padded. Held-out text is
    measured in the same way. For texts that are worth little in pieces: poems, functions, records.
    Source: Ding et al. 2024 (best-fit packing), §2, arXiv:2404.10830.
    """

    kind: Literal["documents"] = "documents"


class ConsecutiveRows(Config):
    """Each row of a step goes on where the same row of the step before ended, beside the model's memory of it.

    What is remembered was read with the weights of then. Held-out text is measured in the same way.
    Source: Dai et al. 2019 (Transformer-XL), §3.2, arXiv:1901.02860.
    """

    kind: Literal["consecutive"] = "consecutive"


class RunningRows(Config):
    """Full rows cut anywhere; the documents in one row do not see each other."""

    kind: Literal["running"] = "running"


class SegmentPairs(Config):
    """Two pieces of several sentences each, as BERT has them. Source: Liu et al. 2019, §4.2, arXiv:1907.11692."""

    kind: Literal["segment_pairs"] = "segment_pairs"


class SentencePairs(Config):
    """Two single sentences; a batch has more rows, so that its tokens stay about as many.

    Source: Liu et al. 2019, §4.2, arXiv:1907.11692.
    """

    kind: Literal["sentence_pairs"] = "sentence_pairs"


class FullSentences(Config):
    """Whole sentences, on into the next document, behind a separator. Source: Liu et al. 2019, §4.2."""

    kind: Literal["full_sentences"] = "full_sentences"


class DocumentSentences(Config):
    """Whole sentences of one document; a batch has more rows, so that its tokens stay about as many.

    Source: Liu et al. 2019, §4.2, arXiv:1907.11692.
    """

    kind: Literal["document_sentences"] = "document_sentences"


MaskedRows = Annotated[RunningRows | SegmentPairs | SentencePairs | FullSentences | DocumentSentences,
                       Field(discriminator="kind")]


class RunningText(Config):
    """Rows of running text, with what stood before them as a memory, if it is asked for: read anew for each row."""

    kind: Literal["running"] = "running"
    memory: int | None = Field(default=None, gt=0)
    """Tokens before a row that are read into the model's memory first, without a gradient; None: none."""


class TwoPieces(Config):
    """Rows of two pieces of text with a separator behind each and the classification token last.

    Nothing is learned of whether they belong together. Source: Yang et al. 2019, §2.5, arXiv:1906.08237.
    """

    kind: Literal["two_pieces"] = "two_pieces"
    real: float = Field(default=0.5, gt=0, lt=1)
    """Share of the rows whose second piece is the true one."""


@dataclass(frozen=True, slots=True)
class NoFrame:
    """Nothing stands around a document."""


@dataclass(frozen=True, slots=True)
class DocumentFrame:
    """A language model's frame: bos (or else eos) before a document, eos behind it."""


@dataclass(frozen=True, slots=True)
class SegmentFrame:
    """BERT's frame: cls before a document, sep behind it."""


Frame = NoFrame | DocumentFrame | SegmentFrame


@dataclass(frozen=True, slots=True)
class ShuffledOrder:
    """Rows come in a drawn order, a new one in every epoch."""


@dataclass(frozen=True, slots=True)
class ConsecutiveOrder:
    """Each row of a step goes on where the same row of the step before ended."""


Order = ShuffledOrder | ConsecutiveOrder


@dataclass(frozen=True, slots=True)
class DrawnBorders:
    """Every epoch cuts the text at other places."""


@dataclass(frozen=True, slots=True)
class FixedBorders:
    """Every epoch cuts the text at the same places."""


@dataclass(frozen=True, slots=True)
class DocumentBorders:
    """Rows hold whole documents; those alone are cut that are longer than a row."""


Borders = DrawnBorders | FixedBorders | DocumentBorders


@dataclass(frozen=True, slots=True)
class RunningRequest:
    """Rows of one length cut from running text; a row may hold several documents."""

    frame: Frame
    """What stands around each document."""
    borders: Borders = DrawnBorders()
    """Where one row ends and another begins."""
    sentences: bool = False
    """Whether the rows say where sentences start."""
    order: Order = ShuffledOrder()
    """Which rows follow which."""


@dataclass(frozen=True, slots=True)
class FromElsewhere:
    """A wrong second piece comes from another document."""


@dataclass(frozen=True, slots=True)
class SwappedPieces:
    """A wrong second piece is the one before the first."""


WrongPiece = FromElsewhere | SwappedPieces


@dataclass(frozen=True, slots=True)
class SegmentPairRequest:
    """Rows of two pieces of text, each of whole sentences, that fill the row; the second follows the first, or not."""

    real: float
    """Share of the rows whose second piece follows the first."""
    wrong: WrongPiece = FromElsewhere()
    """What stands in the others."""
    short: float = 0.1
    """How often a row is cut to a random length, so that short inputs are learned, too: as in BERT's script."""


@dataclass(frozen=True, slots=True)
class SentencePairRequest:
    """Rows of two single sentences; the second follows the first, or not. More rows make up for what is not full."""

    real: float
    """Share of the rows whose second sentence follows the first."""
    wrong: WrongPiece = FromElsewhere()
    """What stands in the others."""


@dataclass(frozen=True, slots=True)
class FullSentencesRequest:
    """Rows of whole sentences, from one document on into the next."""


@dataclass(frozen=True, slots=True)
class DocumentSentencesRequest:
    """Rows of whole sentences of one document. More rows make up for what is not full."""


@dataclass(frozen=True, slots=True)
class TextPairRequest:
    """A source and a target text in each row."""

    whole: bool = False
    """Whether a pair that lacks a side is an error; else it is left out and counted."""


TwoPieceRequest = SegmentPairRequest | SentencePairRequest
OnePieceRequest = FullSentencesRequest | DocumentSentencesRequest
RowRequest = RunningRequest | TwoPieceRequest | OnePieceRequest | TextPairRequest


@dataclass(frozen=True, slots=True)
class StoreFormat:
    """How a text is stored so that some kinds of rows can be cut from it."""

    frame: Frame
    sentences: bool
    """Whether it is known where sentences start."""


def choose_store_format(materials: Sequence[RowRequest]) -> StoreFormat:
    """Return how the text is stored for all these rows; the frame is that of the first."""
    first = materials[0]
    frame = first.frame if isinstance(first, RunningRequest) else NoFrame()
    return StoreFormat(frame, any(requires_sentences(one) for one in materials))


def requires_sentences(material: RowRequest) -> bool:
    """Say whether rows cannot be cut without knowing where sentences start."""
    return isinstance(material, TwoPieceRequest | OnePieceRequest) or (isinstance(material, RunningRequest)
                                                                       and material.sentences)
