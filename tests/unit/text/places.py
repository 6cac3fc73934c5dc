"""Stores whose tokens are their own places, and rows of sentences cut from them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from saucier.text.rows.kinds import RowRequest
from saucier.text.rows.sentences import SentencePairBatches
from saucier.text.rows.store import Piece, Progress, TokenStore, write_stores

VOCAB = 60_000
Make = Callable[[list[int]], TokenStore]
FRAME = {"length": 40, "batch": 8, "cls": 50_001, "sep": 50_002}
HALF = RowRequest("segment_pairs", real=0.5)


def write_store(folder: Path, pieces: Iterable[Piece], *, vocab: int, progress: Progress | None = None) -> TokenStore:
    """Write one store."""
    write_stores(folder, {".": vocab}, ((piece,) for piece in pieces), progress)
    return TokenStore(folder)


def sentence_pairs(store: TokenStore, kind: RowRequest = HALF, **options: Any) -> SentencePairBatches:
    """Make sentence pairs of 40 tokens with [CLS] 50001 and [SEP] 50002."""
    return SentencePairBatches(store, kind, **(FRAME | options))


def document_of(store: TokenStore, tokens: Any) -> Any:
    """Find the document of each token (tokens are their own places)."""
    return np.searchsorted(store.offsets[1:], tokens, side="right")
