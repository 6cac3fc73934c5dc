"""`generate`: checks what it is given, puts prompt, rules, search and feed together, and runs the decoding loop.

Beams, whole texts, chains and the compiled step are imported where they are first used.
Letters: B prompts, R rows, L length, S source length.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from saucier import config as c
from saucier.errors import InputError
from saucier.generation.decoding import MaskPredict
from saucier.generation.feeds import (
    CachedFeed,
    MemoryFeed,
    MixtureFeed,
    RereadFeed,
    prediction_kind,
    read_token,
)
from saucier.generation.options import GenerationOptions, resolve_options
from saucier.generation.packed_weights import fingerprint_weights, inference_view, use_packed_weights
from saucier.generation.prefix_cache import KeepsRows, PrefixCache, check_prefix_cache, read_texts
from saucier.generation.prompt import (
    add_global_tokens,
    add_prefix_lengths,
    check_call,
    check_mixture,
    join_sources,
    read_prompt,
)
from saucier.generation.rules import Prompt, check_length, check_tokens, make_search, make_search_rules
from saucier.generation.search import (
    Feed,
    Listener,
    RowSearch,
    Search,
    TextDecoder,
    decode,
)
from saucier.generation.speculation import (
    Draft,
    ReadsAhead,
    Speculation,
    SpeculativeFeed,
    check_speculation,
    make_guesses,
)
from saucier.model import Transformer
from saucier.parts.input_checks import positions_ahead


def generate(model: Transformer, input_ids: Tensor | None = None, attention_mask: Tensor | None = None, *,
             tokenizer: TextDecoder | None = None, listener: Listener | None = None, compile: bool = False,  # noqa: A002
             global_attention_mask: Tensor | None = None, prefix_length: Tensor | None = None,
             **options: Any) -> Tensor:
    """Write tokens after a prompt, or from a source.

    Shapes: input_ids [B, L], the prompt of a decoder (padded on the left) or the source of an encoder-decoder;
    attention_mask [B, L], 1 = real token -> ids [B·num_return_sequences, L'], int64: a decoder's rows begin with the
    prompt, an encoder-decoder's with its start token; after the end of a row comes the pad id.

    `options` are the fields of `GenerationOptions`, by name: max_new_tokens, do_sample, temperature, top_k, top_p,
    seed, num_beams, length_penalty, early_stopping, num_return_sequences, repetition_penalty, no_repeat_ngram_size,
    min_new_tokens, eos_token_id, pad_token_id, stop_strings, ... ; what is not given comes from `model.generation`.
    `strategy` (see `strategies`) writes otherwise than from left to right. Of chains `input_ids` are texts with mask
    tokens in their open places, and the result is these texts, filled in; Mask-Predict has a source and a target.
    `tokenizer` is read for `stop_strings` only. `listener` is called with the new tokens [R] after each step (not with
    beams, whose tokens are not final). `compile=True` compiles the step of one token with the weights frozen into it
    and keeps the code on disk; a model with other weights is compiled again. `engine=Native(format="int8")` reads
    prompt and tokens with kernels in C, matrices in that number format; what they cannot run is refused.
    `speculation=PromptLookup()`, or `Draft(smaller_model)`, guesses tokens and reads several at once, which changes
    nothing of what is written; its `acceptance` counts. `prefix_cache=PrefixCache()`, given to several calls, keeps
    what they read. Both take one prompt at a time, but for the native engine, which takes any number.

    `global_attention_mask` [B, L] names the tokens of a source that see all and are seen by all, in models such as LED.
    `prefix_length` [B] is how many first tokens of a prompt see each other, in a decoder with a prefix; None: all.
    `mixture` [B, K]: each text has K sources, which are rows of `input_ids` [B·K, L] next to each other; these are the
    logarithms of their weights, and each token's chance is the weighted sum over them (RAG-Token).
    `fusion=K`: each text has K sources likewise; each is read alone, and the decoder attends to all of them, one after
    another (fusion-in-decoder).
    Without a mask, tokens equal to `pad_token_id` are taken for padding where that id is not an end token.
    Raises `InputError` for options out of range, an empty prompt, and more tokens than the model has positions.

    Ids are those of transformers 5's `generate` with the same options, with these differences: sampling keeps all
    tokens unless `top_k` is given (there 50), and the default of 20 new tokens is not cut at the config's positions.
    """
    check_call(model, tokenizer, listener, compile)
    if model.format is not None and options.get("strategy") is None:
        options = {"engine": {"format": model.format}, **options}
    speculation: Speculation | None = options.pop("speculation", None)
    prefixes: PrefixCache | None = options.pop("prefix_cache", None)
    mixture, fusion = options.pop("mixture", None), options.pop("fusion", None)
    if options.get("strategy") is None and isinstance(prediction_kind(model.config), c.WholeText):
        options["strategy"] = MaskPredict()
    chosen = resolve_options(options, model.provenance.generation)
    if speculation is not None:
        check_speculation(model, speculation, chosen, compile)
    if mixture is not None or fusion is not None:
        refuse_several_sources("fusion" if mixture is None else "mixture", chosen, speculation, prefixes,
                               None if mixture is None else fusion)
    if chosen.strategy is not None:
        return write_otherwise(model, input_ids, attention_mask, chosen)
    if chosen.num_beams > 1 and listener is not None:
        raise InputError("beams change until the end, so their tokens cannot be streamed", where="listener",
                         remedy="use num_beams=1")
    with torch.inference_mode():
        check_tokens(chosen, model.config.output_embed.vocab)
        prompt = read_prompt(model, input_ids, attention_mask, options=chosen)
        prompt = complete_prompt(model.config, prompt, global_attention_mask, prefix_length, fusion)
        limit = prompt.ids.shape[1] + chosen.new_tokens(prompt.ids.shape[1])
        read, written = positions_ahead(model.front, prompt.source is not None)
        check_length(model.config, prompt, limit, ahead=read if prompt.source is None else written)
        texts = prompt if mixture is None else check_mixture(model.config, prompt, mixture)
        if chosen.by_numpy and all(one is None for one in (speculation, prefixes, mixture, prompt.mask)):
            prompt = texts = replace(prompt, ids=prompt.ids.cpu().numpy())
            listener = give_tensors(listener)  # numpy takes less time between two tokens
        rules = make_search_rules(chosen, texts, limit=limit, tokenizer=tokenizer)
        search, start = make_search(chosen, texts.ids, rules), prompt.ids.shape[1]
        prompt = prompt if speculation is None and prefixes is None else drop_padding(prompt)
        if prefixes is not None:
            check_prefix_cache(model, prompt, chosen, compile)
        if speculation is None:
            feed = inner = make_feed(model, prompt, chosen, capacity=limit, compiled=compile, mixture=mixture)
        else:
            feed = make_speculative_feed(model, prompt, chosen, search, speculation)
            inner = feed.feed
        if prefixes is None:
            ids = torch.as_tensor(decode(feed, search, listener))
        else:
            assert isinstance(inner, KeepsRows), "check_prefix_cache refuses models without a cache"
            maker = fingerprint_weights(model), chosen.engine
            prefixes.restore(inner, prompt, chosen.rows, maker)
            ids = decode(feed, search, listener)
            written = ids[:, start:] if isinstance(search, RowSearch) else None
            prefixes.keep(inner, read_texts(prompt, written, chosen.rows, rules.fill), maker)
    return ids.clone()  # outside inference mode, so that the caller may change it


def complete_prompt(config: c.Transformer, prompt: Prompt, global_mask: Tensor | None, prefix_length: Tensor | None,
                    fusion: int | None) -> Prompt:
    """Return a prompt with what a call says of it beside ids and mask. Raises `InputError` for what does not fit it."""
    prompt = prompt if global_mask is None else add_global_tokens(prompt, global_mask)
    prompt = add_prefix_lengths(prompt, config, prefix_length)
    return prompt if fusion is None else join_sources(prompt, fusion)


def give_tensors(listener: Listener | None) -> Listener | None:
    """Return a listener to numpy's arrays that hands tensors on; None stays None."""
    return None if listener is None else lambda tokens: listener(torch.from_numpy(tokens))


def write_otherwise(model: Transformer, input_ids: Tensor | None, attention_mask: Tensor | None,
                    options: GenerationOptions) -> Tensor:
    """Write by a strategy that does not go from left to right. Shapes: as `generate`."""
    if isinstance(options.strategy, MaskPredict):
        from saucier.generation.mask_predict import mask_predict

        return mask_predict(model, input_ids, attention_mask, options, options.strategy)
    from saucier.generation.chains import run_chains

    return run_chains(model, input_ids, attention_mask, options).ids


def refuse_several_sources(what: str, options: GenerationOptions, *others: object) -> None:
    """Raise `InputError` where a text cannot have several sources: one not written from left to right, and `others`
    that read one source, or read several otherwise.
    """
    if options.strategy is not None:
        raise InputError("several sources are for texts that are written from left to right", where=what,
                         remedy="leave strategy out")
    if any(one is not None for one in others):
        raise InputError("several sources are read at a time, mixed or joined, and guesses and kept beginnings are of "
                         "one", where=what, remedy="leave speculation and prefix_cache out, and one of mixture, fusion")


def make_feed(model: Transformer, prompt: Prompt, options: GenerationOptions, *, capacity: int,
              compiled: bool, mixture: Tensor | None = None) -> Feed:
    """Return the feed that options and config ask for: an engine, a key-value cache, a memory, or reading all again.

    `mixture` [B, K]: what the sources of a text give is mixed. Raises `InputError` for a model that this cannot be done
    with.
    """
    copies = options.rows
    if mixture is not None:
        inner = make_feed(model, prompt, options, capacity=capacity, compiled=compiled)
        return MixtureFeed(inner, mixture.to(prompt.ids.device).float(), copies)
    if options.engine is not None:
        if compiled or not options.use_cache:
            raise InputError("the native engine cannot go with " + ("compile" if compiled else "use_cache=False"),
                             where="engine", remedy="leave one of them out")
        from saucier.generation.native_feed import make_native_feed

        return make_native_feed(model, prompt, options.engine, copies=copies, capacity=capacity)
    config = model.config
    stack = config.decoder or config.encoder
    assert stack is not None, "read_prompt refuses a model without stacks"
    memory = stack.memory is not None and stack.memory.evaluation
    cached = options.use_cache or config.encoder is not None
    if cached and not memory and config.decoder is not None and prediction_kind(config).kind == "next":
        if compiled:
            from saucier.generation.compiled_step import make_compiled_reader

            read = make_compiled_reader(model)
            return CachedFeed(inference_view(model), prompt, read=read, copies=copies, capacity=capacity)
        view = inference_view(use_packed_weights(model))
        return CachedFeed(view, prompt, read=partial(read_token, view), copies=copies, capacity=capacity)
    if compiled:
        raise InputError("only steps that read a key-value cache are compiled, and this model keeps none",
                         where="compile", remedy="leave it out")
    return (MemoryFeed if memory else RereadFeed)(inference_view(use_packed_weights(model)), prompt, copies=copies)


def drop_padding(prompt: Prompt) -> Prompt:
    """Return a prompt of one row without its padding, which other rows alone need; any other as it is."""
    if prompt.mask is None or prompt.source is not None or len(prompt.ids) > 1:
        return prompt
    padding = int(prompt.mask.argmax(1))
    return replace(prompt, ids=prompt.ids[:, padding:], mask=None,
                   prefix=None if prompt.prefix is None else prompt.prefix - padding)


def make_speculative_feed(model: Transformer, prompt: Prompt, options: GenerationOptions, search: Search,
                          speculation: Speculation) -> SpeculativeFeed:
    """Return a feed that reads guesses ahead. Raises `InputError` for more rows than it can, and a draft model's room.
    """
    assert isinstance(search, RowSearch), "check_speculation refuses beams"
    rows, columns = len(search.ids), prompt.ids.shape[1]
    if options.engine is None and rows > 1:
        raise InputError(f"{rows} rows, and guesses are read for one row at a time", where="speculation",
                         remedy="use engine=Native(), which takes any number, or one prompt at a time")
    lengths = torch.full((len(prompt.ids),), columns) if prompt.mask is None else prompt.mask.sum(1).cpu()
    models = [model, speculation.model] if isinstance(speculation, Draft) else [model]
    feeds: list[ReadsAhead] = []
    for one in models:
        check_length(one.config, prompt, search.rules.limit)
        feed = make_feed(one, prompt, options, capacity=search.rules.limit, compiled=False)
        assert isinstance(feed, ReadsAhead), "check_speculation refuses models without a cache"
        feeds.append(feed)
    lengths = lengths.repeat_interleave(options.rows)
    guesses = make_guesses(speculation, prompt, search, model.config, feeds[1] if len(feeds) > 1 else None, lengths)
    return SpeculativeFeed(feeds[0], guesses, search, lengths, speculation.tokens, speculation.acceptance)
