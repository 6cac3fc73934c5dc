"""Adding LoRA's products to the weights they stand beside, and taking them out again.

`unmerge` puts the very modules back that `merge` took away, so it restores every bit; the price is that they are kept.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import cast

import torch
from torch import nn

from saucier.adaptation import config as a
from saucier.adaptation.low_rank import LowRank, LowRankTable, pairs_of
from saucier.adaptation.nf4 import QuantizedLinear
from saucier.adaptation.swapping import swap
from saucier.errors import InputError
from saucier.model import Transformer
from saucier.parts.changed import Applied


@dataclass(frozen=True, slots=True)
class Merged:
    """What a merge took away: whoever keeps it can unmerge."""

    model: Transformer
    away: dict[int, nn.Module]
    """Id of a merged map -> what stood there."""
    rewrites: tuple[Applied, ...]
    """Those that the model had."""


def merge(model: Transformer) -> Merged:
    """Add every pair to the weights it stands beside, in place: the model is an ordinary one again.

    Maps in four bits become float ones. Raises `InputError` where there is nothing to add, and for what no weights can
    express: prefixes, prompts and bottlenecks; and for a changed table that an unchanged output layer shares.
    """
    refuse_unmergeable(model)
    around = [module for module in model.modules() if isinstance(module, LowRank)]
    plain = {id(module): merged_map(module) for module in around}
    swap(model, plain)
    rewrites = tuple(model.rewrites)
    model.rewrites[:] = [one for one in rewrites if not isinstance(one.by, a.Lora)]
    return Merged(model, {id(plain[id(module)]): module for module in around}, rewrites)


def unmerge(merged: Merged) -> Transformer:
    """Take the products out again: the model is as it was before `merge`, to the last bit."""
    swap(merged.model, merged.away)
    merged.model.rewrites[:] = merged.rewrites
    return merged.model


def refuse_unmergeable(model: Transformer) -> None:
    """Raise `InputError` for what cannot be merged."""
    kinds = {one.by.kind for one in model.rewrites} - {"freeze", "bias"}
    if beside := kinds - {"lora", "qlora"}:
        raise InputError(f"a {min(beside)} is no sum of weights", where="merge",
                         remedy="keep it as an adapter: it is small")
    if not kinds:
        raise InputError("the model has no LoRA to merge", where="merge", remedy="rewrite it, or load an adapter")
    language = model.config.output_layer
    if language is not None and language.tied and isinstance(model.embed.tokens, LowRankTable):
        raise InputError("the token table is changed, and the output layer that shares it is not", where="merge",
                         remedy="keep it as an adapter, or leave tokens out of `where`")


def merged_map(module: LowRank) -> nn.Module:
    """Return a map, or a table, with the sum as its matrix, and all else that it had."""
    base, matrix = cast(nn.Module, module.base), module.base.weight.detach().float().clone()
    with torch.no_grad():
        for _, pair in pairs_of(module):
            if isinstance(module, LowRankTable):
                matrix += pair.product().T
            else:
                matrix[pair.start:pair.start + pair.up.out_features] += pair.product()
    if isinstance(base, QuantizedLinear):
        base = base.as_linear()
    made = copy.copy(base)
    weight = nn.Parameter(matrix.to(module.base.weight.dtype), requires_grad=False)
    made._parameters = {**base._parameters, "weight": weight}
    return made
