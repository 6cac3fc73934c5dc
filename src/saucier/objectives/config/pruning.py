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


class OpenPenalty(Config):
    """So much is added to the loss for each gate that is expected to be open, as a share of all gates.

    Source: Voita et al. 2019, §6.1, arXiv:1905.09418 (C eq 52), with λ for the sum; here of the mean.
    """

    kind: Literal["penalty"] = "penalty"
    weight: float = Field(gt=0)
    """λ."""


class TargetSize(Config):
    """The expected size is drawn to a target by two multipliers, which learn to make the loss larger.

    λ₁·(s - t) + λ₂·(s - t)², s and t as shares of the parameters behind gates.
    Source: Wang et al. 2020 (FLOP), §3.2, arXiv:1910.04732.
    """

    kind: Literal["target"] = "target"
    share: float = Field(gt=0, lt=1)
    """The part of the parameters behind gates that goes."""
    rise: float = Field(default=0.5, ge=0, le=1)
    """The part of the steps in which the target falls from all of them to what stays."""


class UnitGates(Config):
    """Heads, neurons or ranks of maps behind gates that learn to be 0 or 1; what is closed at the end is taken out.

    A gate is drawn from a hard concrete distribution in each pass of training, and is a number that does not change in
    evaluation: Louizos et al. 2018, §2.2, eq 11-13, arXiv:1712.01312 (C eq 49, 51, 52); as many are 0 there as are
    expected to be, those most likely closed, as in FLOP's code release.
    """

    kind: Literal["gates"] = "gates"
    aim: Annotated[OpenPenalty | TargetSize, Field(discriminator="kind")]
    """What closes gates."""
    units: tuple[Literal["heads", "neurons", "ranks"], ...] = Field(default=("heads",), min_length=1)
    """What stands behind gates: a head, or all that read the same keys and values; a neuron; a rank (FLOP).

    With ranks all maps of attentions and feed-forwards become P·diag(z)·Q, z the gates, and are learned so; sizes are
    shares of what the maps have as one matrix each, and a map whose product is no smaller is one matrix at the end.
    Ranks stand alone. Source: Wang et al. 2020, §3.1, arXiv:1910.04732 (C eq 50).
    """
    where: Where = ("*",)
    """Places of the sublayers, with `*` for any: `decoder.blocks.*.cross`. Ranks are those of all maps."""
    faster: float = Field(default=1000.0, gt=0)
    """How many times the learning rate of the weights that of gates and multipliers is."""


TrainedPruning = Annotated[KeptZeros | GradualMagnitude | MovementPruning | UnitGates, Field(discriminator="kind")]
"""What a model loses while it is trained: single weights, with which nothing gets faster, or heads, neurons, ranks."""
WeightPruning = KeptZeros | GradualMagnitude | MovementPruning
TRAINED = (KeptZeros, GradualMagnitude, MovementPruning, UnitGates)
"""The members of `TrainedPruning`."""
