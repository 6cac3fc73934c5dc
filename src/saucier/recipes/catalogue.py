"""Finding recipes by name or file and reading them: values, overrides, types, then the checks across sections."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from saucier.errors import InputError, expect, expect_texts, nearest
from saucier.recipes.coherence import check_recipe
from saucier.recipes.faults import validated
from saucier.recipes.overrides import apply_overrides
from saucier.recipes.reading import Source, read_yaml
from saucier.recipes.recipe import Recipe

FOLDER = Path(__file__).parent


def names() -> list[str]:
    """Return the names of our own recipes."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def recipe(name_or_file: str | Path, overrides: Iterable[str] = ()) -> Recipe:
    """Return a recipe by name, or from a file, with `key.sub=value` overrides applied.

    Raises `InputError` with file, line and path for everything that is wrong.
    """
    expect(name_or_file, (str, Path), "name_or_file", "give the name of a recipe, or a file")
    words = [*overrides] if isinstance(overrides, Iterator) else overrides
    expect_texts(words, "overrides")
    source = read_source(name_or_file)
    apply_overrides(source, list(words), Recipe)
    return checked(source)


def checked(source: Source) -> Recipe:
    """Return the typed recipe that a source says. Raises `InputError`, a line for each fault."""
    found = validated(source, Recipe)
    check_recipe(found, source)
    return found


def read_source(name_or_file: str | Path) -> Source:
    """Return the plain values of a recipe. What ends in .yaml or holds a `/` is a file; all else is a name."""
    text = str(name_or_file)
    if text in names():
        path = FOLDER / f"{text}.yaml"
        return read_yaml(path.read_text(encoding="utf-8"), path.name)
    if text.endswith((".yaml", ".yml")) or "/" in text:
        return read_yaml(file_text(Path(text)), text)
    close = nearest(text, names())
    close = f"{close} " if close.startswith("did you mean") else ""  # not all of them
    raise InputError(f"no recipe has the name {text!r}", where="recipe",
                     remedy=f"{close}`saucier recipes` lists them; a file of yours ends in .yaml")


def file_text(path: Path) -> str:
    """Return the text of a recipe file, or say why it has none."""
    try:
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError as error:
        raise InputError("there is no such recipe file", where=str(path),
                         remedy="`saucier recipes` lists ours") from error
    except IsADirectoryError as error:
        inside = "give its recipe.yaml" if (path / "recipe.yaml").is_file() else "`saucier recipes` lists ours"
        raise InputError("is a folder, not a recipe", where=str(path), remedy=inside) from error
    except UnicodeDecodeError as error:
        raise InputError(f"byte {error.start} is not UTF-8", where=str(path),
                         remedy="save the file as UTF-8") from error
    except (OSError, ValueError) as error:  # a name that no file can have, or one that may not be read
        raise InputError(f"cannot be read: {getattr(error, 'strerror', None) or error}", where=str(path),
                         remedy="give another file") from error


def schema() -> dict[str, Any]:
    """Return the JSON Schema of a recipe, for editors."""
    found: dict[str, Any] = json.loads(json.dumps(Recipe.model_json_schema()))
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Saucier recipe"} | found
