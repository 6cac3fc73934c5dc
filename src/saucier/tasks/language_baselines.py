"""What a language model has to beat, in bits per byte: an n-gram model of the same tokens (absolute discounting,
interpolated down to the uniform distribution), of order 1 and 5, and `xz -9`.

The probability of token w after the context h of n - 1 tokens is

    p(w | h) = (max(c(h, w) - d, 0) + d * types(h) * p(w | h')) / c(h)        where h was seen, else p(w | h')

with counts c, the number of different tokens seen after h, `types(h)`, and h' = h without its oldest token; p(w) of
the order 0 is 1 / vocab. Everything is done by sorting arrays, so a million tokens take seconds. Letters: N tokens.

Source: Ney, Essen and Kneser 1994, "On structuring probabilistic dependences in stochastic language modelling", §4
(d = n1 / (n1 + 2 n2) for each order, from the numbers of n-grams seen once and twice); interpolated as in Chen and
Goodman 1999, §2. Lower orders use plain counts, not Kneser and Ney's. Contexts never cross the start of a document.
"""

from __future__ import annotations

import lzma
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from saucier.config.base import Config
from saucier.errors import InputError
from saucier.tasks.metrics.texts import bits_per_byte


class Baseline(Config):
    """What a simpler method needs for the same held-out text."""

    name: str
    """What a reader knows the method by: "unigram", "5-gram", "xz -9"."""
    bits_per_byte: float
    """Bits for one UTF-8 byte of the held-out text."""
    about: str = ""
    """One phrase that says what it is and what it was given."""


Ints = NDArray[np.int64]
Counts = NDArray[np.int32]
Floats = NDArray[np.float64]
UNSEEN = -1
USUAL_DISCOUNT = 0.5
"""Taken where no n-gram, or every one, was seen once or twice, so that the estimate is not to be had."""
CHUNK = 1 << 20
"""Tokens that are scored at once."""


class Documents(Protocol):
    """Tokens of documents, one after another, as in a `TokenStore`. Shapes: tokens [N]; offsets [documents + 1]."""

    @property
    def tokens(self) -> NDArray[Any]:
        """Ids of all documents."""

    @property
    def offsets(self) -> Ints:
        """Where each document starts, and where the last one ends."""


@dataclass(frozen=True, slots=True)
class NgramOrder:
    """The counts of one length of n-gram. An n-gram's number is its place in `keys`.

    Shapes: keys, counts [n-grams]; totals, types [contexts], in the order of the n-grams one token shorter.
    """

    keys: Ints
    """Sorted: number of the context * vocab + last token."""
    counts: Counts
    totals: Counts
    """c(h): how often each context was seen with a token after it."""
    types: Counts
    """How many different tokens were seen after each context."""
    discount: float

    def numbers(self, keys: Ints) -> Ints:
        """Look n-grams up. Shapes: [N] -> [N], `UNSEEN` where an n-gram is not there."""
        places = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return np.where(self.keys[places] == keys, places, UNSEEN)


@dataclass(frozen=True, slots=True)
class NgramModel:
    """A counted n-gram model; see the head of this file."""

    vocab: int
    orders: tuple[NgramOrder, ...]

    def probabilities(self, tokens: Ints, places: Ints) -> Floats:
        """Give each token's probability after the tokens before it.

        Shapes: tokens, places [N] -> [N]. `places` counts tokens from the start of the document; the context of the
        first tokens is what is in `tokens`.
        """
        probability = np.full(len(tokens), 1.0 / self.vocab)
        context = np.zeros(len(tokens), dtype=np.int64)
        for length, order in enumerate(self.orders, start=1):
            gram = np.where(context >= 0, order.numbers(context * self.vocab + tokens), UNSEEN)
            probability = _interpolate(order, context, gram, probability)
            context = _next_contexts(gram, places, length)
        return probability

    def nats(self, documents: Documents, *, chunk: int = CHUNK) -> float:
        """Sum the losses, in nats, of all tokens of some documents, `chunk` tokens at a time."""
        reach = len(self.orders) - 1
        return float(sum(-np.log(self.probabilities(tokens, places)[lead:]).sum()
                         for tokens, places, lead in _chunks(documents, reach, chunk)))


def count_ngrams(documents: Documents, *, order: int, vocab: int, most: int) -> NgramModel:
    """Count the n-grams of up to `order` tokens in the first `most` tokens. Memory: at most 120 bytes a token."""
    tokens, places, _ = next(_chunks(documents, 0, most))
    context = np.zeros(len(tokens), dtype=np.int64)
    contexts, orders = 1, []
    for length in range(1, order + 1):
        level, gram = _count(context, tokens, vocab, contexts)
        if not len(level.keys):
            break  # No document is so long.
        orders.append(level)
        contexts, context = len(level.keys), _next_contexts(gram, places, length)
    return NgramModel(vocab, tuple(orders))


def _count(context: Ints, tokens: Ints, vocab: int, contexts: int) -> tuple[NgramOrder, Ints]:
    """Count the n-grams of `tokens` after their contexts; also give each one's number, `UNSEEN` without context."""
    whole = context >= 0
    keys, inverse, counts = np.unique(context[whole] * vocab + tokens[whole], return_inverse=True, return_counts=True)
    gram = np.full(len(tokens), UNSEEN, dtype=np.int64)
    gram[whole] = inverse
    owner = keys // vocab
    totals, types = np.bincount(owner, weights=counts, minlength=contexts), np.bincount(owner, minlength=contexts)
    counted, total, kinds = (array.astype(np.int32) for array in (counts, totals, types))
    once, twice = int((counts == 1).sum()), int((counts == 2).sum())
    discount = once / (once + 2 * twice) if once and twice else USUAL_DISCOUNT
    return NgramOrder(keys, counted, total, kinds, discount), gram


def _interpolate(order: NgramOrder, context: Ints, gram: Ints, lower: Floats) -> Floats:
    """Mix the discounted counts with the probabilities of the order below. Shapes: all [N]."""
    total = np.where(context >= 0, order.totals[context], 0)
    kept = np.where(gram >= 0, order.counts[gram] - order.discount, 0.0)
    passed_on = order.discount * order.types[context] * lower
    return np.where(total > 0, (kept + passed_on) / np.maximum(total, 1), lower)


def _next_contexts(gram: Ints, places: Ints, length: int) -> Ints:
    """Give each token the n-gram of the `length` tokens before it; `UNSEEN` where its document starts later."""
    context = np.full(len(gram), UNSEEN, dtype=np.int64)
    context[1:] = gram[:-1]
    context[places < length] = UNSEEN
    return context


def _chunks(documents: Documents, reach: int, chunk: int) -> Iterator[tuple[Ints, Ints, int]]:
    """Yield tokens, their places in their documents, and how many in front (up to `reach`) were there before."""
    offsets = np.asarray(documents.offsets, dtype=np.int64)
    for start in range(0, int(offsets[-1]), chunk):
        first = max(0, start - reach)
        tokens = np.asarray(documents.tokens[first:min(start + chunk, int(offsets[-1]))], dtype=np.int64)
        index = np.arange(first, first + len(tokens))
        yield tokens, index - offsets[np.searchsorted(offsets, index, side="right") - 1], start - first


Kind = Literal["unigram", "ngram", "xz"]
KINDS: tuple[Kind, ...] = ("unigram", "ngram", "xz")
MOST_TOKENS = 4_000_000
"""Training tokens that the n-gram models read at most, so that they stay below half a gigabyte."""


class CountedDocuments(Documents, Protocol):
    """Documents that also know how much text they were made from; a `TokenStore` is one."""

    @property
    def bytes(self) -> int:
        """UTF-8 bytes of the text."""


def measure_baselines(train: Documents, held_out: CountedDocuments, texts: Iterable[str], *,
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
    """Compress the texts, one after another, as `xz -9` does, and count what comes out.

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
