"""Weights that become zero, or stay zero, while a model is trained: which, and when. Needs no torch."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from saucier.config.base import Config
from saucier.config.norms import Probability

Where = Annotated[tuple[str, ...], Field(min_length=1)]


class KeptZeros(Config):
    """The weights of the stacks that are zero at the start stay zero: retraining after magnitude pruning.

    Source: Han et al. 2015, §3, arXiv:1506.02626.
    """

    kind: Literal["kept_zeros"] = "kept_zeros"


class Ramp(Config):
    """How many weights are zero at a step: share · (1 - (1 - (t - first) / (last - first))³), t the part of the steps.

    Source: Zhu and Gupta 2017, §3, eq 1, arXiv:1710.01878, which movement pruning uses too.
    """

    share: float = Field(gt=0, lt=1)
    """The part of the weights that is zero at the end."""
    first: Probability = 0.1
    """The part of the steps that is done before any is."""
    last: float = Field(default=0.7, gt=0, le=1)
    """The part of the steps after which all are; the rest is for what is left."""
    every: int = Field(default=10, gt=0)
    """Steps from one pruning to the next."""
    where: Where = ("linear",)
    """Which maps, as tunings name them: `linear` is all of the stacks."""
    scope: Literal["model", "matrix"] = "model"
    """Whether the least of all go, or those of every matrix."""

    def at(self, step: int, steps: int) -> float:
        """Return the part of the weights that is zero after a step (from 0) of so many."""
        done = min(step - step % self.every if step + 1 < steps else steps, steps) / steps
        part = min(1.0, max(0.0, (done - self.first) / max(self.last - self.first, 1e-9)))
        return float(self.share * (1.0 - (1.0 - part)**3))


class GradualMagnitude(Ramp):
    """The weights nearest to zero are set to it, more and more of them, and stay there.

    Source: Zhu and Gupta 2017, §3, arXiv:1710.01878; Han et al. 2015, §3, arXiv:1506.02626, for going on learning
    between the prunings.
    """

    kind: Literal["gradual_magnitude"] = "gradual_magnitude"


class MovementPruning(Ramp):
    """The weights that learning moves towards zero are set to it; one that is zero may come back.

    Each weight has a score that learns by the gradient with respect to its mask, L's derivative by the masked weight
    times the weight (straight through). Source: Sanh et al. 2020, §4 and table 1 (hard movement pruning),
    arXiv:2005.07683. The scores learn at the rate of the weights: only their order counts.
    """

    kind: Literal["movement"] = "movement"


WeightPruning = Annotated[KeptZeros | GradualMagnitude | MovementPruning, Field(discriminator="kind")]
"""What becomes of single weights while a model is trained. The shapes stay, and nothing gets faster."""
