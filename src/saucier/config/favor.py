"""Attention by random features (Performer) as data: softmax as the mean of products of positive features."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from saucier.config.base import Config
from saucier.config.rewriting import Part, rewritten


class Favor(Config):
    """Attention whose cost is linear in the length: weights are products of features of queries and of keys.

    A feature of x is `exp(w·x - |x|²/2)` for a random direction w; directions are orthogonal to each other as far as
    the width allows. Over all draws the mean of the products is the softmax's `exp(q·k)`.
    Source: Choromanski et al. 2021, "Rethinking Attention with Performers", §2.3–2.4, arXiv:2009.14794. The published
    code adds a small number to every feature, which moves weights towards equal ones; here nothing is added.
    """

    kind: Literal["favor"] = "favor"
    features: int = Field(default=256, gt=0)
    """Features of a query and of a key; the error of a weight falls as one over their root."""
    redraw: int | None = Field(default=1000, gt=0)
    """Steps of training after which directions are drawn anew; None: never."""
    block: int = Field(default=256, gt=0)
    """Positions that are mixed at once where later ones are hidden; changes no number, only memory and speed."""
    seed: int = 0
    """Of the directions, beside the number of the layer and of the draw; all heads of a layer have the same."""
    draw: int = Field(default=0, ge=0)
    """How often directions were drawn anew; training counts it up, and a saved model says it."""

    def state_values(self, width: int, head: int) -> int:
        """Return the values that decoding keeps of all earlier tokens, for an attention of this width."""
        return width // head * self.features * (head + 1)


def feature_flops(kernel: Favor, queries: int, keys: int, head: int) -> float:
    """Return the FLOPs of a token for its features, as query and as key of all heads together (so many values).

    A key has one value more, half of its square.
    """
    return 2.0 * (queries + keys + keys // head) * kernel.features


def mixing_flops(kernel: Favor, width: int, head: int, *, length: int, causal: bool) -> float:
    """Return the FLOPs of a token for mixing values in an input of this length; each head has one column of ones more.
    """
    values, heads = width + width // head, width // head
    sums = 4.0 * kernel.features * values
    if not causal:
        return sums
    size = min(kernel.block, length)
    blocks = -(-length // size)
    inside = 2.0 * size * (kernel.features * heads + values)
    return (inside + (sums if blocks > 1 else 0.0)) * blocks * size / length  # the last block is filled up


def at_step(config: Part, step: int) -> Part:
    """Return any part of a model with the draws of a step of training (from 0), counted from its own."""
    def turned(part: Config) -> Config:
        turns = step // part.redraw if isinstance(part, Favor) and part.redraw else 0
        return part.model_copy(update={"draw": part.draw + turns}) if isinstance(part, Favor) and turns else part

    return rewritten(config, turned)
