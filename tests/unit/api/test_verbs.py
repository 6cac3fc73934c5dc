"""The verbs of the command line and the public functions are the same, but for the exceptions in docs/python.md."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest
import typer.main

import saucier
from saucier.arguments import Help, split_annotation
from saucier.cli import VERBS, app

ROOT = Path(__file__).parents[3]
EXCEPTIONS = {"generate": "write", "embed": "embed_files", "doctor": "diagnose", "recipes": "list_recipes",
              "families": "list_families",
              "number": "number_formats", "schema": "recipe_schema", "attention-map": "attention_map",
              "tokenizer train": "train_tokenizer", "tokenizer inspect": "inspect_tokenizer",
              "retrieve train": "train_retriever", "retrieve evaluate": "evaluate_retriever",
              "retrieve mine": "mine_negatives"}
"""Verbs whose function has another name."""


def verbs() -> list[str]:
    """Name all verbs."""
    command: Any = typer.main.get_command(app)
    return [f"{name} {inner}" if inner else name for name, one in command.commands.items()
            for inner in getattr(one, "commands", {"": None})]


def test_every_verb_has_its_function() -> None:
    missing = [verb for verb in verbs() if EXCEPTIONS.get(verb, verb) not in saucier.PUBLIC]
    assert missing == []


@pytest.mark.parametrize("name", [name for name, module in saucier.PUBLIC.items() if ".api." in module])
def test_every_argument_has_its_help_and_a_result_is_named(name: str) -> None:
    function = getattr(saucier, name)
    signature = inspect.signature(function)
    for one in signature.parameters.values():
        _, about = split_annotation(one.annotation)
        assert isinstance(about, Help), f"{name}: {one.name}"
        assert about.text.endswith("."), f"{name}: {one.name}"
    positional = [one for one in signature.parameters.values() if one.kind is not one.KEYWORD_ONLY]
    assert len(positional) <= 3
    assert isinstance(signature.return_annotation, str), "its module is not imported for it"


def test_the_docs_list_every_verb_with_its_function() -> None:
    page = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `saucier ([a-z -]+?)` \| `saucier\.(\w+)`", page, re.MULTILINE))
    assert rows == {verb: EXCEPTIONS.get(verb, verb) for verb in verbs()}


def test_no_subpackage_is_named_like_a_public_function() -> None:
    package = ROOT / "src" / "saucier"
    taken = {path.stem for path in package.iterdir()} & set(saucier.PUBLIC)
    assert taken == set()


def test_a_verb_that_is_derived_takes_the_defaults_of_its_function() -> None:
    command: Any = typer.main.get_command(app)
    options = {one.name: one for one in command.commands["generate"].params}
    assert options["tokens"].default == inspect.signature(saucier.write).parameters["tokens"].default == 200
    assert "speak" not in options
    assert set(VERBS) < set(verbs())
