"""Weights that are zero: setting them, finding them, and what they take in a sparse encoding."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from saucier.adaptation.pruning import config as p
from saucier.adaptation.target_modules import select_targets
from saucier.plain import format_bytes


@dataclass(frozen=True, slots=True)
class Sparsity:
    """How many of a model's values are zero, and what that would save where only the others are stored."""

    values: int
    zeros: int
    dense: int
    """Bytes of all values."""
    sparse: int
    """Bytes of the values that are not zero, and of a compressed bitmap of where they are; a tensor that is smaller as
    it is counts so."""

    def line(self) -> str:
        """Say it."""
        return (f"{self.zeros:,} of {self.values:,} values are zero, {self.zeros / max(1, self.values):.1%}; "
                f"{format_bytes(self.dense)} as they are, {format_bytes(self.sparse)} in a sparse encoding; no faster: "
                "the shapes are the same")


def measure_sparsity(model: nn.Module) -> Sparsity:
    """Count a model's zeros and bytes, each shared tensor once."""
    values = zeros = dense = sparse = 0
    for parameter in model.parameters():
        found = parameter.detach()
        nothing, size = int((found == 0).sum()), parameter.element_size()
        values, zeros, dense = values + found.numel(), zeros + nothing, dense + found.numel() * size
        bitmap = np.packbits((found != 0).cpu().flatten().numpy()) if nothing else np.zeros(0, np.uint8)
        encoded = len(zlib.compress(bitmap.tobytes())) + (found.numel() - nothing) * size
        sparse += min(encoded, found.numel() * size) if nothing else found.numel() * size
    return Sparsity(values, zeros, dense, sparse)


def find_smallest(model: nn.Module, by: p.MagnitudePruning) -> dict[str, Tensor]:
    """Return for each matrix that is meant which of its values stay. Shapes: of the matrix, True = stays.

    Rows that several terms mean count once. Raises `InputError` for maps that there are not.
    """
    meant: dict[str, Tensor] = {}
    parts: list[tuple[str, slice]] = []
    for target in select_targets(model, by.where):
        weight = model.get_submodule(target.module).get_parameter("weight")
        rows = slice(target.start, target.start + target.rows)
        meant.setdefault(f"{target.module}.weight", torch.zeros_like(weight, dtype=torch.bool))[rows] = True
        parts.append((f"{target.module}.weight", rows))
    weights = dict(model.named_parameters(remove_duplicate=False))
    match by.scope:
        case "model":
            return keep_largest({name: weights[name].detach() for name in meant}, meant, by.share)
        case "matrix":
            kept = {name: torch.ones_like(one) for name, one in meant.items()}
            for name, rows in parts:
                kept[name][rows] = keep_largest({"": weights[name].detach()[rows]}, {"": meant[name][rows]},
                                                by.share)[""]
            return kept


def keep_largest(values: Mapping[str, Tensor], meant: Mapping[str, Tensor], share: float) -> dict[str, Tensor]:
    """Return which values stay where the smallest part of those that are meant go; all others stay.

    Of equal values the first go first, so that the number is exact. Shapes: [...] each -> the same, True = stays.
    """
    sizes = torch.cat([values[name].abs().float()[one] for name, one in meant.items()])
    order = sizes.argsort(stable=True)
    stays = torch.ones_like(sizes, dtype=torch.bool)
    stays[order[:int(share * len(sizes) + 1e-9)]] = False
    kept, start = {}, 0
    for name, one in meant.items():
        count = int(one.sum())
        kept[name] = torch.ones_like(one)
        kept[name][one] = stays[start:start + count]
        start += count
    return kept


def zero_weights(model: nn.Module, kept: Mapping[str, Tensor]) -> None:
    """Set all other values of some parameters to zero, in place."""
    parameters = dict(model.named_parameters(remove_duplicate=False))
    with torch.no_grad():
        for name, stays in kept.items():
            parameters[name].mul_(stays)


def find_zeros(model: nn.Module) -> dict[str, Tensor]:
    """Return which values are not zero, of every matrix of a model's stacks that has zeros, by name."""
    return {name: parameter.detach() != 0 for name, parameter in model.named_parameters()
            if parameter.dim() == 2 and name.startswith(("encoder.", "decoder.")) and bool((parameter == 0).any())}
