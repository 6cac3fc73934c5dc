"""Checks across the sections of a recipe: parts that are right alone and cannot work together."""

from __future__ import annotations

from pydantic import ValidationError

from saucier.config import (
    SkipPadding,
    Transformer,
    check,
    longest_input,
    stack_room,
)
from saucier.errors import InputError
from saucier.objectives.config import Mixture, SequenceToSequence, singles
from saucier.objectives.fit import Around, misfits
from saucier.objectives.misfit_order import alone
from saucier.recipes.reading import Path, Source, dotted
from saucier.recipes.recipe import Recipe, size_of
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
    except ValidationError as error:
        first = error.errors()[0]
        what = f"{first['msg'].replace('Input should', 'should')}, not {first['input']!r}"
        raise fault(source, ("model", *(str(part) for part in first["loc"])), what,
                    "change the hyper-parameter behind it") from error
    except InputError as error:
        raise fault(source, ("model", *(error.where or "").split(".")), error.what, error.remedy) from error
    return model


def check_objective(recipe: Recipe, model: Transformer, source: Source) -> None:
    """Each objective asks something of the model, the tokenizer and the data."""
    single = not isinstance(recipe.objective, Mixture)
    for number, objective in enumerate(singles(recipe.objective)):
        path = ("objective",) if single else ("objective", "parts", str(number), "objective")
        for found in misfits(objective, Around(model, recipe.tokenizer, recipe.data, recipe.training.length)):
            raise fault(source, path + found.path if found.own else found.path, found.what, found.remedy)
    for number, found in alone(singles(recipe.objective)):
        raise fault(source, ("objective", "parts", str(number), "objective", *found.path), found.what, found.remedy)


def check_vocabulary(recipe: Recipe, model: Transformer, source: Source) -> None:
    """The model has a vector for every token that the tokenizer may have."""
    if recipe.tokenizer.kind != "characters" and model.input_embed.vocab < recipe.vocab:
        raise fault(source, ("model", "vocab"),
                    f"the model has {model.input_embed.vocab} token vectors, and the tokenizer {recipe.vocab} tokens",
                    f"use at least {recipe.vocab}, or leave it out")


def check_target(recipe: Recipe, model: Transformer, source: Source) -> None:
    """Targets have a tokenizer of their own only where a decoder reads them beside an encoder, and pairs are learned.
    """
    if recipe.target_tokenizer is None:
        return
    path, known = ("target_tokenizer",), size_of(recipe.target_tokenizer)
    if model.encoder is None or model.decoder is None:
        raise fault(source, path, "a model of one stack has one vocabulary", "leave it out, or use an encoder-decoder")
    if not all(isinstance(one, SequenceToSequence) for one in singles(recipe.objective)):
        raise fault(source, path, "only sequence_to_sequence learns between two vocabularies",
                    "leave it out, or use objective.kind=sequence_to_sequence")
    if isinstance(recipe.data, PairData) and recipe.data.languages is not None:
        raise fault(source, path, "languages are told by tokens that both sides have",
                    "leave it out, or data.languages")
    if any(isinstance(one, Ready) and one.extend for one in (recipe.tokenizer, recipe.target_tokenizer)):
        raise fault(source, ("tokenizer", "extend"), "no tokens are added where there are two tokenizers", "use 0")
    if isinstance(recipe.target_tokenizer, Characters):
        raise fault(source, path, "how many characters there are is not known before the text is read",
                    "use kind: bytes, or one whose vocab is given")
    if model.output_embed.vocab < known:
        raise fault(source, path, f"the decoder has {model.output_embed.vocab} token vectors, and this {known} tokens",
                    f"use at least {known} in decoder_embed.vocab")


def check_padding(recipe: Recipe, model: Transformer, source: Source) -> None:
    """Positions that are counted without padding know the id that the tokenizer gives it, its first."""
    places = getattr(model.input_embed.positions, "places", None)
    if not isinstance(places, SkipPadding) or isinstance(recipe.tokenizer, Ready):  # that one came with its model
        return
    if recipe.tokenizer.special.pad is None:
        raise fault(source, ("tokenizer", "special", "pad"), "the model counts positions without padding",
                    "name a padding token, such as <pad>")
    if places.padding != 0:
        raise fault(source, ("model", "padding"),
                    f"the model counts positions without token {places.padding}, and the tokenizer's padding is 0",
                    "use padding: 0")


def check_length(recipe: Recipe, model: Transformer, source: Source) -> None:
    """A row fits into the positions that are learned."""
    longest = learned_length(model)
    longest = None if longest is None else longest - getattr(recipe.tuning, "length", 0)
    if longest is not None and recipe.training.length > longest:
        raise fault(source, ("training", "length"),
                    f"{recipe.training.length} tokens do not fit into the model's {longest} learned positions",
                    f"use training.length={longest}, or more positions (model.length={recipe.training.length})")


def learned_length(model: Transformer) -> int | None:
    """Return the longest input that a model can take, or None where its positions know no end."""
    rooms = [longest_input(embed.positions) for embed in (model.embed, model.decoder_embed) if embed]
    inside = [room for stack in (model.encoder, model.decoder) if stack for room in stack_room(stack)]
    return min([*(room for room in rooms if room is not None), *inside], default=None)


def fault(source: Source, path: Path, what: str, remedy: str | None) -> InputError:
    """Return the error for a place of the recipe."""
    return InputError(f"{dotted(path).rstrip('.')}: {what}", where=source.where(path), remedy=remedy)
