"""What a prompting task is, as data: its files, its wording, and how an answer is taken from the model. No torch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from saucier.config.base import Config
from saucier.errors import InputError
from saucier.recipes.faults import validated
from saucier.recipes.reading import read_yaml


class WholeSum(Config):
    """The choice whose tokens have the largest probability together; long ones are at a disadvantage."""

    kind: Literal["sum"] = "sum"


class PerToken(Config):
    """The largest mean log-probability of a token. Source: Brown et al. 2020, §2.4, arXiv:2005.14165."""

    kind: Literal["token"] = "token"


class PerByte(Config):
    """The largest log-probability for a UTF-8 byte of the answer, so that tokenizers can be compared."""

    kind: Literal["byte"] = "byte"


class Unconditional(Config):
    """The choice that the question makes likelier by most: P(answer | prompt) / P(answer | `prompt` below).

    Source: Brown et al. 2020, §2.4, arXiv:2005.14165.
    """

    kind: Literal["unconditional"] = "unconditional"
    prompt: str = Field(default="Answer:", min_length=1)
    """What stands before the answer where no question does."""


Normalization = Annotated[WholeSum | PerToken | PerByte | Unconditional, Field(discriminator="kind")]
"""How the likelihoods of choices of different length are compared."""


class Likelihood(Config):
    """The likeliest of the choices is the answer."""

    kind: Literal["likelihood"] = "likelihood"
    normalization: Normalization = PerToken()
    """How choices of different length are compared."""


class Writing(Config):
    """What the model writes, greedily, is the answer."""

    kind: Literal["generation"] = "generation"
    tokens: int = Field(default=32, gt=0)
    """The most it may write."""
    stop: tuple[str, ...] = ("\n",)
    """The answer ends before the first of these."""
    scored_as: Literal["spans", "texts", "classes", "numbers"] = "spans"
    """By which metrics: those of answers (exact match and F1 as SQuAD's), texts, classes or numbers."""


class PromptTask(Config):
    """A task of questions with known answers, and the words in which a model is asked."""

    name: str = Field(min_length=1)
    """What it is called."""
    evaluate: str
    """The labelled file that is asked about; beside the task's own file where the path is relative."""
    train: str | None = None
    """The labelled file that solved examples are drawn from; without it only the zero-shot prompt is possible."""
    template: str = Field(min_length=1)
    """The prompt of a row, in Jinja: its columns by name. The answer follows it directly."""
    answer: str = " {{ answer }}"
    """How an answer is written behind the prompt, in Jinja: `answer` is the choice's text, or the gold's."""
    gold: str
    """The column that holds the right answer: a value of `labels`, the number of a choice from 0, or a text."""
    choices: tuple[str, ...] | str | None = None
    """The texts of the choices, or the column that holds each row's own."""
    labels: tuple[str, ...] | None = None
    """The values of the gold column, in the order of `choices`, where they are not numbers or the texts themselves."""
    instruction: str = ""
    """What stands before everything."""
    separator: str = "\n\n"
    """What stands between examples."""
    balanced: bool = False
    """Draw as many examples of each gold answer, as far as their number allows."""
    by: Annotated[Likelihood | Writing, Field(discriminator="kind")] = Likelihood()
    """How the answer is taken."""

    @model_validator(mode="after")
    def _fits(self) -> PromptTask:
        if isinstance(self.by, Likelihood) and self.choices is None:
            raise ValueError("choices are compared, and there are none: add `choices:`, or `by: {kind: generation}`")
        if isinstance(self.choices, tuple) and not 1 < len(set(self.choices)) == len(self.choices):
            raise ValueError("`choices:` are two texts or more, each another one")
        if self.labels is not None and (not isinstance(self.choices, tuple) or len(self.labels) != len(self.choices)):
            raise ValueError("`labels:` name the choices one by one, so there must be as many")
        return self


def read_task(path: Path) -> PromptTask:
    """Read a task from a YAML file; its data files stand beside it.

    Errors: `InputError` with the line of every key that is wrong.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise InputError("there is no such file", where=str(path), remedy="give a YAML file") from error
    except (OSError, UnicodeDecodeError) as error:
        raise InputError("cannot be read as text", where=str(path), remedy="give a YAML file") from error
    source = read_yaml(text, str(path))
    found = validated(source, PromptTask)
    return found.model_copy(update=beside(found, path.parent))


def beside(task: PromptTask, folder: Path) -> dict[str, Any]:
    """Return the task's files as seen from its own folder."""
    return {name: str(folder / value) for name in ("evaluate", "train") if (value := getattr(task, name)) is not None}
