"""Kinds of rows that can be cut from a text: as a recipe chooses them, and as an objective requests them. Data only."""

from __future__ import annotations

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


RowKind = Literal["running", "documents", "consecutive", "segment_pairs", "sentence_pairs", "full_sentences",
                  "document_sentences", "text_pairs"]
"""What a row is. `running`: cut from running text, with several documents; `text_pairs`: a source and a target."""
Frame = Literal["none", "document", "segment"]
"""The tokens around a document. `document`: bos (or else eos) before it, eos after it, as language models have them;
`segment`: cls before it, sep after it, as BERT has them."""


@dataclass(frozen=True, slots=True)
class RowRequest:
    """The rows that an objective learns from, and how the text is stored so that they can be cut from it."""

    kind: RowKind
    """What a row is."""
    frame: Frame = "none"
    """What is put around each document."""
    fixed: bool = False
    """Whether every epoch cuts running text at the same places."""
    sentences: bool = False
    """Whether rows of running text say where sentences start."""
    real: float = 1.0
    """Share of the rows whose second piece follows the first."""
    wrong: Literal["elsewhere", "swapped"] = "elsewhere"
    """What the second piece is in the others: a piece of another document, or the one before the first."""
    short: float = 0.1
    """How often a row of two segments is cut to a random length, so that short inputs are learned, too.

    The default is that of BERT's script."""
    whole: bool = False
    """Whether a text pair that lacks a side is an error; else it is left out and counted."""

    @property
    def has_two_pieces(self) -> bool:
        """Whether a row has two pieces of text, the second of which follows the first, or not."""
        return self.kind in ("segment_pairs", "sentence_pairs")

    @property
    def needs_sentences(self) -> bool:
        """Whether rows cannot be cut without knowing where sentences start."""
        return self.sentences or self.has_two_pieces or self.kind in ("full_sentences", "document_sentences")
