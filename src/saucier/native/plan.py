"""A plan: the kernel calls that reading one token is, as data, and as the structs that C reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from ctypes import Structure
from ctypes import pointer as point_to
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any, Literal, NamedTuple

import numpy as np

from saucier.native.library import CDistances, COp, CPlan, CRelative
from saucier.native.matrices import Array, Matrix, Panels, pointer

KINDS = {name: number for number, name in enumerate(
    ("embed", "places", "norm", "product", "rotate", "attend", "gate", "activate", "add", "scale", "select", "shift",
     "keep", "cross", "experts", "attend_rows", "neighbours", "segments"))}
ACTIVATIONS = {name: number for number, name in enumerate(
    ("identity", "relu", "gelu", "gelu_tanh", "silu", "tanh", "quick_gelu", "squared_relu", "relu6", "leaky_relu",
     "sigmoid"))}
"""As numbered in `saucier.h`."""
STREAM, NORMED, OTHER, HEADS, MIXED, HIDDEN, SCORES, RANKS = range(8)
"""The buffers: the residual stream, what sublayers read (two, where they are parallel), queries with keys and values,
what attention gives, the hidden vectors of a feed-forward, the logits, and what lies between two matrices of a map."""


@dataclass(frozen=True)
class Relative:
    """Vectors by distance to the key, the last one for all that are further. E: head width."""

    keys: Array
    """[1 or heads, R, E] float32."""
    scale: float
    """Factor on what they add to the scores."""
    values: Array | None = None
    """[R, E]."""
    meets_key: bool = False
    """Whether keys meet the vector as well as queries."""

    def struct(self) -> Structure:
        """Return it for C."""
        return CRelative(pointer(self.keys), pointer(self.values), self.keys.shape[1], len(self.keys),
                         int(self.meets_key), self.scale)


@dataclass(frozen=True)
class Distances:
    """Vectors that tokens of a row meet by their distance from each other, the scale of the scores in them."""

    keys: Panels | None
    """What queries meet, [V, H·E] float32; None: nothing."""
    queries: Panels | None
    """What keys meet."""
    rows: Array
    """[2, 2P - 1] int32, the vector of each distance of a key from the query, and of a query from the key, 1 - P first;
    they never fall."""
    struct: Any = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Point to the arrays, and find where each distance around 0 has a vector of its own."""
        places, found = self.rows.shape[1] // 2 + 1, []
        away = np.arange(1 - places, places)
        for panels, rows in zip((self.keys, self.queries), self.rows, strict=True):
            far = away[rows - rows[places - 1] != away]
            found.append(CDistances(None if panels is None else point_to(panels.struct), pointer(rows),
                                    far[far < 0].max(initial=-places) + 1, far[far > 0].min(initial=places) - 1))
        object.__setattr__(self, "struct", (CDistances * 2)(*found))

    @property
    def vectors(self) -> int:
        """How many there are."""
        return max(one.rows for one in (self.keys, self.queries) if one is not None)


CacheFormat = Literal["float32", "bfloat16"]
Pointed = Array | Relative | Distances | tuple[Matrix | Panels, ...] | None
"""What a field of `Op` may point to; tuples are the two matrices of each expert."""
FIELDS = {Matrix: "matrix", Panels: "panels"}
"""How a matrix is laid out -> the field of `Op` that points to it."""


@dataclass(frozen=True)
class Step:
    """A kernel call of a plan."""

    kind: str
    what: str
    """The part that it computes."""
    numbers: Mapping[str, float]
    """Fields of `Op` in `saucier.h`."""
    matrix: Matrix | Panels | None = None
    arrays: Mapping[str, Pointed] = field(default_factory=dict)
    held: list[object] = field(default_factory=list, repr=False, compare=False)
    """What C points to."""

    def struct(self) -> COp:
        """Return it for C."""
        given: dict[str, Any] = {}
        if self.matrix is not None:
            given[FIELDS[type(self.matrix)]] = point_to(self.matrix.struct)
        for name, value in self.arrays.items():
            match value:
                case Relative():
                    self.held.append(relative := value.struct())
                    given[name] = point_to(relative)
                case Distances():
                    given[name] = value.struct
                case tuple():
                    form: Any = type(value[0].struct)
                    self.held.append(many := (form * len(value))(*(one.struct for one in value)))
                    given[FIELDS[type(value[0])]] = point_to(many[0])
                case _ if value is not None:
                    given[name] = pointer(value)
        return COp(kind=KINDS[self.kind], **self.numbers, **given)

    @property
    def matrices(self) -> tuple[Matrix | Panels, ...]:
        """The matrix that it reads, or the two of each expert."""
        experts = self.arrays.get("experts")
        return experts if isinstance(experts, tuple) else () if self.matrix is None else (self.matrix,)

    @property
    def read_bytes(self) -> int:
        """What it reads for one token: a whole matrix, and of experts those that are chosen."""
        if self.kind == "experts":
            return int(sum(one.bytes for one in self.matrices) * self.numbers["top"] / self.numbers["experts"])
        return sum(one.bytes for one in self.matrices) if self.kind == "product" else 0

    def __str__(self) -> str:
        """Show it in a line."""
        shown = "".join(f"  {one.rows} × {one.inputs} {one.format}" for one in self.matrices[:2])
        many = f", {self.numbers['top']} of {self.numbers['experts']}" if self.kind == "experts" else ""
        return f"{self.kind:11} {self.what}{shown}{many}"


class PassBuffers(NamedTuple):
    """What a pass over whole rows writes to, and the next one again: the system clears memory that it gives anew."""

    buffers: list[Array]
    rooms: list[tuple[Array, Array]]
    """Tiles and their scales, for a product and the next one."""


@dataclass(frozen=True)
class Plan:
    """What reading one token is: the steps in order, and the room that they need."""

    steps: tuple[Step, ...]
    widths: tuple[int, ...]
    """Numbers of a token in each buffer."""
    key_widths: tuple[tuple[int, int], ...]
    """Key heads and head width of each attention."""
    places: int
    """Tokens of a row, at most."""
    vocab: int
    source_steps: tuple[Step, ...] = ()
    """What reading a vector of a source is, in an encoder-decoder: the keys and values of all attentions to it."""
    source_width: int = 0
    """Numbers of such a vector."""
    source_key_widths: tuple[tuple[int, int], ...] = ()
    """As `key_widths`, of the attentions to a source."""
    stored: CacheFormat = "float32"
    """What keys and values are stored in."""
    struct: CPlan = field(init=False, repr=False, compare=False)
    source_struct: CPlan = field(init=False, repr=False, compare=False)
    spare: list[PassBuffers] = field(init=False, repr=False, compare=False, default_factory=list)
    """Buffers of passes over whole rows that are done (`encoding.encode`), for the next ones."""

    def __post_init__(self) -> None:
        """Lay the steps out for C."""
        for name, steps in (("struct", self.steps), ("source_struct", self.source_steps)):
            ops = (COp * len(steps))(*(step.struct() for step in steps))
            object.__setattr__(self, name, CPlan(ops, len(ops)))

    @property
    def cache_type(self) -> np.dtype[np.float32 | np.uint16]:
        """What numpy takes keys and values for, which has no bfloat16."""
        return np.dtype(np.float32 if self.stored == "float32" else np.uint16)

    def limit_scores(self, tokens: Array) -> Plan:
        """Return the plan that gives the scores of some tokens alone: it reads these rows of the output matrix."""
        last = self.steps[-1]
        bias = last.arrays["bias"]
        assert isinstance(last.matrix, Panels) and not isinstance(
            bias, tuple | Relative | Distances), "a plan ends with the output matrix"
        numbers = {**last.numbers, "width": len(tokens)}
        narrow = Step(last.kind, last.what, numbers, last.matrix.take_rows(tokens),
                      {"bias": None if bias is None else bias[tokens]})
        return replace(self, steps=(*self.steps[:-1], narrow),
                       widths=tuple(len(tokens) if buffer == SCORES else width
                                    for buffer, width in enumerate(self.widths)))

    @property
    def bytes(self) -> int:
        """What reading one token reads: every matrix once, not the tables that it looks one row up in."""
        return sum(step.read_bytes for step in self.steps)

    def __str__(self) -> str:
        """Show it, a step in each line; what is done once for a source first."""
        return "\n".join([*(f"source:  {step}" for step in self.source_steps), *map(str, self.steps)])


def count_inputs(steps: Iterable[Step]) -> int:
    """Return the most inputs of a product with panels: room for what products make of tokens is for as many."""
    return max((one.inputs for step in steps for one in step.matrices if isinstance(one, Panels)), default=0)


def count_values(widths: tuple[tuple[int, int], ...]) -> int:
    """Return the keys of a token that all attentions keep together; as many values."""
    return sum(prod(width) for width in widths)
