"""The first page of the site's reference: the public functions, from their signatures and the help in them."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from textwrap import fill
from typing import Any

import saucier
from saucier.arguments import Help, describe_kind, split_annotation
from saucier.table import Table

TITLES = {"saucier.api.training": "Train", "saucier.api.inference": "Use",
          "saucier.api.measuring": "Look inside and measure", "saucier.api.inspection": "Look inside and measure",
          "saucier.api.models": "Model folders", "saucier.api.text": "Text and tokenizers"}
"""What the functions of a module are for, in the order of the page, after the core: those of all other modules."""
CORE = "The core"
FOR_PYTHON = "From Python: "
INTRODUCTION = """# Public functions

Everything on this page is a name of `saucier`: `saucier.cook(...)`. What the command line does is done by one of these
functions, with the same arguments; each is imported when it is first asked for. A wrong argument or file raises
`saucier.InputError`, work that failed `saucier.WorkError`, both in one line. A *path* is text or a `pathlib.Path`.
Results have their figures as fields, `to_dict()` for a program, and show themselves in a notebook.

The pages after this one are the modules, one page each: parts of models, objectives, tasks, and all that is below.
"""


def write_public_page(reference: Callable[[str], str]) -> str:
    """Return the page in Markdown; `reference` gives the page of a module."""
    groups: dict[str, list[str]] = {title: [] for title in (CORE, *TITLES.values())}
    for name, module in saucier.PUBLIC.items():
        groups.setdefault(title_of(module), []).append(name)
    parts = [INTRODUCTION]
    for title, names in groups.items():
        parts.append(f"## {title}")
        parts += [describe_name(name, reference) for name in names]
    return "\n\n".join(parts) + "\n"


def title_of(module: str) -> str:
    """Return the heading over the functions of a module."""
    if not module.startswith("saucier.api."):
        return CORE
    return TITLES.get(module, module.rpartition(".")[2].replace("_", " ").capitalize())


def describe_name(name: str, reference: Callable[[str], str]) -> str:
    """Return the section of a public name."""
    found, module = getattr(saucier, name), saucier.PUBLIC[name]
    links = {**links_of(module, reference), name: reference(module)}
    parts = [f"### {name} {{#{name}}}"]
    if inspect.isclass(found):
        return "\n\n".join([*parts, f"A class of [{module}]({reference(module)}).", inspect.getdoc(found) or ""])
    signature = inspect.signature(found)
    returned = str(signature.return_annotation).strip("'\"")
    parts += [f"```python\n{write_signature(name, signature, returned)}\n```", *describe(found)]
    if returned in links:
        parts.append(f"Returns [`{returned}`]({links[returned]}).")
    if rows := list(list_arguments(signature)):
        parts.append(Table(("argument", "what it is", "takes", "default", "on the command line"), rows).to_markdown())
    return "\n\n".join(parts)


def write_signature(name: str, signature: inspect.Signature, returned: str) -> str:
    """Return a call with all arguments and their defaults, as Python writes it, over several lines where it is long."""
    plain = [one.replace(annotation=inspect.Parameter.empty) for one in signature.parameters.values()]
    text = f"saucier.{name}{inspect.Signature(plain)}"
    return f"{fill(text, 84, subsequent_indent=' ' * (len(name) + 9), break_long_words=False)} -> {returned}"


def describe(function: Callable[..., Any]) -> list[str]:
    """Return the paragraphs of a docstring."""
    found = (inspect.getdoc(function) or "").split("\n\n")
    return [text.removeprefix(FOR_PYTHON)[:1].upper() + text.removeprefix(FOR_PYTHON)[1:] for text in found]


def list_arguments(signature: inspect.Signature) -> Iterator[tuple[str, ...]]:
    """Yield a line of the table for each argument that has help."""
    for one in signature.parameters.values():
        kind, about = split_annotation(one.annotation)
        if about is not None:
            default = "" if one.default is one.empty else f"`{one.default!r}`"
            takes = describe_kind(kind).replace("text or a path", "a path")
            yield f"`{one.name}`", about.text, takes, default, shell_name(one, about)


def shell_name(one: inspect.Parameter, about: Help) -> str:
    """Return what an argument is called on the command line."""
    if not about.shell:
        return "only from Python"
    if one.kind is not one.KEYWORD_ONLY and about.option is None:
        return f"`{about.metavar or one.name.upper()}`"
    name = about.option or f"--{'no-' if one.default is True else ''}{one.name.replace('_', '-')}"
    return f"`{name}{f' {about.metavar}' if about.metavar else ''}`"


def links_of(module: str, reference: Callable[[str], str]) -> Mapping[str, str]:
    """Return the classes that a module imports from the package, and the pages of their modules."""
    spec = find_spec(module)
    assert spec is not None and spec.origin is not None, "it is one of ours"
    tree = ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
    return {one.name: reference(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)
            and node.module is not None and node.module.startswith("saucier.") for one in node.names
            if inspect.isclass(getattr(import_module(node.module), one.name, None))}
