"""From options to the processors and stops of a search, in the order that transformers applies them."""

from __future__ import annotations

from collections.abc import Iterator

from saucier.errors import InputError
from saucier.generation.feed import Prompt
from saucier.generation.options import GenerationOptions, as_tuple
from saucier.generation.processors import (
    FiniteScores,
    ForceAt,
    NoBadWord,
    NoRepeatedNGram,
    Processor,
    Renormalize,
    RepetitionPenalty,
    Suppress,
    SuppressAt,
    SuppressBefore,
    Temperature,
    TopK,
    TopP,
)
from saucier.generation.search import Rules
from saucier.generation.stopping import Decodes, EndStrings, EndTokens, Stop


def rules_of(options: GenerationOptions, prompt: Prompt, *, limit: int, copies: int,
             tokenizer: Decodes | None) -> Rules:
    """Return what a search over `copies` rows for each prompt must follow.

    Raises `InputError` for stop strings without a tokenizer.
    """
    length = prompt.ids.shape[1]
    processors = [*constraints(options, length, limit), *(distribution(options) if options.do_sample else ())]
    if options.repetition_penalty != 1:
        padding = None if prompt.padding is None else prompt.padding.repeat_interleave(copies)
        processors.insert(0, RepetitionPenalty(options.repetition_penalty, padding))
    if options.renormalize_logits:
        processors.append(Renormalize())
    return Rules(tuple(processors), tuple(stops(options, length, tokenizer)), limit, fill(options))


def check_tokens(options: GenerationOptions, vocab: int) -> None:
    """Refuse tokens that the model does not have."""
    given = {"eos_token_id": options.ends, "pad_token_id": as_tuple(options.pad_token_id),
             "forced_bos_token_id": as_tuple(options.forced_bos_token_id),
             "forced_eos_token_id": as_tuple(options.forced_eos_token_id),
             "suppress_tokens": options.suppress_tokens, "begin_suppress_tokens": options.begin_suppress_tokens,
             "bad_words_ids": tuple(token for word in options.bad_words_ids for token in word)}
    for name, tokens in given.items():
        foreign = [token for token in tokens if not 0 <= token < vocab]
        if foreign:
            raise InputError(f"token {foreign[0]} is outside the vocabulary of {vocab}", where=name,
                             remedy="use the model's own tokenizer")


def constraints(options: GenerationOptions, length: int, limit: int) -> Iterator[Processor]:
    """Yield what forbids and forces tokens, for a prompt of this length."""
    if options.no_repeat_ngram_size:
        yield NoRepeatedNGram(options.no_repeat_ngram_size)
    for word in options.bad_words_ids:
        if len(word) > 1 or word[0] not in options.ends:
            yield NoBadWord(word)
    least = max(options.min_length, length + options.min_new_tokens if options.min_new_tokens else 0)
    if least and options.ends:
        yield SuppressBefore(options.ends, least)
    if options.forced_bos_token_id is not None:
        yield ForceAt((options.forced_bos_token_id,), 1)
    if options.forced_eos_token_id is not None:
        yield ForceAt(as_tuple(options.forced_eos_token_id), limit - 1)
    if options.remove_invalid_values:
        yield FiniteScores()
    if options.suppress_tokens:
        yield Suppress(options.suppress_tokens)
    if options.begin_suppress_tokens:
        forced = options.forced_bos_token_id is not None and length == 1
        yield SuppressAt(options.begin_suppress_tokens, length + forced)


def distribution(options: GenerationOptions) -> Iterator[Processor]:
    """Yield what shapes the distribution that is sampled from; with beams, enough tokens stay that one is no end."""
    least = 1 if options.num_beams == 1 else max(2, 1 + len(options.ends))
    if options.temperature != 1:
        yield Temperature(options.temperature)
    if options.top_k:
        yield TopK(max(options.top_k, least))
    if options.top_p < 1:
        yield TopP(options.top_p, least)


def stops(options: GenerationOptions, length: int, tokenizer: Decodes | None) -> Iterator[Stop]:
    """Yield what ends a row, apart from the limit of its length."""
    if options.ends:
        yield EndTokens(options.ends)
    if options.stop_strings:
        if tokenizer is None:
            raise InputError("stop strings are looked for in text", where="stop_strings", remedy="give tokenizer= too")
        yield EndStrings(options.stop_strings, tokenizer, length)


def fill(options: GenerationOptions) -> int:
    """Return what stands behind the end of a row; never seen where rows do not end early.

    transformers takes a pad id of 0 for none in beam search and fills with the first end token; so do we, for equal
    ids.
    """
    if options.num_beams > 1 and options.ends:
        return options.pad_token_id or options.ends[0]
    return 0 if options.pad is None else options.pad
