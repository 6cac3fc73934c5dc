"""How a text is written, as data: greedily, with beams, by sampling, by Markov chains, or by Mask-Predict.

Tasks, jobs and the command line choose one of these; `options` gives what it asks of `saucier.generate`, under the flat
names that transformers has. No torch.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from saucier.config.base import Config


class Greedy(Config):
    """Always the likeliest token."""

    kind: Literal["greedy"] = "greedy"

    def options(self) -> dict[str, Any]:
        """Return the same under the names of `saucier.generate`; so in every way to choose tokens."""
        return {"num_beams": 1, "do_sample": False}


class Beams(Config):
    """The likeliest of several texts that are written side by side."""

    kind: Literal["beams"] = "beams"
    beams: int = Field(default=4, gt=1)
    """Texts that are kept."""
    length_penalty: float = 1.0
    """A text scores its log probability divided by its tokens to this power."""

    def options(self) -> dict[str, Any]:
        """Return the same under the names of `saucier.generate`."""
        return {"num_beams": self.beams, "length_penalty": self.length_penalty, "early_stopping": True,
                "do_sample": False}


class Sampling(Config):
    """Tokens are drawn from the model's distribution."""

    kind: Literal["sampling"] = "sampling"
    temperature: float = Field(default=1.0, gt=0)
    """Scores are divided by it."""
    top_k: int | None = Field(default=None, gt=0)
    """From the k likeliest tokens only; None: from all."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    """From the smallest set of tokens that holds this probability."""
    seed: int = Field(default=0, ge=0)
    """Draws them."""

    def options(self) -> dict[str, Any]:
        """Return the same under the names of `saucier.generate`."""
        return {"num_beams": 1, "do_sample": True, "temperature": self.temperature, "top_k": self.top_k or 0,
                "top_p": self.top_p, "seed": self.seed}


LeftToRight = Annotated[Greedy | Beams | Sampling, Field(discriminator="kind")]
"""How a text is written from left to right."""


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

    def options(self) -> dict[str, Any]:
        """Return the same under the names of `saucier.generate`."""
        return {"strategy": self}


Decoding = LeftToRight | MaskPredict
"""How a text is written, from left to right or whole."""
ChainStrategy = Gibbs | MetropolisHastings
Strategy = Annotated[ChainStrategy | MaskPredict, Field(discriminator="kind")]
"""How a text is written, where not from left to right."""


class Native(Config):
    """The step of one token by kernels in C (`saucier.native`), its matrices read in this number format.

    A model in few bits keeps its numbers. Activations are rounded to 8 bits where matrices are whole numbers.
    """

    kind: Literal["native"] = "native"
    format: Literal["float32", "bfloat16", "int8", "int4"] = "float32"
    """bfloat16: 16 bits; int8: one scale for each row; int4: one for each 32 inputs of a row."""
    vocabulary_map: str | None = None
    """File of the target tokens that may be written, by the tokens of the source (`saucier.generation.VocabularyMap`);
    the others get the score -∞. None: all tokens may."""


class Thorough(Config):
    """A text that some source wrote counts with its chance under every source: Σ_z p(z) p(y | z).

    Source: Lewis et al. 2020, §2.5 ("thorough decoding"), arXiv:2005.11401.
    """

    kind: Literal["thorough"] = "thorough"


class Fast(Config):
    """A text counts with its chance under the sources whose search found it; under the others it counts as 0.

    Source: Lewis et al. 2020, §2.5 ("fast decoding").
    """

    kind: Literal["fast"] = "fast"


HypothesisScoring = Annotated[Thorough | Fast, Field(discriminator="kind")]
"""How texts that several sources wrote are weighed against each other."""
