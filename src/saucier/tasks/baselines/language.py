"""What a model of text has to beat, in bits per byte: a unigram and a 5-gram model of the same tokens, and `xz -9`."""

from __future__ import annotations

import lzma
from collections.abc import Callable, Iterable, Sequence
from typing import Literal, Protocol

from saucier.errors import InputError
from saucier.inspection.results import Baseline
from saucier.tasks.baselines.ngram import Documents, count_ngrams
from saucier.tasks.metrics.likelihood import bits_per_byte

Kind = Literal["unigram", "ngram", "xz"]
KINDS: tuple[Kind, ...] = ("unigram", "ngram", "xz")
MOST_TOKENS = 4_000_000
"""Training tokens that the n-gram models read at most, so that they stay below half a gigabyte."""


class CountedDocuments(Documents, Protocol):
    """Documents that also know how much text they were made from; a `TokenStore` is one."""

    @property
    def bytes(self) -> int:
        """UTF-8 bytes of the text."""


def baselines(train: Documents, held_out: CountedDocuments, texts: Iterable[str], *,
              vocab: int, kinds: Sequence[Kind] = KINDS) -> tuple[Baseline, ...]:
    """Give the bits per byte of the held-out text under simple methods, the weakest first.

    `texts` is the held-out text itself, for xz. Every token of `held_out` is scored, the first of a document too.

    Errors: `InputError` where the held-out text is empty.
    """
    if not held_out.bytes:
        raise InputError("there is no held-out text to score", where="baselines", remedy="hold more text out")
    methods: dict[Kind, Callable[[], Baseline]] = {
        "unigram": lambda: ngram_baseline("unigram", train, held_out, order=1, vocab=vocab),
        "ngram": lambda: ngram_baseline("5-gram", train, held_out, order=5, vocab=vocab),
        "xz": lambda: xz_baseline(texts)}
    return tuple(sorted((methods[kind]() for kind in kinds), key=lambda baseline: -baseline.bits_per_byte))


def ngram_baseline(name: str, train: Documents, held_out: CountedDocuments, *, order: int, vocab: int) -> Baseline:
    """Count n-grams in `train` and score `held_out` with them."""
    model = count_ngrams(train, order=order, vocab=vocab, most=MOST_TOKENS)
    tokens = int(train.offsets[-1])
    about = f"absolute discounting, over the same {vocab:,} tokens" if order > 1 else "tokens by their frequency alone"
    limit = f"; counted in the first {MOST_TOKENS:,} training tokens" if tokens > MOST_TOKENS else ""
    return Baseline(name=name, bits_per_byte=bits_per_byte(model.nats(held_out), held_out.bytes), about=about + limit)


def xz_baseline(texts: Iterable[str]) -> Baseline:
    """Compress the texts, one behind another, as `xz -9` does, and count what comes out.

    Errors: `ValueError` where there is no text.
    """
    compressor, read, written = lzma.LZMACompressor(preset=9), 0, 0
    for text in texts:
        data = text.encode("utf-8")
        read, written = read + len(data), written + len(compressor.compress(data))
    written += len(compressor.flush())
    if not read:
        raise ValueError("no text to compress")
    return Baseline(name="xz -9", bits_per_byte=8 * written / read, about="the held-out text alone, compressed")
