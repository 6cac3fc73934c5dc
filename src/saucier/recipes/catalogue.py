"""Finding recipes by name or file, reading them (values, overrides, types), and checking across their sections
that what is right alone can work together: model, objective, tokenizer, data, lengths.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from saucier.config import SkipPadding, Transformer, check, learned_length
from saucier.config.base import ConfigError
from saucier.config.registry import import_package
from saucier.errors import InputError, expect, expect_texts, suggest_name
from saucier.files import path_exists
from saucier.objectives.checks import check_mixed_row_order, find_mismatches
from saucier.objectives.config import Mixture, SequenceToSequence, list_single_objectives
from saucier.objectives.config.single_objective import ObjectiveSetting
from saucier.recipes.recipe import Recipe, vocab_size_of
from saucier.recipes.source import KeyPath, Source, apply_overrides, join_path, read_yaml
from saucier.recipes.validation import validate_config
from saucier.text.config import Characters, PairData, Ready


def check_recipe(recipe: Recipe, source: Source) -> None:
    """Raise `InputError` with line and path for the first combination that cannot work."""
    model = build_tree(recipe, source)
    check_objective(recipe, model, source)
    check_vocabulary(recipe, model, source)
    check_target(recipe, model, source)
    check_padding(recipe, model, source)
    check_length(recipe, model, source)


def build_tree(recipe: Recipe, source: Source) -> Transformer:
    """Return the model's tree. Raises `InputError` where the hyper-parameters or the parts do not go together."""
    try:
        model = recipe.model
        check(model)
    except ConfigError as error:
        first = error.cause.errors()[0]
        what = f"{first['msg'].replace('Input should', 'should')}, not {first['input']!r}"
        raise make_fault(source, ("model", *(str(part) for part in first["loc"])), what,
                         "change the hyper-parameter behind it") from error
    except InputError as error:
        raise make_fault(source, ("model", *(error.where or "").split(".")), error.what, error.remedy) from error
    return model


def check_objective(recipe: Recipe, model: Transformer, source: Source) -> None:
    """Each objective asks something of the model, the tokenizer and the data."""
    single = not isinstance(recipe.objective, Mixture)
    for number, objective in enumerate(list_single_objectives(recipe.objective)):
        path = ("objective",) if single else ("objective", "parts", str(number), "objective")
        for found in find_mismatches(objective,
                                     ObjectiveSetting(model, recipe.tokenizer, recipe.data, recipe.training.length)):
            raise make_fault(source, path + found.path if found.own else found.path, found.what, found.remedy)
    for number, found in check_mixed_row_order(list_single_objectives(recipe.objective)):
        raise make_fault(source, ("objective", "parts", str(number), "objective", *found.path), found.what,
                         found.remedy)


def check_vocabulary(recipe: Recipe, model: Transformer, source: Source) -> None:
    """The model has a vector for every token that the tokenizer may have."""
    if recipe.tokenizer.kind != "characters" and model.input_embed.vocab < recipe.vocab:
        raise make_fault(source, ("model", "vocab"),
                         f"the model has {model.input_embed.vocab} token vectors, "
                         f"and the tokenizer {recipe.vocab} tokens",
                         f"use at least {recipe.vocab}, or leave it out")


def check_target(recipe: Recipe, model: Transformer, source: Source) -> None:
    """Targets have a tokenizer of their own only where a decoder reads them next to an encoder, and pairs are learned.
    """
    if recipe.target_tokenizer is None:
        return
    path, known = ("target_tokenizer",), vocab_size_of(recipe.target_tokenizer)
    for wrong, place, what, remedy in (
            (model.encoder is None or model.decoder is None, path, "a model of one stack has one vocabulary",
             "leave it out, or use an encoder-decoder"),
            (not all(isinstance(one, SequenceToSequence) for one in list_single_objectives(recipe.objective)), path,
             "only sequence_to_sequence learns between two vocabularies",
             "leave it out, or use objective.kind=sequence_to_sequence"),
            (isinstance(recipe.data, PairData) and recipe.data.languages is not None, path,
             "languages are told by tokens that both sides have", "leave it out, or data.languages"),
            (any(isinstance(one, Ready) and one.extend for one in (recipe.tokenizer, recipe.target_tokenizer)),
             ("tokenizer", "extend"),
             "no tokens are added where there are two tokenizers", "use 0"),
            (isinstance(recipe.target_tokenizer, Characters), path,
             "how many characters there are is not known before the text is read",
             "use kind: bytes, or one whose vocab is given"),
            (model.output_embed.vocab < known, path,
             f"the decoder has {model.output_embed.vocab} token vectors, and this {known} tokens",
             f"use at least {known} in decoder_embed.vocab")):
        if wrong:
            raise make_fault(source, place, what, remedy)


def check_padding(recipe: Recipe, model: Transformer, source: Source) -> None:
    """Positions that are counted without padding know the id that the tokenizer gives it, its first."""
    places = getattr(model.input_embed.positions, "places", None)
    if not isinstance(places, SkipPadding) or isinstance(recipe.tokenizer, Ready):  # that one came with its model
        return
    if recipe.tokenizer.special.pad is None:
        raise make_fault(source, ("tokenizer", "special", "pad"), "the model counts positions without padding",
                         "name a padding token, such as <pad>")
    if places.padding != 0:
        raise make_fault(source, ("model", "padding"),
                         f"the model counts positions without token {places.padding}, and the tokenizer's padding is 0",
                         "use padding: 0")


def check_length(recipe: Recipe, model: Transformer, source: Source) -> None:
    """A row fits into the positions that are learned."""
    longest = learned_length(model)
    longest = None if longest is None else longest - getattr(recipe.tuning, "length", 0)
    if longest is not None and recipe.training.length > longest:
        raise make_fault(source, ("training", "length"),
                         f"{recipe.training.length} tokens do not fit into the model's {longest} learned positions",
                         f"use training.length={longest}, or more positions (model.length={recipe.training.length})")


def make_fault(source: Source, path: KeyPath, what: str, remedy: str | None) -> InputError:
    """Return the error for a place of the recipe."""
    return InputError(f"{join_path(path).rstrip('.')}: {what}", where=source.where(path), remedy=remedy)


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
    return build_recipe(source)


def build_recipe(source: Source) -> Recipe:
    """Return the typed recipe that a source says. Raises `InputError`, a line for each fault."""
    found = validate_config(source, Recipe)
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
    close = suggest_name(text, names())
    close = f"{close} " if close.startswith("did you mean") else ""  # not all of them
    raise InputError(f"no recipe has the name {text!r}", where="recipe",
                     remedy=f"{close}`saucier recipes` lists them; a file of yours ends in .yaml")


def file_text(path: Path) -> str:
    """Return the text of a recipe file, or say why it has none. A pipe is none: nobody may ever write into it."""
    if path_exists(path) and not (path.is_file() or path.is_dir()):
        raise InputError("is no file", where=str(path), remedy="give another")
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
    """Return the JSON Schema of a recipe, for editors; it knows the parts of all installed packages."""
    import_package()
    found: dict[str, Any] = json.loads(json.dumps(Recipe.model_json_schema()))
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Saucier recipe"} | found
