"""Telling a model that reads characters how its tokenizer's tokens are spelled."""

from __future__ import annotations

from pathlib import Path

import torch

from saucier.errors import InputError
from saucier.model import Transformer
from saucier.parts.characters import CharacterTokens
from saucier.text.spelling import tokens_spelled
from saucier.text.tokenizer import Tokenizer, load_tokenizer


def spell(model: Transformer, tokenizer: Tokenizer) -> None:
    """Give a model the spellings of a tokenizer's tokens; nothing is done where it does not read characters."""
    tokens = model.embed.tokens
    if isinstance(tokens, CharacterTokens):
        tokens.spell(torch.from_numpy(tokens_spelled(tokenizer, range(tokens.num_embeddings), tokens.config.longest)))


def spell_from(model: Transformer, folder: Path | str) -> None:
    """The same with the tokenizer of a folder. Raises `InputError` where a model that reads characters has none."""
    if model.config.embed.characters is None:
        return
    try:
        spell(model, load_tokenizer(folder))
    except InputError as error:
        raise InputError("this model reads characters, and no tokenizer spells its tokens", where=str(folder),
                         remedy="put the model's tokenizer into its folder") from error
