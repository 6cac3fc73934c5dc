"""Weights of other libraries as rules that work in both directions: their names, the operations between their tensors
and ours (transpose, concatenate, reorder heads), and the table of a body with one stack. What makes ours is written for
tensors of torch and arrays of numpy alike.
"""

from __future__ import annotations

import re
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING

from saucier import config as c
from saucier.checkpoints.fields import first_attention
from saucier.plain import library_of

if TYPE_CHECKING:
    from torch import Tensor


class Operation:
    """How foreign tensors become ours, and back; a kind that does not say it takes the first, and gives it, as it is.
    """

    def ours(self, tensors: Sequence[Tensor]) -> Tensor:
        """Make our tensor from the foreign ones, in the rule's order."""
        return tensors[0]

    def theirs(self, tensor: Tensor) -> list[Tensor]:
        """Make the foreign tensors from ours: the inverse of `ours`."""
        return [tensor]


@dataclass(frozen=True, slots=True)
class Same(Operation):
    """The tensor as it is."""


@dataclass(frozen=True, slots=True)
class Transpose(Operation):
    """A matrix stored as [inputs, outputs]; vectors stay as they are."""

    def ours(self, tensors: Sequence[Tensor]) -> Tensor:
        """Transpose a matrix, and leave a vector alone."""
        return tensors[0].T if tensors[0].ndim == 2 else tensors[0]

    def theirs(self, tensor: Tensor) -> list[Tensor]:
        """Transpose back, in the same way."""
        return [self.ours([tensor])]


@dataclass(frozen=True, slots=True)
class Concat(Operation):
    """Several maps as the rows of one; `rows` says how many rows each has."""

    rows: tuple[int, ...]

    def ours(self, tensors: Sequence[Tensor]) -> Tensor:
        """Put them after each other. Raises `ValueError` when one has another number of rows."""
        found = tuple(tensor.shape[0] for tensor in tensors)
        if found != self.rows:
            raise ValueError(f"rows {list(found)} instead of {list(self.rows)}")
        joined: Tensor = library_of(tensors[0]).concatenate(list(tensors))
        return joined

    def theirs(self, tensor: Tensor) -> list[Tensor]:
        """Split them."""
        return list(tensor.split(list(self.rows)))


@dataclass(frozen=True, slots=True)
class Twins(Operation):
    """One tensor under several names: the first that a file holds counts, and all of them are written.

    BERT's output bias is there twice in files whose output matrix is not tied.
    """

    count: int = 2

    def theirs(self, tensor: Tensor) -> list[Tensor]:
        """Return it for every name."""
        return [tensor, *(tensor.clone() for _ in range(self.count - 1))]


@dataclass(frozen=True, slots=True)
class SideBySide(Operation):
    """A matrix [R, C], and further columns of it that are stored as the rows of a second: [others, R]."""

    columns: int
    """Columns of the first."""

    def ours(self, tensors: Sequence[Tensor]) -> Tensor:
        """Put the columns next to each other. Raises `RuntimeError` for other numbers of rows."""
        joined: Tensor = library_of(tensors[0]).concatenate([tensors[0], tensors[1].T], axis=1)
        return joined

    def theirs(self, tensor: Tensor) -> list[Tensor]:
        """Split them."""
        return [tensor[:, :self.columns], tensor[:, self.columns:].T]


@dataclass(frozen=True, slots=True)
class FirstRows(Operation):
    """The first rows of a table whose others the reference stores and never reads; only ours are written."""

    rows: int

    def ours(self, tensors: Sequence[Tensor]) -> Tensor:
        """Take them."""
        return tensors[0][:self.rows]


@dataclass(frozen=True, slots=True)
class Reshaped(Operation):
    """The same values in another shape; a -1 is what is left."""

    shape: tuple[int, ...]
    """Ours."""
    foreign: tuple[int, ...]

    def ours(self, tensors: Sequence[Tensor]) -> Tensor:
        """Give it our shape."""
        return tensors[0].reshape(self.shape)

    def theirs(self, tensor: Tensor) -> list[Tensor]:
        """Give it theirs."""
        return [tensor.reshape(self.foreign)]


@dataclass(frozen=True, slots=True)
class PerHead(Operation):
    """Maps stored as [inputs, heads, head width], as the rows of one; `maps` says how many."""

    heads: int
    maps: int = 1

    def ours(self, tensors: Sequence[Tensor]) -> Tensor:
        """Put the heads' rows after each other. Raises `ValueError` for another number of heads."""
        if any(tensor.ndim != 3 or tensor.shape[1] != self.heads for tensor in tensors):
            raise ValueError(f"{[list(tensor.shape) for tensor in tensors]} instead of [inputs, {self.heads}, width]")
        joined: Tensor = library_of(tensors[0]).concatenate([one.reshape(len(one), -1).T for one in tensors])
        return joined

    def theirs(self, tensor: Tensor) -> list[Tensor]:
        """Split them."""
        return [part.T.reshape(part.shape[1], self.heads, -1) for part in tensor.chunk(self.maps)]


@dataclass(frozen=True, slots=True)
class HeadByHead(Operation):
    """Queries, keys and values of each head in turn, which we keep as all queries, all keys, all values.

    Source: Shoeybi et al. 2019 (Megatron-LM), code release; GPT-NeoX, BLOOM and the first DeBERTa.
    """

    heads: int
    parts: int = 3

    def ours(self, tensors: Sequence[Tensor]) -> Tensor:
        """Put the parts first. Raises `RuntimeError` where the rows do not divide."""
        return swap_levels(tensors[0], self.heads, self.parts)

    def theirs(self, tensor: Tensor) -> list[Tensor]:
        """Put the heads first."""
        return [swap_levels(tensor, self.parts, self.heads)]


def swap_levels(tensor: Tensor, outer: int, inner: int) -> Tensor:
    """Exchange two levels of the order of rows. Shapes: [outer · inner · E, ...] -> the same."""
    return tensor.reshape(outer, inner, -1, *tensor.shape[1:]).swapaxes(0, 1).reshape(tensor.shape)


@dataclass(frozen=True, slots=True)
class Axis(Operation):
    """A tensor that is published with one more dimension, of size 1, at `place`; a file may lack it."""

    place: int

    def ours(self, tensors: Sequence[Tensor]) -> Tensor:
        """Take the dimension away."""
        return tensors[0].squeeze(self.place)

    def theirs(self, tensor: Tensor) -> list[Tensor]:
        """Put it back."""
        return [tensor.unsqueeze(self.place)]


@dataclass(frozen=True, slots=True)
class ZeroRow(Operation):
    """A table of which the reference sets one row to zero when it reads a file: that of padding, which is pooled."""

    row: int | None
    """None: the table has no such row."""

    def ours(self, tensors: Sequence[Tensor]) -> Tensor:
        """Set the row to zero."""
        found: Tensor = library_of(tensors[0]).asarray(tensors[0], copy=True)
        found[[] if self.row is None else self.row] = 0
        return found


PLACEHOLDERS = {"i": r"(?P<i>\d+)", "j": r"(?P<j>\d+)", "k": r"(?P<k>\d+)", "p": r"(?P<p>weight|bias)"}
"""Placeholder name -> what it may stand for."""


@dataclass(frozen=True)
class Rule:
    """One of our names and the foreign names it comes from. Raises `ValueError` when their placeholders differ."""

    ours: str
    theirs: str | tuple[str, ...]
    operation: Operation = field(default_factory=Same)
    instead: str | None = None
    """Another name of one foreign tensor, read where a file lacks the first; never written."""
    absent: float | None = None
    """What fills ours where a file has none of the names; None: the file must have them."""

    def __post_init__(self) -> None:
        """Refuse a rule that could not be read backwards."""
        for name in (*self.foreign, *([self.instead] if self.instead else [])):
            if list_placeholders(name) != list_placeholders(self.ours):
                raise ValueError(f"{self.ours} and {name} do not have the same holes")

    @property
    def foreign(self) -> tuple[str, ...]:
        """The foreign names, always as a tuple."""
        return (self.theirs,) if isinstance(self.theirs, str) else self.theirs

    def fill(self, values: Mapping[str, str]) -> Rule:
        """Return the rule of one parameter, with these values for the placeholders."""
        return replace(self, ours=self.ours.format(**values), instead=self.instead and self.instead.format(**values),
                       theirs=tuple(theirs.format(**values) for theirs in self.foreign))


def list_placeholders(template: str) -> set[str]:
    """Return the names of a template's placeholders. Raises `ValueError` for an unknown one."""
    found = {name for _, name, _, _ in string.Formatter().parse(template) if name is not None}
    if unknown := found - set(PLACEHOLDERS):
        raise ValueError(f"{template}: unknown hole {sorted(unknown)}")
    return found


@cache
def compile_pattern(template: str) -> re.Pattern[str]:
    """Return the regular expression of a template; a placeholder that occurs twice must have one value."""
    parts, seen = [], set()
    for literal, name, _, _ in string.Formatter().parse(template):
        parts.append(re.escape(literal))
        if name is not None:
            parts.append(f"(?P={name})" if name in seen else PLACEHOLDERS[name])
            seen.add(name)
    return re.compile("".join(parts) + r"\Z")


@dataclass(frozen=True)
class Table:
    """A stored copy of fixed positions: checked in reading, written in writing, part of no parameter."""

    name: str
    positions: c.Sinusoidal
    width: int


@dataclass(frozen=True)
class Rules:
    """The weight table of a family for one config."""

    rules: Sequence[Rule]
    ignored: Sequence[str] = ()
    """Templates of foreign names that hold nothing of ours (buffers, copies of tied weights)."""
    tables: Sequence[Table] = ()
    carried: Sequence[str] = ()
    """Names of tensors that the reference stores and never reads; they are written back as they were."""

    def plus(self, more: Sequence[Rule]) -> Rules:
        """Return these rules and more."""
        return replace(self, rules=(*self.rules, *more))

    def match(self, name: str) -> Rule | None:
        """Return the rule of one of our parameters, filled in. Raises `ValueError` when two rules claim it."""
        found = [(rule, hit.groupdict()) for rule in self.rules if (hit := compile_pattern(rule.ours).match(name))]
        if len(found) > 1:
            raise ValueError(f"{name} is claimed by {' and '.join(rule.ours for rule, _ in found)}")
        return found[0][0].fill(found[0][1]) if found else None

    def knows(self, name: str) -> bool:
        """Say whether a foreign name belongs to a rule, used by this config or not, or is known to hold nothing."""
        names = [theirs for rule in self.rules for theirs in (*rule.foreign, rule.instead) if theirs]
        return (any(compile_pattern(theirs).match(name) for theirs in (*names, *self.ignored))
                or any(name == table.name for table in self.tables) or name in self.carried)


@dataclass(frozen=True)
class NameTable:
    """The names of a body with one stack; calling it with a tree gives the rules."""

    outside: Mapping[str, str]
    """Our name -> theirs, of all that is not in a block."""
    block: str
    """What precedes the names of a block."""
    inside: Mapping[str, str]
    """Our module in a block -> theirs, without `.{p}`; or a weight that belongs to no module."""
    maps: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Our module in a block -> theirs, of which it is one map: of queries, keys and values, or of the last two.

    One of theirs alone holds all three, head by head.
    """
    more: tuple[Rule, ...] = ()
    """Rules of another form."""
    ignored: tuple[str, ...] = ()
    """Names of a file that hold nothing of ours."""

    def __call__(self, tree: c.Transformer) -> Rules:
        """Return the rules for a tree of one stack."""
        return Rules([*(Rule(one, other) for one, other in self.outside.items()),
                      *self.blocks(tree, "encoder" if tree.encoder else "decoder"), *self.more], ignored=self.ignored)

    def blocks(self, tree: c.Transformer, stack: str) -> list[Rule]:
        """Return the rules for the blocks of one of a tree's stacks."""
        ours = f"{stack}.blocks.{{i}}."
        return [*module_rules(ours, self.block, self.inside),
                *(fused_rule(tree, ours + one, tuple(self.block + other for other in others))
                  for one, others in self.maps.items())]


def module_rules(ours: str, theirs: str, names: Mapping[str, str]) -> list[Rule]:
    """Return the rules for weights and biases of modules below two roots, or for a weight that is named as one."""
    ends = {one: "" if one.endswith(".weight") else ".{p}" for one in names}
    return [Rule(ours + one + ends[one], theirs + other + ends[one]) for one, other in names.items()]


def fused_rule(tree: c.Transformer, ours: str, maps: tuple[str, ...]) -> Rule:
    """Return the rule for several maps that we hold as one, in a tree whose attentions are all as wide as the first."""
    projection = first_attention(tree).projection
    end = ".{p}" if projection.bias else ".weight"
    query, key, _ = projection.widths(tree.dim)
    operation = HeadByHead(projection.heads) if len(maps) == 1 else Concat((query, key, key)[-len(maps):])
    return Rule(ours + end, tuple(name + end for name in maps), operation)
