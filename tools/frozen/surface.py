"""Parts `schemas`, `recipes`, `names`, `verbs`: what people write in files, in Python and on the command line.

A setting is called by its path in the file, with the `kind` of each choice on the way, so that renaming a class inside
the package changes nothing here, and renaming a key does.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator, Mapping
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
TAGS = ("kind", "family")
"""Keys that tell apart what may stand in one slot."""
CHOICES = ("oneOf", "anyOf")
Schema = dict[str, Any]
Part = tuple[str, str]
"""The name of a class in a schema, and one of its kinds."""


def schemas() -> Iterator[tuple[str, Item]]:
    """Yield every key of every document: its type, its limits and its default."""
    for name, kind in DOCUMENTS.items():
        found = kind.model_json_schema() if isinstance(kind, type) and issubclass(kind, BaseModel) else \
            TypeAdapter(kind).json_schema()
        yield from keys(f"schemas/{name}", Parts(found.get("$defs", {})), found)


class Parts:
    """The parts that a schema defines: each `kind` is a part, whether a class has one kind or several.

    So it does not matter how kinds are grouped into classes, nor which class is used in several slots: parts of the
    same kind whose keys are the same, those of the parts below them too, are one. What classes and fields say to people
    (`TELLING`) is not compared: a class of several kinds says in one docstring what each of them means.
    """

    def __init__(self, definitions: dict[str, Schema]) -> None:
        """Take the definitions apart by kind, and find out which parts are the same."""
        self.kinds = {name: kinds_of(part) for name, part in definitions.items()}
        self.nodes = {(name, kind): of_kind(part, kind) for name, part in definitions.items()
                      for kind in self.kinds[name]}
        self.optional = {name for name, part in definitions.items()
                         if any("default" in part.get("properties", {}).get(key, {}) for key in TAGS)}
        self.same = dict.fromkeys(self.nodes, "")
        for _ in range(len(self.nodes)):
            found = {part: digest(part[1], self.plain(node, self.same)) for part, node in self.nodes.items()}
            settled = len({*found.values()}) == len({*self.same.values()})
            self.same = found
            if settled:
                break

    def below(self, value: Any) -> Iterator[Part]:
        """Yield the parts that a schema refers to."""
        if isinstance(value, dict):
            if "$ref" in value:
                name = value["$ref"].removeprefix("#/$defs/")
                yield from ((name, kind) for kind in self.kinds[name])
            for key, inner in value.items():
                yield from self.below(inner) if key not in TELLING else ()
        elif isinstance(value, list):
            for inner in value:
                yield from self.below(inner)

    def plain(self, value: Any, names: Mapping[Part, str]) -> Any:
        """Return a schema without words for people; what a slot may hold is a list of parts, by their names."""
        if isinstance(value, list):
            return [self.plain(inner, names) for inner in value]
        if not isinstance(value, dict):
            return value
        rest = {key: self.plain(inner, names) for key, inner in value.items()
                if key not in (*CHOICES, "$ref") and (key not in TELLING or not isinstance(inner, str | dict))}
        taken = [*self.taken(value)]
        if not taken:
            return rest
        rest["as"] = sorted({names[part] for _, part in taken})
        if others := [self.plain(one, names) for one in self.others(value)]:
            rest["or"] = others
        if any(kind for _, (_, kind) in taken):  # several classes, or one of several kinds: it must be said which
            untold = all(name in self.optional and not told for told, (name, _) in taken)
            rest["kind"] = "optional" if untold else "required"
        return rest

    def taken(self, value: Schema, *, told: bool = False) -> Iterator[tuple[bool, Part]]:
        """Yield the parts that may stand in a slot itself, and whether the slot tells them apart by their kinds."""
        told = told or "discriminator" in value
        if "$ref" in value:
            yield from ((told, part) for part in self.below({"$ref": value["$ref"]}))
        for key in CHOICES:
            for one in value.get(key, ()):
                yield from self.taken(one, told=told)

    def others(self, value: Schema) -> Iterator[Schema]:
        """Yield what else may stand in a slot, such as nothing or a number."""
        for one in (one for key in CHOICES for one in value.get(key, ())):
            if any(inner in one for inner in CHOICES):
                yield from self.others(one)
            elif "$ref" not in one:
                yield one


def kinds_of(part: Schema) -> list[str]:
    """Return the kinds of a class of parts; one without a name where it has none."""
    tags = [part["properties"][key] for key in TAGS if key in part.get("properties", {})]
    found = [str(one) for tag in tags for one in (tag.get("enum") or ([tag["const"]] if "const" in tag else []))]
    return sorted(found) or [""]


def of_kind(part: Schema, kind: str) -> Schema:
    """Return the keys of one kind of part."""
    own = {key: value for key, value in part.get("properties", {}).items() if key not in TAGS}
    told = {key: {"const": kind} for key in TAGS if kind and key in part.get("properties", {})}
    rest = {key: value for key, value in part.items() if key not in ("properties", "required")}
    return rest | {"properties": told | own, "required": [key for key in part.get("required", ()) if key not in told]}


def keys(name: str, parts: Parts, schema: Schema) -> Iterator[tuple[str, Item]]:
    """Yield the keys of one document, breadth first; a part that comes again is named by its first place."""
    homes: dict[Part, str] = {}
    queue = [(name, schema)]
    while queue:
        place, node = queue.pop(0)
        given = node.get("properties") or {"": {key: value for key, value in node.items() if key != "$defs"}}
        for key, value in given.items():
            path = f"{place}/{key}" if place == name else f"{place}.{key}"
            for part in sorted(parts.below(value), key=lambda one: (one[1], parts.same[one])):
                if part not in homes:
                    home = f"{path}[{part[1]}]"
                    homes |= {one: home.removeprefix(f"{name}/") for one, same in parts.same.items()
                              if same == parts.same[part]}
                    queue.append((home, parts.nodes[part]))
            required = {"required": True} if key in node.get("required", ()) else {}
            yield path.rstrip("/."), short(parts.plain(value, homes) | required, most=160)


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
        plain = re.sub("<(function|property) .*? at 0x[0-9a-f]*>", r"a \1", told)
        return f"({plain})"
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
