"""A comparison as data: recipes with their changes, an equal budget, seeds, and what they are judged by. No torch."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from saucier.config.base import Config
from saucier.objectives.config import ObjectiveConfig

Positive = Annotated[float, Field(gt=0)]
NAME = r"^[A-Za-z0-9][A-Za-z0-9._+-]*$"


class Flops(Config):
    """Equal work: floating-point operations of training, forward and backward, by our own count of each model."""

    kind: Literal["flops"] = "flops"
    amount: Positive
    """Of one run."""


class Tokens(Config):
    """Equal text: tokens that are read in training, before anything is hidden or dropped; with repetitions."""

    kind: Literal["tokens"] = "tokens"
    amount: Positive
    """Of one run."""


class Seconds(Config):
    """Equal time on this machine: the steps follow from a measurement, and training stops when the time is over."""

    kind: Literal["seconds"] = "seconds"
    amount: Positive
    """Of one run, evaluations included."""


class Parameters(Config):
    """Equal size: the width of each model is chosen nearest to it; the steps are those of the recipe."""

    kind: Literal["parameters"] = "parameters"
    amount: Positive
    """Of one model, tied ones counted once."""


Budget = Annotated[Flops | Tokens | Seconds | Parameters, Field(discriminator="kind")]


class HeldOutLoss(Config):
    """The loss on held-out text: bits per byte of language models, else nats a target. Says nothing between objectives
    that differ, since their targets do."""

    kind: Literal["loss"] = "loss"


class Adaptation(Config):
    """The loss of one objective, after every model has gone on to learn that for a while: as little of it as shows
    what else was learned before. Those that learned much the same before are ahead.

    Source: Lester et al. 2021, §3.1 (LM adaptation), arXiv:2104.08691.
    """

    kind: Literal["adapt"] = "adapt"
    objective: ObjectiveConfig
    """What every model goes on to learn, and is asked for."""
    steps: int = Field(default=100, gt=0)
    """Updates, by the recipe's optimizer and schedule, on the same text in the same order."""


class FineTuned(Config):
    """Accuracy after fine-tuning; every model gets the same rows in the same order."""

    train: str
    """A file to fine-tune on."""
    dev: str
    """Another one, to score."""
    epochs: int = Field(default=3, gt=0)
    """How often the rows are seen."""
    batch: int = Field(default=32, gt=0)
    """Rows in an update."""
    learning_rate: float = Field(default=5e-4, gt=0)
    """Of AdamW; it rises over a tenth of the steps and falls to zero."""
    limit: int | None = Field(default=None, gt=0)
    """Fine-tune on so many rows only, the first ones."""


class Classification(FineTuned):
    """Of labelled texts, tables with the columns `label` and `text`: the model's encoder (or decoder), the mean of its
    vectors, and a new linear map."""

    kind: Literal["classify"] = "classify"


class Tagging(FineTuned):
    """Of words, sentences with a word and its tag on each line, as `saucier finetune tagging` learns them."""

    kind: Literal["tag"] = "tag"


Judge = Annotated[HeldOutLoss | Adaptation | Classification | Tagging, Field(discriminator="kind")]


class Arm(Config):
    """One of the things that are compared."""

    name: str = Field(pattern=NAME)
    """Also that of its folder."""
    recipe: str
    """A recipe's name or file."""
    changes: dict[str, Any] = Field(default_factory=dict)
    """Changes to the recipe, such as `training.batch: 8`."""
    budget: Budget | None = None
    """A budget of its own; None: that of the comparison."""
    published: float | None = None
    """The figure that the paper reports."""


class Published(Config):
    """What the arms' published figures are."""

    paper: str
    """Who published them, and where."""
    measure: str
    """What was measured."""
    better: Literal["higher", "lower"] = "higher"
    """Which way is better."""


class Experiment(Config):
    """The whole of a comparison."""

    name: str = Field(default="comparison", pattern=NAME)
    """Also that of its folder."""
    about: str = ""
    """What it asks, in a sentence."""
    published: Published | None = None
    """The published study that it repeats."""
    arms: tuple[Arm, ...] = Field(min_length=1)
    """What is compared."""
    changes: dict[str, Any] = Field(default_factory=dict)
    """Changes to the recipes of all arms."""
    budget: Budget
    """What every arm may spend."""
    seeds: int = Field(default=3, ge=1)
    """Runs of each arm; run i of every arm has seed i: the same order of the data."""
    judge: Judge = HeldOutLoss()
    """What the runs are judged by."""
    own_tokenizers: bool = False
    """Each recipe trains its own tokenizer; else one is trained for all, the first recipe's, with the special tokens
    that the others need."""
