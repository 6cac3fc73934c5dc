"""A mixture of objectives that take turns, as data, and the union of all objectives. Needs no torch."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from saucier.config.base import Config
from saucier.config.registry import OpenSlot
from saucier.objectives.config.bidirectional import Bidirectional
from saucier.objectives.config.causal import Causal
from saucier.objectives.config.denoising import Noisy
from saucier.objectives.config.masked import Masked, Parallel, PMIMasking
from saucier.objectives.config.pairs import ConditionalMasked, SequenceToSequence
from saucier.objectives.config.permutation import Permutation
from saucier.objectives.config.replaced_tokens import Replaced
from saucier.objectives.config.single_objective import SingleObjective

Single = (Causal | Bidirectional | Masked | SequenceToSequence | ConditionalMasked | Noisy | Parallel | Replaced
          | Permutation | SingleObjective)
"""An objective that is learned alone, or as a part of a mixture."""


class MixturePart(Config):
    """One of the objectives that take turns."""

    weight: float = Field(default=1.0, gt=0)
    """How often it comes, relative to the others."""
    objective: Annotated[Single, OpenSlot("objective")]
    """What is learned in its turn."""


class Mixture(Config):
    """Several objectives take turns; which one is learned in an update is drawn by weight.

    Source: Tay et al. 2023 (UL2), §3.1, arXiv:2205.05131, and Raffel et al. 2020, §3.5.2; there each row is drawn, here
    each update.
    """

    kind: Literal["mixture"] = "mixture"
    parts: tuple[MixturePart, ...] = Field(min_length=1)
    """The objectives and their weights."""


ObjectiveConfig = Annotated[Single | Mixture, OpenSlot("objective")]


def list_single_objectives(objective: Single | Mixture) -> tuple[Single, ...]:
    """Return the objectives that an objective is made of."""
    return tuple(part.objective for part in objective.parts) if isinstance(objective, Mixture) else (objective,)


def find_pmi_masking(objective: Single | Mixture) -> PMIMasking | None:
    """Return how an objective wants n-grams to be counted; None where it does not."""
    masked = [getattr(one, "masking", one) for one in list_single_objectives(objective)]
    return next((one.choice for one in masked if isinstance(one, Masked) and isinstance(one.choice, PMIMasking)), None)
