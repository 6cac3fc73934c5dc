"""What became of a model after it was built: where its weights came from, and which rewrites were done to it."""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a model's weights came from."""

    path: str
    """A folder, or a hub id."""
    digest: str
    """Of the weights that are as they were there."""
    unlike: frozenset[str] = frozenset()
    """Parameters that the origin does not have, or has otherwise."""

    @classmethod
    def of(cls, path: str | Path, model: nn.Module, unlike: Collection[str] = ()) -> Origin:
        """Return the origin of a model that has its weights from a folder or hub id, all but some."""
        place = str(Path(path).absolute()) if Path(path).is_dir() else str(path)
        return cls(place, digest(model, unlike), frozenset(unlike))


@dataclass(frozen=True, slots=True)
class Applied:
    """One rewrite that was done."""

    by: Any
    """Its config, a member of `saucier.adaptation.config.Tuning`."""
    frozen: frozenset[str]
    """Parameters that it stopped from learning."""


SAMPLED = 64
"""Values of each parameter that a digest reads."""


def digest(model: nn.Module, without: Collection[str] = ()) -> str:
    """Return what tells a model's weights from others: names, shapes, and a sample of the values.

    The values are rounded to bfloat16, so that the number format of a copy does not matter. `without`: names of
    parameters that are left out.
    """
    found = hashlib.sha256()
    for name, parameter in model.named_parameters():
        if name not in without:
            sample = parameter.detach().flatten()[::max(1, parameter.numel() // SAMPLED)].to(torch.bfloat16)
            found.update(f"{name} {tuple(parameter.shape)}\n".encode())
            found.update(sample.cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return found.hexdigest()[:32]
