"""What `show`, `diff` and `plan` look at: a recipe by name or file, a run, a saved model or a GGUF file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from saucier.checkpoints.hub import ADAPTER_CONFIG
from saucier.checkpoints.layout import MODEL_TYPE
from saucier.config import Transformer
from saucier.errors import InputError
from saucier.files import is_file, read_object
from saucier.recipes import Recipe, recipe

DESCRIPTIVE = ("name", "about", "paper", "year", "book", "claims")
"""Keys that describe a recipe to a person; they change nothing of what is cooked."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A model to look at, and the recipe that it belongs to, where there is one."""

    name: str
    model: Transformer
    recipe: Recipe | None = None


def find_subject(text: str, overrides: Sequence[str] = ()) -> Subject:
    """Find what a person means: a recipe's name, a recipe file, a run folder, or a model folder.

    Raises `InputError` when there is no such thing. Of a published folder only the config is read.
    """
    path = Path(text)
    if is_file(path / "recipe.yaml"):
        found = recipe(path / "recipe.yaml", overrides)
        return Subject(text, found.model, found)
    if is_file(path / "config.json"):
        return read_saved_model(path, overrides)
    if text.lower().endswith(".gguf") and is_file(path):
        return read_gguf_model(path, overrides)
    if is_file(path / ADAPTER_CONFIG):
        raise InputError("is an adapter, and a whole model is needed", where=text,
                         remedy=f"write one first: saucier convert {text} MODEL")
    found = recipe(text, overrides)
    return Subject(found.name, found.model, found)


def read_saved_model(path: Path, overrides: Sequence[str]) -> Subject:
    """Read the config of a saved model, in a published layout or in ours."""
    if overrides:
        raise InputError("a saved model cannot be changed by key=value", where=str(path), remedy="change its recipe")
    document, where = read_object(path / "config.json"), str(path / "config.json")
    if document.get("model_type") == MODEL_TYPE:
        from saucier.checkpoints.own_folder import read_config

        return Subject(str(path), read_config(path))
    from saucier.checkpoints.layout import published_tree, saved_class
    from saucier.families import find_layout

    layout = find_layout(document, path / "config.json")
    name = saved_class(document, layout, where)
    return Subject(f"{path} ({name})", published_tree(layout.choose_layout(layout, document), document, name, where))


def read_gguf_model(path: Path, overrides: Sequence[str]) -> Subject:
    """Read the header of a GGUF file."""
    if overrides:
        raise InputError("a saved model cannot be changed by key=value", where=str(path), remedy="change its recipe")
    from saucier.checkpoints.gguf import open_gguf
    from saucier.checkpoints.gguf_names import HOLDS_OUTPUT
    from saucier.checkpoints.gguf_weights import read_document
    from saucier.checkpoints.layout import published_tree
    from saucier.families import find_layout

    file = open_gguf(path)
    document = read_document(file)
    document["tie_word_embeddings"] = document["tie_word_embeddings"] and HOLDS_OUTPUT not in file.tensors
    layout, name = find_layout(document, path), document["architectures"][0]
    return Subject(f"{path} ({name})", published_tree(layout, document, name, str(path)))


def comparable_values(left: Subject, right: Subject) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return plain values of both that can be compared key by key.

    Two recipes of one family are compared by its hyper-parameters, other models by their trees of parts; the rest of
    a recipe is compared where both have one.
    """
    if left.recipe is None or right.recipe is None:
        return paired_trees(left, right)
    plain = [{key: value for key, value in one.as_dict().items() if key not in DESCRIPTIVE}
             for one in (left.recipe, right.recipe)]
    if left.recipe.family != right.recipe.family or left.recipe.family == "own":
        plain = [one | model for one, model in zip(plain, paired_trees(left, right), strict=True)]
    return plain[0], plain[1]


def paired_trees(left: Subject, right: Subject) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return both trees of parts; where each has one stack, it is called `stack` and compared with the other's."""
    found = [one.model.model_dump(mode="json") for one in (left, right)]
    single = [[side for side in ("encoder", "decoder") if model[side]] for model in found]
    if all(len(sides) == 1 for sides in single) and single[0] != single[1]:
        found = [{"side": side, "stack": model[side],
                  **{key: value for key, value in model.items() if key not in ("encoder", "decoder")}}
                 for model, [side] in zip(found, single, strict=True)]
    return {"model": found[0]}, {"model": found[1]}
