"""Tuning as a run does it: rewrite the model, and say what of it learns and what it takes."""

from __future__ import annotations

from collections.abc import Iterator

from saucier.adaptation.config import Tuning
from saucier.adaptation.nf4 import held_bytes
from saucier.adaptation.rewrite import rewrite, share
from saucier.model import Transformer


def tuned(model: Transformer, by: Tuning, *, seed: int) -> Iterator[str]:
    """Rewrite a model in place; yield lines about it. Raises `InputError` as `rewrite`."""
    before = held_bytes(model)
    rewrite(model, by=by, seed=seed)
    learning, everything = share(model)
    yield f"{by.kind}: {learning:,} of {everything:,} parameters learn, {learning / everything:.2%}"
    if (after := held_bytes(model)) < before:
        yield f"the model takes {after / 1e6:,.1f} MB instead of {before / 1e6:,.1f}"
