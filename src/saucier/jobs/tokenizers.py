"""Tokenizers outside a run: trained on files, found in a folder, and taken apart for a person to look at."""

from __future__ import annotations

from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from saucier.errors import InputError, suggest_name
from saucier.opened import run_folder_of
from saucier.text.config import TextData, TokenizerConfig
from saucier.text.reading.corpus import TextCorpus
from saucier.text.tokenizer.tokenizer import Tokenizer, load_tokenizer
from saucier.text.tokenizer.training import train_tokenizer

KINDS = ("byte_bpe", "bpe", "wordpiece", "unigram", "bytes", "characters")
FIXED = ("bytes", "characters")
"""Kinds whose vocabulary is not chosen."""


def train_tokenizer_on_files(kind: str, vocab: int, files: list[str]) -> Tokenizer:
    """Train a tokenizer of a kind on files, or on Python's documentation.

    Raises `InputError` for an unknown kind, and for text that cannot be read.
    """
    if kind not in KINDS:
        raise InputError(f"no kind of tokenizer has the name {kind!r}", where="--kind",
                         remedy=suggest_name(kind, list(KINDS)))
    values = {"kind": kind} | ({} if kind in FIXED else {"vocab": vocab})
    try:
        config: TokenizerConfig = TypeAdapter(TokenizerConfig).validate_python(values)
    except ValidationError as error:
        raise InputError(error.errors()[0]["msg"], where="--vocab") from error
    corpus = TextCorpus(TextData(files=tuple(files)))
    return train_tokenizer(config, (document.text for view in (corpus.train, corpus.held_out) for document in view))


def open_tokenizer(path: Path) -> Tokenizer:
    """Load the tokenizer of a run, or of any folder that has one. Raises `InputError`."""
    return load_tokenizer(run_folder_of(path))


def split_text(tokenizer: Tokenizer, text: str) -> list[tuple[int, str]]:
    """Return (id, token) of a text; a token is shown as what it spells, or by its own name where that is not whole."""
    found = []
    for number in tokenizer.encode(text):
        spelled = tokenizer.decode([number])
        unclear = not spelled or "\N{REPLACEMENT CHARACTER}" in spelled
        found.append((number, str(tokenizer.id_to_token(number)) if unclear else spelled))
    return found
