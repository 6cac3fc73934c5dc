"""The ways to make batches, under one roof; each lives in the file that it is imported from.

To train on, endless: `PackedRows` (running text, nothing padded), `BucketedTexts` and `BucketedPairs` (one text in a
row, with others of its length), `SentencePairs` (BERT's next-sentence material). To measure with, once through:
`EvaluationRows`, `EvaluationPairs`.
"""

from __future__ import annotations

from saucier.text.bucketed import BucketedPairs, BucketedTexts, EvaluationPairs, Limits
from saucier.text.packed import EvaluationRows, PackedRows
from saucier.text.rows import Batches, PairRows, Rows, generator
from saucier.text.sentence_pairs import SentencePairs

__all__ = ["Batches", "BucketedPairs", "BucketedTexts", "EvaluationPairs", "EvaluationRows", "Limits", "PackedRows",
           "PairRows", "Rows", "SentencePairs", "generator"]
