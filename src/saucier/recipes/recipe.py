"""`Recipe`: everything about one run as data, from the text to the samples. The files are beside this one."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Literal

from pydantic import Field

from saucier.config import Transformer
from saucier.config.base import Config
from saucier.objectives.config import ObjectiveConfig
from saucier.recipes.blueprints import Blueprint, Family
from saucier.text.config import Bytes, Characters, Data, TextData, TokenizerConfig
from saucier.training.config import Training

CHARACTERS = 128
"""The vocabulary that is assumed of a character tokenizer before the text is read."""

Baseline = Literal["unigram", "ngram", "xz"]


class Claims(Config):
    """Figures that a recipe stands for; tests and benchmarks hold it to them."""

    parameters: int | None = None
    """Parameters of the published model, without what its authors do not count."""
    encoder_parameters: int | None = None
    """Parameters without the pretraining head, where that is what was published (BERT)."""
    bits_per_byte: float | None = None
    """At most so many bits per byte on held-out text, on the recipe's own data."""
    loss: float | None = None
    """At most this loss on held-out text, in nats a token."""
    bleu: float | None = None
    """At least this BLEU on held-out pairs."""


class Evaluation(Config):
    """What is measured on held-out text after training."""

    baselines: tuple[Baseline, ...] = ("unigram", "ngram", "xz")
    """What the model is compared with on running text."""
    batch: int = Field(default=16, gt=0)
    """Rows in one forward pass."""
    stride: int | None = Field(default=None, gt=0)
    """Causal models: score rows that overlap, each this many tokens after the last, so that more context is known; None: no overlap."""
    tokens_while_training: int | None = Field(default=100_000, gt=0)
    """About so many held-out tokens are scored at each evaluation in training; None: all. The last evaluation is always of all."""
    beams: int = Field(default=4, gt=0)
    """Beams when translations are scored."""
    length_penalty: float = 1.0
    """Exponent of the length that a beam's score is divided by."""
    limit: int | None = Field(default=None, gt=0)
    """Score the translations of so many pairs only."""


class Sampling(Config):
    """What is generated for samples.txt and the report."""

    prompts: tuple[str, ...] = ()
    """Texts to continue; none: the beginnings of held-out documents."""
    samples: int = Field(default=3, ge=0)
    """How many held-out texts are taken where there are no prompts."""
    prompt_tokens: int = Field(default=16, gt=0)
    """How much of a held-out document is given."""
    tokens: int = Field(default=200, gt=0)
    """The most new tokens."""
    temperature: float = Field(default=0.8, ge=0)
    """0 takes the likeliest token every time."""
    top_k: int | None = Field(default=None, gt=0)
    top_p: float | None = Field(default=0.95, gt=0, le=1)
    repetition_penalty: float = Field(default=1.0, gt=0)
    seed: int = Field(default=0, ge=0)


class Recipe(Config):
    """Everything about one run as data."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]*$")
    about: str
    """One sentence for the table of recipes."""
    paper: str = ""
    """Who published it, and where."""
    year: int | None = None
    book: tuple[str, ...] = ()
    """Rows of the Book that the recipe serves."""
    claims: Claims = Claims()
    blueprint: Blueprint = Field(alias="model")
    """The architecture, as it is written in the file."""
    tokenizer: TokenizerConfig
    data: Data = TextData()
    objective: ObjectiveConfig
    training: Training
    evaluation: Evaluation = Evaluation()
    sampling: Sampling = Sampling()

    @property
    def family(self) -> str:
        """The family of the model, or `own` for a whole tree."""
        return self.blueprint.family if isinstance(self.blueprint, Family) else "own"

    @property
    def vocab(self) -> int:
        """The size of the vocabulary as far as it is known before the text is read."""
        match self.tokenizer:
            case Characters():
                return CHARACTERS
            case Bytes(special=special):
                names = (special.pad, special.unk, special.bos, special.eos, special.cls, special.sep, special.mask)
                return 256 + sum(name is not None for name in names) + len(special.extra) + special.sentinels
            case tokenizer:
                return tokenizer.vocab

    @cached_property
    def model(self) -> Transformer:
        """The config tree of the model, with the vocabulary that the recipe says."""
        return self.model_for(self.vocab)

    def model_for(self, vocab: int) -> Transformer:
        """Return the config tree for a tokenizer of this size; it is used where the recipe names no vocabulary of the model."""
        return self.blueprint.tree(vocab) if isinstance(self.blueprint, Family) else self.blueprint

    def as_dict(self) -> dict[str, Any]:
        """Return all values, as they stand in a file."""
        return self.model_dump(mode="json", by_alias=True)
