"""What a model is called with: tensors of shapes that go together, ids that the tables have; else one line says which.

A mask that broadcasts, or that is longer than the text, would give numbers and no error. Types and shapes are checked
on every device, values on a CPU alone, where they cost no waiting. While a model is compiled only the mask's shape is
looked at, and in a step of one token, whose ids come from the model itself, no values.
Letters: B batch, N choices, L length of the ids, S of the source, T of the target.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import NoneType
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import Parameter

from saucier import config as c
from saucier.config.base import validate_again
from saucier.devices import choose_device, is_traced, refuse_narrow
from saucier.errors import InputError, expect
from saucier.parts.inputs import Inputs
from saucier.parts.output import Cache
from saucier.parts.prefix import VirtualTokens, split_by_side

ROWS, LENGTH, ANY, ONE = "rows", "length", "any", "rows or one"
TEXT, PLACES, VECTORS = (ROWS, LENGTH), (ONE, LENGTH), (ROWS, LENGTH, ANY)
Values = Literal["whole", "mask", "vectors", "any"]
"""What a tensor holds: whole numbers, zeros and ones of any type, finite fractions, or what its part looks at."""
Rule = tuple[tuple[str, ...], Values]
FIRST_INPUTS: Mapping[str, Rule] = {
    "token_type_ids": (TEXT, "whole"), "position_ids": (PLACES, "whole"), "places": (PLACES, "whole"),
    "documents": (TEXT, "whole"), "langs": (TEXT, "whole"), "lengths": ((ROWS,), "whole"),
    "prefix_length": ((ROWS,), "whole"), "characters": (VECTORS, "any"), "global_input_ids": ((ROWS, ANY), "whole"),
    "input_mask": (TEXT, "mask"), "global_attention_mask": (PLACES, "mask"),
    "perm_mask": ((ROWS, LENGTH, LENGTH), "mask"), "target_mapping": ((ROWS, ANY, LENGTH), "mask"),
    "inputs_embeds": (VECTORS, "vectors"), "encoder_hidden_states": ((ROWS, ANY, ANY), "vectors")}
"""Inputs that go with `input_ids`: what each of their dimensions is, and what they hold."""
SECOND_INPUTS: Mapping[str, Rule] = {
    "decoder_position_ids": (PLACES, "whole"), "decoder_places": (PLACES, "whole"),
    "decoder_documents": (TEXT, "whole")}
"""Those that go with `decoder_input_ids`."""
LOOSE_INPUTS: Mapping[str, Values] = {"mc_token_ids": "whole", "question_lengths": "whole"}
"""Those that heads read, each in a shape of its own."""
SWITCHES: Mapping[str, tuple[type, ...]] = {"use_mems": (bool,), "output_router_logits": (bool,), "num_hashes": (int,)}
"""Inputs that are no tensors."""
ID_FORMATS = (torch.int64, torch.int32)
REMEDIES: Mapping[Values, str] = {"whole": "give int64 numbers", "mask": "give 1 for a real token, 0 for another",
                                  "vectors": "give finite numbers"}


@dataclass(frozen=True, slots=True)
class Tables:
    """What the inputs of a model are held against."""

    read: c.Embedding
    """What the ids of the first side are looked up in."""
    written: c.Embedding
    """What those of the text that is written are looked up in."""
    vectors: int
    """Width of `inputs_embeds`."""
    encoded: int | None
    """Width of `encoder_output`; None: there is not an encoder and a decoder."""


def list_tables(config: c.Transformer) -> Tables:
    """Return what the inputs of a model are held against."""
    paired = config.encoder is not None and config.decoder is not None
    return Tables(config.input_embed, config.output_embed, config.input_embed.widths(config.reader_dim)[0],
                  config.encoder.width(config.reader_dim) if paired and config.encoder else None)


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
                             "leave it out, or use a model with queries"),
          "encoder_hidden_states": ("this model has no cross-attention", "leave it out"),
          **dict.fromkeys(("decoder_input_ids", "decoder_attention_mask", *SECOND_INPUTS, "encoder_output"),
                          ("this model has no encoder and decoder", "leave it out"))}
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
        case _ if name == "encoder_output" or name.startswith("decoder_"):
            return len(stacks) > 1
        case "encoder_hidden_states":
            return len(stacks) == 1 and config.decoder is not None and any(
                isinstance(one, c.CrossAttention) for one in config.decoder.sublayers())
        case "perm_mask":
            return all(any(c.hides_keys(one) for one in of_stack) for of_stack in seen)
    return any(c.global_terms(one) for one in seen[0])


def check_inputs(tables: Tables, ids: Tensor | None, mask: Tensor | None, inputs: Inputs, *,
                 switches: Mapping[str, object], cache: Cache | None = None,
                 front: VirtualTokens | None = None) -> None:
    """Raise `InputError` for inputs that do not go together, or that the model's tables do not have.

    `switches`: what else the pass was called with, by name; `front`: a prefix or a prompt, whose places in the cache
    and in the encoder's output masks leave out.
    """
    if torch.compiler.is_compiling():
        if cache is None and isinstance(ids, Tensor) and mask is not None:
            check_mask(mask, "input_ids", ids, 0, positions_ahead(front, tables.encoded is not None)[0])
        return
    given: dict[str, Any] = {"input_ids": ids, **inputs}
    pair = tables.encoded is not None
    expect(cache, (Cache, NoneType), "cache", "give one that model.new_cache made")
    for name, value in switches.items():
        expect(value, bool, name, "give True or False")
    read, written = positions_ahead(front, pair)
    past = 0 if cache is None else cache.length
    if ids is not None:
        check_ids("input_ids", ids, tables.read.vocab, cache, read="inputs_embeds" not in given)
    first = next((name for name in ("input_ids", "inputs_embeds", *(("encoder_output",) if pair else ()))
                  if given.get(name) is not None), None)
    if first is not None:
        like = expect_tensor(first, given[first])
        if first != "input_ids" and (like.dim() != 3 or not like.numel()):
            raise InputError(f"of shape {list(like.shape)}", where=first, remedy="give [batch, length, width]")
        if mask is not None:
            check_mask(mask, first, like, 0 if pair else past, read)
        for name in FIRST_INPUTS.keys() & given.keys():
            check_input(name, given[name], first, like, FIRST_INPUTS[name])
        check_ranges(tables, given, like, cache)
    check_others(tables, given, cache)
    if "encoder_hidden_states" in given and "encoder_attention_mask" in given:
        check_input("encoder_attention_mask", given["encoder_attention_mask"], "encoder_hidden_states",
                    expect_tensor("encoder_hidden_states", given["encoder_hidden_states"]), (TEXT, "mask"))
    if pair and "decoder_input_ids" in given:
        target = given["decoder_input_ids"]
        check_ids("decoder_input_ids", target, tables.written.vocab, cache)
        if first is not None and len(like) != len(target):
            raise InputError(f"{len(target)} rows do not go with {first} of {list(like.shape)}",
                             where="decoder_input_ids", remedy="give as many rows on both sides")
        if "decoder_attention_mask" in given:
            check_mask(given["decoder_attention_mask"], "decoder_input_ids", target, past, written)
        for name in SECOND_INPUTS.keys() & given.keys():
            check_input(name, given[name], "decoder_input_ids", target, SECOND_INPUTS[name])


def check_ranges(tables: Tables, given: Mapping[str, Any], like: Tensor, cache: Cache | None) -> None:
    """Refuse segments that the table does not have, and vectors and lengths that do not go with the first side."""
    segments = tables.read.segments
    if "token_type_ids" in given and segments is not None and segments.kind in ("table", "tokens"):
        count = segments.count if isinstance(segments, c.SegmentTable) else tables.read.vocab
        if (wrong := find_outside_id(given["token_type_ids"], count, cache)) is not None:
            raise InputError(f"segment {wrong} is outside the table of {count}", where="token_type_ids",
                             remedy="number the segments from 0")
    for name, most in (("lengths", like.shape[1]), ("prefix_length", 2**31)):
        if name in given and (wrong := find_outside_id(given[name], most + 1, None)) is not None:
            raise InputError(f"row with {wrong} of {like.shape[1]} tokens", where=name,
                             remedy="give a number of tokens for each row")
    for name, width in (("inputs_embeds", tables.vectors), ("encoder_output", tables.encoded)):
        if width is not None and name in given and expect_tensor(name, given[name]).shape[-1:] != (width,):
            raise InputError(f"vectors of shape {list(given[name].shape)}", where=name,
                             remedy=f"give [batch, length, {width}]")


def check_others(tables: Tables, given: Mapping[str, Any], cache: Cache | None) -> None:
    """Refuse what goes with no side, and is not of the kind that is read."""
    for name, kinds in SWITCHES.items():
        if name in given:
            expect(given[name], kinds, name, f"give {' or '.join(one.__name__ for one in kinds)}")
    if given.get("num_hashes", 1) < 1:
        raise InputError(f"is {given['num_hashes']}", where="num_hashes", remedy="give at least 1")
    for name in given.keys() - SWITCHES.keys() - {"mems", "encoder_states"}:
        if given[name] is not None:
            expect_tensor(name, given[name])
    for name, values in LOOSE_INPUTS.items():
        if name in given:
            check_values(name, given[name], values)
    if tables.encoded is not None and "encoder_output" in given and cache is None:
        check_values("encoder_output", given["encoder_output"], "vectors")
    for name in ("encoder_states", "mems"):
        if name in given and not is_nested_tensors(given[name], 2 if name == "encoder_states" else 1):
            raise InputError(f"is {type(given[name]).__name__}, and not what a pass gives", where=name,
                             remedy=f"give {name} of an earlier output")


def is_nested_tensors(value: Any, depth: int) -> bool:
    """Say whether a value is a list of tensors, or (`depth` 2) of lists of them."""
    if depth == 0:
        return isinstance(value, Tensor)
    return isinstance(value, list | tuple) and all(is_nested_tensors(one, depth - 1) for one in value)


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
    if ids.dim() not in ((2, 3) if name == "input_ids" else (2,)) or ids.dtype not in ID_FORMATS or not ids.numel():
        raise InputError(f"ids of shape {list(ids.shape)} and type {str(ids.dtype).removeprefix('torch.')}",
                         where=name, remedy="give int64 ids [batch, length]")
    if read and (wrong := find_outside_id(ids, vocab, cache)) is not None:
        raise InputError(f"token {wrong} is outside the vocabulary of {vocab}", where=name,
                         remedy="use the model's own tokenizer")


def find_outside_id(ids: Tensor, count: int, cache: Cache | None) -> int | None:
    """Return an id that a table of `count` rows does not have; None where all are there, or are not looked at."""
    if (cache is not None and ids.shape[-1] == 1) or not holds_values(ids):
        return None
    low, high = (int(one) for one in torch.stack(ids.aminmax()).tolist())
    return low if low < 0 else high if high >= count else None


def holds_values(value: Tensor) -> bool:
    """Say whether values may be looked at: those on a CPU, where nothing traces the pass or stands in for tensors."""
    return value.device.type == "cpu" and value.numel() > 0 and type(value) in (Tensor, Parameter) and not is_traced()


def check_values(name: str, value: Tensor, values: Values) -> None:
    """Refuse a tensor that does not hold what it should: by its type everywhere, by its numbers on a CPU."""
    if values == "any":
        return
    found = value.dtype
    right = {"whole": not (found.is_floating_point or found.is_complex or found == torch.bool),
             "mask": not found.is_complex, "vectors": found.is_floating_point}[values]
    if not right:
        raise InputError(f"of type {str(found).removeprefix('torch.')}", where=name, remedy=REMEDIES[values])
    if values == "whole" or found == torch.bool or not holds_values(value):
        return
    if values == "vectors":
        wrong = next((one for one in torch.stack(value.detach().aminmax()).tolist() if not math.isfinite(one)), None)
    else:
        others = value[(value != 0) & (value != 1)]
        wrong = others[0].item() if others.numel() else None
    if wrong is not None:
        raise InputError(f"holds {wrong:g}", where=name, remedy=REMEDIES[values])


def check_mask(mask: Any, other: str, like: Tensor, past: int, ahead: int) -> None:
    """Refuse a mask that has not one number for each token, those that the cache holds included."""
    name = "decoder_attention_mask" if other == "decoder_input_ids" else "attention_mask"
    *rows, length = like.shape if other.endswith("ids") else like.shape[:2]
    expected = [[*rows, length + past], [*rows, length + past - ahead]]
    if list(expect_tensor(name, mask).shape) not in expected:
        raise shape_error(name, mask, other, like, expected[0])
    if not past:
        check_values(name, mask, "mask")


def check_input(name: str, value: Any, other: str, like: Tensor, rule: Rule) -> None:
    """Refuse a tensor of another shape than that of the ids, or with other values than are read."""
    dimensions, values = rule
    if name != other:
        check_shape(name, value, other, like, dimensions)
    check_values(name, value, values)


def check_shape(name: str, value: Any, other: str, like: Tensor, dimensions: tuple[str, ...]) -> None:
    """Refuse a tensor whose dimensions are not those of the ids. Of choices all rows may follow one another."""
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
