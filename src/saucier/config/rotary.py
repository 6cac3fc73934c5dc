"""The choices inside rotary positions: which values turn together, and how a trained model reads longer texts."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from saucier.config.base import Config

Factor = Annotated[float, Field(ge=1)]
Factors = tuple[Annotated[float, Field(gt=0)], ...]


class AcrossHalves(Config):
    """Value i turns with value i + half of the rotated width. Source: Black et al. 2022 (GPT-NeoX), code release."""

    kind: Literal["halves"] = "halves"


class Neighbours(Config):
    """Value 2i turns with value 2i + 1. Source: Su et al. 2021, §3.4.2, eq 34, arXiv:2104.09864; used by GPT-J."""

    kind: Literal["neighbours"] = "neighbours"


Pairs = Annotated[AcrossHalves | Neighbours, Field(discriminator="kind")]
"""Which values of a head turn together; the two differ by a fixed permutation of the head's width."""


class NoScaling(Config):
    """The frequencies as they were trained."""

    kind: Literal["none"] = "none"


class LinearScaling(Config):
    """All positions divided by one factor. Source: Chen et al. 2023, §2.3, eq 4, arXiv:2306.15595."""

    kind: Literal["linear"] = "linear"
    factor: Factor
    """How many times longer the texts are."""


class DynamicScaling(Config):
    """A base that grows with the longest text of the pass, once it is longer than the trained length.

    Source: Peng et al. 2023, §3.3 (dynamic NTK), arXiv:2309.00071.
    """

    kind: Literal["dynamic"] = "dynamic"
    factor: Factor
    """How fast the base grows."""
    length: int = Field(gt=0)
    """The trained length, in tokens."""


class Llama3Scaling(Config):
    """Long waves divided by a factor, short ones kept, with a slope between.

    Source: Grattafiori et al. 2024 (Llama 3), code release of 3.1, arXiv:2407.21783.
    """

    kind: Literal["llama3"] = "llama3"
    factor: Factor
    """How many times longer the texts are."""
    low: float = Field(default=1.0, gt=0)
    """Waves that turn fewer times than this in the trained length are divided."""
    high: float = Field(default=4.0, gt=0)
    """Waves that turn more times than this are kept."""
    length: int = Field(default=8192, gt=0)
    """The trained length, in tokens."""


class Yarn(Config):
    """Waves divided by a factor the more the fewer times they turn, and scores made sharper.

    Source: Peng et al. 2023, §3.2–3.4, arXiv:2309.00071.
    """

    kind: Literal["yarn"] = "yarn"
    factor: Factor
    """How many times longer the texts are (s in the paper)."""
    length: int = Field(gt=0)
    """The trained length, in tokens (L in the paper)."""
    fast: float = Field(default=32.0, gt=0)
    """Waves that turn more times than this in the trained length are kept (β in the paper)."""
    slow: float = Field(default=1.0, gt=0)
    """Waves that turn fewer times are divided (α in the paper)."""
    rounded: bool = True
    """Whether the slope between the two begins and ends at whole pairs."""
    attention: float | None = Field(default=None, gt=0)
    """Factor on rotated queries and on keys (the root of 1/t in the paper); None: 0.1·ln(factor) + 1."""


class LongRope(Config):
    """A divisor for each pair, one set for texts within the trained length and one for longer ones.

    Source: Ding et al. 2024, §3, arXiv:2402.13753.
    """

    kind: Literal["longrope"] = "longrope"
    short: Factors
    """Divisors of the frequencies within the trained length, one for each pair."""
    long: Factors
    """Divisors of the frequencies of a pass with longer texts."""
    length: int = Field(gt=0)
    """The trained length, in tokens."""
    attention: float = Field(default=1.0, gt=0)
    """Factor on rotated queries and on keys."""


Scaling = Annotated[NoScaling | LinearScaling | DynamicScaling | Llama3Scaling | Yarn | LongRope,
                    Field(discriminator="kind")]
"""How frequencies are changed so that a model reads longer texts than it was trained on."""
