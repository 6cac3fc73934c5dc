"""LoRA: products of two small matrices next to a frozen linear map or token table, and adding them to its weights."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from saucier.adaptation import tuning as a
from saucier.adaptation.quantization.maps import QuantizedLinear, QuantizedTable, quantize_maps
from saucier.adaptation.target_modules import WHOLE, TargetMap, select_targets, swap_modules
from saucier.adaptation.tuning import Lora
from saucier.errors import InputError
from saucier.model import Transformer
from saucier.parts.linear import Linear
from saucier.parts.norms import Dropout
from saucier.parts.provenance import Applied


class LowRankPair(nn.Module):
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


class LowRank(nn.Module):
    """A linear map or a token table with pairs next to it, each of which changes some of its rows."""

    rewritten = True
    """It replaces a map, and what is inside it is no map of the model's own."""

    def __init__(self, base: Any) -> None:
        """Wrap a map, or what replaces one, or a table, without any pair yet."""
        super().__init__()
        self.base, self.pairs = base, nn.ModuleDict()


def list_pairs(module: LowRank) -> list[tuple[str, LowRankPair]]:
    """Return the pairs of a map with the parts that they change, in the order of their rows."""
    found = [(part, pair) for part, pair in module.pairs.items() if isinstance(pair, LowRankPair)]
    return sorted(found, key=lambda one: one[1].start)


class LowRankLinear(LowRank):
    """A linear map with pairs next to it."""

    base: Linear

    @property
    def in_features(self) -> int:
        """Width of what it reads."""
        return self.base.in_features

    @property
    def out_features(self) -> int:
        """Width of what it gives."""
        return self.base.out_features

    @property
    def weight(self) -> Tensor:
        """The matrix with what the pairs add to it, for parts that read a matrix instead of calling its map [O, I]."""
        whole = self.base.weight.clone()
        for _, pair in list_pairs(self):
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
        for _, pair in list_pairs(self):
            stop = pair.start + pair.up.out_features
            parts += [given[..., end:pair.start], given[..., pair.start:stop] + pair(x).to(given.dtype)]
            end = stop
        return torch.cat([*parts, given[..., end:]], dim=-1)


class LowRankTable(LowRank):
    """A token table with a pair next to it; an output layer that is tied to the table stays as it was, as in PEFT."""

    base: nn.Embedding | QuantizedTable

    @property
    def num_embeddings(self) -> int:
        """Tokens."""
        return self.base.num_embeddings

    @property
    def weight(self) -> Tensor:
        """The table itself: what reads it does so for its place and number format."""
        return self.base.weight

    @property
    def like(self) -> Tensor:
        """What has the place and number format of the table, without its numbers."""
        return self.base.like if isinstance(self.base, QuantizedTable) else self.base.weight

    def forward(self, ids: Tensor) -> Tensor:
        """Shapes: [...] -> [..., D]."""
        given: Tensor = self.base(ids)
        for _, pair in list_pairs(self):
            narrow = torch.nn.functional.embedding(ids, pair.down.weight.T)
            given = given + (pair.up(pair.dropout(narrow)) * pair.scale).to(given.dtype)
        return given


def list_named_pairs(model: nn.Module) -> dict[str, tuple[str, LowRank, LowRankPair]]:
    """Return every pair of a model by the name of its place, with the name of its map's module, and the module."""
    return {name if part == WHOLE else f"{name}.{part}": (name, module, pair)
            for name, module in model.named_modules() if isinstance(module, LowRank)
            for part, pair in list_pairs(module)}


def add_pairs(model: nn.Module, by: Lora, generator: torch.Generator) -> None:
    """Put a pair next to every map that is meant, in four bits first where the settings say so.

    Raises `InputError` for a map that has a pair already, and for one that cannot be kept in four bits.
    """
    if isinstance(by, a.Qlora):
        quantize_maps(model, by.quantize, by.store)
    for place in select_targets(model, by.where):
        around = wrap_modules(model, place)
        if place.part in around.pairs or (around.pairs and WHOLE in (place.part, *around.pairs)):
            raise InputError(f"{place.name} has a pair already", where="tuning.where",
                             remedy="name other maps, or merge first")
        looked_up = isinstance(around, LowRankTable)
        width = around.base.embedding_dim if looked_up else around.base.in_features
        inputs, outputs = (place.rows, width) if looked_up else (width, place.rows)
        pair = LowRankPair(inputs, outputs, by, start=place.start)
        pair.begin(generator, looked_up=looked_up)
        around.pairs[place.part] = pair.to(next(chain(around.base.parameters(), around.base.buffers())).device)


def wrap_modules(model: nn.Module, place: TargetMap) -> LowRank:
    """Return the wrapper of the module of a place, put there where it has none yet."""
    module = model.get_submodule(place.module)
    if isinstance(module, LowRank):
        return module
    around = LowRankTable(module) if isinstance(module, nn.Embedding | QuantizedTable) else LowRankLinear(module)
    swap_modules(model, {id(module): around})
    return around


@dataclass(frozen=True, slots=True)
class MergedModel:
    """What a merge took away: whoever keeps it can unmerge."""

    model: Transformer
    away: dict[int, nn.Module]
    """Id of a merged map -> what was there."""
    rewrites: tuple[Applied, ...]
    """Those that the model had."""


def merge(model: Transformer) -> MergedModel:
    """Add every pair to the weights it changes, in place: the model is an ordinary one again.

    Weights that were rounded in loading are the stored ones first. Maps in four bits become float ones. Raises
    `InputError` where there is nothing to add, and for what no weights can express: prefixes, prompts and bottlenecks;
    and for a changed table that an unchanged output layer shares.
    """
    refuse_unmergeable(model)
    model.restore_stored()
    return merge_pairs(model)


def merge_pairs(model: Transformer) -> MergedModel:
    """Do the same in the number format that the model has, as loading does."""
    refuse_unmergeable(model)
    around = [module for module in model.modules() if isinstance(module, LowRank)]
    plain = {id(module): merge_map(module) for module in around}
    swap_modules(model, plain)
    before = model.provenance
    model.provenance = replace(before, rewrites=tuple(one for one in before.rewrites if not isinstance(one.by, a.Lora)))
    return MergedModel(model, {id(plain[id(module)]): module for module in around}, before.rewrites)


def unmerge(merged: MergedModel) -> Transformer:
    """Take the products out again: the model is as it was before `merge`, to the last bit."""
    swap_modules(merged.model, merged.away)
    merged.model.provenance = replace(merged.model.provenance, rewrites=merged.rewrites)
    return merged.model


def refuse_unmergeable(model: Transformer) -> None:
    """Raise `InputError` for what cannot be merged."""
    kinds = model.provenance.rewrite_kinds - {"freeze", "bias"}
    if others := kinds - {"lora", "qlora"}:
        raise InputError(f"a {min(others)} is no sum of weights", where="merge",
                         remedy="keep it as an adapter: it is small")
    if not kinds:
        raise InputError("the model has no LoRA to merge", where="merge", remedy="save or convert it as it is")
    language = model.config.output_layer
    if language is not None and language.tied and isinstance(model.embed.tokens, LowRankTable):
        raise InputError("the token table is changed, and the output layer that shares it is not", where="merge",
                         remedy="keep it as an adapter, or leave tokens out of `where`")


def merge_map(module: LowRank) -> nn.Module:
    """Return a map, or a table, with the sum as its matrix, and all else that it had."""
    base, matrix = module.base, module.base.weight.detach().float().clone()
    with torch.no_grad():
        for _, pair in list_pairs(module):
            if isinstance(module, LowRankTable):
                matrix += pair.product().T
            else:
                matrix[pair.start:pair.start + pair.up.out_features] += pair.product()
    if isinstance(base, QuantizedLinear | QuantizedTable):
        base = base.as_ordinary()
    made: nn.Module = copy.copy(base)
    made._parameters = {**base._parameters, "weight": nn.Parameter(matrix.to(module.base.weight.dtype),
                                                                   requires_grad=False)}
    return made
