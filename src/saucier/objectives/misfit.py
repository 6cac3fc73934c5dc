"""`Misfit`: one thing about an objective, a model, a tokenizer and data that does not fit together."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Misfit:
    """One thing that does not fit: where, what, and what would."""

    path: tuple[str, ...]
    what: str
    remedy: str
    own: bool = False
    """Whether the path begins at the objective; else at the recipe."""
