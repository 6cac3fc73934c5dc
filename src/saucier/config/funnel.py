"""Funnel-Transformer's layout of blocks as data: fewer and fewer vectors, and a way back to one for each token."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field

from saucier.config.blocks import MAX_LAYERS, Block, BlockLayout
from saucier.config.counting import Node, group_nodes
from saucier.config.layers import SelfAttention
from saucier.errors import InputError

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

    def applied(self) -> list[Block]:
        """Return the block for every place at which it is applied."""
        return [self.block] * len(self.order())

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
