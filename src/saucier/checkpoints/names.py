"""The weight names of bodies with one stack, as a table; and the rule for maps that we hold as one.

Not here: the operations on weights and how rules are matched, in rules.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from saucier import config as c
from saucier.checkpoints.orders import HeadByHead
from saucier.checkpoints.places import first_attention
from saucier.checkpoints.rules import Concat, Rule, Rules


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
        return [*inside(ours, self.block, self.inside),
                *(together(tree, ours + one, tuple(self.block + other for other in others))
                  for one, others in self.maps.items())]


def inside(ours: str, theirs: str, names: Mapping[str, str]) -> list[Rule]:
    """Return the rules for weights and biases of modules below two roots, or for a weight that is named as one."""
    ends = {one: "" if one.endswith(".weight") else ".{p}" for one in names}
    return [Rule(ours + one + ends[one], theirs + other + ends[one]) for one, other in names.items()]


def together(tree: c.Transformer, ours: str, maps: tuple[str, ...]) -> Rule:
    """Return the rule for several maps that we hold as one, in a tree whose attentions are all as wide as the first."""
    projection = first_attention(tree).projection
    end = ".{p}" if projection.bias else ".weight"
    query, key, _ = projection.widths(tree.dim)
    operation = HeadByHead(projection.heads) if len(maps) == 1 else Concat((query, key, key)[-len(maps):])
    return Rule(ours + end, tuple(name + end for name in maps), operation)
