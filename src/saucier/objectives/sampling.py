"""Scheduled sampling: the decoder reads some of its own predictions instead of the true tokens, more as it learns.

Letters: B batch, T target.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from saucier.objectives import config as c
from saucier.objectives.base import IGNORED, Batch, Loss, Objective
from saucier.objectives.prediction import Prediction


def truth(schedule: c.TruthSchedule, step: int) -> float:
    """Return how often a decoder reads the true token at a step (from 0).

    Source: Bengio et al. 2015, §2.4, arXiv:1506.03099.
    """
    match schedule:
        case c.LinearTruth(start=start, slope=slope, floor=floor):
            return max(floor, start - slope * step)
        case c.ExponentialTruth(base=base):
            return float(base**step)
        case c.InverseSigmoidTruth(speed=speed):
            return speed / (speed + math.exp(min(step / speed, 700.0)))


@dataclass(frozen=True, slots=True)
class ScheduledSampling(Objective):
    """Teacher forcing in which a true token is replaced, with a chance that grows, by what the model would have said.

    The predictions come from a first pass over the true target, without gradients; a recurrent decoder, for which the
    paper is written, makes them token by token. Held-out text is measured with true tokens.
    Source: Bengio et al. 2015, §2.4, arXiv:1506.03099; two passes: Mihaylova and Martins 2019, §3, arXiv:1906.07651.
    """

    inner: Prediction
    schedule: c.TruthSchedule
    share: float = 1.0
    """How often the true token is read."""

    def at(self, step: int) -> ScheduledSampling:
        """Return what is learned at a step."""
        return replace(self, share=truth(self.schedule, step))

    def held_out(self) -> Objective:
        """Plain teacher forcing."""
        return self.inner

    def count(self, batch: Batch) -> dict[str, float]:
        """Number of target tokens."""
        return self.inner.count(batch)

    def __call__(self, model: nn.Module, batch: Batch) -> Loss:
        """Return the summed loss of the mixed inputs."""
        if self.share < 1:
            batch = batch | {"decoder_input_ids": self.mixed(model, batch)}
        return self.inner(model, batch)

    def mixed(self, model: nn.Module, batch: Batch) -> Tensor:
        """Put predictions in the place of some true tokens, never of the first. Shapes: -> [B, T]."""
        given = batch["decoder_input_ids"]
        with torch.no_grad():
            logits = model(**{name: value for name, value in batch.items() if name != "labels"}).logits
        said = torch.cat([given[:, :1], logits[:, :-1].argmax(-1)], dim=1)
        own = (torch.rand(given.shape, device=given.device) >= self.share) & (batch["labels"] != IGNORED)
        own[:, 0] = False
        return torch.where(own, said, given)
