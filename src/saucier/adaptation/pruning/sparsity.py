"""Weights that are zero: setting them, finding them, and what they take in a sparse encoding."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from saucier.adaptation.pruning import methods as p
from saucier.adaptation.target_modules import select_parameters
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


def list_meant(model: nn.Module, where: Sequence[str]) -> list[str]:
    """Return the names of the matrices that terms mean, each once. Raises `InputError` as `select_parameters`."""
    meant = select_parameters(model, tuple(where))
    return [name for name, one in model.named_parameters() if one.dim() == 2 and name in meant]


def find_smallest(model: nn.Module, by: p.MagnitudePruning) -> dict[str, Tensor]:
    """Return for each matrix that is meant which of its values stay. Shapes: of the matrix, True = stays."""
    weights = dict(model.named_parameters())
    return keep_least({name: weights[name].detach().abs() for name in list_meant(model, by.where)}, by.share, by.scope)


def keep_least(order: Mapping[str, Tensor], share: float, scope: Literal["model", "matrix"]) -> dict[str, Tensor]:
    """Return which values stay where the share with the least numbers goes, of all or of every matrix.

    Of equal ones the first go first, so that their number is exact. Shapes: [...] each -> the same, True = stays.
    """
    match scope:
        case "model":
            sizes = torch.cat([one.float().flatten() for one in order.values()])
            stays = torch.ones_like(sizes, dtype=torch.bool)
            stays[sizes.argsort(stable=True)[:int(share * len(sizes) + 1e-9)]] = False
            parts = stays.split([one.numel() for one in order.values()])
            return {name: part.view(one.shape) for (name, one), part in zip(order.items(), parts, strict=True)}
        case "matrix":
            return {name: keep_least({name: one}, share, "model")[name] for name, one in order.items()}


def zero_weights(model: nn.Module, kept: Mapping[str, Tensor]) -> None:
    """Set all other values of some parameters to zero, in place."""
    parameters = dict(model.named_parameters())
    with torch.no_grad():
        for name, stays in kept.items():
            parameters[name].mul_(stays)


def find_zeros(model: nn.Module) -> dict[str, Tensor]:
    """Return which values are not zero, of every matrix of a model's stacks that has zeros, by name."""
    return {name: parameter.detach() != 0 for name, parameter in model.named_parameters()
            if parameter.dim() == 2 and name.startswith(("encoder.", "decoder.")) and bool((parameter == 0).any())}
