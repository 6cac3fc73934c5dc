"""How what is read and what is written become rows: on the two sides of an encoder-decoder, or in one row of a decoder.

Axes: N rows, L positions, S source, T target.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import tokenizers

from saucier import config as c
from saucier.errors import InputError
from saucier.objectives.base import IGNORED, TokenIds
from saucier.tasks.sheet import Cut, Ragged, Sheet
from saucier.tasks.task import Encoding
from saucier.text.language_tokens import language_id, language_tokens, marked
from saucier.text.rows import Ints
from saucier.text.tensors import shares
from saucier.text.tokenizer import Tokenizer

UNWRITTEN = "tokens of what is to be written"
"""What is lost where a target is cut."""
LANGUAGE = "task.source_language or task.target_language"


@dataclass(frozen=True, slots=True)
class Prompt:
    """What is read: a text that may be cut, between two that may not."""

    before: str
    text: str
    after: str = ""
    framed: bool = True
    """Whether the tokenizer's own frame stands around it; a chat template writes its special tokens itself."""
    language: str | None = None
    """The language that the frame names, in multilingual models; None: as the tokenizer has it."""

    @property
    def whole(self) -> str:
        """All of it."""
        return self.before + self.text + self.after


@dataclass(frozen=True, slots=True)
class Taught:
    """A prompt, and what is to be written after it."""

    prompt: Prompt
    response: str | None
    """None where it is not known."""
    item: int
    """The example that it was made of."""
    language: str | None = None
    """The language of the response, as in prompts."""


@dataclass(frozen=True, slots=True)
class Piece:
    """The ids of a text, and which of them may be cut off (places in the row, in order)."""

    ids: list[int]
    loose: list[int]

    def shortened(self, count: int, side: str) -> list[int]:
        """Leave out `count` of the loose tokens, the last ones or (side "left") the first."""
        if not count:
            return self.ids
        gone = set(self.loose[:count] if side == "left" else self.loose[-count:])
        return [number for place, number in enumerate(self.ids) if place not in gone]


def pieces(tokenizer: Tokenizer, prompts: Sequence[Prompt], *, framed: bool) -> list[Piece]:
    """Encode prompts, in the tokenizer's frame or without any."""
    surrounded = any(one.text != one.whole for one in prompts)
    encode = tokenizer.located if surrounded else tokenizer.encodings
    found = encode([one.whole for one in prompts], framed) if prompts else []
    return [Piece(in_language(tokenizer.published_ids(encoding.ids), prompt.language, tokenizer),
                  loose_tokens(encoding, prompt)) for encoding, prompt in zip(found, prompts, strict=True)]


def in_language(ids: list[int], language: str | None, tokenizer: Tokenizer) -> list[int]:
    """Put a language into the frame of a text. Raises `InputError` for one that is unknown, and without a place."""
    if language is None:
        return ids
    known = language_tokens(tokenizer)
    found = marked(ids, language_id(language, known, LANGUAGE), known)
    if found is None:
        raise InputError("the tokenizer's frame names no language", where=LANGUAGE, remedy="leave it out")
    return found


def loose_tokens(encoding: tokenizers.Encoding, prompt: Prompt) -> list[int]:
    """Return the places of the tokens that spell the text itself."""
    first = len(prompt.before)
    last = first + len(prompt.text) if prompt.text != prompt.whole else math.inf
    return [place for place, ((start, end), special) in
            enumerate(zip(encoding.offsets, encoding.special_tokens_mask, strict=True))
            if not special and first <= start < end <= last]


def two_sides(body: c.Transformer) -> bool:
    """Say whether an encoder reads and a decoder writes. Raises `InputError` for a body that writes nothing."""
    if body.decoder is None:
        raise InputError("an encoder alone writes no text", where="model",
                         remedy="begin with a decoder or an encoder-decoder, such as GPT-2, T5 or BART")
    return body.encoder is not None


def read_rows(prompts: Sequence[Prompt], encoding: Encoding, room: int) -> tuple[list[list[int]], Ints]:
    """Encode what is read, each in at most `room` tokens, and say how many were cut from each. Shapes: -> N rows, [N].

    Raises `InputError` where even the words around the text are too long.
    """
    both = two_sides(encoding.body)
    found = framed_pieces(prompts, encoding.tokenizer, both=both)
    excess = np.array([max(0, len(one.ids) - room) for one in found], dtype=np.int64)
    side = encoding.tokenizer.handling.truncation_side
    return [cut(one, int(count), side) for one, count in zip(found, excess, strict=True)], excess


def framed_pieces(prompts: Sequence[Prompt], tokenizer: Tokenizer, *, both: bool) -> list[Piece]:
    """Encode prompts: an encoder's in the tokenizer's frame, a decoder's behind the token that begins a text."""
    if both:
        return pieces(tokenizer, prompts, framed=True)
    found = pieces(tokenizer, prompts, framed=False)
    begin = begin_token(tokenizer)
    return [Piece([*begin, *one.ids], [place + len(begin) for place in one.loose]) if prompt.framed else one
            for one, prompt in zip(found, prompts, strict=True)]


def begin_token(tokenizer: Tokenizer) -> list[int]:
    """Return what a decoder's row begins with: the token that begins a text, or that which ends the one before."""
    begin = tokenizer.bos_id if tokenizer.bos_id is not None else tokenizer.eos_id
    return [] if begin is None else [begin]


def cut(piece: Piece, count: int, side: str) -> list[int]:
    """Shorten a row. Raises `InputError` where its text has fewer tokens than must go."""
    if count > len(piece.loose):
        raise no_room(len(piece.ids) - len(piece.loose))
    return piece.shortened(count, side)


def writing_sheet(taught: Sequence[Taught], encoding: Encoding, tokens: int | None) -> Sheet:
    """Lay out prompts and responses; without responses, prompts alone. `tokens`: the most of a response; None: a row.

    Raises `InputError` for a body that writes nothing.
    """
    item = np.array([one.item for one in taught], dtype=np.int64)
    if any(one.response is None for one in taught):
        rows, lost = read_rows([one.prompt for one in taught], encoding, encoding.length)
        wide = {"input_ids": Ragged.of(rows, encoding.tokenizer.pad_id or 0)}
        return Sheet(wide, item=item, cut=Cut(int((lost > 0).sum()), int(lost.sum())))
    lay_out = apart if two_sides(encoding.body) else together
    return lay_out(taught, encoding, min(tokens or encoding.length, encoding.length), item)


def apart(taught: Sequence[Taught], encoding: Encoding, tokens: int, item: Ints) -> Sheet:
    """Give the encoder the prompt, the decoder the response behind its start token. Source: Vaswani et al. 2017, §3.1.

    The response stands in the frame of its tokenizer, as the source does.
    """
    writing = replace(encoding, tokenizer=encoding.tokenizer.target)
    sources, lost = read_rows([one.prompt for one in taught], encoding, encoding.length)
    responses = [Prompt("", one.response or "", language=one.language) for one in taught]
    targets, unwritten = read_rows(responses, writing, tokens)
    begun = [[start_token(writing, row), *row[:-1]] for row in targets]
    fillers = [one.tokenizer.pad_id or 0 for one in (encoding, writing)]
    wide = {"input_ids": Ragged.of(sources, fillers[0]), "decoder_input_ids": Ragged.of(begun, fillers[1]),
            "labels": Ragged.of(targets, IGNORED)}
    return Sheet(wide, item=item, cut=counted(lost, unwritten))


def start_token(encoding: Encoding, target: Sequence[int]) -> int:
    """Return what a decoder begins with, as its family publishes it, or as the tokenizer says."""
    match encoding.body.default_target:
        case c.ShiftedSource(start=start):
            return start
        case c.RotatedSource():
            return target[-1]
        case None:
            return encoding.begins(TokenIds.of(encoding.tokenizer).decoder_start)


def together(taught: Sequence[Taught], encoding: Encoding, tokens: int, item: Ints) -> Sheet:
    """Put each response behind its prompt; only the response, and the end behind it, is learned.

    Where a row is too long, the longer of both is cut. Source: Radford et al. 2018, §3.1; Wei et al. 2022 (FLAN).
    """
    side = encoding.tokenizer.handling.truncation_side
    prompts = framed_pieces([one.prompt for one in taught], encoding.tokenizer, both=False)
    responses = ended_pieces([one.response or "" for one in taught], encoding.tokenizer)
    rows: list[tuple[list[int], list[int]]] = []
    losses = np.zeros((len(taught), 2), dtype=np.int64)
    for number, (prompt, response) in enumerate(zip(prompts, responses, strict=True)):
        kept = kept_tokens(prompt, response, tokens, encoding.length + 1)
        losses[number] = len(prompt.ids) - kept[0], len(response.ids) - kept[1]
        rows.append((cut(prompt, int(losses[number, 0]), side), response.shortened(int(losses[number, 1]), "right")))
    sheet = answered_rows(rows, encoding)
    return Sheet(sheet.wide, sheet.flat, item, counted(losses[:, 0], losses[:, 1]))


def kept_tokens(prompt: Piece, response: Piece, tokens: int, room: int) -> tuple[int, int]:
    """Say how many tokens of a prompt and of its response stay in a row of `room`. Raises `InputError` for no room."""
    size, fixed = min(len(response.ids), tokens), len(prompt.ids) - len(prompt.loose)
    kept = max(fixed, shares([len(prompt.ids), size], room, "longest_first")[0])
    if kept >= room:
        raise no_room(fixed)
    return kept, min(size, room - kept)


def no_room(fixed: int) -> InputError:
    """Return the error for words that fill a row by themselves."""
    return InputError(f"the words around the text have {fixed} tokens: too many for a row", where="training.length",
                      remedy="make it larger, or the prefix shorter")


def ended_pieces(responses: Sequence[str], tokenizer: Tokenizer) -> list[Piece]:
    """Encode what is written, each with the end token, which stays. Raises `InputError` without such a token."""
    found = pieces(tokenizer, [Prompt("", one) for one in responses], framed=False)
    end = end_token(tokenizer)
    return [Piece([*one.ids, end], list(range(len(one.ids)))) for one in found]


def end_token(tokenizer: Tokenizer) -> int:
    """Return the token that ends a text. Raises `InputError` where there is none."""
    if tokenizer.eos_id is None:
        raise InputError("the tokenizer has no token that ends a text, so the model could not learn to stop",
                         where="tokenizer", remedy="begin with a model that has one (eos)")
    return tokenizer.eos_id


def answered_rows(rows: Sequence[tuple[Sequence[int], Sequence[int]]], encoding: Encoding) -> Sheet:
    """Join prompts and responses, each position labelled by the next token where that belongs to the response."""
    whole = [[*prompt, *response] for prompt, response in rows]
    labels = [[*([IGNORED] * (len(prompt) - 1)), *response] for prompt, response in rows]
    wide = {"input_ids": Ragged.of([row[:-1] for row in whole], encoding.tokenizer.pad_id or 0),
            "labels": Ragged.of(labels, IGNORED)}
    flat = {"prefix_length": np.array([len(prompt) for prompt, _ in rows])} if c.sees_prefix(encoding.body.decoder) \
        else {}
    return Sheet(wide, flat)


def counted(read: Ints, written: Ints) -> Cut:
    """Count rows that were cut on either side, and the tokens of each. Shapes: [N], [N]."""
    return Cut(int(((read > 0) | (written > 0)).sum()), int(read.sum()), int(written.sum()), UNWRITTEN)
