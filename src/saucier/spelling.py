"""A model and its tokenizer: whether they belong together, and how tokens are spelled for a model of characters."""

from __future__ import annotations

from pathlib import Path

import torch

from saucier.errors import InputError
from saucier.model import Transformer
from saucier.parts.characters import CharacterTokens
from saucier.text.spelling import tokens_spelled
from saucier.text.tokenizer import Tokenizer, load_tokenizer


def check_fits(model: Transformer, tokenizer: Tokenizer, where: str) -> None:
    """Raise `InputError` for a tokenizer that has ids without a row in the model's table."""
    for ids, rows in ((tokenizer.vocab_size, model.config.input_embed.vocab),
                      (tokenizer.target.vocab_size, model.config.output_embed.vocab)):
        if ids > rows:
            raise InputError(f"the tokenizer does not fit the model: {ids:,} ids, and the model has {rows:,} rows for "
                             "them", where=where, remedy="put the model's own tokenizer into its folder")


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
