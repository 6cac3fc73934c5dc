"""What of a forward pass is kept for the backward pass, as data."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from saucier.config.base import Config


class KeepActivations(Config):
    """Everything that the backward pass reads is kept: the quickest. Reversible stacks keep none of it all the same."""

    kind: Literal["keep"] = "keep"


class RecomputeActivations(Config):
    """Only what each block reads is kept; the rest is computed once more: a third more work, the same gradients.

    Source: Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost", arXiv:1604.06174.
    """

    kind: Literal["recompute"] = "recompute"


Activations = Annotated[KeepActivations | RecomputeActivations, Field(discriminator="kind")]
