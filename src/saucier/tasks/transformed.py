"""GPT's input transformations: rows of a start token, texts with a delimiter between, and an extract token.

Source: Radford et al. 2018, "Improving Language Understanding by Generative Pre-Training", §3.3.
"""

from __future__ import annotations

from collections.abc import Sequence

import tokenizers

from saucier import config as c
from saucier.errors import InputError
from saucier.tasks.forms_config import BothOrders, TextForm, TokenizerFrame, Transformed
from saucier.tasks.sheet import Cut, Ragged
from saucier.tasks.task import Encoding
from saucier.text.tensors import shares
from saucier.text.tokenizer import Tokenizer

START, DELIMITER, EXTRACT, PADDING = "<start>", "<delimiter>", "<extract>", "<pad>"
"""The tokens that are added to the vocabulary; their vectors begin at random, as in the paper."""


def spelled(tokenizer: Tokenizer, form: TextForm) -> Tokenizer:
    """Return a tokenizer with the tokens that a form needs, behind all others, and one for padding in any case."""
    match form:
        case TokenizerFrame():
            return with_padding(tokenizer)
        case Transformed() | BothOrders():
            return with_tokens(tokenizer)


def with_padding(tokenizer: Tokenizer) -> Tokenizer:
    """Return a tokenizer that knows a padding token: the end of a text where it has none of its own, as for GPT-2.

    A decoder's vector is taken at the last token that is no padding, so rows of different lengths need one.
    """
    if tokenizer.pad_id is not None or tokenizer.eos_id is None:
        return tokenizer
    return Tokenizer(tokenizer.backend, {**tokenizer.names, "pad": tokenizer.names["eos"]},
                     clean_up=tokenizer.clean_up, handling=tokenizer.handling)


def with_tokens(tokenizer: Tokenizer) -> Tokenizer:
    """Return a tokenizer that has the three tokens, and one for padding."""
    backend = tokenizers.Tokenizer.from_str(tokenizer.backend.to_str())
    names = {"pad": PADDING} | tokenizer.names
    wanted = (START, DELIMITER, EXTRACT, names["pad"])
    backend.add_special_tokens([tokenizers.AddedToken(name, special=True) for name in wanted])
    return Tokenizer(backend, names, clean_up=tokenizer.clean_up, handling=tokenizer.handling)


def transformed_rows(rows: Sequence[Sequence[str]], encoding: Encoding) -> tuple[dict[str, Ragged], Cut]:
    """Encode the texts of each row; of those that are too long the longest is cut first.

    Raises `InputError` for a model that is no decoder: its vector at the last token would not be of the whole row.
    """
    if not decodes(encoding.body):
        raise InputError("GPT's input transformations are read by a decoder", where="task.form",
                         remedy="begin with a model such as GPT, or leave task.form out")
    tokenizer = encoding.tokenizer
    start, delimiter, extract = (tokenizer.extra_ids[name] for name in (START, DELIMITER, EXTRACT))
    flat = iter(tokenizer.encodings([text for row in rows for text in row], False))
    found: list[list[int]] = []
    lost: list[int] = []
    for row in rows:
        texts = [tokenizer.published_ids(next(flat).ids) for _ in row]
        sizes = [len(ids) for ids in texts]
        kept = shares(sizes, encoding.length - 1 - len(row), "longest_first")
        parts = [ids[:size] for ids, size in zip(texts, kept, strict=True)]
        found.append([start, *parts[0], *(token for part in parts[1:] for token in (delimiter, *part)), extract])
        lost.append(sum(sizes) - sum(kept))
    assert tokenizer.pad_id is not None, "with_tokens gives one"
    return {"input_ids": Ragged.of(found, tokenizer.pad_id)}, Cut(sum(map(bool, lost)), sum(lost))


def decodes(body: c.Transformer) -> bool:
    """Say whether a body is a decoder alone."""
    return body.decoder is not None and body.encoder is None
