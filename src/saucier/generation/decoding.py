"""How a text is written, as one sum type: greedily, by sampling, with beams, by Markov chains, or by Mask-Predict.

`GenerationOptions.decoding` makes one of the flat options that transformers has, and `as_options` turns it back. No
torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field

from saucier.config.base import Config


def accept_kind_name(value: Any) -> Any:
    """Take a name alone for that kind, with the settings that it has where nothing is said."""
    return {"kind": value} if isinstance(value, str) else value


class RandomOrder(Config):
    """Each step draws a place, the same places as often as chance has it."""

    kind: Literal["random"] = "random"


class SequentialOrder(Config):
    """The places come from left to right, over and over."""

    kind: Literal["sequential"] = "sequential"


Order = Annotated[RandomOrder | SequentialOrder, BeforeValidator(accept_kind_name), Field(discriminator="kind")]


class RawScores(Config):
    """The energy of a text is minus the sum of its tokens' logits, each with its own token hidden.

    Source: Goyal et al. 2021, §3.1, eq 2, arXiv:2106.02736.
    """

    kind: Literal["raw"] = "raw"


class LogProbabilities(Config):
    """The energy of a text is minus the sum of its tokens' log probabilities, each with its own token hidden.

    Source: Goyal et al. 2021, §3.1, eq 3, arXiv:2106.02736.
    """

    kind: Literal["normalized"] = "normalized"


Energy = Annotated[RawScores | LogProbabilities, BeforeValidator(accept_kind_name), Field(discriminator="kind")]


class Chain(Config):
    """What all chains have: a text whose mask tokens are the places to be written."""

    mask: int = Field(ge=0)
    """Id of the mask token: where it stands at the start, a token is written; what else stands there stays."""
    steps: int = Field(default=200, gt=0)
    """Single places that are drawn anew, in each text."""
    order: Order = RandomOrder()
    """Which place comes next."""


class Gibbs(Chain):
    """Hide one token, draw it anew given all others, and so on: Gibbs sampling.

    Source: Wang and Cho 2019 (BERT has a mouth), §3, arXiv:1902.04094.
    """

    kind: Literal["gibbs"] = "gibbs"
    burn_in: int | None = Field(default=None, ge=0)
    """The first so many steps draw from the whole distribution; those after it from the `top_k` likeliest tokens, or,
    without `top_k`, take the likeliest (as the paper's code does). None: all steps draw alike."""


class MetropolisHastings(Chain):
    """Propose a token from the masked model's distribution, and take it as the energies of both texts say.

    The chain's stationary distribution is that of the energy, which Gibbs sampling from conditionals that fit no joint
    distribution does not have. Source: Goyal et al. 2021, §3.2, arXiv:2106.02736.
    """

    kind: Literal["metropolis_hastings"] = "metropolis_hastings"
    energy: Energy = LogProbabilities()
    """What the chain's distribution is: exp(-energy), up to a factor."""


class MaskPredict(Config):
    """Write a whole text over mask tokens, hide what is least sure, write that again, and so on.

    The number of hidden tokens falls evenly with the iterations; several lengths are tried, and the text with the
    highest mean log probability stays. What models with a head of kind `length` do where nothing is said.
    Source: Ghazvininejad et al. 2019, §3, arXiv:1904.09324.
    """

    kind: Literal["mask_predict"] = "mask_predict"
    iterations: int = Field(default=10, gt=0)
    """How often the model reads the target; 1 writes every token at once, and none again."""
    length_candidates: int = Field(default=5, gt=0)
    """The likeliest so many lengths are tried."""


@dataclass(frozen=True, slots=True)
class Greedy:
    """Take the likeliest token every time."""

    rows: ClassVar[int] = 1
    """Texts that are written at a time, for each prompt."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """Draw tokens from the model's distribution, or from the likeliest part of it."""

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0
    seed: int | None = None
    texts: int = 1
    """Those that are returned for each prompt."""

    @property
    def rows(self) -> int:
        """Texts that are written at a time, for each prompt."""
        return self.texts


@dataclass(frozen=True, slots=True)
class Beams:
    """Grow several hypotheses for each prompt together, and return the best."""

    beams: int
    length_penalty: float = 1.0
    early_stopping: bool | Literal["never"] = False
    texts: int = 1
    drawn: Sampling | None = None
    """How hypotheses are continued by chance; None: by their likeliest tokens."""

    @property
    def rows(self) -> int:
        """Texts that are written at a time, for each prompt."""
        return self.beams


ChainStrategy = Gibbs | MetropolisHastings


@dataclass(frozen=True, slots=True)
class MarkovChains:
    """Write over the mask tokens of texts, place by place."""

    strategy: ChainStrategy
    drawn: Sampling
    """How a place is drawn, and how many texts of each are written."""


LeftToRight = Greedy | Sampling | Beams
"""How a text is written from left to right."""
Decoding = LeftToRight | MarkovChains | MaskPredict
"""How a text is written."""
Strategy = Annotated[Gibbs | MetropolisHastings | MaskPredict, Field(discriminator="kind")]
"""How a text is written, where not from left to right."""


def as_options(decoding: Decoding) -> dict[str, Any]:
    """Return the options of `generate` that ask for this way of writing."""
    match decoding:
        case Greedy():
            return {"do_sample": False, "num_beams": 1}
        case Sampling(temperature, top_k, top_p, seed, texts):
            return {"do_sample": True, "num_beams": 1, "temperature": temperature, "top_k": top_k or 0, "top_p": top_p,
                    "seed": seed, "num_return_sequences": texts}
        case Beams():
            drawn = {"do_sample": False} if decoding.drawn is None else as_options(decoding.drawn)
            return {**drawn, "num_beams": decoding.beams, "length_penalty": decoding.length_penalty,
                    "early_stopping": decoding.early_stopping, "num_return_sequences": decoding.texts}
        case MarkovChains():
            return as_options(decoding.drawn) | {"strategy": decoding.strategy}
        case MaskPredict():
            return {"strategy": decoding}
