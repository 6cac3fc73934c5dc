"""The weight names of bodies with one stack, as a table; and the rule for maps that we hold as one.

Not here: the operations on weights and how rules are matched, in rules.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from saucier import config as c
from saucier.checkpoints.places import attentions
from saucier.checkpoints.rules import ByHead, Concat, Rule, Rules


@dataclass(frozen=True)
class NameTable:
    """The names of a body with one stack; calling it with a tree gives the rules."""

    outside: Mapping[str, str]
    """Our name -> theirs, of all that is not in a block."""
    block: str
    """What precedes the names of a block."""
    inside: Mapping[str, str]
    """Our module in a block -> theirs, without `.{p}`."""
    maps: tuple[str, ...] = ()
    """Their modules in a block for queries, keys and values; one alone holds all three, head by head."""
    more: tuple[Rule, ...] = ()
    """Rules of another form."""
    ignored: tuple[str, ...] = ()
    """Names of a file that hold nothing of ours."""

    def __call__(self, tree: c.Transformer) -> Rules:
        """Return the rules for a tree. Raises `ValueError` for one without a stack."""
        ours = f"{'encoder' if tree.encoder else 'decoder'}.blocks.{{i}}."
        return Rules([
            *(Rule(one, other) for one, other in self.outside.items()),
            *inside(ours, self.block, self.inside),
            *([together(tree, f"{ours}attention.inner.qkv", tuple(self.block + name for name in self.maps))]
              if self.maps else []),
            *self.more,
        ], ignored=self.ignored)


def inside(ours: str, theirs: str, names: Mapping[str, str]) -> list[Rule]:
    """Return the rules for weights and biases of modules below two roots."""
    return [Rule(f"{ours}{one}.{{p}}", f"{theirs}{other}.{{p}}") for one, other in names.items()]


def together(tree: c.Transformer, ours: str, maps: tuple[str, ...]) -> Rule:
    """Return the rule for queries, keys and values of the self-attentions of a tree with one stack, or one kind."""
    projection = attentions(tree)[0].projection
    end = ".{p}" if projection.bias else ".weight"
    query, key, _ = projection.widths(tree.dim)
    operation = ByHead(projection.heads) if len(maps) == 1 else Concat((query, key, key))
    return Rule(ours + end, tuple(name + end for name in maps), operation)
