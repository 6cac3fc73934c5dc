"""How rows for masked learning are cut from a text, as data. Needs no torch."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from saucier.config.base import Config


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
