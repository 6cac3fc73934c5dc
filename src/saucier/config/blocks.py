"""The blocks of a stack as data: sublayers in their residuals, bottlenecks around them, and how blocks are laid out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field

from saucier.config.base import Config
from saucier.config.counting import Node, group_nodes
from saucier.config.layers import Residual, SelfAttention
from saucier.config.norms import LayerNorm, Norm, Probability
from saucier.errors import InputError


class Reads(Config):
    """What the attention of a narrow block makes its queries, keys and values of.

    - narrow: the narrow stream, all three;
    - shared: a second narrow map of the wide stream for queries and keys, the wide stream itself for values;
    - wide: the wide stream, all three.
    """

    kind: Literal["narrow", "shared", "wide"]


class Bottleneck(Config):
    """A narrow stream inside a block: `norm(x + dropout(up(sublayers(norm(down(x))))))`.

    Source: Sun et al. 2020 (MobileBERT), §3.1, fig 1c, arXiv:2004.02984.
    """

    width: int = Field(gt=0)
    """Width of the stream inside the block."""
    reads: Reads = Reads(kind="shared")
    """What the attention reads."""
    norm: Norm = LayerNorm()
    """The norms after the maps in and after the residual around the block."""
    dropout: Probability = 0.0
    """Dropout on what the block adds to the wide stream."""

    def attention_inputs(self, dim: int) -> tuple[int, int]:
        """Return the widths that queries and keys, and values, are made of."""
        match self.reads.kind:
            case "narrow":
                return self.width, self.width
            case "shared":
                return self.width, dim
            case "wide":
                return dim, dim


MAX_LAYERS = 10_000
"""More layers than any real model has: a hostile file cannot make us build for hours."""


class Block(Config):
    """Sublayers one after the other, each inside its own residual."""

    sublayers: tuple[Residual, ...] = Field(min_length=1)
    """In the order they are applied."""
    bottleneck: Bottleneck | None = None
    """What narrows the stream inside the block (MobileBERT)."""

    def width(self, dim: int) -> int:
        """Return the width of the stream inside the block."""
        return dim if self.bottleneck is None else self.bottleneck.width


class BlockLayout(Config):
    """The slot of a stack's layout: which blocks are applied, with which weights, and what they cost.

    A new layout is a subclass with its own `kind`, listed in `Layers`; what runs it is in `saucier.parts.stack`.
    """

    kind: str
    plain: ClassVar[bool] = True
    """Whether every block reads one vector for each token, and changes it: what a stack has besides blocks needs that.
    """
    separate: ClassVar[bool] = True
    """Whether every block that is applied has weights of its own."""
    mixes_padding: ClassVar[bool] = False
    """Whether a row is mixed with its padding, as published."""

    @property
    def keeps_length(self) -> bool:
        """Whether there are as many vectors after the last block as before the first."""
        return True

    def stored(self) -> list[Block]:
        """Return the blocks that have weights."""
        raise NotImplementedError

    def order(self) -> list[int]:
        """Return for each block that is applied the number of the weights that it uses, from 0."""
        return list(range(len(self.stored())))

    def applied(self) -> list[Block]:
        """Return the blocks in the order they are applied."""
        stored = self.stored()
        return [stored[number] for number in self.order()]

    def distinct(self) -> list[Block]:
        """Return the blocks that may differ: the first and what is repeated after it."""
        return self.applied()[:2]

    def check(self, where: str) -> None:
        """Raise `InputError` for a layout that cannot be."""

    def nodes(self, count: Callable[[Block, int, int], list[Node]], length: int) -> Node:
        """Return what the blocks cost; `count` gives the parts of a block, by its number in a turn and the length."""
        raise NotImplementedError

    def resized(self, change: Callable[[Block], Block], depth: Callable[[int], int]) -> Self:
        """Return the layout of other blocks, as many as `depth` makes of each number of layers."""
        raise NotImplementedError


class Repeat(BlockLayout):
    """The same block `times` times, each with weights of its own."""

    kind: Literal["repeat"] = "repeat"
    block: Block
    """The block that every layer has."""
    times: int = Field(gt=0, le=MAX_LAYERS)

    def stored(self) -> list[Block]:
        """Return the block for every layer."""
        return [self.block] * self.times

    def nodes(self, count: Callable[[Block, int, int], list[Node]], length: int) -> Node:
        """Return one block, many times."""
        return group_nodes("blocks", self.kind, count(self.block, 0, length), times=self.times)

    def resized(self, change: Callable[[Block], Block], depth: Callable[[int], int]) -> Self:
        """Return the layout of another block, as often as `depth` says."""
        return self.model_copy(update={"block": change(self.block), "times": depth(self.times)})


class Cycle(BlockLayout):
    """Different blocks in turn, the whole turn `times` times, each with weights of its own."""

    kind: Literal["cycle"] = "cycle"
    blocks: tuple[Block, ...] = Field(min_length=1)
    """One turn, in order."""
    times: int = Field(gt=0, le=MAX_LAYERS)

    def stored(self) -> list[Block]:
        """Return the blocks of all turns."""
        return list(self.blocks) * self.times

    def distinct(self) -> list[Block]:
        """Return all of them: any two may differ."""
        return self.applied()

    def nodes(self, count: Callable[[Block, int, int], list[Node]], length: int) -> Node:
        """Return the blocks of a turn, many times."""
        turns = [group_nodes(f"block {i}", "block", count(block, i, length)) for i, block in enumerate(self.blocks)]
        return group_nodes("blocks", self.kind, turns, times=self.times)

    def resized(self, change: Callable[[Block], Block], depth: Callable[[int], int]) -> Self:
        """Return a turn of other blocks, as often as `depth` says."""
        return self.model_copy(update={"blocks": tuple(map(change, self.blocks)), "times": depth(self.times)})


class Share(BlockLayout):
    """`times` layers that share weights: all of them, or those of a group; a layer is one block or several.

    Source: Lan et al. 2020 (ALBERT), §3.1, arXiv:1909.11942; groups and inner blocks from its code release.
    """

    kind: Literal["share"] = "share"
    block: Block
    """What every block is."""
    times: int = Field(gt=0, le=MAX_LAYERS)
    groups: int = Field(default=1, gt=0, le=MAX_LAYERS)
    """Sets of weights; the first layers use the first, and so on in equal parts."""
    inner: int = Field(default=1, gt=0, le=100)
    """Blocks in a layer, each with weights of its own."""
    separate: ClassVar[bool] = False

    def order(self) -> list[int]:
        """Return for each block that is applied the number of the weights that it uses, from 0."""
        groups = [int(layer / (self.times / self.groups)) for layer in range(self.times)]
        return [group * self.inner + place for group in groups for place in range(self.inner)]

    def stored(self) -> list[Block]:
        """Return the blocks that have weights."""
        return [self.block] * (self.groups * self.inner)

    def check(self, where: str) -> None:
        """Layers that share weights in groups are no fewer than the groups."""
        if self.groups > self.times:
            raise InputError(f"{self.times} layers do not fill {self.groups} groups", where=f"{where}.groups",
                             remedy="use at most as many groups as layers")

    def nodes(self, count: Callable[[Block, int, int], list[Node]], length: int) -> Node:
        """Return one node for each set of weights, with as many turns as it is applied."""
        order, detail, nodes = self.order(), "one set of weights", count(self.block, 0, length)
        if self.groups * self.inner == 1:
            return group_nodes("blocks", self.kind, nodes, detail=detail, times=len(order), stored=1)
        sets = [group_nodes(f"block {number}", self.kind, nodes, detail=detail, times=order.count(number), stored=1)
                for number in range(self.groups * self.inner)]
        return group_nodes("blocks", "groups", sets)

    def resized(self, change: Callable[[Block], Block], depth: Callable[[int], int]) -> Self:
        """Return the layout of another block, as often as `depth` says."""
        return self.model_copy(update={"block": change(self.block), "times": depth(self.times)})


def arrange_blocks(blocks: tuple[Block, ...]) -> Repeat | Cycle:
    """Return layers that give these blocks, in this order. Raises `InputError` where there are none."""
    count = len(blocks)
    for size in range(1, count + 1):
        if count % size == 0 and blocks[:size] * (count // size) == blocks:
            times = count // size
            return Repeat(block=blocks[0], times=times) if size == 1 else Cycle(blocks=blocks[:size], times=times)
    raise InputError("a stack has at least one layer", where="layers", remedy="give 1 or more")


Count = Annotated[int, Field(gt=0, le=MAX_LAYERS)]


class Funnel(BlockLayout):
    """Stages of blocks; before each stage but the first, two neighbouring vectors become one.

    Where `after` is a number, the last vectors are repeated for the tokens that they were made of, added to those of
    the first stage, and read by that many more blocks. Pooling mixes a text with its padding, and cuts by the length
    of the row, as published. Source: Dai et al. 2020, "Funnel-Transformer", §2.2-2.3, arXiv:2006.03236.
    """

    kind: Literal["funnel"] = "funnel"
    block: Block
    """What every block is."""
    sizes: tuple[Count, ...] = Field(min_length=1)
    """Blocks with weights of their own in each stage."""
    repeats: tuple[Count, ...] = Field(min_length=1)
    """How often each block of a stage is applied, one time after the other."""
    after: int | None = Field(default=2, ge=0, le=MAX_LAYERS)
    """Blocks at the full length, at the end; None: the blocks end in pooled vectors."""
    pooling: Literal["mean", "max"] = "mean"
    """What two vectors become."""
    query_only: bool = True
    """Whether the first block of a stage makes only queries of pooled vectors; keys and values of all."""
    separate_first: bool = True
    """Whether the first token, which is for the whole text, is never pooled with another."""
    truncate: bool = True
    """With `separate_first`: whether the last vector of a row is dropped, so that lengths stay even."""
    plain: ClassVar[bool] = False
    separate: ClassVar[bool] = False
    mixes_padding: ClassVar[bool] = True

    @property
    def keeps_length(self) -> bool:
        """Whether the blocks end in the full length."""
        return self.after is not None or len(self.sizes) == 1

    def stored(self) -> list[Block]:
        """Return the blocks that have weights."""
        return [self.block] * (sum(self.sizes) + (self.after or 0))

    def order(self) -> list[int]:
        """Return for each block that is applied the number of the weights that it uses, from 0."""
        turns = [turns for size, turns in zip(self.sizes, self.repeats, strict=True) for _ in range(size)]
        return [number for number, times in enumerate([*turns, *[1] * (self.after or 0)]) for _ in range(times)]

    def pooled(self, length: int) -> int:
        """Return how many vectors so many become."""
        return (length + (self.separate_first and not self.truncate) + 1) // 2

    def check(self, where: str) -> None:
        """Every stage has its repeats, and attention sees all, by positions that know of pooling."""
        if len(self.repeats) != len(self.sizes):
            raise InputError(f"{len(self.sizes)} stages, and repeats for {len(self.repeats)}", where=f"{where}.repeats",
                             remedy="give one for each stage")
        for residual in self.block.sublayers:
            inner = residual.inner
            if isinstance(inner, SelfAttention) and not (
                    inner.positions.kind in ("none", "pooled_distances") and inner.visibility.kind == "full"
                    and inner.kernel.exact):
                raise InputError("an attention among pooled vectors sees all of them", where=where,
                                 remedy="use visibility full, kernel softmax, and positions pooled_distances or none")
        if self.block.bottleneck is not None:
            raise InputError("a bottleneck stands in a stack of one length", where=where, remedy="leave it out")

    def nodes(self, count: Callable[[Block, int, int], list[Node]], length: int) -> Node:
        """Return each stage at its length; the work is for each token of the full length."""
        found, rows = [], length
        for number, (size, turns) in enumerate(zip(self.sizes, self.repeats, strict=True)):
            rows = self.pooled(rows) if number and rows > 1 + self.separate_first else rows
            turn = group_nodes("block", "block", count(self.block, number, rows), times=turns, stored=1)
            found.append(group_nodes(f"stage {number + 1}", "stage", [shrink_work(turn, rows / length)], times=size))
        if self.after:
            found.append(group_nodes("after", "block", count(self.block, len(self.sizes), length), times=self.after))
        return group_nodes("blocks", self.kind, found)

    def resized(self, change: Callable[[Block], Block], depth: Callable[[int], int]) -> Self:
        """Return a funnel of other blocks, each stage as deep as `depth` says."""
        return self.model_copy(update={"block": change(self.block), "sizes": tuple(map(depth, self.sizes)),
                                       "after": depth(self.after) if self.after else 0})


def shrink_work(node: Node, share: float) -> Node:
    """Return a part that runs for a share of the tokens."""
    return replace(node, flops=node.flops * share, children=tuple(shrink_work(one, share) for one in node.children))
