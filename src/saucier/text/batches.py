"""The ways to make batches, under one roof; each lives in the file that it is imported from.

`PackedRows` (running text, nothing padded), `BucketedTexts` and `BucketedPairs` (one text in a row, lengths that fit),
`SentencePairs` (BERT's next-sentence material), and for measuring: `EvaluationRows`, `EvaluationPairs`.
"""

from __future__ import annotations

from saucier.text.rows import Batches, PairRows, Rows, generator

__all__ = ["Batches", "PairRows", "Rows", "generator"]
