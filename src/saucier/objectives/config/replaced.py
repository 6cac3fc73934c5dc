"""Replaced-token detection, as data: what is learned of the tokens that a generator fills in. Needs no torch."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from saucier.config.base import Config
from saucier.objectives.config.masked import Masked

Share = Annotated[float, Field(gt=0, le=1)]


class OwnTables(Config):
    """Generator and model have nothing in common."""

    kind: Literal["none"] = "none"


class SharedTables(Config):
    """Both read the same tables of tokens, positions and segments. Source: Clark et al. 2020, §3.2."""

    kind: Literal["tables"] = "tables"


class SharedAll(Config):
    """Both have one embedding and one encoder; only the heads differ. Source: Clark et al. 2020, §3.2."""

    kind: Literal["all"] = "all"


class Disentangled(Config):
    """The model's tables are the generator's plus a difference, which alone learns from the model's loss.

    Source: He et al. 2023 (DeBERTa-v3), §3.3 (gradient-disentangled embedding sharing), arXiv:2111.09543.
    """

    kind: Literal["disentangled"] = "disentangled"


class Generator(Config):
    """The small model that fills tokens in: the model's own parts, narrower and shallower."""

    width: Share = 0.25
    """Its width (vectors, heads and feed-forward layers), as a share of the model's."""
    depth: Share = 1.0
    """Its layers, as a share of the model's."""
    sharing: Annotated[OwnTables | SharedTables | SharedAll | Disentangled, Field(discriminator="kind")] = (
        SharedTables())
    """What it has in common with the model."""


class EveryToken(Config):
    """Was this token replaced? Asked of every real token. Source: Clark et al. 2020, §2."""

    kind: Literal["every_token"] = "every_token"


class ChosenTokens(Config):
    """Was this token replaced? Asked of the chosen ones alone. Source: Clark et al. 2020, §3.4, "ELECTRA 15%"."""

    kind: Literal["chosen_tokens"] = "chosen_tokens"


class Originals(Config):
    """What was this token? Asked of the chosen ones, by a language head. Source: same, §3.4, "Replace MLM"."""

    kind: Literal["originals"] = "originals"


class Together(Config):
    """Generator and model learn in every update. Source: Clark et al. 2020, §2."""

    kind: Literal["together"] = "together"


class TwoStages(Config):
    """First the generator learns alone; the model begins with its weights and learns from it as it then is.

    Source: Clark et al. 2020, §3.2.
    """

    kind: Literal["two_stages"] = "two_stages"
    first: Annotated[float, Field(gt=0, lt=1)] = 0.5
    """Share of the training that the generator has."""


class Replaced(Config):
    """Tell the tokens that a generator has filled in from the true ones. Source: Clark et al. 2020, arXiv:2003.10555.

    The generator learns to fill in hidden tokens; what it draws for them is given to the model.
    """

    kind: Literal["replaced"] = "replaced"
    masking: Masked = Masked(mask=0.85, random=0.0)
    """Which tokens are chosen, and what the generator sees of them; a token that it sees is drawn anew too.

    The paper's text hides all of them, its code 85%.
    """
    generator: Generator = Generator()
    """Its size, and what it shares."""
    learns: Annotated[EveryToken | ChosenTokens | Originals, Field(discriminator="kind")] = EveryToken()
    """What the model is asked."""
    weight: float = Field(default=50.0, gt=0)
    """Factor on the model's loss beside the generator's (λ). Source: Clark et al. 2020, appendix A."""
    stages: Annotated[Together | TwoStages, Field(discriminator="kind")] = Together()
    """Who learns when."""
