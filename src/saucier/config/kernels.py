"""The kernels of self-attention as data: how scores become weights, and which pairs are computed at all.

Exact softmax, chunks of neighbours, LSH buckets (Reformer), random features (Performer), mixtures of keys
(Linformer).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from saucier.config.attention_slots import (
    AttentionKernel,
    AttentionParts,
    check_reads_whole_texts,
    check_taken_positions,
)
from saucier.config.base import Config, Part, rewrite_config
from saucier.config.counting import Node, linear
from saucier.config.norms import Probability
from saucier.config.nystrom import Nystrom
from saucier.config.registry import OpenSlot
from saucier.config.visibility import Causal, Full, Visibility, is_causal
from saucier.errors import InputError


class Softmax(AttentionKernel):
    """Exact attention: softmax over all visible keys. Source: Vaswani et al. 2017, §3.2.1."""

    kind: Literal["softmax"] = "softmax"
    dropout: Probability = 0.0
    """Dropout on the attention weights."""
    exact: ClassVar[bool] = True


def check_chunks(path: str, attention: AttentionParts, kernel: AttentionKernel, chunks: Chunks,
                 inside: str = "") -> None:
    """Raise `InputError` where a row cannot be cut into chunks; `inside`: where the kernel has them."""
    projection, kind = attention.projection, kernel.kind
    if not isinstance(attention.visibility, Full | Causal) or attention.global_maps:
        raise InputError(f"kernel {kind} has chunks in place of a visibility", where=f"{path}.visibility",
                         remedy="use full or causal")
    if isinstance(attention.visibility, Causal) and chunks.after:
        raise InputError("a causal attention has nothing to see in later chunks",
                         where=f"{path}.kernel{inside}.after", remedy="use after: 0")
    if (chunks.multiple or chunks.length) % chunks.length:
        raise InputError(f"{chunks.multiple} positions are no whole chunks of {chunks.length}",
                         where=f"{path}.kernel.multiple", remedy="make multiple a multiple of length")
    if projection.kv_heads not in (None, projection.heads) or not projection.key_bias:
        raise InputError(f"kernel {kind} needs keys like its queries", where=f"{path}.projection",
                         remedy="leave kv_heads and key_bias out")


Even = Annotated[int, Field(ge=2, multiple_of=2)]


class Chunks(AttentionKernel):
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
    any_place: ClassVar[bool] = False

    @property
    def width(self) -> int:
        """Keys that a query sees of a long input."""
        return self.length * (1 + self.before + self.after)

    def padded(self, length: int) -> int:
        """Return the length of an input with the padding that it gets inside."""
        multiple = self.multiple or self.length
        return length if length <= self.length else -(-length // multiple) * multiple

    def is_ring(self, visibility: Visibility) -> bool:
        """The last chunk is next to the first, unless later positions are hidden."""
        return not isinstance(visibility, Causal)

    def key_count(self, visibility: Visibility, length: int) -> float:
        """Return the keys that a query meets, those counted that are then hidden."""
        return float(length if length <= self.length else self.width)

    def check(self, path: str, attention: AttentionParts, dim: int) -> None:
        """Chunks are laid out by place alone."""
        check_chunks(path, attention, self, self)
        check_taken_positions(path, attention, self.kind, "none", "rotary", remedy="use positions in the embedding,")


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


class Repeats(Config):
    """How often a key counts that several rounds of hashing meet.

    - count: as often as the rounds meet it. Source: Kitaev et al. 2020, code release;
    - divide: once, so that the rounds together are the softmax over all keys that any of them meets; a comparison more
      for every pair, twice over the rounds. Source: Kitaev et al. 2020, appendix A (S eq 101).
    """

    kind: Literal["count", "divide"]


class Hashing(AttentionKernel):
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
    repeats: Repeats = Repeats(kind="count")
    """How often a key counts that several rounds meet."""
    seed: int | None = None
    """Seed of the directions that are hashed by; None: drawn anew in each pass, from torch's global generator."""
    any_place: ClassVar[bool] = False
    sorts_rows: ClassVar[bool] = True

    @property
    def rate(self) -> float:
        """Dropout on the attention weights."""
        return self.chunks.dropout

    @property
    def batch_reason(self) -> str | None:
        """Without a seed hashes differ from pass to pass."""
        return "its hashes are drawn anew in every pass (no seed)" if self.seed is None else None

    def key_count(self, visibility: Visibility, length: int) -> float:
        """Return the keys that a query meets, those counted that are then hidden."""
        return float(length if length <= self.chunks.length else self.rounds * self.chunks.width)

    def check(self, path: str, attention: AttentionParts, dim: int) -> None:
        """Hashes need one map for queries and keys."""
        check_chunks(path, attention, self, self.chunks, inside=".chunks")
        check_taken_positions(path, attention, self.kind, "none", remedy="use positions in the embedding,")
        if attention.projection.scale is not None:
            raise InputError("keys of length 1 have no other scale", where=f"{path}.projection.scale",
                             remedy="remove it")
        if attention.projection.ranks is not None:
            raise InputError("the maps of an attention that hashes are one matrix each",
                             where=f"{path}.projection.ranks", remedy="leave them out")

    def map_nodes(self, attention: AttentionParts, dim: int) -> list[Node]:
        """Queries and keys are one map."""
        return [linear("qkv", dim, 2 * attention.projection.widths(dim)[0], bias=attention.projection.bias)]

    def nodes(self, attention: AttentionParts, dim: int, length: int) -> list[Node]:
        """Return the hashes, and the scores."""
        products = self.rounds * sum(self.factors(self.chunks.padded(length))) / 2
        hashed = products if length > self.chunks.length else 0.0
        return [Node("hashes", self.kind, f"{self.rounds} a position",
                     flops=2.0 * attention.projection.widths(dim)[0] * hashed), *super().nodes(attention, dim, length)]

    def factors(self, length: int) -> tuple[int, ...]:
        """Return the factors of the number of buckets for an input of this length, padding included."""
        if isinstance(self.buckets, FixedBuckets):
            return self.buckets.factors
        chunk = self.chunks.length
        power = (2 * (length // chunk)).bit_length() - 1
        limit = 2 * max(int((self.buckets.longest // chunk) ** 0.5), chunk)
        return (2**power,) if 2**power <= limit else (2 ** (power // 2), 2 ** (power - power // 2))


class Favor(AttentionKernel):
    """Attention whose cost is linear in the length: weights are products of features of queries and of keys.

    A feature of x is `exp(w·x - |x|²/2)` for a random direction w; directions are orthogonal to each other as far as
    the width allows. Over all draws the mean of the products is the softmax's `exp(q·k)`.
    Source: Choromanski et al. 2021, "Rethinking Attention with Performers", §2.3–2.4, arXiv:2009.14794. The published
    code adds a small number to every feature, which moves weights towards equal ones; here nothing is added.
    """

    kind: Literal["favor"] = "favor"
    features: int = Field(default=256, gt=0)
    """Features of a query and of a key; the error of a weight falls as one over their root."""
    redraw: int | None = Field(default=1000, gt=0)
    """Steps of training after which directions are drawn anew; None: never."""
    block: int = Field(default=256, gt=0)
    """Positions that are mixed at once where later ones are hidden; changes no number, only memory and speed."""
    seed: int = 0
    """Of the directions, beside the number of the layer and of the draw; all heads of a layer have the same."""
    draw: int = Field(default=0, ge=0)
    """How often directions were drawn anew; training counts it up, and a saved model says it."""

    caches_keys: ClassVar[bool] = False  # sums in their place

    def state_values(self, width: int, head: int) -> int:
        """Return the values of the sums over all earlier tokens, for an attention of this width."""
        return width // head * self.features * (head + 1)

    def check(self, path: str, attention: AttentionParts, dim: int) -> None:
        """Sums over keys know no pairs: nothing is added to the score of one, or hidden from one, but what is later."""
        if not isinstance(attention.visibility, Full | Causal) or attention.global_maps:
            raise InputError("kernel favor has no pairs of positions to hide", where=f"{path}.visibility",
                             remedy="use full or causal without maps for global tokens, or kernel softmax")
        check_taken_positions(path, attention, self.kind, "none", "rotary",
                              remedy="use rotary, or positions in the embedding,")
        head = attention.projection.widths(dim)[2]
        if head > WIDEST:
            raise InputError(f"features of heads of {head} values are beyond float32", where=f"{path}.projection",
                             remedy=f"use more heads, of {WIDEST} values at most")

    def nodes(self, attention: AttentionParts, dim: int, length: int) -> list[Node]:
        """Return the features of queries and keys, and the sums; a key has one value more, half of its square."""
        query, key, head = attention.projection.widths(dim)
        mixing = self.mixing_flops(query, head, length=length, causal=is_causal(attention.visibility))
        return [Node("features", self.kind, f"{self.features} a head",
                     flops=2.0 * (query + key + key // head) * self.features),
                Node("sums", self.kind, attention.visibility.kind, flops=mixing)]

    def mixing_flops(self, width: int, head: int, *, length: int, causal: bool) -> float:
        """Return the FLOPs of a token for mixing values; each head has one column of ones more."""
        values, heads = width + width // head, width // head
        sums = 4.0 * self.features * values
        if not causal:
            return sums
        size = min(self.block, length)
        blocks = -(-length // size)
        inside = 2.0 * size * (self.features * heads + values)
        return (inside + (sums if blocks > 1 else 0.0)) * blocks * size / length  # the last block is filled up


WIDEST = 128
"""Values of a head whose features are never too large or too small for sums in float32."""


def advance_draws(config: Part, step: int) -> Part:
    """Return any part of a model with the draws of a step of training (from 0), counted from its own."""
    def turned(part: Config) -> Config:
        turns = step // part.redraw if isinstance(part, Favor) and part.redraw else 0
        return part.model_copy(update={"draw": part.draw + turns}) if isinstance(part, Favor) and turns else part

    return rewrite_config(config, turned)


class MapSharing(Config):
    """Who has a map along the text of their own.

    - headwise: each layer has a map for keys and one for values, which all its heads share: two for a layer;
    - key_value: each layer has one map, for keys and values of all its heads: one for a layer;
    - layerwise: all layers of a stack have one map, for keys and values of all their heads: one for a stack.
    """

    kind: Literal["headwise", "key_value", "layerwise"]


class LowRank(AttentionKernel):
    """Softmax over `rank` mixtures of the keys of a text: trained maps along its length mix keys, and values alike.

    Time and memory are linear in the length, which the maps bound. A mixture holds later tokens too, so nothing can be
    causal. Source: Wang et al. 2020, "Linformer: Self-Attention with Linear Complexity", §4, eq 7, arXiv:2006.04768
    (S eq 111).
    """

    kind: Literal["low_rank"] = "low_rank"
    length: int = Field(default=512, gt=0)
    """The longest text, in tokens: n in the paper."""
    rank: int = Field(default=128, gt=0)
    """Mixtures that a query sees: k in the paper."""
    sharing: MapSharing = MapSharing(kind="headwise")
    """Who has a map of their own."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Dropout on the attention weights."""

    @property
    def maps(self) -> int:
        """How many maps a layer has of its own."""
        return {"headwise": 2, "key_value": 1, "layerwise": 0}[self.sharing.kind]

    @property
    def longest(self) -> int | None:
        """The longest text, in tokens."""
        return self.length

    caches_keys: ClassVar[bool] = False  # it reads whole texts

    def check(self, path: str, attention: AttentionParts, dim: int) -> None:
        """A mixture is made of a whole text: nothing of it can be hidden, and it has no place."""
        check_reads_whole_texts(path, attention, self.kind)

    def key_count(self, visibility: Visibility, length: int) -> float:
        """Return the mixtures that a query sees."""
        return float(self.rank)

    def nodes(self, attention: AttentionParts, dim: int, length: int) -> list[Node]:
        """Return the maps along the text that mix keys and values, and the scores."""
        width = attention.projection.widths(dim)[1]
        found = Node("mixtures", self.kind, "the stack's map", flops=4.0 * self.rank * width)
        if self.maps:
            found = replace(found, detail=self.sharing.kind.replace("_", " "),
                            shape=f"{self.maps} × {self.length} → {self.rank}",
                            parameters=self.maps * self.length * self.rank)
        return [found, *super().nodes(attention, dim, length)]


Kernel = Annotated[Softmax | Chunks | Hashing | Favor | LowRank | Nystrom | AttentionKernel, OpenSlot("kernel")]
