"""The ways to make batches, under one roof; each lives in the file that it is imported from.

To train on, endless: `PackedRows` (running text, nothing padded), `ConsecutiveRows` (the same, each row going on where
it ended in the step before), `DocumentRows` (whole documents), `BucketedTexts` and `BucketedPairs` (one text in a
row, with others of its length), `SentencePairs` (two pieces whose relation is learned), `SentenceRows` (whole
sentences). To measure with, once through: `EvaluationRows`, `ConsecutiveEvaluation`, `EvaluationDocuments`,
`EvaluationPairs`.
"""

from __future__ import annotations

from saucier.text.bucketed import BucketedPairs, BucketedTexts, Ends, EvaluationPairs, Limits
from saucier.text.consecutive import ConsecutiveEvaluation, ConsecutiveRows
from saucier.text.documents import DocumentRows, EvaluationDocuments
from saucier.text.packed import EvaluationRows, PackedRows
from saucier.text.rows import Batches, PairRows, Rows, generator
from saucier.text.sentence_pairs import SentencePairs
from saucier.text.sentence_rows import SentenceRows

__all__ = ["Batches", "BucketedPairs", "BucketedTexts", "ConsecutiveEvaluation", "ConsecutiveRows", "DocumentRows",
           "Ends", "EvaluationDocuments", "EvaluationPairs", "EvaluationRows", "Limits", "PackedRows", "PairRows",
           "Rows", "SentencePairs", "SentenceRows", "generator"]
