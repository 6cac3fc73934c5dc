"""What tasks on whole texts share: their example, its rows in the tokenizer's frame or in GPT's input transformations,
and where the vector of a text is taken.

Source: Radford et al. 2018, "Improving Language Understanding by Generative Pre-Training", §3.3. Axes: N texts, C
classes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import tokenizers

from saucier import config as c
from saucier.errors import InputError
from saucier.tasks.definitions import BothOrders, TextForm, TokenizerFrame, Transformed
from saucier.tasks.encoded_examples import Ragged, Truncation
from saucier.tasks.examples import Example
from saucier.tasks.task import Encoding
from saucier.text.tokenizer.model_inputs import LengthOptions, encode_rows, share_room
from saucier.text.tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    from saucier.objectives.base import Objective
    from saucier.objectives.labels import LogitObjective

START, DELIMITER, EXTRACT, PADDING = "<start>", "<delimiter>", "<extract>", "<pad>"
"""The tokens that are added to the vocabulary; their vectors begin at random, as in the paper."""


def extend_tokenizer(tokenizer: Tokenizer, form: TextForm) -> Tokenizer:
    """Return a tokenizer with the tokens that a form needs, after all others, and one for padding in any case."""
    return add_padding_token(tokenizer) if isinstance(form, TokenizerFrame) else add_form_tokens(tokenizer)


def add_padding_token(tokenizer: Tokenizer) -> Tokenizer:
    """Return a tokenizer that knows a padding token: the end of a text where it has none of its own, as for GPT-2.

    A decoder's vector is taken at the last token that is no padding, so rows of different lengths need one.
    """
    if tokenizer.pad_id is not None or tokenizer.eos_id is None:
        return tokenizer
    return Tokenizer(tokenizer.backend, {**tokenizer.names, "pad": tokenizer.names["eos"]},
                     clean_up=tokenizer.clean_up, handling=tokenizer.handling)


def add_form_tokens(tokenizer: Tokenizer) -> Tokenizer:
    """Return a tokenizer that has the three tokens, and one for padding."""
    backend = tokenizers.Tokenizer.from_str(tokenizer.backend.to_str())
    names = {"pad": PADDING} | tokenizer.names
    form_tokens = (START, DELIMITER, EXTRACT, names["pad"])
    backend.add_special_tokens([tokenizers.AddedToken(name, special=True) for name in form_tokens])
    return Tokenizer(backend, names, clean_up=tokenizer.clean_up, handling=tokenizer.handling)


def encode_transformed(rows: Sequence[Sequence[str]], encoding: Encoding) -> tuple[dict[str, Ragged], Truncation]:
    """Encode the texts of each row; of those that are too long the longest is cut first.

    Raises `InputError` for a model that is no decoder: its vector at the last token would not be of the whole row.
    """
    if encoding.body.decoder is None or encoding.body.encoder is not None:
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
        kept = share_room(sizes, encoding.length - 1 - len(row), "longest_first")
        parts = [ids[:size] for ids, size in zip(texts, kept, strict=True)]
        found.append([start, *parts[0], *(token for part in parts[1:] for token in (delimiter, *part)), extract])
        lost.append(sum(sizes) - sum(kept))
    assert tokenizer.pad_id is not None, "add_form_tokens gives one"
    return {"input_ids": Ragged.of(found, tokenizer.pad_id)}, Truncation(sum(map(bool, lost)), sum(lost))


def add_language_loss(task: LogitObjective, form: TextForm) -> Objective:
    """Return what is learned of a task in a form: the task alone, or the words of its rows too."""
    from saucier.objectives.prediction import AuxiliaryLanguageModelling

    weight = 0.0 if isinstance(form, TokenizerFrame) else form.auxiliary
    return AuxiliaryLanguageModelling(task, weight) if weight else task


@dataclass(frozen=True, slots=True)
class LabelledText(Example):
    """A text, or a pair of texts, and what is to be predicted of it."""

    text: str
    pair: str | None
    label: Any
    """None where it is not known."""

    @property
    def texts(self) -> tuple[str, ...]:
        """The text, and its pair where there is one."""
        return (self.text,) if self.pair is None else (self.text, self.pair)


def second_texts(examples: Sequence[LabelledText]) -> list[str] | None:
    """Return the second texts, or None where there are none. Raises `InputError` where some rows have one."""
    alone = [one for one in examples if one.pair is None]
    if alone and len(alone) < len(examples):
        raise InputError("has no second text, and others have one", where=str(alone[0].place),
                         remedy="give files with the same columns, or name the column with task.pair=COLUMN")
    return None if alone else [one.pair for one in examples if one.pair is not None]


def encode_in_form(examples: Sequence[LabelledText], form: TextForm,
                   encoding: Encoding) -> tuple[dict[str, Ragged], Truncation]:
    """Encode texts or pairs in a form. Raises `InputError` where both orders are requested and there is no pair."""
    texts, pairs = [one.text for one in examples], second_texts(examples)
    both = [(text,) for text in texts] if pairs is None else list(zip(texts, pairs, strict=True))
    match form:
        case TokenizerFrame():
            return encode_texts(texts, pairs, encoding)
        case Transformed():
            return encode_transformed(both, encoding)
        case BothOrders():
            if pairs is None:
                raise InputError("has no second text, and both orders of two are read", where=str(examples[0].place),
                                 remedy="name the column with task.pair=COLUMN, or use task.form.kind=gpt")
            return encode_transformed([row for one in both for row in (one, one[::-1])], encoding)


def encode_texts(texts: Sequence[str], pairs: Sequence[str] | None, encoding: Encoding) -> tuple[dict[str, Ragged],
                                                                                                 Truncation]:
    """Encode texts, or pairs, and say what was cut."""
    rows = encode_rows(encoding.tokenizer, texts, pairs, LengthOptions(encoding.length, "longest", "longest_first"))
    lost = [row.cut for row in rows if row.cut]
    return encoding.inputs(rows), Truncation(rows=len(lost), tokens=sum(lost))


def default_pick(body: c.Transformer, tokenizer: Tokenizer) -> c.Pick:
    """Return where a body's vector for a text is taken: at the pooler, the last token of a decoder, else the mean."""
    if body.pooler is not None:
        return c.PickVector(kind="pooled")
    if body.encoder is None:
        return c.LastToken(padding=tokenizer.pad_id)
    return c.PickVector(kind="mean")


def sort_labels(labels: Iterable[str]) -> tuple[str, ...]:
    """Sort labels as a person does: numbers by their value."""
    def key(label: str) -> list[tuple[int, int, str]]:
        return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in re.split(r"(\d+)", label) if part]

    return tuple(sorted(set(labels), key=key))
