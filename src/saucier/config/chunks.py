"""Attention within chunks as data: chunks of neighbours, and chunks of positions that hash alike (Reformer)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from saucier.config.base import Config

Even = Annotated[int, Field(ge=2, multiple_of=2)]


class Chunks(Config):
    """Attention of a chunk of positions to itself and to chunks beside it; inputs of one chunk see all.

    The row is a ring: the first chunk stands beside the last, which counts where no later position is hidden.
    Source: Kitaev et al. 2020, §4 and code release, arXiv:2001.04451.
    """

    kind: Literal["chunks"] = "chunks"
    length: int = Field(default=64, gt=0)
    """Positions in a chunk."""
    before: int = Field(default=1, ge=0)
    """Chunks before its own that a position sees."""
    after: int = Field(default=0, ge=0)
    """Chunks behind its own that a position sees."""
    multiple: int | None = Field(default=None, gt=0)
    """Longer inputs are padded inside to a multiple of this; None: of the chunk."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Dropout on the attention weights."""

    @property
    def width(self) -> int:
        """Keys that a query sees of a long input."""
        return self.length * (1 + self.before + self.after)

    def padded(self, length: int) -> int:
        """Return the length of an input with the padding that it gets inside."""
        multiple = self.multiple or self.length
        return length if length <= self.length else -(-length // multiple) * multiple


class FixedBuckets(Config):
    """As many buckets as the product of `factors`; a position's bucket is found factor by factor.

    Source: Andoni et al. 2015, arXiv:1509.02897, for the hash; Kitaev et al. 2020, code release, for the factors.
    """

    kind: Literal["fixed"] = "fixed"
    factors: tuple[Even, ...] = Field(default=(32,), min_length=1)
    """Even numbers, usually one or two."""


class BucketsByLength(Config):
    """About two buckets for each chunk of the input, in two factors where they are many. Source: as `FixedBuckets`."""

    kind: Literal["by_length"] = "by_length"
    longest: int = Field(default=4096, gt=0)
    """The longest input, which decides from how many buckets on there are two factors."""


class CountRepeats(Config):
    """A key counts as often as the rounds meet it. Source: Kitaev et al. 2020, code release."""

    kind: Literal["count"] = "count"


class DivideRepeats(Config):
    """A key counts once: the rounds together are the softmax over all keys that any of them meets.

    A comparison more for every pair, twice over the rounds. Source: Kitaev et al. 2020, appendix A (S eq 101).
    """

    kind: Literal["divide"] = "divide"


class Hashing(Config):
    """Attention between positions that hash alike, in several rounds; queries and keys are one map, keys of length 1.

    A position is sorted by its bucket, and sees chunks of the sorted row; it sees itself only where nothing else is
    visible. The rounds are mixed by how much attention each has found.
    Source: Kitaev et al. 2020, §2, arXiv:2001.04451 (S eq 96–102).
    """

    kind: Literal["lsh"] = "lsh"
    chunks: Chunks = Chunks()
    """Chunks of the sorted row, and dropout."""
    rounds: int = Field(default=1, gt=0)
    """Hashes of each position."""
    buckets: Annotated[FixedBuckets | BucketsByLength, Field(discriminator="kind")] = BucketsByLength()
    """Into how many buckets a round sorts."""
    repeats: Annotated[CountRepeats | DivideRepeats, Field(discriminator="kind")] = CountRepeats()
    """How often a key counts that several rounds meet."""
    seed: int | None = None
    """Seed of the directions that are hashed by; None: drawn anew in each pass, from torch's global generator."""

    def factors(self, length: int) -> tuple[int, ...]:
        """Return the factors of the number of buckets for an input of this length, padding included."""
        if isinstance(self.buckets, FixedBuckets):
            return self.buckets.factors
        chunk = self.chunks.length
        power = (2 * (length // chunk)).bit_length() - 1
        limit = 2 * max(int((self.buckets.longest // chunk) ** 0.5), chunk)
        return (2**power,) if 2**power <= limit else (2 ** (power // 2), 2 ** (power - power // 2))


def chunk_keys(kernel: Chunks | Hashing, length: int) -> float:
    """Return how many keys a query meets in an input of this length, those counted that are then hidden."""
    match kernel:
        case Chunks():
            return float(length if length <= kernel.length else kernel.width)
        case Hashing(chunks=chunks, rounds=rounds):
            return float(length if length <= chunks.length else rounds * chunks.width)


def hash_products(kernel: Hashing, length: int) -> float:
    """Return the multiply-adds of hashing for each value of a query."""
    chunks = kernel.chunks
    return kernel.rounds * sum(kernel.factors(chunks.padded(length))) / 2 if length > chunks.length else 0.0
