"""What a person asks for, as an `Experiment`: the words of a command line, or a study file (YAML with `arms:`)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from saucier.comparison.config import Budget, Classification, Experiment, HeldOutLoss, Judge, Tagging
from saucier.errors import InputError, nearest
from saucier.files import is_file, is_there
from saucier.recipes import names, recipe
from saucier.recipes.catalogue import file_text
from saucier.recipes.faults import validated
from saucier.recipes.overrides import OVERRIDE, is_override
from saucier.recipes.reading import Source, read_value, read_yaml

KINDS = ("flops", "tokens", "seconds", "parameters")
FILES = (".yaml", ".yml")


@dataclass(frozen=True, slots=True)
class Asked:
    """The words of the command line, sorted."""

    recipes: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    changes: dict[str, Any] = field(default_factory=dict)
    """For all arms."""
    own: dict[str, dict[str, Any]] = field(default_factory=dict)
    """For one arm: NAME:key=value."""


def sort_words(words: Iterable[str], data: Sequence[str]) -> Asked:
    """Tell recipes, `key=value`, `NAME:key=value` and the files that follow `--data` from each other."""
    recipes: list[str] = []
    changes: dict[str, Any] = {}
    own: dict[str, dict[str, Any]] = {}
    files = list(data)
    for word in words:
        arm, colon, change = word.partition(":")
        if is_override(word):
            changes.update([assignment(word)])
        elif colon and is_override(change) and "=" not in arm:
            own.setdefault(arm, {}).update([assignment(change)])
        elif is_recipe(word) or not data or is_misspelt(word):
            recipes.append(word)
        else:
            files.append(word)
    return Asked(tuple(recipes), tuple(files), changes, own)


def is_recipe(word: str) -> bool:
    """Whether a word is a recipe's name, its file, or a run folder."""
    return word in names() or word.endswith(FILES) or is_file(Path(word) / "recipe.yaml")


def is_misspelt(word: str) -> bool:
    """Whether a word among the files is none, and looks like the name of a recipe."""
    return not is_there(word) and re.fullmatch(r"[\w-]+", word) is not None


def assignment(text: str) -> tuple[str, Any]:
    """Read `key.sub=value`."""
    found = OVERRIDE.match(text)
    assert found is not None, "it was asked"
    return found[1], read_value(found[2], where=f"command line: {found[1]}")


def experiment(asked: Asked, options: dict[str, Any]) -> Experiment:
    """Return what is to be compared; `options` are fields of the experiment that the command line gives.

    Raises `InputError` for a study with a fault, for a name that is no arm's, and for fewer than two recipes.
    """
    source = study_source(asked) or Source("command line", {"arms": arms_of(asked.recipes)})
    values = source.values | {key: value for key, value in options.items() if value is not None}
    if "budget" not in values:
        raise InputError("there is no budget", where="--budget", remedy="give one, such as tokens=2e6 or seconds=120")
    own = values.get("changes") or {}
    values["changes"] = own | asked.changes if isinstance(own, dict) else own  # the check refuses what is no mapping
    if options.get("judge"):
        values["judge"] = judge_of(source.values.get("judge"), options["judge"])
    source.values = values
    return with_own(validated(source, Experiment), asked.own)


def judge_of(own: Any, given: Judge) -> dict[str, Any]:
    """Return the judge that the command line gives; a study's settings of the same kind stay (`epochs`, `limit`)."""
    values = {"kind": given.kind} | given.model_dump(exclude_unset=True)
    return own | values if isinstance(own, dict) and own.get("kind") == given.kind else values


def study_source(asked: Asked) -> Source | None:
    """Read the study file where one was named, alone; a file with `arms:` is a study."""
    if not asked.recipes or not asked.recipes[0].endswith(FILES):
        return None
    source = read_yaml(file_text(Path(asked.recipes[0])), asked.recipes[0])
    if "arms" not in source.values:
        return None
    if len(asked.recipes) > 1:
        raise InputError(f"{asked.recipes[1]!r} stands beside a study, which names all that it compares",
                         where="command line", remedy="add it to the study's arms, or leave one out")
    beside = Path(asked.recipes[0]).parent
    for arm in source.values["arms"] if isinstance(source.values["arms"], list) else ():
        if isinstance(arm, dict) and str(arm.get("recipe", "")).endswith(FILES):
            arm["recipe"] = str(beside / arm["recipe"])
    return source


def arms_of(recipes: Sequence[str]) -> list[dict[str, Any]]:
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


def with_own(found: Experiment, own: dict[str, dict[str, Any]]) -> Experiment:
    """Put the changes for single arms in. Raises `InputError` for a name that is no arm's, or that of two."""
    known = [arm.name for arm in found.arms]
    for name in own:
        if name not in known:
            raise InputError(f"nothing that is compared has the name {name!r}", where=f"command line: {name}:...",
                             remedy=nearest(name, known))
    for name in known:
        if known.count(name) > 1:
            raise InputError(f"two arms have the name {name!r}", where="arms", remedy="give each its own")
    arms = tuple(arm.model_copy(update={"changes": arm.changes | own.get(arm.name, {})}) for arm in found.arms)
    return found.model_copy(update={"arms": arms})


def read_budget(text: str) -> Budget:
    """Read `unit=amount`. Raises `InputError` for an unknown unit and for an amount that is no number above zero."""
    kind, _, amount = text.partition("=")
    if kind not in KINDS:
        raise InputError(f"unknown budget {kind!r}", where="--budget",
                         remedy=nearest(kind, list(KINDS)) + "; write it as tokens=2e6")
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


def with_data(asked: Asked, held_out: Sequence[str]) -> Asked:
    """Put the files of text among the changes for all arms, as paths that mean the same from everywhere."""
    changes = dict(asked.changes)
    if asked.files:
        changes["data.files"] = [str(Path(name).absolute()) for name in asked.files]
    if held_out:
        changes["data.held_out"] = {"kind": "files", "files": [str(Path(name).absolute()) for name in held_out]}
    return replace(asked, changes=changes)
