"""Parts `schemas`, `recipes`, `names`, `verbs`: what people write in files, in Python and on the command line.

A setting is called by its path in the file, with the `kind` of each choice on the way, so that renaming a class inside
the package changes nothing here, and renaming a key does.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from pydantic import BaseModel, TypeAdapter

import saucier
from saucier.adaptation.surgery import operations as surgery
from saucier.cli import app
from saucier.cost.planning import Plan
from saucier.generation.options import GenerationOptions
from saucier.jobs.comparison.experiment import Experiment
from saucier.jobs.comparison.judging import TrialScores
from saucier.jobs.comparison.outcome import Outcome
from saucier.jobs.comparison.scaling import Fit
from saucier.jobs.finetuning.settings import Finetuning
from saucier.jobs.prompting.questions import PromptTask
from saucier.jobs.run.passport import Passport
from saucier.recipes import Recipe, names, recipe
from saucier.report.results import Results
from saucier.text.cleaning.config import Cleaning
from tools.frozen.items import Exact, Item, digest, short

ROOT = Path(__file__).resolve().parent.parent.parent
DOCUMENTS: dict[str, Any] = {
    "recipe": Recipe, "finetune": Finetuning, "compare": Experiment, "clean": Cleaning, "prompt": PromptTask,
    "generate": GenerationOptions, "evaluation": Results, "plan": Plan, "passport": Passport,
    "comparison": Outcome, "scores": TrialScores, "scaling": Fit,
    **{f"surgery, {one.__name__}": one for one in (
        surgery.Windows, surgery.Blocks, surgery.RandomFeatures, surgery.MixedKeys, surgery.Hashes, surgery.Positions,
        surgery.GroupedHeads, surgery.Layers, surgery.Tokens, surgery.NewTokens)}}
"""What is written to disk or read from it, or given to a function as settings."""
TELLING = ("description", "title", "discriminator")
"""Keys of a schema that say nothing about what is allowed."""


def schemas() -> Iterator[tuple[str, Item]]:
    """Yield every key of every document: its type, its limits and its default."""
    for name, kind in DOCUMENTS.items():
        found = kind.model_json_schema() if isinstance(kind, type) and issubclass(kind, BaseModel) else \
            TypeAdapter(kind).json_schema()
        yield from keys(f"schemas/{name}", found)


def keys(name: str, schema: dict[str, Any]) -> Iterator[tuple[str, Item]]:
    """Yield the keys of one document, breadth first; a part that comes again is named by its first place."""
    parts, homes = schema.get("$defs", {}), dict[str, str]()
    queue = [(name, schema)]
    while queue:
        place, node = queue.pop(0)
        given = node.get("properties") or {"": {key: value for key, value in node.items() if key != "$defs"}}
        for key, value in given.items():
            path = f"{place}/{key}" if place == name else f"{place}.{key}"
            for part in references(value):
                if part not in homes:
                    homes[part] = f"{path}[{told_by(parts[part])}]"
                    queue.append((homes[part], parts[part]))
            required = {"required": True} if key in node.get("required", ()) else {}
            yield path.rstrip("/."), short(plain(value, homes, name) | required, most=160)


def told_by(part: dict[str, Any]) -> str:
    """Return what tells a part from others that may stand in its place; nothing where there are none."""
    told = part.get("properties", {})
    return str(next((told[key]["const"] for key in ("kind", "family") if "const" in told.get(key, {})), ""))


def references(value: Any) -> Iterator[str]:
    """Yield the names of the parts that a schema refers to, in their order."""
    if isinstance(value, dict):
        if "$ref" in value:
            yield value["$ref"].removeprefix("#/$defs/")
        for key, inner in value.items():
            yield from references(inner) if key not in TELLING else ()
    elif isinstance(value, list):
        for inner in value:
            yield from references(inner)


def plain(value: Any, homes: dict[str, str], name: str) -> Any:
    """Return a schema without words for people, whose parts are named by their places."""
    if isinstance(value, dict):
        if "$ref" in value:
            return {"as": homes[value["$ref"].removeprefix("#/$defs/")].removeprefix(f"{name}/")} | {
                key: plain(inner, homes, name) for key, inner in value.items() if key not in ("$ref", *TELLING)}
        return {key: plain(inner, homes, name) for key, inner in value.items()
                if key not in TELLING or not isinstance(inner, str | dict)}
    return [plain(inner, homes, name) for inner in value] if isinstance(value, list) else value


def recipes() -> Iterator[tuple[str, Item]]:
    """Yield every section of every recipe, with every default, and the tree of its model.

    What is None is left out of the tree: a new choice that nobody makes changes none of them.
    """
    for name in names():
        found = recipe(name)
        for key, value in found.as_dict().items():
            if value is not None:
                yield f"recipes/{name}/{key}", short(value, most=60)
        yield f"recipes/{name}/tree", Exact(digest(found.model.model_dump(mode="json", exclude_none=True)))


def public() -> Iterator[tuple[str, Item]]:
    """Yield the public names with their signatures, and every import that the docs show."""
    for name in saucier.__all__:
        yield f"names/saucier.{name}", Exact(signature(getattr(saucier, name)))
    text = "\n".join(path.read_text("utf-8") for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))))
    imports = {(module, word) for module, several, one in
               re.findall(r"^ *from (saucier[\w.]*) import (?:\(([^)]*)\)|(.*))", text, re.M)
               for word in re.findall(r"(\w+)(?: as \w+)?", several or one.split("#")[0])}
    for module, word in sorted(imports):
        yield f"names/{module}.{word}", Exact(signature(getattr(importlib.import_module(module), word)))


def signature(found: Any) -> str:
    """Return the parameters of a function or class, and what else a name is."""
    if inspect.isclass(found) and issubclass(found, BaseModel):
        return f"settings {', '.join(found.model_fields)}"
    if callable(found):
        told = ", ".join(str(one.replace(annotation=inspect.Parameter.empty)) for one in parameters_of(found))
        return f"({re.sub('<function .*? at 0x[0-9a-f]*>', 'a function', told)})"
    return type(found).__name__


def parameters_of(found: Any) -> list[inspect.Parameter]:
    """Return the parameters of something that can be called."""
    try:
        return list(inspect.signature(found).parameters.values())
    except ValueError:  # a class without a signature of its own, such as an exception
        return []


def verbs() -> Iterator[tuple[str, Item]]:
    """Yield the options and arguments of every verb, with their defaults."""
    top: Any = typer.main.get_command(app)
    for name, command in sorted(commands(top)):
        for one in command.params:
            told = " ".join([*one.opts, *one.secondary_opts])
            yield f"verbs/{name}/{told}", short([one.type_descriptor.annotation.__name__ if inspect.isclass(
                one.type_descriptor.annotation) else str(one.type_descriptor.annotation), repr(one.default),
                                                 "required" if one.required else "", one.nargs])


def commands(top: Any, before: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every verb, those inside a group of verbs with the group's name."""
    for name, one in top.commands.items():
        yield from commands(one, f"{before}{name} ") if hasattr(one, "commands") else [(f"{before}{name}", one)]
