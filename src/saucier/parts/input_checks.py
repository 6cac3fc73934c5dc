"""What a model is called with: tensors of shapes that go together, ids that the tables have; else one line says which.

A mask that broadcasts, or that is longer than the text, would give numbers and no error. Nothing is looked at while a
model is compiled, and no values in a step of one token, whose ids come from the model itself.
Letters: B batch, N choices, L length of the ids, S of the source, T of the target.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import NoneType
from typing import Any

import torch
from torch import Tensor

from saucier import config as c
from saucier.config.base import validate_again
from saucier.devices import choose_device, refuse_narrow
from saucier.errors import InputError, expect
from saucier.parts.inputs import Inputs
from saucier.parts.output import Cache
from saucier.parts.prefix import VirtualTokens, split_by_side

ROWS, LENGTH, ANY, ONE = "rows", "length", "any", "rows or one"
TEXT, PLACES = (ROWS, LENGTH), (ONE, LENGTH)
FIRST_INPUTS = {"token_type_ids": TEXT, "position_ids": PLACES, "places": PLACES, "documents": TEXT, "input_mask": TEXT,
                "global_attention_mask": PLACES, "langs": TEXT, "lengths": (ROWS,), "prefix_length": (ROWS,),
                "inputs_embeds": (ROWS, LENGTH, ANY),
                "characters": (ROWS, LENGTH, ANY), "perm_mask": (ROWS, LENGTH, LENGTH), "global_input_ids": (ROWS, ANY),
                "target_mapping": (ROWS, ANY, LENGTH), "encoder_hidden_states": (ROWS, ANY, ANY)}
"""Inputs that go with `input_ids`, and what each of their dimensions is."""
SECOND_INPUTS = {"decoder_position_ids": PLACES, "decoder_places": PLACES, "decoder_documents": TEXT}
"""Those that go with `decoder_input_ids`."""
ID_FORMATS = (torch.int64, torch.int32)


def check_build(config: object, seed: object, dtype: object, device: str | torch.device | None) -> torch.device:
    """Return where a model is to be built. Raises `InputError` for what makes none."""
    expect(config, c.Transformer, "config", "give a saucier.config.Transformer, such as recipe(...).model")
    if isinstance(config, c.Transformer):
        validate_again(config)
    expect(seed, int, "seed", "give a whole number from 0")
    if not isinstance(seed, int) or not 0 <= seed < 2**63:
        raise InputError(f"is {str(seed)[:40]}", where="seed", remedy="give a whole number from 0")
    expect(dtype, (torch.dtype, NoneType), "dtype", "give a format of torch, such as torch.float32")
    if isinstance(dtype, torch.dtype):
        refuse_narrow(dtype)
    return choose_device("cpu" if device is None else device)


UNREAD = {"mems": ("this model has no memory", "leave it out"),
          "global_attention_mask": ("this model has no global tokens", "leave it out"),
          "perm_mask": ("no attention of this model hides keys from single queries",
                        "leave it out, or use a model with kind: permutation"),
          "target_mapping": ("this model has no second stream to ask with",
                             "leave it out, or use a model with queries")}
"""Inputs that few models read -> why a model does not, and what to do."""


def refuse_unread_inputs(config: c.Transformer, inputs: Inputs) -> None:
    """Raise `InputError` for inputs that no part of the model reads, and that would be dropped without a word."""
    for name in UNREAD.keys() & inputs.keys():
        if not reads_input(config, name):
            reason, remedy = UNREAD[name]
            raise InputError(reason, where=name, remedy=remedy)


def reads_input(config: c.Transformer, name: str) -> bool:
    """Say whether a model reads one of `UNREAD`."""
    stacks = config.stacks
    seen = [[one.visibility for one in stack.attentions()] for stack in stacks]
    match name:
        case "mems":
            return stacks[0].memory is not None or len(stacks) > 1
        case "target_mapping":
            return stacks[0].queries is not None
        case "perm_mask":
            return all(any(c.hides_keys(one) for one in of_stack) for of_stack in seen)
    return any(c.global_terms(one) for one in seen[0])


def check_inputs(tables: tuple[c.Embedding, c.Embedding], ids: Tensor | None, mask: Tensor | None, inputs: Inputs, *,
                 pair: bool, cache: Cache | None = None, front: VirtualTokens | None = None) -> None:
    """Raise `InputError` for inputs that do not go together, or that the model's tables do not have.

    `tables`: what ids are looked up in, read and written ones; `pair`: there is an encoder and a decoder; `front`: a
    prefix or a prompt, whose places in the cache and in the encoder's output masks leave out.
    """
    if torch.compiler.is_compiling():
        return
    given: dict[str, Any] = {"input_ids": ids, **inputs}
    read, written = positions_ahead(front, pair)
    past = 0 if cache is None else cache.length
    if ids is not None:
        check_ids("input_ids", ids, tables[0].vocab, cache, read="inputs_embeds" not in given)
    first = next((name for name in ("input_ids", "inputs_embeds", *(("encoder_output",) if pair else ()))
                  if given.get(name) is not None), None)
    if first is not None:
        like = expect_tensor(first, given[first])
        if mask is not None:
            check_mask(mask, first, like, 0 if pair else past, read)
        for name in FIRST_INPUTS.keys() & given.keys() - {first}:
            check_shape(name, given[name], first, like, FIRST_INPUTS[name])
        if "token_type_ids" in given:
            check_segments(tables[0], given["token_type_ids"], cache)
    if "encoder_hidden_states" in given and "encoder_attention_mask" in given:
        check_shape("encoder_attention_mask", given["encoder_attention_mask"], "encoder_hidden_states",
                    expect_tensor("encoder_hidden_states", given["encoder_hidden_states"]), TEXT)
    if pair and "decoder_input_ids" in given:
        target = given["decoder_input_ids"]
        check_ids("decoder_input_ids", target, tables[1].vocab, cache)
        if first is not None and len(like) != len(target):
            raise InputError(f"{len(target)} rows do not go with {first} of {list(like.shape)}",
                             where="decoder_input_ids", remedy="give as many rows on both sides")
        if "decoder_attention_mask" in given:
            check_mask(given["decoder_attention_mask"], "decoder_input_ids", target, past, written)
        for name in SECOND_INPUTS.keys() & given.keys():
            check_shape(name, given[name], "decoder_input_ids", target, SECOND_INPUTS[name])


def positions_ahead(front: VirtualTokens | None, pair: bool) -> tuple[int, int]:
    """Return how many places come before what the first stack reads, and before what a second one writes."""
    if front is None or not pair:
        return (0 if front is None else front.length), 0
    read, written = split_by_side(front)
    return (0 if read is None else read.length), (0 if written is None else written.length)


def check_ids(name: str, ids: Any, vocab: int, cache: Cache | None, *, read: bool = True) -> None:
    """Refuse what are no ids [B, L] (of choices [B, N, L]), and ids that a table of `vocab` rows does not have.

    `read`: whether they are looked up at all.
    """
    expect_tensor(name, ids)
    if ids.dim() not in ((2, 3) if name == "input_ids" else (2,)) or ids.dtype not in ID_FORMATS:
        raise InputError(f"ids of shape {list(ids.shape)} and type {str(ids.dtype).removeprefix('torch.')}",
                         where=name, remedy="give int64 ids [batch, length]")
    if read and (wrong := find_outside_id(ids, vocab, cache)) is not None:
        raise InputError(f"token {wrong} is outside the vocabulary of {vocab}", where=name,
                         remedy="use the model's own tokenizer")


def check_segments(embed: c.Embedding, segments: Tensor, cache: Cache | None) -> None:
    """Refuse segments that the table does not have."""
    if not isinstance(embed.segments, c.SegmentTable):
        return
    if segments.dtype not in ID_FORMATS:
        raise InputError(f"of type {str(segments.dtype).removeprefix('torch.')}", where="token_type_ids",
                         remedy="give int64 numbers")
    if (wrong := find_outside_id(segments, embed.segments.count, cache)) is not None:
        raise InputError(f"segment {wrong} is outside the table of {embed.segments.count}", where="token_type_ids",
                         remedy="number the segments from 0")


def find_outside_id(ids: Tensor, count: int, cache: Cache | None) -> int | None:
    """Return an id that a table of `count` rows does not have; None where all are there, or are not looked at."""
    step = cache is not None and ids.shape[-1] == 1
    if step or ids.device.type == "meta" or not ids.numel():
        return None
    low, high = (int(one) for one in torch.stack(ids.aminmax()).tolist())
    return low if low < 0 else high if high >= count else None


def check_mask(mask: Any, other: str, like: Tensor, past: int, ahead: int) -> None:
    """Refuse a mask that has not one number for each token, those that the cache holds included."""
    name = "decoder_attention_mask" if other == "decoder_input_ids" else "attention_mask"
    *rows, length = like.shape if other.endswith("ids") else like.shape[:2]
    expected = [[*rows, length + past], [*rows, length + past - ahead]]
    if list(expect_tensor(name, mask).shape) not in expected:
        raise shape_error(name, mask, other, like, expected[0])


def check_shape(name: str, value: Any, other: str, like: Tensor, dimensions: tuple[str, ...]) -> None:
    """Refuse a tensor whose dimensions are not those of the ids. Of choices all rows may stand under one another."""
    shape = list(expect_tensor(name, value).shape)
    if like.dim() == 3 and other == "input_ids":
        if LENGTH not in dimensions[1:2] or shape[:3] == list(like.shape):
            return
        like = like.flatten(0, 1)
    sizes = {ROWS: [len(like)], ONE: [len(like), 1], LENGTH: [like.shape[1]]}
    if len(shape) != len(dimensions) or any(kind != ANY and size not in sizes[kind]
                                            for size, kind in zip(shape, dimensions, strict=True)):
        raise shape_error(name, value, other, like, ["..." if kind == ANY else sizes[kind][0] for kind in dimensions])


def shape_error(name: str, value: Tensor, other: str, like: Tensor, expected: Sequence[int | str]) -> InputError:
    """Return the error that names both shapes."""
    shape = ", ".join(map(str, expected))
    return InputError(f"shape {list(value.shape)} does not go with {other} of {list(like.shape)}", where=name,
                      remedy=f"give [{shape}]")


def expect_tensor(name: str, value: Any) -> Tensor:
    """Return a tensor. Raises `InputError` for anything else."""
    if not isinstance(value, Tensor):
        raise InputError(f"is {type(value).__name__}, and no tensor", where=name,
                         remedy="give a tensor, such as a tokenizer makes: tokenizer([text])")
    return value
