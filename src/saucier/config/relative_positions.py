"""Positions that enter the scores of an attention by the distance, or the label, of a query and a key."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from saucier.config.attention_slots import AttentionParts, PositionsInAttention, Projection
from saucier.config.base import Config
from saucier.config.counting import Node
from saucier.config.visibility import is_causal
from saucier.errors import InputError


class Shaw(PositionsInAttention):
    """Learned vectors for clipped relative distances, added to keys and to values.

    Source: Shaw et al. 2018, arXiv:1803.02155.
    """

    kind: Literal["shaw"] = "shaw"
    max_distance: int = Field(default=16, gt=0)
    """Distances beyond this share one vector (k in the paper)."""

    def nodes(self, projection: Projection, dim: int) -> list[Node]:
        """Return the tables that one attention has."""
        head, rows = projection.widths(dim)[2], 2 * self.max_distance + 1
        return [Node("positions", self.kind, "keys and values", f"2 × {rows} × {head}", 2 * rows * head)]


class RelativeVectors(PositionsInAttention):
    """A learned vector for each distance, without clipping.

    - relative_key: on the keys alone. Source: Shaw et al. 2018, §3.2, eq 4, arXiv:1803.02155;
    - relative_key_query: on keys and on queries. Source: Huang et al. 2020, method 4, arXiv:2009.13658.
    """

    kind: Literal["relative_key", "relative_key_query"]
    length: int = Field(gt=0)
    """The longest input; the table has a row for each of 2 · length - 1 distances."""
    scale: float | None = Field(default=None, gt=0)
    """Factor on what the vectors add to the scores; None: that of the scores themselves."""

    @property
    def longest(self) -> int | None:
        """The longest text, where there is a table."""
        return self.length

    def nodes(self, projection: Projection, dim: int) -> list[Node]:
        """Return the tables that one attention has."""
        head, rows = projection.widths(dim)[2], 2 * self.length - 1
        return [Node("positions", self.kind, "shared by the heads", f"{rows} × {head}", rows * head)]


class MusicTransformer(PositionsInAttention):
    """Learned relative keys without clipping, computed by skewing in O(L·D) memory.

    Source: Huang et al. 2018, arXiv:1809.04281, §3.4.1.
    """

    kind: Literal["music_transformer"] = "music_transformer"
    length: int = Field(gt=0)
    """The largest number of past positions, itself included, that has a vector."""

    @property
    def longest(self) -> int | None:
        """The longest text, where there is a table."""
        return self.length

    def nodes(self, projection: Projection, dim: int) -> list[Node]:
        """Return the tables that one attention has."""
        heads, head, rows = projection.heads, projection.widths(dim)[2], self.length
        return [Node("positions", self.kind, "", f"{heads} × {rows} × {head}", heads * rows * head)]

    def check(self, path: str, attention: AttentionParts, dim: int) -> None:
        """There is no vector for a later position."""
        if not is_causal(attention.visibility):
            raise InputError("the skewed relative positions know only the past", where=f"{path}.positions",
                             remedy="use visibility causal, or kind: shaw")


class KeptHeads(Config):
    """The heads of an attention that had more: each keeps what belonged to its number among all of them."""

    of: int = Field(gt=0)
    """How many heads there were."""
    numbers: tuple[int, ...] = Field(min_length=1)
    """Those that are still there, by their number among all, from 0."""

    def check(self, path: str, heads: int) -> None:
        """Raise `InputError` for numbers that are not those of as many heads as the attention has."""
        if len(self.numbers) != heads or len(set(self.numbers)) != heads or not set(self.numbers) <= set(
                range(self.of)):
            raise InputError(f"{heads} heads, and kept are {list(self.numbers)} of {self.of}", where=path,
                             remedy="give the number of each head once, from 0")


class T5Bias(PositionsInAttention):
    """One learned scalar a head for each bucket of relative distance, shared by all layers of a stack.

    Source: Raffel et al. 2020, §2.1, arXiv:1910.10683.
    """

    kind: Literal["t5_bias"] = "t5_bias"
    buckets: int = Field(default=32, ge=4)
    """Number of buckets; half of them (a quarter a side, when bidirectional) hold exact distances, rounded down."""
    max_distance: int = Field(default=128, gt=1)
    """From this distance on everything falls into the last bucket."""
    bidirectional: bool = True
    """Whether the future has buckets of its own: true in an encoder, false in a causal decoder."""
    kept: KeptHeads | None = None
    """The columns of the stack's table that this attention reads, where it lost heads that others have; None: all."""

    def check(self, path: str, attention: AttentionParts, dim: int) -> None:
        """Buckets are for what is seen, and the largest distance is beyond the exact ones."""
        if self.kept is not None:
            self.kept.check(f"{path}.positions.kept", attention.projection.heads)
        exact = self.buckets // (4 if self.bidirectional else 2)
        if self.bidirectional and is_causal(attention.visibility):
            raise InputError("half of the T5 buckets would be for a future that is never seen",
                             where=f"{path}.positions", remedy="use bidirectional: false")
        if self.max_distance <= exact:
            raise InputError(f"max_distance {self.max_distance} is within the {exact} exact buckets",
                             where=f"{path}.positions", remedy="raise max_distance or lower buckets")


class Alibi(PositionsInAttention):
    """A penalty on the score, linear in the distance, with one fixed slope a head.

    Source: Press et al. 2022, §3, arXiv:2108.12409.
    """

    kind: Literal["alibi"] = "alibi"
    kept: KeptHeads | None = None
    """The heads whose slopes these are, where there were more; None: all."""

    def check(self, path: str, attention: AttentionParts, dim: int) -> None:
        """Every head has its slope."""
        if self.kept is not None:
            self.kept.check(f"{path}.positions.kept", attention.projection.heads)


class TransformerXL(PositionsInAttention):
    """Scores of content and of relative distance apart, each with a trained bias in place of the query's own position.

    The distance is a sine and cosine vector, through a trained map. Source: Dai et al. 2019, §3.3, arXiv:1901.02860.
    """

    kind: Literal["transformer_xl"] = "transformer_xl"
    base: float = Field(default=10000.0, gt=1)
    """Ratio between the longest and the shortest wavelength of the sines."""
    clamp: int | None = Field(default=None, gt=0)
    """Distances beyond this count as this; None: all are different."""
    shared_biases: bool = False
    """One pair of biases for all layers of the stack, as in the paper; otherwise every layer has its own."""
    segments: bool = False
    """A third score: are query and key of the same segment? Source: Yang et al. 2019, §2.6, arXiv:1906.08237."""
    mirrored: bool = False
    """The second half of the batch's rows is text that runs backwards: its distances change sign.

    Source: Yang et al. 2019, §3.1, code release.
    """
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Dropout on the vectors of the distances."""

    @property
    def reads_rows(self) -> bool:
        """Segments are of a row, and the number of a row may turn its distances."""
        return self.segments or self.mirrored

    def nodes(self, projection: Projection, dim: int) -> list[Node]:
        """Return the tables that one attention has."""
        query = projection.widths(dim)[0]
        count = dim * query + (0 if self.shared_biases else 2 * query) + (3 * query if self.segments else 0)
        return [Node("positions", self.kind, "", f"{dim} → {query}", count)]


class GlobalLocal(PositionsInAttention):
    """A vector on the keys for each of a few labels of how query and key are related; global tokens begin the row.

    Two local tokens, or two global ones, are told by their distance, clipped; a local and a global one by whether the
    second stands for the stretch of text that the first is in. Source: Ainslie et al. 2020 (ETC), §3.1–3.2,
    arXiv:2004.08483, whose stretches are sentences.
    """

    kind: Literal["global_local"] = "global_local"
    globals: int = Field(ge=0)
    """Global tokens at the beginning of every row."""
    stretch: int = Field(default=64, gt=0)
    """Local tokens that one global token stands for: the first for the first, and so on."""
    reach: int = Field(default=12, gt=0)
    """Distances beyond this share one label on each side (k in the paper)."""

    @property
    def labels(self) -> int:
        """How many labels there are: distances among local and among global tokens, and two each way between them."""
        return 2 * (2 * self.reach + 1) + 4

    def nodes(self, projection: Projection, dim: int) -> list[Node]:
        """Return the tables that one attention has."""
        head, rows = projection.widths(dim)[2], self.labels
        return [Node("positions", self.kind, "shared by the heads", f"{rows} × {head}", rows * head)]


class PooledDistances(PositionsInAttention):
    """Scores of distance and of segment, each with a trained bias in place of the query's own, among pooled tokens.

    A pooled token is at the place of the first token that it was made of. Neither score is given to the first token or
    by it, where it stands for the whole text. Source: Dai et al. 2020, §2.2 and appendix A.2, arXiv:2006.03236.
    """

    kind: Literal["pooled_distances"] = "pooled_distances"
    base: float = Field(default=10000.0, gt=1)
    """Ratio between the longest and the shortest wavelength of the sines."""
    separate_first: bool = True
    """Whether the first token has no distance and no segment."""
    shared_segment: int = Field(default=2, ge=0)
    """The segment that counts as the same as any other: that of the first token."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Dropout on the vectors of the distances."""
    query_bias: ClassVar[bool] = False

    @property
    def reads_rows(self) -> bool:
        """Segments are of a row."""
        return True

    def nodes(self, projection: Projection, dim: int) -> list[Node]:
        """Return the map of the distances, three biases, and the vectors of two segments."""
        width = projection.widths(dim)[0]
        return [Node("positions", self.kind, "", f"{dim} → {width}", dim * width + 5 * width)]
