"""What became of a model after it was built: where its weights came from, and which rewrites were done to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a model's weights came from."""

    path: str
    """A folder, or a hub id."""
    digest: str
    """Of the weights as they were there."""
    unlike: frozenset[str] = frozenset()
    """Parameters that the origin does not have, or has otherwise."""


@dataclass(frozen=True, slots=True)
class Applied:
    """One rewrite that was done."""

    by: Any
    """Its config, a member of `saucier.adaptation.config.Tuning`."""
    frozen: frozenset[str]
    """Parameters that it stopped from learning."""
