"""How prompts and responses become rows: on the two sides of an encoder-decoder or in one row of a decoder, alone
or packed, where each text has its number and its own positions, so that no attention crosses between them.

Axes: N texts, R rows, L positions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import tokenizers

from saucier import config as c
from saucier.config.questions import packs_pairs
from saucier.errors import InputError
from saucier.objectives.token_ids import IGNORED, TokenIds
from saucier.tasks.encoded_examples import EncodedExamples, Ragged, Truncation
from saucier.tasks.task import Encoding
from saucier.tasks.written.definitions import Written
from saucier.text.rows.batch import PADDING, Ints, pack_texts
from saucier.text.tokenizer.language_tokens import find_language_id, find_language_tokens, mark_language
from saucier.text.tokenizer.model_inputs import share_room
from saucier.text.tokenizer.tokenizer import Tokenizer


def pack_rows(texts: Sequence[tuple[Sequence[int], Sequence[int]]], item: Ints, filler: int,
              length: int) -> EncodedExamples:
    """Put texts (what is read, labels) into as few rows of `length` as we find; a row is named by its first text.

    The rows carry the number of each text and its places from 0, so a model reads it as if it stood alone.
    """
    bins = pack_texts(np.array([[len(ids)] for ids, _ in texts], dtype=np.int64), length)
    joined = [[[value for text in row for value in texts[text][side]] for row in bins] for side in (0, 1)]
    numbers = [[number for number, text in enumerate(row) for _ in texts[text][0]] for row in bins]
    places = [[place for text in row for place in range(len(texts[text][0]))] for row in bins]
    wide = {"input_ids": Ragged.of(joined[0], filler), "labels": Ragged.of(joined[1], IGNORED),
            "documents": Ragged.of(numbers, PADDING), "places": Ragged.of(places, 0)}
    return EncodedExamples(wide, example_numbers=item[[row[0] for row in bins]])


def pack_pairs(encoded: EncodedExamples, encoding: Encoding) -> EncodedExamples:
    """Put the pairs of an encoder-decoder into as few rows as we find; a row is named by its first pair.

    Source and target of a pair carry its number, and places from 0, so a model reads it as if it stood alone.
    Raises `InputError` for a model that would not keep pairs separate.
    """
    if not packs_pairs(encoding.body):
        raise InputError("only encoder-decoders with softmax attention keep pairs in one row apart",
                         where="task.packing", remedy="leave it out, or begin with a model such as T5 or BART")
    sides = {"": ("input_ids",), "decoder_": ("decoder_input_ids", "labels")}
    lengths = {before: encoded.sequences[names[0]].lengths for before, names in sides.items()}
    bins = pack_texts(np.stack([*lengths.values()], axis=1), encoding.length)
    wide = {name: encoded.sequences[name].joined(bins) for names in sides.values() for name in names}
    for before, side in lengths.items():
        alone = np.concatenate([[0], np.cumsum(side)])
        numbers = Ragged(np.repeat(np.arange(len(side)), side), alone, PADDING)
        places = Ragged(np.arange(alone[-1]) - np.repeat(alone[:-1], side), alone, 0)
        wide |= {f"{before}documents": numbers.joined(bins), f"{before}places": places.joined(bins)}
    return EncodedExamples(wide, example_numbers=encoded.example_numbers[[row[0] for row in bins]],
                           truncation=encoded.truncation)


RESPONSE_TOKENS = "tokens of what is to be written"
"""What is lost where a target is cut."""
LANGUAGE = "task.source_language or task.target_language"


@dataclass(frozen=True, slots=True)
class Prompt:
    """What is read: a text that may be cut, between two that may not."""

    before: str
    text: str
    after: str = ""
    framed: bool = True
    """Whether the tokenizer's own frame is put around it; a chat template writes its special tokens itself."""
    language: str | None = None
    """The language that the frame names, in multilingual models; None: as the tokenizer has it."""

    @property
    def whole(self) -> str:
        """All of it."""
        return self.before + self.text + self.after


@dataclass(frozen=True, slots=True)
class PromptResponse:
    """A prompt, and what is to be written after it."""

    prompt: Prompt
    response: str | None
    """None where it is not known."""
    example: int
    """The example that it was made of."""
    language: str | None = None
    """The language of the response, as in prompts."""


@dataclass(frozen=True, slots=True)
class EncodedPiece:
    """The ids of a text, and which of them may be cut off (places in the row, in order)."""

    ids: list[int]
    loose: list[int]

    def shortened(self, count: int, side: str) -> list[int]:
        """Leave out `count` of the loose tokens, the last ones or (side "left") the first.

        Raises `InputError` where there are fewer.
        """
        if count > len(self.loose):
            raise no_room_error(len(self.ids) - len(self.loose))
        if not count:
            return self.ids
        gone = set(self.loose[:count] if side == "left" else self.loose[-count:])
        return [number for place, number in enumerate(self.ids) if place not in gone]


def encode_pieces(tokenizer: Tokenizer, prompts: Sequence[Prompt], *, framed: bool,
                  begin: Sequence[int] = ()) -> list[EncodedPiece]:
    """Encode prompts in the tokenizer's frame, or after `begin` alone."""
    surrounded = any(one.text != one.whole for one in prompts)
    encode = tokenizer.encode_with_offsets if surrounded else tokenizer.encodings
    found = encode([one.whole for one in prompts], framed) if prompts else []
    pieces = []
    for encoding, prompt in zip(found, prompts, strict=True):
        before = begin if prompt.framed else ()
        ids = set_language(tokenizer.published_ids(encoding.ids), prompt.language, tokenizer)
        pieces.append(EncodedPiece([*before, *ids],
                                   [len(before) + place for place in text_token_places(encoding, prompt)]))
    return pieces


def set_language(ids: list[int], language: str | None, tokenizer: Tokenizer) -> list[int]:
    """Put a language into the frame of a text. Raises `InputError` for one that is unknown, and without a place."""
    if language is None:
        return ids
    known = find_language_tokens(tokenizer)
    found = mark_language(ids, find_language_id(language, known, LANGUAGE), known)
    if found is None:
        raise InputError("the tokenizer's frame names no language", where=LANGUAGE, remedy="leave it out")
    return found


def text_token_places(encoding: tokenizers.Encoding, prompt: Prompt) -> list[int]:
    """Return the places of the tokens that spell the text itself."""
    first = len(prompt.before)
    last = first + len(prompt.text) if prompt.text != prompt.whole else math.inf
    return [place for place, ((start, end), special) in
            enumerate(zip(encoding.offsets, encoding.special_tokens_mask, strict=True))
            if not special and first <= start < end <= last]


def is_encoder_decoder(body: c.Transformer) -> bool:
    """Say whether an encoder reads and a decoder writes. Raises `InputError` for a body that writes nothing."""
    if body.decoder is None:
        raise InputError("an encoder alone writes no text", where="model",
                         remedy="begin with a decoder or an encoder-decoder, such as GPT-2, T5 or BART")
    return body.encoder is not None


def between_texts(config: Written, body: c.Transformer) -> str:
    """Return what a decoder alone reads between a text and its answer; an encoder does not read it."""
    return "" if is_encoder_decoder(body) else config.between


def encode_prompts(prompts: Sequence[Prompt], encoding: Encoding, room: int) -> tuple[list[list[int]], Ints]:
    """Encode what is read, each in at most `room` tokens, and say how many were cut from each. Shapes: -> N rows, [N].

    Raises `InputError` where even the words around the text are too long.
    """
    both = is_encoder_decoder(encoding.body)
    found = encode_pieces(encoding.tokenizer, prompts, framed=both,
                          begin=() if both else begin_token(encoding.tokenizer))
    excess = np.array([max(0, len(one.ids) - room) for one in found], dtype=np.int64)
    side = encoding.tokenizer.handling.truncation_side
    return [one.shortened(int(count), side) for one, count in zip(found, excess, strict=True)], excess


def begin_token(tokenizer: Tokenizer) -> list[int]:
    """Return what a decoder's row begins with: the token that begins a text, or that which ends the one before."""
    begin = tokenizer.bos_id if tokenizer.bos_id is not None else tokenizer.eos_id
    return [] if begin is None else [begin]


def encode_responses(pairs: Sequence[PromptResponse], encoding: Encoding, tokens: int | None) -> EncodedExamples:
    """Lay out prompts and responses; without responses, prompts alone. `tokens`: the most of a response; None: a row.

    Raises `InputError` for a body that writes nothing.
    """
    item = np.array([one.example for one in pairs], dtype=np.int64)
    if any(one.response is None for one in pairs):
        rows, lost = encode_prompts([one.prompt for one in pairs], encoding, encoding.length)
        wide = {"input_ids": Ragged.of(rows, encoding.tokenizer.pad_id or 0)}
        return EncodedExamples(wide, example_numbers=item,
                               truncation=Truncation(int((lost > 0).sum()), int(lost.sum())))
    lay_out = encode_two_sides if is_encoder_decoder(encoding.body) else encode_one_row
    return lay_out(pairs, encoding, min(tokens or encoding.length, encoding.length), item)


def encode_two_sides(pairs: Sequence[PromptResponse], encoding: Encoding, tokens: int, item: Ints) -> EncodedExamples:
    """Give the encoder the prompt, the decoder the response after its start token. Source: Vaswani et al. 2017, §3.1.

    The response is in the frame of its tokenizer, as the source is.
    """
    writing = replace(encoding, tokenizer=encoding.tokenizer.target)
    sources, lost = encode_prompts([one.prompt for one in pairs], encoding, encoding.length)
    responses = [Prompt("", one.response or "", language=one.language) for one in pairs]
    targets, unwritten = encode_prompts(responses, writing, tokens)
    shifted = [[start_token(writing, row), *row[:-1]] for row in targets]
    fillers = [one.tokenizer.pad_id or 0 for one in (encoding, writing)]
    sequences = {"input_ids": Ragged.of(sources, fillers[0]), "decoder_input_ids": Ragged.of(shifted, fillers[1]),
                 "labels": Ragged.of(targets, IGNORED)}
    return EncodedExamples(sequences, example_numbers=item, truncation=count_truncation(lost, unwritten))


def start_token(encoding: Encoding, target: Sequence[int]) -> int:
    """Return what a decoder begins with, as its family publishes it, or as the tokenizer says."""
    match encoding.body.default_target:
        case c.ShiftedSource(start=start):
            return start
        case c.RotatedSource():
            return target[-1]
        case None:
            return encoding.decoder_start(TokenIds.of(encoding.tokenizer).decoder_start)


def encode_one_row(pairs: Sequence[PromptResponse], encoding: Encoding, tokens: int, item: Ints) -> EncodedExamples:
    """Put each response after its prompt; only the response, and the end after it, is learned.

    Where a row is too long, the longer of both is cut. Source: Radford et al. 2018, §3.1; Wei et al. 2022 (FLAN).
    """
    side = encoding.tokenizer.handling.truncation_side
    prompts = encode_pieces(encoding.tokenizer, [one.prompt for one in pairs], framed=False,
                            begin=begin_token(encoding.tokenizer))
    found = encode_pieces(encoding.tokenizer, [Prompt("", one.response or "") for one in pairs], framed=False)
    end = encoding.tokenizer.token_to_id(end_token(encoding.tokenizer))
    assert end is not None, "a special token is in the vocabulary"
    responses = [EncodedPiece([*one.ids, end], list(range(len(one.ids)))) for one in found]  # the end stays
    rows: list[tuple[list[int], list[int]]] = []
    losses = np.zeros((len(pairs), 2), dtype=np.int64)
    for number, (prompt, response) in enumerate(zip(prompts, responses, strict=True)):
        kept = share_prompt_room(prompt, response, tokens, encoding.length + 1)
        losses[number] = len(prompt.ids) - kept[0], len(response.ids) - kept[1]
        rows.append((prompt.shortened(int(losses[number, 0]), side),
                     response.shortened(int(losses[number, 1]), "right")))
    return replace(label_responses(rows, encoding), example_numbers=item,
                   truncation=count_truncation(losses[:, 0], losses[:, 1]))


def share_prompt_room(prompt: EncodedPiece, response: EncodedPiece, tokens: int, room: int) -> tuple[int, int]:
    """Say how many tokens of a prompt and of its response stay in a row of `room`. Raises `InputError` for no room."""
    size, fixed = min(len(response.ids), tokens), len(prompt.ids) - len(prompt.loose)
    kept = max(fixed, share_room([len(prompt.ids), size], room, "longest_first")[0])
    if kept >= room:
        raise no_room_error(fixed)
    return kept, min(size, room - kept)


def no_room_error(fixed: int) -> InputError:
    """Return the error for words that fill a row by themselves."""
    return InputError(f"the words around the text have {fixed} tokens: too many for a row", where="training.length",
                      remedy="make it larger, or the prefix shorter")


def end_token(tokenizer: Tokenizer) -> str:
    """Return what ends an answer. Raises `InputError` where the tokenizer has nothing for it."""
    if "eos" not in tokenizer.names:
        raise InputError("the tokenizer has no token that ends a text, so the model could not learn to stop",
                         where="tokenizer", remedy="begin with a model that has one (eos)")
    return tokenizer.names["eos"]


def label_responses(rows: Sequence[tuple[Sequence[int], Sequence[int]]], encoding: Encoding) -> EncodedExamples:
    """Join prompts and responses, each position labelled by the next token where that belongs to the response."""
    whole = [[*prompt, *response] for prompt, response in rows]
    labels = [[*([IGNORED] * (len(prompt) - 1)), *response] for prompt, response in rows]
    wide = {"input_ids": Ragged.of([row[:-1] for row in whole], encoding.tokenizer.pad_id or 0),
            "labels": Ragged.of(labels, IGNORED)}
    flat = {"prefix_length": np.array([len(prompt) for prompt, _ in rows])} if c.sees_prefix(encoding.body.decoder) \
        else {}
    return EncodedExamples(wide, flat)


def count_truncation(read: Ints, written: Ints) -> Truncation:
    """Count rows that were cut on either side, and the tokens of each. Shapes: [N], [N]."""
    return Truncation(int(((read > 0) | (written > 0)).sum()), int(read.sum()), int(written.sum()), RESPONSE_TOKENS)
