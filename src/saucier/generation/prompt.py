"""What a call of `generate` asks for, checked: the prompt with its masks and start tokens. What a search follows is in
`rules.py`.

Letters: B prompts, L length, S source length.
"""

from __future__ import annotations

from dataclasses import replace
from types import NoneType

import torch
from torch import Tensor

from saucier import config as c
from saucier.errors import InputError, expect
from saucier.generation.options import GenerationOptions
from saucier.generation.rules import Prompt
from saucier.model import Transformer
from saucier.parts.input_checks import check_ids, check_values, expect_tensor

MIXTURE_TOLERANCE = 1e-3
"""How far the logarithm of the sum of a text's weights may be from 0, for what rounding does."""


def check_call(model: object, tokenizer: object, listener: object, compiled: object) -> None:
    """Raise `InputError` for arguments of `generate` that are of another kind."""
    expect(model, Transformer, "model", "give one that saucier.load or saucier.build made")
    expect(compiled, bool, "compile", "give True or False")
    for name, value, can, remedy in (
            ("tokenizer", tokenizer, hasattr(tokenizer, "decode"), "give one that saucier.load_tokenizer gives"),
            ("listener", listener, callable(listener), "give a function that takes the new tokens")):
        if value is not None and not can:
            expect(value, NoneType, name, remedy)


def read_prompt(model: Transformer, ids: Tensor | None, mask: Tensor | None, *, options: GenerationOptions) -> Prompt:
    """Return what the model begins with. Shapes: ids [B, L or S], mask the same.

    Raises `InputError` for a model that writes nothing, and ids or masks that do not fit it.
    """
    config = model.config
    if not config.writes:
        raise InputError("this model does not write: it has no " + ("decoder" if config.decoder is None
                                                                    else "language head"),
                         where="model", remedy="use one with a decoder and a language head")
    device = model.device
    if config.encoder is None or config.decoder is None:
        ids = start_prompt(ids, options).to(device)
        mask = check_mask(config.embed, ids, mask, padding=options.padding)
        if mask is not None:
            check_left_padded(mask)
        return Prompt(ids, mask)
    if ids is None:
        raise InputError("an encoder-decoder needs a source", where="input_ids",
                         remedy="give input_ids [batch, length]")
    ids = expect_tensor("input_ids", ids).to(device)
    one_vocabulary = config.input_embed.vocab == config.output_embed.vocab
    mask = check_mask(config.input_embed, ids, mask, padding=options.padding if one_vocabulary else None)
    start = torch.full((len(ids), 1), find_start_token(config, options), device=device)
    return Prompt(start, source=ids, source_mask=mask)


def add_global_tokens(prompt: Prompt, named: Tensor) -> Prompt:
    """Return the prompt with the global tokens of its source. Raises `InputError` where there is no source."""
    expect_tensor("global_attention_mask", named)
    if prompt.source is None or prompt.source.shape != named.shape:
        raise InputError(f"global tokens of shape {list(named.shape)}, and no source of it",
                         where="global_attention_mask", remedy="give one number for each token of a source")
    check_values("global_attention_mask", named, "mask")
    return replace(prompt, source_global=named.to(prompt.source.device))


def join_sources(prompt: Prompt, count: object) -> Prompt:
    """Return a prompt whose texts read `count` sources each, joined. Raises `InputError` for what does not fit."""
    if prompt.source is None:
        raise InputError("a decoder alone has no sources to join", where="fusion", remedy="use an encoder-decoder")
    if type(count) is not int or count < 1 or len(prompt.ids) % count:
        raise InputError(f"{len(prompt.ids)} sources, and {str(count)[:40]} of each text", where="fusion",
                         remedy="give the number of sources of each text, and the sources of a text next to each other")
    return replace(prompt, ids=prompt.ids[::count], sources=count)


def check_mixture(config: c.Transformer, prompt: Prompt, mixture: Tensor) -> Prompt:
    """Return the beginning of each text, which several rows of the prompt are sources of. Shapes: mixture [B, K].

    Raises `InputError` for a model without a source, weights of another shape, and such that are no probabilities.
    """
    expect_tensor("mixture", mixture)
    if prompt.source is None:
        raise InputError("a decoder alone has no sources to mix", where="mixture", remedy="use an encoder-decoder")
    if mixture.ndim != 2 or mixture.numel() != len(prompt.ids):
        raise InputError(f"weights of shape {list(mixture.shape)} for {len(prompt.ids)} sources", where="mixture",
                         remedy="give [texts, sources of each], and the sources of a text next to each other")
    sums = mixture.detach().double().logsumexp(1)
    if not bool((sums.abs() < MIXTURE_TOLERANCE).all()):
        raise InputError(f"the weights of a text have the sum {float(sums.exp()[sums.abs().argmax()]):.4g}",
                         where="mixture", remedy="give logarithms of probabilities, such as scores.log_softmax(-1)")
    return replace(prompt, ids=prompt.ids[::mixture.shape[1]])


def add_prefix_lengths(prompt: Prompt, config: c.Transformer, length: Tensor | None) -> Prompt:
    """Return the prompt with its prefix: all of it, or its first `length` [B] tokens.

    Raises `InputError` where the stack that writes knows no prefix, and for lengths of another shape.
    """
    stack = config.decoder or config.encoder
    if not c.sees_prefix(stack):
        if length is not None:
            raise InputError("the model knows no prefix", where="prefix_length", remedy="leave it out")
        return prompt
    rows, columns = prompt.ids.shape
    if length is None:
        return replace(prompt, prefix=torch.full((rows,), columns, device=prompt.ids.device))
    check_values("prefix_length", expect_tensor("prefix_length", length), "whole")
    if length.shape != (rows,) or bool((length < 0).any()):
        raise InputError(f"prefixes of shape {list(length.shape)} for {rows} rows", where="prefix_length",
                         remedy="give one number for each row, 0 or more")
    padding = prompt.padding
    length = length.to(prompt.ids.device).clamp(max=columns)
    return replace(prompt, prefix=length if padding is None else (length + padding).clamp(max=columns))


def start_prompt(ids: Tensor | None, options: GenerationOptions) -> Tensor:
    """Return the prompt, or the begin token where it is empty. Shapes: [B, L] -> [B, L or 1]."""
    if ids is not None and expect_tensor("input_ids", ids).ndim == 2 and ids.shape[1]:
        return ids
    if options.bos_token_id is None:
        raise InputError("the prompt is empty" if ids is None or ids.ndim == 2
                         else f"the prompt has {ids.ndim} dimensions",
                         where="input_ids", remedy="give ids [batch, length], or bos_token_id to begin with")
    rows = 1 if ids is None else len(ids)
    return torch.full((rows, 1), options.bos_token_id)


def check_mask(embed: c.Embedding, ids: Tensor, mask: Tensor | None, *, padding: int | None) -> Tensor | None:
    """Check ids and mask, find padding where there is no mask; None where all tokens are real.

    `padding`: its id, where that is no token of a text.

    Shapes: [B, L] -> [B, L].
    """
    if ids.ndim != 2 or ids.numel() == 0:
        raise InputError(f"ids of shape {list(ids.shape)}", where="input_ids", remedy="give int64 ids [batch, length]")
    check_ids("input_ids", ids, embed.vocab, None)
    if mask is None and padding is not None:
        mask = ids != padding
    if mask is None:
        return None
    if expect_tensor("attention_mask", mask).shape != ids.shape:
        raise InputError(f"mask of shape {list(mask.shape)} for ids of {list(ids.shape)}", where="attention_mask",
                         remedy="give one number for each token")
    check_values("attention_mask", mask, "mask")
    mask = mask.to(ids.device).bool()
    empty = (~mask.any(1)).nonzero()
    if len(empty):
        raise InputError(f"row {int(empty[0])} holds no token that is not padding", where="attention_mask",
                         remedy="remove the row, or give it a token")
    return None if bool(mask.all()) else mask.long()


def check_left_padded(mask: Tensor) -> None:
    """Refuse rows that end with padding: new tokens would not come right after the text."""
    wrong = (mask[:, -1] == 0).nonzero().flatten().tolist()
    if wrong:
        raise InputError(f"row {wrong[0]} ends with padding", where="attention_mask",
                         remedy="pad prompts on the left; if that is no padding, give attention_mask")


def find_start_token(config: c.Transformer, options: GenerationOptions) -> int:
    """Return what the text of an encoder-decoder begins with."""
    start = options.bos_token_id if options.decoder_start_token_id is None else options.decoder_start_token_id
    if start is None:
        raise InputError("nothing to begin the text with", where="decoder_start_token_id",
                         remedy="give it (T5: the pad id), or bos_token_id")
    if not 0 <= start < config.output_embed.vocab:
        raise InputError(f"token {start} is outside the vocabulary of {config.output_embed.vocab}",
                         where="decoder_start_token_id",
                         remedy="use the model's own start token")
    return start
