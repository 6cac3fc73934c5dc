"""A plan: the kernel calls that reading one token is, as data, and as the structs that C reads."""

from __future__ import annotations

from collections.abc import Mapping
from ctypes import pointer as point_to
from dataclasses import dataclass, field
from math import prod

from saucier.native.library import COp, CPlan
from saucier.native.matrices import Array, Matrix, Panels, pointer

KINDS = {name: number for number, name in enumerate(
    ("embed", "places", "norm", "product", "rotate", "attend", "gate", "activate", "add", "scale", "select",
     "attend_rows"))}
ACTIVATIONS = {name: number for number, name in enumerate(
    ("identity", "relu", "gelu", "gelu_tanh", "silu", "tanh", "quick_gelu", "squared_relu", "relu6", "leaky_relu",
     "sigmoid"))}
"""As numbered in `saucier.h`."""
STREAM, NORMED, OTHER, HEADS, MIXED, HIDDEN, SCORES, RANKS = range(8)
"""The buffers: the residual stream, what sublayers read (two, where they are parallel), queries with keys and values,
what attention gives, the hidden vectors of a feed-forward, the logits, and what lies between two matrices of a map."""


@dataclass(frozen=True)
class Step:
    """A kernel call of a plan."""

    kind: str
    what: str
    """The part that it computes."""
    numbers: Mapping[str, float]
    """Fields of `Op` in `saucier.h`."""
    matrix: Matrix | None = None
    arrays: Mapping[str, Array | None] = field(default_factory=dict)
    panels: Panels | None = None
    """The matrix of a product of many tokens."""

    def struct(self) -> COp:
        """Return it for C."""
        pointers = {name: pointer(array) for name, array in self.arrays.items() if array is not None}
        matrix = {} if self.matrix is None else {"matrix": point_to(self.matrix.struct)}
        panels = {} if self.panels is None else {"panels": point_to(self.panels.struct)}
        return COp(kind=KINDS[self.kind], **self.numbers, **pointers, **matrix, **panels)


@dataclass(frozen=True)
class Plan:
    """What reading one token is: the steps in order, and the room that they need."""

    steps: tuple[Step, ...]
    widths: tuple[int, ...]
    """Numbers of a token in each buffer."""
    key_widths: tuple[tuple[int, int], ...]
    """Key heads and head width of each attention."""
    sharing: int
    """The most query heads that share a key head."""
    places: int
    """Tokens of a row, at most."""
    vocab: int
    struct: CPlan = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Lay the steps out for C."""
        ops = (COp * len(self.steps))(*(step.struct() for step in self.steps))
        object.__setattr__(self, "struct", CPlan(ops, len(ops)))

    @property
    def bytes(self) -> int:
        """What reading one token reads: every matrix once, not the tables that it looks one row up in."""
        return sum(step.matrix.bytes for step in self.steps if step.matrix is not None and step.kind == "product")

    def __str__(self) -> str:
        """Show it, a step in each line."""
        return "\n".join(f"{step.kind:8} {step.what}" + ("" if (held := step.panels or step.matrix) is None else
                         f"  {held.rows} × {held.inputs} {held.format}") for step in self.steps)


def count_values(widths: tuple[tuple[int, int], ...]) -> int:
    """Return the keys of a token that all attentions keep together; as many values."""
    return sum(prod(width) for width in widths)
