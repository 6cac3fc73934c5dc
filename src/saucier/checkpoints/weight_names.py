"""Weight names of other libraries as rules that work in both directions, and the table of a body with one stack."""

from __future__ import annotations

import re
import string
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from saucier import config as c
from saucier.checkpoints.fields import first_attention
from saucier.checkpoints.weight_operations import Concat, HeadByHead, Operation, Same

if TYPE_CHECKING:
    pass

PLACEHOLDERS = {"i": r"(?P<i>\d+)", "j": r"(?P<j>\d+)", "k": r"(?P<k>\d+)", "p": r"(?P<p>weight|bias)"}
"""Hole name -> what it may stand for."""


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
            if list_placeholders(name) != list_placeholders(self.ours):
                raise ValueError(f"{self.ours} and {name} do not have the same holes")

    @property
    def foreign(self) -> tuple[str, ...]:
        """The foreign names, always as a tuple."""
        return (self.theirs,) if isinstance(self.theirs, str) else self.theirs


def list_placeholders(template: str) -> set[str]:
    """Return the names of a template's holes. Raises `ValueError` for an unknown one."""
    found = {name for _, name, _, _ in string.Formatter().parse(template) if name is not None}
    if unknown := found - set(PLACEHOLDERS):
        raise ValueError(f"{template}: unknown hole {sorted(unknown)}")
    return found


def compile_pattern(template: str) -> re.Pattern[str]:
    """Return the regular expression of a template; a hole that stands twice must be the same twice."""
    parts, seen = [], set()
    for literal, name, _, _ in string.Formatter().parse(template):
        parts.append(re.escape(literal))
        if name is not None:
            parts.append(f"(?P={name})" if name in seen else PLACEHOLDERS[name])
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
        self.rules = [(compile_pattern(rule.ours), rule) for rule in rules]
        self.spare = tuple(ignored)
        self.ignored = [compile_pattern(template) for template in self.spare]
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
        return (any(compile_pattern(theirs).match(name) for theirs in names)
                or any(name == table.name for table in self.tables) or name in self.carried
                or any(expression.match(name) for expression in self.ignored))


@dataclass(frozen=True)
class NameTable:
    """The names of a body with one stack; calling it with a tree gives the rules."""

    outside: Mapping[str, str]
    """Our name -> theirs, of all that is not in a block."""
    block: str
    """What precedes the names of a block."""
    inside: Mapping[str, str]
    """Our module in a block -> theirs, without `.{p}`; or a weight that stands alone."""
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
