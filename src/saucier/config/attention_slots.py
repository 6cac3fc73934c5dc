"""The maps of an attention, and its open slots: what all kernels and positions say of themselves, and may know.

Letters: D dim, E head width.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, ClassVar, Literal, Protocol

from pydantic import Field

from saucier.config.base import Config
from saucier.config.counting import Node, linear
from saucier.config.visibility import Full, Visibility, visible_keys
from saucier.errors import InputError

Rank = Annotated[int, Field(gt=0)] | None
"""Inner width of a map that is a product of two matrices; None: it is one matrix."""


class AttentionRanks(Config):
    """Which maps of an attention are products of two matrices, second · first, and how wide they are between these.

    Source: Wang et al. 2020 (FLOP), §3.1, arXiv:1910.04732 (C eq 50).
    """

    qkv: Rank = None
    """Of the one map to queries, keys and values of a self-attention."""
    q: Rank = None
    """Of the map to the queries of a cross-attention."""
    kv: Rank = None
    """Of the map to its keys and values."""
    out: Rank = None
    """Of the output map."""


def map_rank(ranks: Config | None, name: str) -> int | None:
    """Return how wide a map is between its two matrices; None: it is one matrix. `ranks`: those of a sublayer."""
    return getattr(ranks, name, None)


class Projection(Config):
    """The linear maps of an attention: heads for queries, and as many or fewer for keys and values.

    `kv_heads` equal to `heads` is multi-head (Vaswani et al. 2017), 1 is multi-query (Shazeer 2019,
    arXiv:1911.02150), in between is grouped-query attention (Ainslie et al. 2023, arXiv:2305.13245).
    """

    heads: int = Field(gt=0)
    kv_heads: int | None = Field(default=None, gt=0)
    """None: as many as `heads`."""
    head_dim: int | None = Field(default=None, gt=0)
    """None: the model's `dim` divided by `heads`."""
    bias: bool = True
    """Bias on queries, keys and values."""
    key_bias: bool = True
    """Whether the keys have one too, where queries and values do (DeBERTa's first version: He et al. 2021, release)."""
    output_bias: bool = True
    """Bias on the output map."""
    scale: float | None = Field(default=None, gt=0)
    """Factor on the scores; None: one over the square root of the head's width (T5 uses 1)."""
    ranks: AttentionRanks | None = None
    """Maps that are products of two matrices; None: none is."""

    def widths(self, dim: int) -> tuple[int, int, int]:
        """Return (query width, key width, head width) for a model of this `dim`."""
        head = self.head_dim or dim // self.heads
        return self.heads * head, (self.kv_heads or self.heads) * head, head


class AttentionParts(Protocol):
    """What a kernel may know of the self-attention that it is a part of."""

    @property
    def projection(self) -> Projection:
        """Heads and maps."""

    @property
    def positions(self) -> PositionsInAttention:
        """How order enters."""

    @property
    def visibility(self) -> Visibility:
        """Which keys a query may see."""

    @property
    def global_maps(self) -> Config | None:
        """Maps for global tokens."""


class PositionsInAttention(Config):
    """The slot of an attention's positions: what they refuse (`check`), and the trained tables that they have.

    New positions are a subclass with its own `kind`, listed in `AttentionPositions`, and their computation in
    `saucier.parts.attention_slots`; from outside, a subclass that is registered with what builds, from (config,
    projection, dim), a module that is called as those are.
    """

    slot: ClassVar[str] = "position"
    """What `register` knows the slot by."""
    kind: str
    query_bias: ClassVar[bool] = True
    """Whether queries may have a bias, where the maps have one; some positions have biases in its place."""

    @property
    def longest(self) -> int | None:
        """The longest text; None: any."""
        return None

    @property
    def reads_rows(self) -> bool:
        """Whether they look at more of a row than places, so that rows cannot be packed."""
        return False

    def check(self, path: str, attention: AttentionParts, dim: int) -> None:
        """Raise `InputError` for an attention that cannot have these positions."""

    def nodes(self, projection: Projection, dim: int) -> list[Node]:
        """Return the tables that one attention has; those of a whole stack belong to the stack."""
        return [Node("positions", self.kind)]


class NoPositions(PositionsInAttention):
    """No positional information in this slot.

    A causal model can still infer order (Haviv et al. 2022, arXiv:2203.16634).
    """

    kind: Literal["none"] = "none"

    def nodes(self, projection: Projection, dim: int) -> list[Node]:
        """There is nothing to count."""
        return []


class AttentionKernel(Config):
    """The slot of a kernel: what it refuses (`check`), what it costs (`nodes`), and what it can (all the others).

    A new kernel is a subclass with its own `kind`, listed in `Kernel`, and its computation in
    `saucier.parts.attention_slots`; from outside, a subclass that is registered with what builds, from the
    self-attention's config, a module that is called with query, key, value and a `KernelCall`.
    """

    slot: ClassVar[str] = "kernel"
    """What `register` knows the slot by."""
    kind: str
    exact: ClassVar[bool] = False
    """Whether it scores single pairs of positions: memories, prefixes, bottlenecks and masks of any kind need that."""
    any_place: ClassVar[bool] = True
    """Whether a text gives the same numbers further right in its row."""
    sorts_rows: ClassVar[bool] = False
    """Whether it reorders a row, so that later tokens change what earlier ones see."""
    caches_keys: ClassVar[bool] = True
    """Whether decoding keeps the keys and values of earlier tokens."""

    @property
    def rate(self) -> float:
        """Dropout on the attention weights: the field `dropout` of the kernels that have one."""
        return float(getattr(self, "dropout", 0.0))

    @property
    def longest(self) -> int | None:
        """The longest text; None: any."""
        return None

    @property
    def batch_reason(self) -> str | None:
        """Why a text gives other numbers in another pass or batch; None: it gives the same."""
        return None

    def is_ring(self, visibility: Visibility) -> bool:
        """Say whether what is seen depends on what is at the end of a row."""
        return self.sorts_rows

    def state_values(self, width: int, head: int) -> int:
        """Return the values that decoding keeps of all earlier tokens in place of keys, always in 32 bits."""
        return 0

    def check(self, path: str, attention: AttentionParts, dim: int) -> None:
        """Raise `InputError` for an attention that this kernel cannot compute.

        One that does not score single pairs gets rotated queries and keys, and no other positions.
        """
        if not self.exact:
            check_taken_positions(path, attention, self.kind, "none", "rotary",
                                  remedy="use rotary, or positions in the embedding,")
            if attention.global_maps:
                raise InputError(f"kernel {self.kind} has one set of maps", where=f"{path}.global_maps",
                                 remedy="leave them out")

    def key_count(self, visibility: Visibility, length: int) -> float:
        """Return how many keys a query meets in an input of this length."""
        return visible_keys(visibility, length)

    def map_nodes(self, attention: AttentionParts, dim: int) -> list[Node]:
        """Return the maps to queries, keys and values."""
        query, key, _ = attention.projection.widths(dim)
        biased = attention.projection.bias
        maps = linear("qkv", dim, query + 2 * key, bias=biased, rank=map_rank(attention.projection.ranks, "qkv"))
        if biased and not attention.projection.key_bias:
            maps = replace(maps, detail="keys without bias", parameters=maps.parameters - key)
        if biased and not attention.positions.query_bias:
            maps = replace(maps, detail="queries without bias", parameters=maps.parameters - query)
        return [maps]

    def nodes(self, attention: AttentionParts, dim: int, length: int) -> list[Node]:
        """Return what lies between the maps and the output map: its weights, and the work of mixing."""
        query, keys = attention.projection.widths(dim)[0], self.key_count(attention.visibility, length)
        return [Node("scores", self.kind, f"{keys:g} keys a query, {attention.visibility.kind}",
                     flops=4.0 * keys * query)]


def check_taken_positions(path: str, attention: AttentionParts, kind: str, *taken: str, remedy: str) -> None:
    """Raise `InputError` for positions of another kind than a kernel takes."""
    if attention.positions.kind not in taken:
        raise InputError(f"kernel {kind} cannot take positions {attention.positions.kind}", where=f"{path}.positions",
                         remedy=f"{remedy} or kernel softmax")


def check_reads_whole_texts(path: str, attention: AttentionParts, kind: str) -> None:
    """Raise `InputError` where something of a text is hidden from a kernel that mixes all of it, or is at a place."""
    if not isinstance(attention.visibility, Full) or attention.global_maps:
        raise InputError(f"kernel {kind} mixes all tokens of a text, later ones too", where=f"{path}.visibility",
                         remedy="use visibility full in an encoder, or kernel softmax or favor")
    check_taken_positions(path, attention, kind, "none", "rotary",
                          remedy="use rotary, or positions in the embedding,")
