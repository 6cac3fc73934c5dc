"""`WritingTask`: what tasks share whose answer is a text: the head that stays, what is learned, and how a model
writes.

Axes: B rows of a batch, L positions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

import numpy as np

from saucier import config as c
from saucier.errors import InputError
from saucier.objectives.token_ids import IGNORED, TokenIds
from saucier.tasks.encoded_examples import EncodedExamples
from saucier.tasks.task import Answer, Encoding, Json, Predictor, RequiredHead, Task
from saucier.tasks.written.definitions import Pairs, Writing
from saucier.tasks.written.prompts import (
    LANGUAGE,
    Prompt,
    PromptResponse,
    between_texts,
    encode_prompts,
    encode_responses,
    is_encoder_decoder,
    pack_pairs,
)
from saucier.text.rows.batch import make_generator, pad_ids
from saucier.text.tokenizer.language_tokens import find_language_id, find_language_tokens
from saucier.text.tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    from torch import Tensor

    from saucier.objectives.base import Objective

Item = TypeVar("Item", bound=Sized)
SEED_STREAM = 11
"""Stream of random numbers."""


class WritingTask(Task, Protocol):
    """A task whose answer is a text: a task that says what is read and what is to be written."""

    required_head: RequiredHead = RequiredHead("language", c.LanguageHead())
    """The head that gives tokens, which the model has; a new one for a decoder without."""

    @property
    def scored_as(self) -> str:
        """As texts, as a rule."""
        return "texts"

    def prompt(self, example: Any, encoding: Encoding) -> Prompt:
        """Return what is read, by an encoder or by the decoder that writes."""

    def responses(self, example: Any) -> Sequence[str]:
        """Return the texts that are right; none where that is not known."""

    def target_texts(self, example: Any) -> tuple[str, ...]:
        """All that is right."""
        return tuple(self.responses(example))

    def surrounding_texts(self, example: Any, body: c.Transformer) -> tuple[str, ...]:
        """The prefix, and what a decoder alone reads between a text and its answer."""
        return (self.config.prefix, between_texts(self.config, body))

    def answer(self, text: str) -> Answer:
        """Return what a written text says."""
        return Answer(text)

    def prompt_responses(self, examples: Sequence[Any], encoding: Encoding) -> Iterator[PromptResponse]:
        """Yield what is learned: a prompt with each of its responses."""
        for number, one in enumerate(examples):
            for response in self.responses(one) or (None,):
                yield PromptResponse(self.prompt(one, encoding), response, number, self.language)

    def encode(self, examples: Sequence[Any], encoding: Encoding) -> EncodedExamples:
        """Encode prompts and responses."""
        found = encode_responses(list(self.prompt_responses(examples, encoding)), encoding, self.config.writing.tokens)
        packs = isinstance(self.config, Pairs) and self.config.packing and "labels" in found.sequences
        return pack_pairs(found, encoding) if packs else found

    def fit_lengths(self, encoded: EncodedExamples) -> Self:
        """Take the length of the longest response from the training rows, unless it is given."""
        writing: Writing = self.config.writing
        if writing.tokens is not None:
            return self
        return self.with_config(writing=writing.model_copy(update={"tokens": longest_response(encoded)}))

    @property
    def objective(self) -> Objective:
        """Cross-entropy of the tokens of the response."""
        from saucier.objectives.prediction import Prediction

        return Prediction()

    @property
    def language(self) -> str | None:
        """The language of the answers, for multilingual models; None: the tokenizer's own."""
        return None

    def options(self, encoding: Encoding) -> dict[str, Any]:
        """How the answers are written, under the names of `saucier.generate`."""
        return generation_settings(self.config.writing, encoding) | language_start(self.language, encoding)

    def generation_settings(self, encoding: Encoding) -> dict[str, Any]:
        """The same without the seed, which is not saved with a model."""
        return {name: value for name, value in self.options(encoding).items() if name != "seed"}

    def predict(self, predictor: Predictor, examples: Sequence[Any], encoded: EncodedExamples) -> list[Answer]:
        """Let the model write."""
        prompts = [self.prompt(one, predictor.encoding) for one in examples]
        return [self.answer(text) for text in
                write_answers(prompts, predictor, self.config.writing, self.options(predictor.encoding))]

    def gold(self, example: Any) -> Json | list[Json]:
        """The text, or all of them."""
        found = list(self.responses(example))
        return found[0] if len(found) == 1 else [*found] or None

    def describe_target(self, target: int, tokenizer: Tokenizer) -> str:
        """The token itself."""
        return tokenizer.target.id_to_token(target) or f"<{target}>"


def longest_response(encoded: EncodedExamples) -> int:
    """Return the most targets that are next to each other in a row, and belong to one text."""
    labels, texts = encoded.sequences["labels"], encoded.sequences.get("decoder_documents")
    borders = labels.offsets[:-1] if texts is None else np.append(0, np.flatnonzero(np.diff(texts.values)) + 1)
    learned = np.insert(labels.values != IGNORED, borders, False)
    stops = np.flatnonzero(~np.append(learned, False))
    return int(np.diff(stops).max(initial=1)) - 1 or 1


def generation_settings(writing: Writing, encoding: Encoding) -> dict[str, Any]:
    """Return options of `saucier.generate`: the special tokens, and what a task says of its writing."""
    ids, start = TokenIds.of(encoding.tokenizer.target), None
    match encoding.body.default_target:
        case c.ShiftedSource():
            start = encoding.body.default_target.start
        case None if encoding.body.encoder is not None:
            start = encoding.decoder_start(ids.decoder_start)
    found: dict[str, Any] = {"pad_token_id": ids.filler, "max_new_tokens": writing.tokens,
                             "repetition_penalty": writing.repetition_penalty,
                             "no_repeat_ngram_size": writing.no_repeat_ngram, **writing.search.options(),
                             **ids.generation_options, "decoder_start_token_id": start}
    return {name: value for name, value in found.items() if value is not None}


def language_start(language: str | None, encoding: Encoding) -> dict[str, Any]:
    """Return how a text in a language begins: with its token alone (mBART), or with it after the start token.

    Source: Liu et al. 2020, §2.2, arXiv:2001.08210; Fan et al. 2021 (M2M-100), §3.1, arXiv:2010.11125.
    """
    if language is None:
        return {}
    number = find_language_id(language, find_language_tokens(encoding.tokenizer.target), LANGUAGE)
    rotated = isinstance(encoding.body.default_target, c.RotatedSource)
    return {"decoder_start_token_id" if rotated else "forced_bos_token_id": number}


def write_answers(prompts: Sequence[Prompt], predictor: Predictor, writing: Writing,
                  options: Mapping[str, Any]) -> list[str]:
    """Let a model answer prompts, in order: batches of about one length, a decoder's padded on the left."""
    encoding = predictor.encoding
    limit = writing.tokens or encoding.length
    room = encoding.length if is_encoder_decoder(encoding.body) else max(encoding.length // 2, encoding.length - limit)
    rows, _ = encode_prompts(prompts, encoding, room)

    def answer(some: list[list[int]], start: int) -> list[str]:
        settings = {**options, "max_new_tokens": limit}
        if "seed" in options:
            settings["seed"] = int(make_generator(options["seed"], SEED_STREAM, start).integers(2**62))
        return write_batch(some, predictor, settings)

    return map_in_batches(rows, writing.batch, answer)


def map_in_batches(items: Sequence[Item], size: int, write: Callable[[list[Item], int], list[str]]) -> list[str]:
    """Write for batches of items of about one length, each with the number of those before it, shortest first.

    The results come back in the order of the items.
    """
    order = sorted(range(len(items)), key=lambda number: len(items[number]))
    results = [""] * len(items)
    for start in range(0, len(order), size):
        numbers = order[start:start + size]
        for number, text in zip(numbers, write([items[number] for number in numbers], start), strict=True):
            results[number] = text
    return results


def write_batch(rows: Sequence[Sequence[int]], predictor: Predictor, options: dict[str, Any]) -> list[str]:
    """Let a model answer some rows of about one length."""
    from saucier.generation.generate import generate

    encoding = predictor.encoding
    both = is_encoder_decoder(encoding.body)
    ids, mask = pad_rows(rows, encoding.tokenizer.pad_id or 0, left=not both)
    device, width = next(predictor.model.parameters()).device, ids.shape[1]
    options["max_new_tokens"] = room_for_new_tokens(options["max_new_tokens"], encoding.body, 1 if both else width)
    made = generate(predictor.model, ids.to(device), mask.to(device), **options)
    return [encoding.tokenizer.target.decode(row).strip() for row in made[:, 1 if both else width:].tolist()]


def room_for_new_tokens(requested: int, body: c.Transformer, prompt: int) -> int:
    """Return how many tokens may be written after `prompt` others. Raises `InputError` where there is no room."""
    from saucier.generation.rules import find_max_positions

    limit = find_max_positions(body)
    if limit is not None and prompt >= limit:
        raise InputError(f"the prompt has {prompt} tokens, and the model {limit} positions", where="training.length",
                         remedy="make it smaller")
    return requested if limit is None else min(requested, limit - prompt)


def pad_rows(rows: Sequence[Sequence[int]], filler: int, *, left: bool) -> tuple[Tensor, Tensor]:
    """Fill rows up to the longest. Shapes: -> ids [B, L], mask [B, L]."""
    import torch

    step = -1 if left else 1  # what is to stand on the right is filled up backwards
    ids, lengths = pad_ids([np.array(row[::step], dtype=np.int64) for row in rows], filler)
    mask = (np.arange(ids.shape[1]) < lengths[:, None]).astype(np.int64)
    return torch.from_numpy(ids[:, ::step].copy()), torch.from_numpy(mask[:, ::step].copy())
