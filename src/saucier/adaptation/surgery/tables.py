"""`ModelState`, a model between two operations, and its tables with a row a position or a token: longer, shorter,
renumbered, with the ids that the config knows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from saucier import config as c
from saucier.adaptation.starting_weights import fill_token_rows
from saucier.adaptation.surgery.operations import NewTokens, Positions, Tokens
from saucier.checkpoints.fields import put
from saucier.config import longest_input
from saucier.config.base import Config, rewrite_config
from saucier.errors import InputError
from saucier.model import Transformer


@dataclass(frozen=True, slots=True)
class ModelState:
    """A config and its weights by name, between two operations."""

    config: c.Transformer
    weights: Mapping[str, Tensor]
    pad: int = 0
    """The padding id."""
    same: float = float("inf")
    """Up to how many tokens a text gives the numbers that it gave before the first operation."""

    def put(self, config: c.Transformer, weights: Mapping[str, Tensor] | None = None, *,
            same: float = float("inf")) -> ModelState:
        """Return another config, and other weights; `same`: up to how many tokens the numbers stay."""
        return replace(self, config=config, weights=self.weights if weights is None else weights,
                       same=min(self.same, same))

    def stacks(self) -> dict[str, c.Stack]:
        """Return the stacks that there are, by name."""
        return {name: stack for name in ("encoder", "decoder") if (stack := getattr(self.config, name)) is not None}

    def attentions(self, change: Callable[[c.SelfAttention], c.SelfAttention] = lambda attention: attention,
                   **fields: Any) -> c.Transformer:
        """Return the config with every self-attention changed, and with other values of some of its fields."""
        return self.config.model_copy(update={
            name: rewrite_config(stack, lambda node: change(node).model_copy(update=fields)
                                 if isinstance(node, c.SelfAttention) else node)
            for name, stack in self.stacks().items()})


def check_full_encoder(state: ModelState) -> None:
    """Raise `InputError` for a model that is not an encoder alone, and for attention that is not full already."""
    if state.config.encoder is None or state.config.decoder is not None:
        raise InputError("only an encoder alone, such as BERT or RoBERTa, can be changed so", where="--attention",
                         remedy="a decoder takes window:N")
    for attention in state.config.encoder.attentions():
        if not isinstance(attention.visibility, c.Full):
            raise InputError(f"the attention is of kind {attention.visibility.kind} already", where="--attention",
                             remedy="begin with a model whose tokens all see each other")


POSITION_TABLES = {"embed": "embed.positions.weight", "decoder_embed": "decoder_embed.positions.weight"}


def extend_positions(state: ModelState, by: Positions) -> ModelState:
    """Tile every table of learned positions. Raises `InputError` for a model without one, and for fewer than there are.

    The rows before the first token's (RoBERTa's two) are kept once; texts as long as before give the same numbers.
    Source: Beltagy et al. 2020, §5, arXiv:2004.05150.
    """
    found = {name: embed for name in POSITION_TABLES if (embed := getattr(state.config, name)) is not None
             and isinstance(embed.positions, c.Learned)}
    if not found:
        raise InputError("the model has no table of positions, so there is nothing to extend", where="--positions",
                         remedy="leave it out")
    config, weights, rooms = state.config, dict(state.weights), []
    for name, embed in found.items():
        table, room = embed.positions, longest_input(embed.positions)
        assert room is not None, "a table ends"
        if by.length < room:
            raise InputError(f"{by.length} positions are fewer than the {room} that there are", where="--positions",
                             remedy=f"give {room} or more")
        ahead = table.length - room
        fixed, rows = weights[POSITION_TABLES[name]].tensor_split([ahead])
        weights[POSITION_TABLES[name]] = torch.cat([fixed, rows.repeat(-(-by.length // len(rows)), 1)[:by.length]])
        config = put(config, {f"{name}.positions.length": ahead + by.length})
        rooms.append(room)
    if isinstance(config.head, c.EmbeddingHead) and config.head.length is not None:
        config = put(config, {"head.length": by.length})
    return state.put(config, weights, same=min(rooms))


def count_past_padding(state: ModelState) -> ModelState:
    """Count positions as RoBERTa and Longformer do, from the id after the padding; the vectors stay where they were."""
    positions = state.config.embed.positions
    if not isinstance(positions, c.Learned) or positions.places != c.CountedPlaces(kind="in_order"):
        return state
    table = state.weights[POSITION_TABLES["embed"]]
    ahead = table[:1].expand(state.pad + 1, -1)  # rows of padding, which nothing reads
    moved = positions.model_copy(update={"length": positions.length + state.pad + 1,
                                         "places": c.SkipPadding(padding=state.pad)})
    return place_positions(state, moved, torch.cat([ahead, table]))


def count_from_zero(state: ModelState) -> ModelState:
    """Count positions as BERT and BigBird do, from the first row on; the vectors stay where they were."""
    positions = state.config.embed.positions
    if not isinstance(positions, c.Learned) or not isinstance(positions.places, c.SkipPadding):
        return state
    ahead = positions.places.padding + 1
    moved = positions.model_copy(update={"length": positions.length - ahead,
                                         "places": c.CountedPlaces(kind="in_order")})
    return place_positions(state, moved, state.weights[POSITION_TABLES["embed"]][ahead:])


def place_positions(state: ModelState, positions: c.Learned, table: Tensor) -> ModelState:
    """Return the state with another table of the tokens' positions."""
    return state.put(put(state.config, {"embed.positions": positions}),
                     {**state.weights, POSITION_TABLES["embed"]: table.contiguous()})


TOKEN_ROWS = re.compile(r"(?:decoder_)?embed\.tokens\.weight|head\.(?:language\.)?(?:weight|bias)")
"""Weights that may have a row for every token."""
ID_FIELDS: Mapping[type[Config], str] = {
    c.AtSeparator: "token", c.AfterToken: "token", c.QuestionSpanHead: "separator",
    c.InPlace: "mask", c.WholeText: "mask"}
"""Fields that are ids of tokens."""


def keep_tokens(state: ModelState, by: Tokens) -> ModelState:
    """Leave out the rows of all other tokens; ids are those of the trimmed tokenizer.

    Raises `InputError` for a model whose tables are not one row a token, and for an id in its config that is left out.
    """
    vocab, new = state.config.embed.vocab, by.numbers()
    wide = list_token_tables(state, "--vocabulary", highest=max(by.kept))
    rows = torch.tensor(by.kept)
    weights = {name: weight[rows.to(weight.device)] if name in wide else weight
               for name, weight in state.weights.items()}
    return state.put(rewrite_config(state.config, lambda node: renumber_config(node, new, vocab, len(by.kept))),
                     weights)


def add_tokens(state: ModelState, by: NewTokens) -> ModelState:
    """Put rows for more tokens after all others. Texts that are spelled as before give the numbers that they gave.

    Raises `InputError` for a model whose tables are not one row a token.
    """
    vocab, rows = state.config.embed.vocab, by.first + len(by.pieces)
    weights = dict(state.weights)
    for name in list_token_tables(state, "--new-tokens", highest=by.first - 1):
        old = weights[name]
        weights[name] = torch.cat([old, old.new_zeros(max(vocab, rows) - len(old), *old.shape[1:])])
        fill_token_rows(weights[name], old, by)
    return state.put(rewrite_config(state.config, lambda node: node.model_copy(update={"vocab": max(vocab, rows)})
                                    if isinstance(node, c.Embedding) and node.vocab == vocab else node), weights)


def list_token_tables(state: ModelState, option: str, *, highest: int) -> set[str]:
    """Name the weights that have a row for each token. Raises `InputError` where the tokens' table is none of them.

    `highest`: the highest id that the tokenizer knows.
    """
    vocab = state.config.embed.vocab
    wide = {name for name, weight in state.weights.items() if TOKEN_ROWS.fullmatch(name) and len(weight) == vocab}
    if "embed.tokens.weight" not in wide or highest >= vocab or isinstance(state.config.head, c.AdaptiveHead):
        raise InputError("the model has no table with a row for each token of its tokenizer", where=option,
                         remedy="leave it out")
    if state.config.decoder_embed is not None and state.config.decoder_embed.vocab != vocab:
        raise InputError("the two sides have vocabularies of their own", where=option, remedy="leave it out")
    return wide


def renumber_config(node: Config, new: Mapping[int, int], vocab: int, count: int) -> Config:
    """Give a config the new ids of the tokens that it names."""
    field = ID_FIELDS.get(type(node))
    if isinstance(node, c.Embedding):
        padding = node.padding if node.padding is None else find_new_id(node.padding, new)
        return node.model_copy(update={"vocab": count if node.vocab == vocab else node.vocab, "padding": padding})
    return node if field is None else node.model_copy(update={field: find_new_id(getattr(node, field), new)})


def find_new_id(old: int, new: Mapping[int, int]) -> int:
    """Return a token's new id. Raises `InputError` for one that is left out."""
    if old not in new:
        raise InputError(f"the model names token {old}, which the tokenizer does not know as special",
                         where="--vocabulary", remedy="leave it out")
    return new[old]


def renumber_defaults(model: Transformer, new: Mapping[int, int]) -> None:
    """Give a model's defaults of generation, and what it was published with, the new ids, in place."""
    document, generation = ({name: renumber_value(value, new) if "token_id" in name else value
                             for name, value in values.items()}
                            for values in (model.provenance.document, model.provenance.generation))
    model.provenance = replace(model.provenance, document=document, generation=generation)


def renumber_value(value: Any, new: Mapping[int, int]) -> Any:
    """Return the new ids of a value; what is no id of a token stays."""
    if isinstance(value, list):
        return [renumber_value(one, new) for one in value]
    return new.get(value, value) if isinstance(value, int) else value
