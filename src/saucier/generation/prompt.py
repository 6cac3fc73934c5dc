"""Reading the prompt: shapes, masks and start tokens, and the errors of what cannot be continued.

Letters: B prompts, L length, S source length.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from saucier import config as c
from saucier.errors import InputError
from saucier.generation.feed import Prompt
from saucier.generation.options import GenerationOptions
from saucier.model import Transformer
from saucier.parts.input_checks import check_ids, tensor


def read_prompt(model: Transformer, ids: Tensor | None, mask: Tensor | None, *, options: GenerationOptions) -> Prompt:
    """Return what the model begins with. Shapes: ids [B, L or S], mask the same.

    Raises `InputError` for a model that writes nothing, and ids or masks that do not fit it.
    """
    config = model.config
    if not config.writes:
        raise InputError("this model does not write: it has no " + ("decoder" if config.decoder is None
                                                                    else "language head"),
                         where="model", remedy="use one with a decoder and a language head")
    device = model.embed.tokens.weight.device
    if config.encoder is None or config.decoder is None:
        ids = begun(ids, options).to(device)
        mask = checked_mask(config.embed, ids, mask, padding=options.padding)
        check_left_padded(mask)
        return Prompt(ids, mask)
    if ids is None:
        raise InputError("an encoder-decoder needs a source", where="input_ids",
                         remedy="give input_ids [batch, length]")
    ids = tensor("input_ids", ids).to(device)
    one_vocabulary = config.input_embed.vocab == config.output_embed.vocab
    mask = checked_mask(config.input_embed, ids, mask, padding=options.padding if one_vocabulary else None)
    start = torch.full((len(ids), 1), start_token(config, options), device=device)
    return Prompt(start, source=ids, source_mask=mask)


def with_global(prompt: Prompt, named: Tensor | None) -> Prompt:
    """Return the prompt with the global tokens of its source. Raises `InputError` where there is no source."""
    if named is None:
        return prompt
    if prompt.source is None or prompt.source.shape != named.shape:
        raise InputError(f"global tokens of shape {list(named.shape)}, and no source of it",
                         where="global_attention_mask", remedy="give one number for each token of a source")
    return replace(prompt, source_global=named.to(prompt.source.device))


def with_prefix(prompt: Prompt, config: c.Transformer, length: Tensor | None) -> Prompt:
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
    if length.shape != (rows,) or bool((length < 0).any()):
        raise InputError(f"prefixes of shape {list(length.shape)} for {rows} rows", where="prefix_length",
                         remedy="give one number for each row, 0 or more")
    padding = prompt.padding
    length = length.to(prompt.ids.device).clamp(max=columns)
    return replace(prompt, prefix=length if padding is None else (length + padding).clamp(max=columns))


def begun(ids: Tensor | None, options: GenerationOptions) -> Tensor:
    """Return the prompt, or the begin token where it is empty. Shapes: [B, L] -> [B, L or 1]."""
    if ids is not None and tensor("input_ids", ids).ndim == 2 and ids.shape[1]:
        return ids
    if options.bos_token_id is None:
        raise InputError("the prompt is empty" if ids is None or ids.ndim == 2
                         else f"the prompt has {ids.ndim} dimensions",
                         where="input_ids", remedy="give ids [batch, length], or bos_token_id to begin with")
    rows = 1 if ids is None else len(ids)
    return torch.full((rows, 1), options.bos_token_id)


def checked_mask(embed: c.Embedding, ids: Tensor, mask: Tensor | None, *, padding: int | None) -> Tensor | None:
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
    if tensor("attention_mask", mask).shape != ids.shape:
        raise InputError(f"mask of shape {list(mask.shape)} for ids of {list(ids.shape)}", where="attention_mask",
                         remedy="give one number for each token")
    mask = mask.to(ids.device).bool()
    empty = (~mask.any(1)).nonzero()
    if len(empty):
        raise InputError(f"row {int(empty[0])} holds no token that is not padding", where="attention_mask",
                         remedy="remove the row, or give it a token")
    return None if bool(mask.all()) else mask.long()


def check_left_padded(mask: Tensor | None) -> None:
    """Refuse rows that end with padding: new tokens would not stand next to the text."""
    wrong = [] if mask is None else (mask[:, -1] == 0).nonzero().flatten().tolist()
    if wrong:
        raise InputError(f"row {wrong[0]} ends with padding", where="attention_mask",
                         remedy="pad prompts on the left; if that is no padding, give attention_mask")


def start_token(config: c.Transformer, options: GenerationOptions) -> int:
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


def positions_limit(config: c.Transformer) -> int | None:
    """Return how many positions the stack that writes has tables for; None where any length works."""
    stack = config.decoder or config.encoder
    assert stack is not None, "read_prompt refuses models without stacks"
    embed = config.output_embed.positions
    room = c.longest_input(embed)
    return min([*([] if room is None else [room]), *c.stack_room(stack)], default=None)


def check_length(config: c.Transformer, prompt: Prompt, limit: int, *, ahead: int = 0) -> None:
    """Refuse a text that would be longer than the model's positions, of which some may be taken before the text."""
    have, length = positions_limit(config), prompt.ids.shape[1]
    have = None if have is None else have - ahead
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
