"""Weight names and weight layouts of other libraries, as rules that work in both directions.

A rule pairs one of our parameter names with one or more foreign ones; both may have named holes, `{i}` for a number and
`{p}` for `weight` or `bias`, the same on both sides. The operation between them is invertible.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from saucier import config as c

if TYPE_CHECKING:  # a family's tables are data: reading them must not load torch
    from torch import Tensor

HOLES = {"i": r"(?P<i>\d+)", "j": r"(?P<j>\d+)", "k": r"(?P<k>\d+)", "p": r"(?P<p>weight|bias)"}
"""Hole name -> what it may stand for."""


class Operation(Protocol):
    """How foreign tensors become ours, and back."""

    def ours(self, tensors: Sequence[Tensor]) -> Tensor:
        """Make our tensor from the foreign ones, in the rule's order."""
        ...

    def theirs(self, tensor: Tensor) -> list[Tensor]:
        """Make the foreign tensors from ours: the inverse of `ours`."""
        ...


@dataclass(frozen=True, slots=True)
class Same:
    """The tensor as it is."""

    def ours(self, tensors: Sequence[Tensor]) -> Tensor:
        """Return it."""
        return tensors[0]

    def theirs(self, tensor: Tensor) -> list[Tensor]:
        """Return it."""
        return [tensor]


@dataclass(frozen=True, slots=True)
class Transpose:
    """A matrix stored as [inputs, outputs]; vectors stay as they are."""

    def ours(self, tensors: Sequence[Tensor]) -> Tensor:
        """Transpose."""
        return turned(tensors[0])

    def theirs(self, tensor: Tensor) -> list[Tensor]:
        """Transpose back."""
        return [turned(tensor)]


def turned(tensor: Tensor) -> Tensor:
    """Transpose a matrix, and leave a vector alone."""
    return tensor.T if tensor.dim() == 2 else tensor


@dataclass(frozen=True, slots=True)
class Concat:
    """Several maps as the rows of one; `rows` says how many rows each has."""

    rows: tuple[int, ...]

    def ours(self, tensors: Sequence[Tensor]) -> Tensor:
        """Put them behind each other. Raises `ValueError` when one has another number of rows."""
        found = tuple(tensor.shape[0] for tensor in tensors)
        if found != self.rows:
            raise ValueError(f"rows {list(found)} instead of {list(self.rows)}")
        import torch

        return torch.cat(list(tensors))

    def theirs(self, tensor: Tensor) -> list[Tensor]:
        """Split them."""
        return list(tensor.split(list(self.rows)))


@dataclass(frozen=True, slots=True)
class Row:
    """A vector stored as a matrix of one row."""

    def ours(self, tensors: Sequence[Tensor]) -> Tensor:
        """Take the row."""
        return tensors[0][0] if tensors[0].dim() == 2 else tensors[0]

    def theirs(self, tensor: Tensor) -> list[Tensor]:
        """Make it a matrix again."""
        return [tensor[None]]


@dataclass(frozen=True, slots=True)
class Twins:
    """One tensor under several names: the first that a file holds counts, and all of them are written.

    BERT's output bias stands twice in files whose output matrix is not tied.
    """

    count: int = 2

    def ours(self, tensors: Sequence[Tensor]) -> Tensor:
        """Return the first."""
        return tensors[0]

    def theirs(self, tensor: Tensor) -> list[Tensor]:
        """Return it for every name."""
        return [tensor, *(tensor.clone() for _ in range(self.count - 1))]


@dataclass(frozen=True, slots=True)
class SideBySide:
    """A matrix [R, C], and further columns of it that are stored as the rows of a second: [others, R]."""

    columns: int
    """Columns of the first."""

    def ours(self, tensors: Sequence[Tensor]) -> Tensor:
        """Put the columns beside each other. Raises `RuntimeError` for other numbers of rows."""
        import torch

        return torch.cat([tensors[0], tensors[1].T], dim=1)

    def theirs(self, tensor: Tensor) -> list[Tensor]:
        """Split them."""
        return [tensor[:, :self.columns], tensor[:, self.columns:].T]


@dataclass(frozen=True, slots=True)
class FirstRows:
    """The first rows of a table whose others the reference stores and never reads; only ours are written."""

    rows: int

    def ours(self, tensors: Sequence[Tensor]) -> Tensor:
        """Take them."""
        return tensors[0][:self.rows]

    def theirs(self, tensor: Tensor) -> list[Tensor]:
        """Return them."""
        return [tensor]


@dataclass(frozen=True, slots=True)
class Reshaped:
    """The same values in another shape; a -1 stands for what is left."""

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
class PerHead:
    """Maps stored as [inputs, heads, head width], as the rows of one; `maps` says how many."""

    heads: int
    maps: int = 1

    def ours(self, tensors: Sequence[Tensor]) -> Tensor:
        """Put the heads' rows behind each other. Raises `ValueError` for another number of heads."""
        if any(tensor.dim() != 3 or tensor.shape[1] != self.heads for tensor in tensors):
            raise ValueError(f"{[list(tensor.shape) for tensor in tensors]} instead of [inputs, {self.heads}, width]")
        import torch

        return torch.cat([tensor.flatten(1).T for tensor in tensors])

    def theirs(self, tensor: Tensor) -> list[Tensor]:
        """Split them."""
        return [part.T.reshape(part.shape[1], self.heads, -1) for part in tensor.chunk(self.maps)]


@dataclass(frozen=True)
class Rule:
    """One of our names and the foreign names it comes from. Raises `ValueError` when the holes of the sides differ."""

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
            if holes(name) != holes(self.ours):
                raise ValueError(f"{self.ours} and {name} do not have the same holes")

    @property
    def foreign(self) -> tuple[str, ...]:
        """The foreign names, always as a tuple."""
        return (self.theirs,) if isinstance(self.theirs, str) else self.theirs


def holes(template: str) -> set[str]:
    """Return the names of a template's holes. Raises `ValueError` for an unknown one."""
    found = {name for _, name, _, _ in string.Formatter().parse(template) if name is not None}
    if unknown := found - set(HOLES):
        raise ValueError(f"{template}: unknown hole {sorted(unknown)}")
    return found


def pattern(template: str) -> re.Pattern[str]:
    """Return the regular expression of a template; a hole that stands twice must be the same twice."""
    parts, seen = [], set()
    for literal, name, _, _ in string.Formatter().parse(template):
        parts.append(re.escape(literal))
        if name is not None:
            parts.append(f"(?P={name})" if name in seen else HOLES[name])
            seen.add(name)
    return re.compile("".join(parts) + r"\Z")


@dataclass(frozen=True)
class Match:
    """A rule with its holes filled, for one of our parameters."""

    ours: str
    theirs: tuple[str, ...]
    operation: Operation
    instead: str | None = None
    absent: float | None = None


@dataclass(frozen=True)
class Table:
    """A stored copy of fixed positions: checked in reading, written in writing, part of no parameter."""

    name: str
    positions: c.Sinusoidal
    width: int


class Rules:
    """The weight table of a family for one config."""

    def __init__(self, rules: Iterable[Rule], *, ignored: Iterable[str] = (), tables: Iterable[Table] = (),
                 carried: Iterable[str] = ()) -> None:
        """`ignored`: templates of foreign names that hold nothing of ours (buffers, copies of tied weights).

        `carried`: names of tensors that the reference stores and never reads; they are written back as they were.
        """
        self.rules = [(pattern(rule.ours), rule) for rule in rules]
        self.spare = tuple(ignored)
        self.ignored = [pattern(template) for template in self.spare]
        self.tables = list(tables)
        self.carried = tuple(carried)

    def plus(self, more: Iterable[Rule]) -> Rules:
        """Return these rules and more."""
        joined = Rules(more)
        joined.rules, joined.ignored, joined.tables = [*self.rules, *joined.rules], self.ignored, self.tables
        joined.carried, joined.spare = self.carried, self.spare
        return joined

    def match(self, name: str) -> Match | None:
        """Return the foreign names of one of our parameters. Raises `ValueError` when two rules claim it."""
        found = [(rule, hit.groupdict()) for expression, rule in self.rules if (hit := expression.match(name))]
        if len(found) > 1:
            raise ValueError(f"{name} is claimed by {' and '.join(rule.ours for rule, _ in found)}")
        if not found:
            return None
        rule, values = found[0]
        instead = None if rule.instead is None else rule.instead.format(**values)
        return Match(name, tuple(theirs.format(**values) for theirs in rule.foreign), rule.operation, instead,
                     rule.absent)

    def knows(self, name: str) -> bool:
        """Say whether a foreign name belongs to a rule, used by this config or not, or is known to hold nothing."""
        names = [theirs for _, rule in self.rules for theirs in (*rule.foreign, rule.instead) if theirs]
        return (any(pattern(theirs).match(name) for theirs in names) or any(name == table.name for table in self.tables)
                or name in self.carried
                or any(expression.match(name) for expression in self.ignored))
