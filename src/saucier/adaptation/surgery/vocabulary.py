"""Fewer tokens, and more: the rows of a model's tables, and the ids that its config knows."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from saucier import config as c
from saucier.adaptation import adopt
from saucier.adaptation.surgery.config import NewTokens, Tokens
from saucier.adaptation.surgery.shape import Shape
from saucier.config.base import Config
from saucier.config.rewriting import rewritten
from saucier.errors import InputError
from saucier.model import Transformer

ROWS = re.compile(r"(?:decoder_)?embed\.tokens\.weight|head\.(?:language\.)?(?:weight|bias)")
"""Weights that may have a row for every token."""
IDS: Mapping[type[Config], str] = {
    c.BeforeSeparator: "token", c.AfterSeparator: "token", c.AfterToken: "token", c.QuestionSpanHead: "separator",
    c.InPlace: "mask", c.WholeText: "mask"}
"""Fields that are ids of tokens."""


def keep_tokens(shape: Shape, by: Tokens) -> Shape:
    """Leave out the rows of all other tokens; ids are those of the trimmed tokenizer.

    Raises `InputError` for a model whose tables are not one row a token, and for an id in its config that is left out.
    """
    vocab, new = shape.config.embed.vocab, by.numbers()
    wide = tables(shape, "--vocabulary", highest=max(by.kept))
    rows = torch.tensor(by.kept)
    weights = {name: weight[rows.to(weight.device)] if name in wide else weight
               for name, weight in shape.weights.items()}
    return shape.put(rewritten(shape.config, lambda node: renumbered(node, new, vocab, len(by.kept))), weights)


def add_tokens(shape: Shape, by: NewTokens) -> Shape:
    """Put rows for more tokens behind all others. Texts that are spelled as before give the numbers that they gave.

    Raises `InputError` for a model whose tables are not one row a token.
    """
    vocab, rows = shape.config.embed.vocab, by.first + len(by.pieces)
    wide = tables(shape, "--new-tokens", highest=by.first - 1)
    weights = {name: longer(weight, max(vocab, rows), by) if name in wide else weight
               for name, weight in shape.weights.items()}
    return shape.put(rewritten(shape.config, lambda node: node.model_copy(update={"vocab": max(vocab, rows)})
                               if isinstance(node, c.Embedding) and node.vocab == vocab else node), weights)


def longer(table: Tensor, rows: int, by: NewTokens) -> Tensor:
    """Return a table with the new rows in it. Shapes: [V, D] or [V] -> [rows, D] or [rows]."""
    made = torch.cat([table, table.new_zeros(rows - len(table), *table.shape[1:])])
    adopt.fill_rows(made, table, adopt.NewTokens(by.first, by.pieces))
    return made


def tables(shape: Shape, option: str, *, highest: int) -> set[str]:
    """Name the weights that have a row for each token. Raises `InputError` where the tokens' table is none of them.

    `highest`: the highest id that the tokenizer knows.
    """
    vocab = shape.config.embed.vocab
    wide = {name for name, weight in shape.weights.items() if ROWS.fullmatch(name) and len(weight) == vocab}
    if "embed.tokens.weight" not in wide or highest >= vocab or isinstance(shape.config.head, c.AdaptiveHead):
        raise InputError("the model has no table with a row for each token of its tokenizer", where=option,
                         remedy="leave it out")
    if shape.config.decoder_embed is not None and shape.config.decoder_embed.vocab != vocab:
        raise InputError("the two sides have vocabularies of their own", where=option, remedy="leave it out")
    return wide


def renumbered(node: Config, new: Mapping[int, int], vocab: int, count: int) -> Config:
    """Give a config the new ids of the tokens that it names."""
    field = IDS.get(type(node))
    if isinstance(node, c.Embedding):
        padding = node.padding if node.padding is None else number(node.padding, new)
        return node.model_copy(update={"vocab": count if node.vocab == vocab else node.vocab, "padding": padding})
    return node if field is None else node.model_copy(update={field: number(getattr(node, field), new)})


def number(old: int, new: Mapping[int, int]) -> int:
    """Return a token's new id. Raises `InputError` for one that is left out."""
    if old not in new:
        raise InputError(f"the model names token {old}, which the tokenizer does not know as special",
                         where="--vocabulary", remedy="leave it out")
    return new[old]


def first_ids(config: c.Transformer) -> int:
    """Return how many first ids must stay: positions that are counted from behind the padding id depend on it."""
    places = getattr(config.embed.positions, "places", None)
    return places.padding + 1 if isinstance(places, c.SkipPadding) else 0


def tell(model: Transformer, new: Mapping[int, int]) -> None:
    """Give a model's defaults of generation, and what it was published with, the new ids, in place."""
    for values in (model.generation, model.published):
        values.update({name: told(value, new) for name, value in values.items() if "token_id" in name})


def told(value: Any, new: Mapping[int, int]) -> Any:
    """Return the new ids of a value; what is no id of a token stays."""
    if isinstance(value, list):
        return [told(one, new) for one in value]
    return new.get(value, value) if isinstance(value, int) else value
