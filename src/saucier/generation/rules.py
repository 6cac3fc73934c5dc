"""What a search begins with and follows: the prompt, and the processors and stops of its options, in the order that
transformers applies them. No torch, but where tokens are drawn or beams compared.

Letters: B prompts, L length, S source length.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from saucier import config as c
from saucier.errors import InputError
from saucier.generation.options import GenerationOptions, as_tuple
from saucier.generation.processors import (
    Array,
    Processor,
    apply_temperature,
    forbid_bad_word,
    forbid_repeated_ngrams,
    force_at,
    keep_top_k,
    keep_top_p,
    make_finite,
    penalize_repetition,
    pick_likeliest,
    renormalize,
    suppress,
)
from saucier.generation.search import (
    RowSearch,
    Sample,
    Search,
    SearchRules,
    Stop,
    TextDecoder,
    end_at_strings,
    end_at_tokens,
    repeat_rows,
)

LONGEST_TEXT = 2**24
"""Tokens of a text that a model without positions may write: a number with more digits is a slip of the hand."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """What is known before the first new token."""

    ids: Array
    """[B, L] for the decoder: the prompt, or the start token of an encoder-decoder."""
    mask: Array | None = None
    """[B, L], 1 where `ids` is real; None: everywhere."""
    source: Array | None = None
    """[B, S] for the encoder of an encoder-decoder."""
    source_mask: Array | None = None
    """[B, S]; None: all of the source is real."""
    sources: int = 1
    """K, rows of `source` that each row of `ids` reads, next to each other: [B·K, S]."""
    source_global: Array | None = None
    """[B, S], 1 = a token that sees all of the source and is seen by all of it."""
    prefix: Array | None = None
    """[B], how many first columns of `ids`, padding included, all may see; None: the model knows no prefix."""

    @property
    def padding(self) -> Array | None:
        """[B], the padding at the left of each row; None where there is none."""
        return None if self.mask is None else self.mask.argmax(1)


def find_max_positions(config: c.Transformer) -> int | None:
    """Return how many positions the stack that writes has tables for; None where any length works."""
    stack = config.decoder or config.encoder
    assert stack is not None, "read_prompt refuses models without stacks"
    limits = (c.longest_input(config.output_embed.positions), *c.list_length_limits(stack))
    return min((one for one in limits if one is not None), default=None)


def check_length(config: c.Transformer, prompt: Prompt, limit: int, *, ahead: int = 0) -> None:
    """Refuse a text that would be longer than the model's positions, of which some may be taken before the text."""
    have, length = find_max_positions(config), prompt.ids.shape[1]
    have = None if have is None else have - ahead
    if have is None and limit > LONGEST_TEXT:
        raise InputError(f"a text of {limit} tokens", where="max_new_tokens", remedy=f"give less than {LONGEST_TEXT}")
    if have is not None and limit > have:
        room = (
            f"use max_new_tokens={have - length} or less"
            if have > length
            else f"use a prompt of less than {have} tokens"
        )
        raise InputError(
            f"{length} tokens of prompt and {limit - length} new ones are more than the model's {have} positions",
            where="max_new_tokens",
            remedy=room,
        )


def make_search_rules(options: GenerationOptions, prompt: Prompt, *, limit: int,
                      tokenizer: TextDecoder | None) -> SearchRules:
    """Return what a search must follow until rows have `limit` tokens.

    Raises `InputError` for stop strings without a tokenizer.
    """
    length = prompt.ids.shape[1]
    stops: list[Stop] = [partial(end_at_tokens, tokens=options.ends)] if options.ends else []
    if options.stop_strings:
        if tokenizer is None:
            raise InputError("stop strings are looked for in text", where="stop_strings", remedy="give tokenizer= too")
        stops.append(partial(end_at_strings, strings=options.stop_strings, tokenizer=tokenizer, start=length))
    processors = list(make_constraints(options, length, limit))
    if options.do_sample:  # beams: one of the tokens that stay must be no end
        processors += make_distribution(options, 1 if options.num_beams == 1 else max(2, 1 + len(options.ends)))
    if options.repetition_penalty != 1:
        padding = None if prompt.padding is None else repeat_rows(prompt.padding, options.rows)
        processors.insert(0, partial(penalize_repetition, penalty=options.repetition_penalty, padding=padding))
    if options.renormalize_logits:
        processors.append(renormalize)
    return SearchRules(tuple(processors), tuple(stops), limit, find_fill_token(options))


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


def make_constraints(options: GenerationOptions, length: int, limit: int) -> Iterator[Processor]:
    """Yield what forbids and forces tokens, for a prompt of this length."""
    if options.no_repeat_ngram_size:
        yield partial(forbid_repeated_ngrams, size=options.no_repeat_ngram_size)
    for word in options.bad_words_ids:
        if len(word) > 1 or word[0] not in options.ends:
            yield partial(forbid_bad_word, word=word)
    least = max(options.min_length, length + options.min_new_tokens if options.min_new_tokens else 0)
    if least and options.ends:
        yield partial(suppress, tokens=options.ends, lengths=range(least))
    if options.forced_bos_token_id is not None:
        yield partial(force_at, tokens=(options.forced_bos_token_id,), length=1)
    if options.forced_eos_token_id is not None:
        yield partial(force_at, tokens=as_tuple(options.forced_eos_token_id), length=limit - 1)
    if options.remove_invalid_values:
        yield make_finite
    if options.suppress_tokens:
        yield partial(suppress, tokens=options.suppress_tokens)
    if options.begin_suppress_tokens:
        first = length + (options.forced_bos_token_id is not None and length == 1)
        yield partial(suppress, tokens=options.begin_suppress_tokens, lengths=range(first, first + 1))


def make_distribution(options: GenerationOptions, least: int = 1) -> Iterator[Processor]:
    """Yield what shapes the distribution that is sampled from; the `least` likeliest tokens stay in any case."""
    if options.temperature != 1:
        yield partial(apply_temperature, temperature=options.temperature)
    if options.top_k:
        yield partial(keep_top_k, count=max(options.top_k, least))
    if options.top_p < 1:
        yield partial(keep_top_p, share=options.top_p, least=least)


def find_fill_token(options: GenerationOptions) -> int:
    """Return what fills a row after its end; never seen where rows do not end early.

    transformers takes a pad id of 0 for none in beam search and fills with the first end token; so do we, for equal
    ids.
    """
    if options.num_beams > 1 and options.ends:
        return options.pad_token_id or options.ends[0]
    return 0 if options.pad is None else options.pad


def make_search(options: GenerationOptions, prompt: Array, rules: SearchRules) -> Search:
    """Return the search that the options ask for, at the prompts [B, L]."""
    choice = Sample.seeded(options.seed, prompt.device) if options.do_sample else pick_likeliest
    if options.num_beams > 1:
        from saucier.generation.beams import BeamSearch

        return BeamSearch(prompt, rules, choice, options)
    return RowSearch(repeat_rows(prompt, options.rows), rules, choice)
