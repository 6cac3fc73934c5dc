"""LoRA: products of two small matrices beside a frozen linear map or token table.

What stands around a map has the map's own attributes, so the parts of a model need not know.
Letters: I inputs, O outputs, N rows of the map that a pair changes, R rank, V vocab, D dim.
"""

from __future__ import annotations

import math
from typing import cast

import torch
from torch import Tensor, nn

from saucier.adaptation.config import Lora
from saucier.adaptation.places import WHOLE, Place, select
from saucier.adaptation.swapping import swap
from saucier.errors import InputError
from saucier.parts.dropout import Dropout
from saucier.parts.linear import Linear


class Pair(nn.Module):
    """Two small matrices. Source: Hu et al. 2021, §4.1, arXiv:2106.09685."""

    added = True
    """Its parameters are no part of the model that was built."""

    def __init__(self, inputs: int, outputs: int, by: Lora, *, start: int = 0) -> None:
        """Build a pair for as many rows of a map, from `start` on."""
        super().__init__()
        self.start, self.scale = start, by.scaling.factor(by.alpha, by.rank)
        self.down = Linear(inputs, by.rank, bias=False)
        self.up = Linear(by.rank, outputs, bias=False)
        self.dropout = Dropout(by.dropout)

    def begin(self, generator: torch.Generator, *, looked_up: bool) -> None:
        """Start with one matrix random and one zero, so that nothing changes: `up`, or of a table `down`.

        Source: Hu et al. 2021, §4.1; the spread of the random one is that of their code release.
        """
        bound = 1 / math.sqrt(self.down.in_features)
        with torch.no_grad():
            if looked_up:
                self.down.weight.zero_()
                self.up.weight.normal_(generator=generator)
            else:
                self.down.weight.uniform_(-bound, bound, generator=generator)
                self.up.weight.zero_()

    def forward(self, x: Tensor) -> Tensor:
        """Shapes: [..., I] -> [..., N], in the number format of the pair."""
        return self.up(self.down(self.dropout(x.to(self.down.weight.dtype)))) * self.scale  # type: ignore[no-any-return]

    def product(self) -> Tensor:
        """What the pair adds to the matrix. Shapes: -> [N, I]."""
        return self.up.weight @ self.down.weight * self.scale


def pairs_of(module: LowRank) -> list[tuple[str, Pair]]:
    """Return the pairs of a map with the parts that they change, in the order of their rows."""
    found = [(part, pair) for part, pair in module.pairs.items() if isinstance(pair, Pair)]
    return sorted(found, key=lambda one: one[1].start)


class LowRankLinear(nn.Module):
    """A linear map with pairs beside it, each of which changes some of its rows."""

    rewritten = True
    """Stands for a map, and what is inside it is no map of the model's own."""

    def __init__(self, base: Linear) -> None:
        """Stand around a map, or what stands for one, without any pair yet."""
        super().__init__()
        self.base = base
        self.pairs = nn.ModuleDict()

    @property
    def in_features(self) -> int:
        """Width of what it reads."""
        return self.base.in_features

    @property
    def out_features(self) -> int:
        """Width of what it gives."""
        return self.base.out_features

    def pair(self, place: Place, by: Lora) -> Pair:
        """Return a pair for a place of this map, still empty."""
        return Pair(self.in_features, place.rows, by, start=place.start)

    @property
    def weight(self) -> Tensor:
        """The matrix with what the pairs add to it, for parts that read a matrix instead of calling its map [O, I]."""
        whole = self.base.weight.clone()
        for _, pair in pairs_of(self):
            whole[pair.start:pair.start + pair.up.out_features] += pair.product().to(whole.dtype)
        return whole

    @property
    def bias(self) -> Tensor | None:
        """The map's own bias."""
        return self.base.bias

    def forward(self, x: Tensor) -> Tensor:
        """Shapes: [..., I] -> [..., O]."""
        given: Tensor = self.base(x)
        parts, end = [], 0
        for _, pair in pairs_of(self):
            stop = pair.start + pair.up.out_features
            parts += [given[..., end:pair.start], given[..., pair.start:stop] + pair(x).to(given.dtype)]
            end = stop
        return torch.cat([*parts, given[..., end:]], dim=-1)


class LowRankTable(nn.Module):
    """A token table with a pair beside it; an output layer that is tied to the table stays as it was, as in PEFT."""

    rewritten = True
    """What is inside it is no table of the model's own."""

    def __init__(self, base: nn.Embedding) -> None:
        """Stand around a table, without a pair yet."""
        super().__init__()
        self.base, self.pairs = base, nn.ModuleDict()

    @property
    def num_embeddings(self) -> int:
        """Tokens."""
        return self.base.num_embeddings

    def pair(self, place: Place, by: Lora) -> Pair:
        """Return a pair for the table, still empty."""
        return Pair(place.rows, self.base.embedding_dim, by)

    @property
    def weight(self) -> Tensor:
        """The table itself: what reads it does so for its place and number format."""
        return self.base.weight

    def forward(self, ids: Tensor) -> Tensor:
        """Shapes: [...] -> [..., D]."""
        given: Tensor = self.base(ids)
        for _, pair in pairs_of(self):
            narrow = torch.nn.functional.embedding(ids, pair.down.weight.T)
            given = given + (pair.up(pair.dropout(narrow)) * pair.scale).to(given.dtype)
        return given


LowRank = LowRankLinear | LowRankTable


def named_pairs(model: nn.Module) -> dict[str, tuple[str, LowRank, Pair]]:
    """Return every pair of a model by the name of its place, with the name of its map's module, and the module."""
    return {name if part == WHOLE else f"{name}.{part}": (name, module, pair)
            for name, module in model.named_modules() if isinstance(module, LowRank)
            for part, pair in pairs_of(module)}


def add_pairs(model: nn.Module, by: Lora, generator: torch.Generator) -> None:
    """Put a pair beside every map that is meant. Raises `InputError` for one that has a pair already."""
    for place in select(model, by.where):
        around = stand_around(model, place)
        if place.part in around.pairs or (around.pairs and WHOLE in (place.part, *around.pairs)):
            raise InputError(f"{place.name} has a pair already", where="tuning.where",
                             remedy="name other maps, or merge first")
        pair = around.pair(place, by)
        pair.begin(generator, looked_up=isinstance(around, LowRankTable))
        around.pairs[place.part] = pair.to(around.base.weight.device)


def stand_around(model: nn.Module, place: Place) -> LowRank:
    """Return what stands around the module of a place, put there where nothing does yet."""
    module = model.get_submodule(place.module)
    if isinstance(module, LowRank):
        return module
    around = LowRankTable(module) if isinstance(module, nn.Embedding) else LowRankLinear(cast(Linear, module))
    swap(model, {id(module): around})
    return around
