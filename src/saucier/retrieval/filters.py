"""Conditions on chunks, such as `path ~ "2024" and kind = "pdf"`: read into a tree, and asked of rows in memory.

    condition  = either {"or" either}
    either     = single {"and" single}
    single     = "not" single | "(" condition ")" | field comparison value
    comparison = "=" | "!=" | "<" | "<=" | ">" | ">=" | "~" | "!~"

`~`: a regular expression is found in the field. A comparison with what a chunk has not (the page of a text) is neither
true nor false, as in SQL: the chunk is left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from saucier.errors import InputError, suggest_name
from saucier.expressions import compile_expression

if TYPE_CHECKING:
    import pyarrow

Operator = Literal["=", "!=", "<", "<=", ">", ">=", "~", "!~"]
FIELDS: Mapping[str, type] = {"path": str, "kind": str, "section": str, "text": str, "page": int, "line": int}
"""What can be asked for, and what it is."""
WORDS = re.compile(r"""\s*(?:(?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|(?P<number>-?\d{1,18}(?![\w.]))|"""
                   r"""(?P<operator>!=|<=|>=|!~|==|[=<>~])|(?P<mark>[()])|(?P<word>[A-Za-z_]+))""", re.DOTALL)
LONGEST_FILTER, DEEPEST = 4000, 50
"""Letters of a condition, and parentheses and `not` within each other."""
EXAMPLE = """write it as path ~ "2024" and kind = "pdf\""""
WHERE = "--where"


@dataclass(frozen=True, slots=True)
class Comparison:
    """A field compared with a value."""

    field: str
    operator: Operator
    value: str | int


@dataclass(frozen=True, slots=True)
class Not:
    """The opposite."""

    inside: Filter


@dataclass(frozen=True, slots=True)
class All:
    """Every one."""

    parts: tuple[Filter, ...]


@dataclass(frozen=True, slots=True)
class Either:
    """At least one."""

    parts: tuple[Filter, ...]


Filter = Comparison | Not | All | Either


class Word(NamedTuple):
    """A word of a condition: what it is, as written, and where."""

    kind: str
    text: str
    place: int


def parse_filter(text: str) -> Filter:
    """Read a condition. Raises `InputError` that names the place of what is wrong."""
    if len(text) > LONGEST_FILTER:
        raise InputError(f"has {len(text):,} letters", where=WHERE, remedy=f"give at most {LONGEST_FILTER:,}")
    words, place = list[Word](), 0
    while text[place:].strip():
        found = WORDS.match(text, place)
        if found is None:
            rest = text[place:].lstrip()
            raise InputError(f"cannot be read from letter {len(text) - len(rest) + 1}: {rest[:20]!r}", where=WHERE,
                             remedy=f"{EXAMPLE}; texts stand in quotes, numbers are whole")
        words.append(Word(str(found.lastgroup), found[str(found.lastgroup)], found.start(str(found.lastgroup)) + 1))
        place = found.end()
    reader = Reader(words)
    found_filter = reader.read_either(0)
    if reader.next is not None:
        raise reader.refuse("`and` or `or`")
    return found_filter


@dataclass(slots=True)
class Reader:
    """Reads words in order."""

    words: list[Word]
    at: int = 0

    @property
    def next(self) -> Word | None:
        """The word to come."""
        return self.words[self.at] if self.at < len(self.words) else None

    def refuse(self, wanted: str) -> InputError:
        """Return the error for a word that is another one than is wanted."""
        here = self.next
        what = "ends" if here is None else f"has {here.text[:40]!r} at letter {here.place}"
        return InputError(f"{what} where {wanted} should be", where=WHERE, remedy=EXAMPLE)

    def take(self, kind: str, *texts: str) -> str | None:
        """Take the next word where it is of a kind, and one of some texts; None where it is not."""
        here = self.next
        if here is None or here.kind != kind or (texts and here.text.lower() not in texts):
            return None
        self.at += 1
        return here.text

    def read_either(self, depth: int) -> Filter:
        """Read conditions of which one must hold."""
        parts = [self.read_all(depth)]
        while self.take("word", "or"):
            parts.append(self.read_all(depth))
        return parts[0] if len(parts) == 1 else Either(tuple(parts))

    def read_all(self, depth: int) -> Filter:
        """Read conditions that must all hold."""
        parts = [self.read_single(depth)]
        while self.take("word", "and"):
            parts.append(self.read_single(depth))
        return parts[0] if len(parts) == 1 else All(tuple(parts))

    def read_single(self, depth: int) -> Filter:
        """Read a comparison, its opposite, or conditions in parentheses."""
        if depth > DEEPEST:
            raise InputError(f"is nested more than {DEEPEST} times", where=WHERE, remedy="write it flat")
        if self.take("word", "not"):
            return Not(self.read_single(depth + 1))
        if self.take("mark", "("):
            inside = self.read_either(depth + 1)
            if not self.take("mark", ")"):
                raise self.refuse("`)`")
            return inside
        return self.read_comparison()

    def read_comparison(self) -> Comparison:
        """Read a field, what it is compared by, and a value."""
        name = self.take("word")
        if name is None:
            raise self.refuse("a field")
        if name not in FIELDS:
            raise InputError(f"no field {name!r}", where=WHERE, remedy=suggest_name(name, [*FIELDS])
                             if len(name) < 40 else f"fields: {', '.join(FIELDS)}")
        operator: Any = self.take("operator")
        if operator is None:
            raise self.refuse("a comparison")
        operator = "=" if operator == "==" else operator
        quoted = self.take("text")
        value: str | int | None = re.sub(r"\\([\"'\\])", r"\1", quoted[1:-1]) if quoted is not None else None
        if value is None and (number := self.take("number")) is not None:
            value = int(number)
        if value is None:
            raise self.refuse("a value in quotes" if FIELDS[name] is str else "a number")
        return check_comparison(Comparison(name, operator, value))


def check_comparison(one: Comparison) -> Comparison:
    """Return a comparison that can be made. Raises `InputError` for a value of another kind than its field."""
    if not isinstance(one.value, FIELDS[one.field]):
        kind = "a text" if FIELDS[one.field] is str else "a number"
        raise InputError(f"{one.field} is {kind}, and {one.value!r} is none", where=WHERE, remedy=EXAMPLE)
    if one.operator in ("~", "!~"):
        if not isinstance(one.value, str):
            raise InputError(f"{one.field} is a number, in which no text is found", where=WHERE,
                             remedy=f"write {one.field} = {one.value}")
        compile_expression(one.value, WHERE)
    return one


def select_rows(found: Filter, rows: pyarrow.Table) -> NDArray[np.bool_]:
    """Return which rows of a table meet a condition. Shapes: -> [N]."""
    from pyarrow import compute

    kept: NDArray[np.bool_] = compute.fill_null(ask_rows(found, rows), False).to_numpy(zero_copy_only=False)
    return kept


def ask_rows(found: Filter, rows: pyarrow.Table) -> Any:
    """Return whether each row meets a condition: true, false or null."""
    from functools import reduce

    from pyarrow import compute

    match found:
        case Comparison(field, operator, value):
            return COMPARE[operator](compute, rows[field], value)
        case Not(inside):
            return compute.invert(ask_rows(inside, rows))
        case All(parts):
            return reduce(compute.and_kleene, [ask_rows(one, rows) for one in parts])
        case Either(parts):
            return reduce(compute.or_kleene, [ask_rows(one, rows) for one in parts])


COMPARE: Mapping[Operator, Callable[[Any, Any, Any], Any]] = {
    "=": lambda compute, column, value: compute.equal(column, value),
    "!=": lambda compute, column, value: compute.not_equal(column, value),
    "<": lambda compute, column, value: compute.less(column, value),
    "<=": lambda compute, column, value: compute.less_equal(column, value),
    ">": lambda compute, column, value: compute.greater(column, value),
    ">=": lambda compute, column, value: compute.greater_equal(column, value),
    "~": lambda compute, column, value: compute.match_substring_regex(column, pattern=value),
    "!~": lambda compute, column, value: compute.invert(compute.match_substring_regex(column, pattern=value)),
}
"""How each comparison is made of a column of Arrow."""


def write_sql(found: Filter) -> str:
    """Return a condition in the SQL of LanceDB, whose own function writes every value."""
    from lancedb.expr import lit

    match found:
        case Comparison(field, "~" | "!~" as operator, value):
            return f"{'NOT ' if operator == '!~' else ''}regexp_like({field}, {lit(value).to_sql()})"
        case Comparison(field, operator, value):
            return f"{field} {operator} {lit(value).to_sql()}"
        case Not(inside):
            return f"NOT ({write_sql(inside)})"
        case All(parts):
            return " AND ".join(f"({write_sql(one)})" for one in parts)
        case Either(parts):
            return " OR ".join(f"({write_sql(one)})" for one in parts)
