"""How a recurrent decoder looks at the encoder while it runs, as data: who is compared, how, and over which words."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from saucier.config.base import Config


class DotScore(Config):
    """The inner product of the decoder's and the encoder's vector. Source: Luong et al. 2015, §3.1, eq 8."""

    kind: Literal["dot"] = "dot"


class GeneralScore(Config):
    """The inner product with a matrix between. Source: Luong et al. 2015, §3.1, eq 8."""

    kind: Literal["general"] = "general"


class ConcatScore(Config):
    """A vector times the tanh of a map of both. Source: Luong et al. 2015, §3.1, eq 8; Bahdanau et al. 2015, A.1.2."""

    kind: Literal["concat"] = "concat"
    width: int | None = Field(default=None, gt=0)
    """Width behind the map; None: as wide as the model."""


Score = Annotated[DotScore | GeneralScore | ConcatScore, Field(discriminator="kind")]
"""How well a place of the source suits the decoder."""


class GlobalReach(Config):
    """All words of the source. Source: Luong et al. 2015, §3.1."""

    kind: Literal["global"] = "global"


class LocalMonotonic(Config):
    """Words around the place in the source that the target word has in the target (local-m).

    Source: Luong et al. 2015, §3.2.
    """

    kind: Literal["local_monotonic"] = "local_monotonic"
    reach: int = Field(default=10, gt=0)
    """Words on either side, D in the paper."""


class LocalPredictive(Config):
    """Words around a place that the decoder predicts, weighted by a Gaussian of deviation `reach / 2` (local-p).

    Source: Luong et al. 2015, §3.2, eq 9–10.
    """

    kind: Literal["local_predictive"] = "local_predictive"
    reach: int = Field(default=10, gt=0)
    """Words on either side, D in the paper."""
    width: int | None = Field(default=None, gt=0)
    """Width of the layer that predicts the place; None: as wide as the model."""


Reach = Annotated[GlobalReach | LocalMonotonic | LocalPredictive, Field(discriminator="kind")]
"""Which words of the source take part."""


class StateReadout(Config):
    """The layer gives the cell's output as it is."""

    kind: Literal["state"] = "state"


class DeepOutput(Config):
    """The layer gives a maxout, over pairs, of maps of its output, its input and the context.

    Source: Bahdanau et al. 2015, A.2.2, arXiv:1409.0473; with the state s_i as in its §3.1, where A.2.2 writes s_{i-1}.
    """

    kind: Literal["deep"] = "deep"


class Bahdanau(Config):
    """Attention by the state before the step; what it finds enters the cell beside the word (additive attention).

    Source: Bahdanau et al. 2015, §3.1 and A.1.2, arXiv:1409.0473.
    """

    kind: Literal["bahdanau"] = "bahdanau"
    score: ConcatScore = ConcatScore()
    """The alignment model."""
    readout: Annotated[StateReadout | DeepOutput, Field(discriminator="kind")] = StateReadout()
    """What the layer gives."""


class Luong(Config):
    """Attention by the state after the step; a map of state and context is what the layer gives.

    Source: Luong et al. 2015, §3, eq 5 and 7–10, arXiv:1508.04025.
    """

    kind: Literal["luong"] = "luong"
    score: Score = GeneralScore()
    """How places are compared."""
    reach: Reach = GlobalReach()
    """Which places are."""
    input_feeding: bool = True
    """Whether the vector that a step gives enters the cell at the next step, beside the word. Source: §3.3."""


Alignment = Annotated[Bahdanau | Luong, Field(discriminator="kind")]
"""Attention inside a recurrence."""
