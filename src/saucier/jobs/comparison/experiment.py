"""A comparison as data: recipes with their changes, an equal budget, seeds, and a judge; from a file or a command line.

No torch.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter

from saucier.arguments import is_override
from saucier.config.base import Config
from saucier.errors import InputError, suggest_name
from saucier.files import is_file, path_exists
from saucier.objectives.config import ObjectiveConfig
from saucier.recipes import names, recipe
from saucier.recipes.catalogue import file_text
from saucier.recipes.source import Source, read_override, read_yaml
from saucier.recipes.validation import validate_config

Positive = Annotated[float, Field(gt=0)]
ARM_NAME = r"^[A-Za-z0-9][A-Za-z0-9._+-]*$"


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

    name: str = Field(pattern=ARM_NAME)
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

    name: str = Field(default="comparison", pattern=ARM_NAME)
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


JUDGE_KINDS = ("flops", "tokens", "seconds", "parameters")
FILE_WORDS = (".yaml", ".yml")


Changes = dict[str, Any]


def sort_words(words: Iterable[str], data: Sequence[str],
               held_out: Sequence[str]) -> tuple[list[str], Changes, dict[str, Changes]]:
    """Tell recipes, `key=value`, `NAME:key=value` and the files that follow `--data` from each other.

    Returns (recipes, changes for all arms, changes for one arm by its name). Files of text are among the changes, as
    paths that mean the same from everywhere.
    """
    recipes: list[str] = []
    changes: Changes = {}
    own: dict[str, Changes] = {}
    files = list(data)
    for word in words:
        arm, colon, change = word.partition(":")
        if is_override(word):
            changes.update([read_override(word)])
        elif colon and is_override(change) and "=" not in arm:
            own.setdefault(arm, {}).update([read_override(change)])
        elif not data or word in names() or word.endswith(FILE_WORDS) or is_file(Path(word) / "recipe.yaml") \
                or (re.fullmatch(r"[\w-]+", word) and not path_exists(word)):  # no file, and like a recipe's name
            recipes.append(word)
        else:
            files.append(word)
    if files:
        changes["data.files"] = [str(Path(name).absolute()) for name in files]
    if held_out:
        changes["data.held_out"] = {"kind": "files", "files": [str(Path(name).absolute()) for name in held_out]}
    return recipes, changes, own


def read_experiment(words: Iterable[str], options: dict[str, Any], data: Sequence[str] = (),
                    held_out: Sequence[str] = ()) -> Experiment:
    """Return what is to be compared: recipes or a study, and changes to them, by the words of a command line.

    `options` are fields of the experiment that the command line gives; `data`, `held_out`: files of text.
    Raises `InputError` for a study with a fault, for a name that is no arm's, and for fewer than two recipes.
    """
    recipes, changes, own_changes = sort_words(words, data, held_out)
    source = read_comparison_file(recipes) or Source("command line", {"arms": name_arms(recipes)})
    values = source.values | {key: value for key, value in options.items() if value is not None}
    if "budget" not in values:
        raise InputError("there is no budget", where="--budget", remedy="give one, such as tokens=2e6 or seconds=120")
    own = values.get("changes") or {}
    values["changes"] = own | changes if isinstance(own, dict) else own  # the check refuses what is no mapping
    if options.get("judge"):
        own, given = source.values.get("judge"), options["judge"]
        values["judge"] = {"kind": given.kind} | given.model_dump(exclude_unset=True)
        if isinstance(own, dict) and own.get("kind") == given.kind:  # a comparison's `epochs` or `limit` stay
            values["judge"] = own | values["judge"]
    source.values = values
    return add_arm_changes(validate_config(source, Experiment), own_changes)


def read_comparison_file(recipes: Sequence[str]) -> Source | None:
    """Read the study file where one was named, alone; a file with `arms:` is a study."""
    if not recipes or not recipes[0].endswith(FILE_WORDS):
        return None
    source = read_yaml(file_text(Path(recipes[0])), recipes[0])
    if "arms" not in source.values:
        return None
    if len(recipes) > 1:
        raise InputError(f"{recipes[1]!r} stands beside a study, which names all that it compares",
                         where="command line", remedy="add it to the study's arms, or leave one out")
    for arm in source.values["arms"] if isinstance(source.values["arms"], list) else ():
        if isinstance(arm, dict) and str(arm.get("recipe", "")).endswith(FILE_WORDS):
            arm["recipe"] = str(Path(recipes[0]).parent / arm["recipe"])
    return source


def name_arms(recipes: Sequence[str]) -> list[dict[str, Any]]:
    """Name the arms after their recipes; one that comes again gets a number."""
    if len(recipes) < 2:
        raise InputError(f"{len(recipes)} recipe" + "s" * (not recipes), where="saucier compare",
                         remedy="give two or more to compare, or a study file")
    found: dict[str, dict[str, Any]] = {}
    for word in recipes:
        file = str(Path(word) / "recipe.yaml") if is_file(Path(word) / "recipe.yaml") else word
        base, number = recipe(file).name, 1
        while (name := base if number == 1 else f"{base}-{number}") in found:
            number += 1
        found[name] = {"name": name, "recipe": file}
    return list(found.values())


def add_arm_changes(found: Experiment, own: dict[str, dict[str, Any]]) -> Experiment:
    """Put the changes for single arms in. Raises `InputError` for a name that is no arm's, or that of two."""
    known = [arm.name for arm in found.arms]
    for name in own:
        if name not in known:
            raise InputError(f"nothing that is compared has the name {name!r}", where=f"command line: {name}:...",
                             remedy=suggest_name(name, known))
    for name in known:
        if known.count(name) > 1:
            raise InputError(f"two arms have the name {name!r}", where="arms", remedy="give each its own")
    return found.model_copy(update={"arms": tuple(
        arm.model_copy(update={"changes": arm.changes | own.get(arm.name, {})}) for arm in found.arms)})


def read_budget(text: str) -> Budget:
    """Read `unit=amount`. Raises `InputError` for an unknown unit and for an amount that is no number above zero."""
    kind, _, amount = text.partition("=")
    if kind not in JUDGE_KINDS:
        raise InputError(f"unknown budget {kind!r}", where="--budget",
                         remedy=suggest_name(kind, list(JUDGE_KINDS)) + "; write it as tokens=2e6")
    try:
        found: Budget = TypeAdapter(Budget).validate_python({"kind": kind, "amount": float(amount)})
    except ValueError:  # pydantic's is one, too
        raise InputError(f"{amount!r} is no number above zero", where=f"--budget {kind}",
                         remedy=f"write {kind}=2e6") from None
    return found


def read_judge(text: str) -> Judge:
    """Read `loss`, `classify:TRAIN,DEV` or `tag:TRAIN,DEV`. Raises `InputError` for anything else."""
    kind, _, files = text.partition(":")
    match kind, files.split(","):
        case "loss", [""]:
            return HeldOutLoss()
        case "classify", [train, dev] if train and dev:
            return Classification(train=train, dev=dev)
        case "tag", [train, dev] if train and dev:
            return Tagging(train=train, dev=dev)
        case _:
            raise InputError(f"no judge is called {text!r}", where="--judge",
                             remedy="write loss, classify:TRAIN.tsv,DEV.tsv or tag:TRAIN.tsv,DEV.tsv")
