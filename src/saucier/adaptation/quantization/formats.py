"""Numbers of few bits as tensors, and back: what a matrix becomes in each `StoredFormat`, the one storage of all.

The tensors of a matrix [O, I], which safetensors hold under its module's name:

integer        codes [O, ⌈I·bits/8⌉] uint8, scales [O, G]; with a zero point zeros [O, ⌈G·bits/8⌉] uint8
indexed_integer  the same, and index [I] int32: the group of each input
nf4            codes [N/2] uint8, scales [B] uint8 (float8 e4m3), scale_scales [S] float32, mean [] float32
learned_basis  codes [O, ⌈I·bits/8⌉] uint8, basis [O, bits] float32

Codes of a row follow each other without gaps, the lowest bit first: code i takes the bits i·bits to (i + 1)·bits - 1 of
the row's bytes; the rest of the last byte is zero. A symmetric code c is stored as c + 2^(bits - 1), so 0 is none.

Letters: O outputs, I inputs, G groups of a row, N values, B blocks, S blocks of scales, K numbers of a basis.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from saucier.adaptation.quantization import learned_basis
from saucier.adaptation.quantization.normal_float import PackedWeight, dequantize, quantize
from saucier.adaptation.quantization.packing import pack, row_bytes, unpack
from saucier.adaptation.quantization.schemes import (
    IndexedIntegers,
    Integers,
    LearnedBasis,
    NormalFloat,
    StoredFormat,
    Symmetric,
)

Parts = dict[str, Tensor]
"""The tensors of a matrix, by name."""
Layout = dict[str, tuple[tuple[int, ...], torch.dtype]]
"""Name -> shape and number format of each of them."""
DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
"""Name of a format of scales -> torch's."""
INTEGER_VIEWS = {torch.float32: torch.int32, torch.float16: torch.int16, torch.bfloat16: torch.int16}
"""Number format -> whole numbers of as many bits."""


@dataclass(frozen=True, slots=True)
class Codec:
    """What is done with a number format."""

    encode: Callable[[Tensor, Any], Parts]
    """Round a matrix [O, I], float32."""
    decode: Callable[[Mapping[str, Tensor], tuple[int, int], Any], Tensor]
    """Return the numbers [O, I], float32."""
    layout: Callable[[tuple[int, int], Any], Layout]
    """Say which tensors there are."""
    fault: Callable[[Mapping[str, Tensor], tuple[int, int], Any], str]
    """Say what is wrong with tensors of the right shapes; empty: nothing."""
    take: Callable[[Mapping[str, Tensor], Tensor, tuple[int, int], Any], Tensor]
    """Return some rows [N] of the numbers [N, I]."""


@dataclass(frozen=True, slots=True)
class Grid:
    """The steps of integers: `scale * (code - zero)`."""

    scales: Tensor
    """[O, G], float32, as they are stored."""
    zeros: Tensor
    """[O, G], float32 whole numbers; 0 where the range is symmetric."""
    lowest: int
    highest: int

    def round(self, weight: Tensor) -> Tensor:
        """Return the nearest codes. Shapes: weight [O, G, ...] -> the same, whole numbers in its format."""
        scales, zeros = (align(one, weight) for one in (self.scales, self.zeros))
        found = torch.where(scales > 0, weight / scales.where(scales > 0, 1), 0)
        return (found.round() + zeros).clamp(self.lowest, self.highest)

    def values(self, codes: Tensor) -> Tensor:
        """Return what codes stand for. Shapes: codes [O, G, ...] -> the same."""
        return align(self.scales, codes) * (codes - align(self.zeros, codes))


def align(values: Tensor, like: Tensor) -> Tensor:
    """Give values [O, G] the format of a tensor [O, G, ...], and as many axes."""
    return values.to(like.dtype)[(...,) + (None,) * (like.dim() - 2)]


def code_range(form: Integers | IndexedIntegers) -> tuple[int, int]:
    """Return the lowest and the highest code."""
    largest = 2**(form.bits - 1) - 1
    return (-largest, largest) if isinstance(form.range, Symmetric) else (0, 2**form.bits - 1)


def group_size(inputs: int, form: Integers) -> int:
    """Return how many inputs share a scale."""
    return min(form.group or inputs, inputs)


def split_groups(weight: Tensor, form: Integers) -> Tensor:
    """Return the groups of a matrix, the last one filled up with zeros. Shapes: [O, I] -> [O, G, group]."""
    size = group_size(weight.shape[1], form)
    missing = -weight.shape[1] % size
    padded: Tensor = F.pad(weight, (0, missing)) if missing else weight  # a copy even where nothing is missing
    groups: Tensor = padded.unflatten(1, (-1, size))
    return groups


def find_grid(groups: Tensor, form: Integers, shrink: Tensor | float = 1.0) -> Grid:
    """Return the steps for groups of weights [O, G, group]; `shrink` [O, G] narrows their ranges."""
    lowest, highest = code_range(form)
    low, high = (groups.amin(-1).clamp(max=0) * shrink).float(), (groups.amax(-1).clamp(min=0) * shrink).float()
    symmetric = isinstance(form.range, Symmetric)
    raw = torch.maximum(-low, high) / highest if symmetric else (high - low) / highest
    scales = raw.to(DTYPES[form.scales]).float()
    zeros = torch.zeros_like(scales) if symmetric else torch.where(
        scales > 0, -low / scales.where(scales > 0, 1), 0).round().clamp(lowest, highest)
    return Grid(scales, zeros, lowest, highest)


def encode_integers(weight: Tensor, form: Integers) -> Parts:
    """Round a matrix to the nearest steps. Shapes: [O, I] -> see the module."""
    groups = split_groups(weight, form)
    grid = find_grid(groups, form)
    return store_codes(grid.round(groups).flatten(1)[:, :weight.shape[1]], grid, form)


def store_codes(codes: Tensor, grid: Grid, form: Integers) -> Parts:
    """Pack codes [O, I] and their steps."""
    parts = {"codes": pack(codes.long() + code_offset(form), form.bits),
             "scales": grid.scales.to(DTYPES[form.scales])}
    return parts if isinstance(form.range, Symmetric) else parts | {"zeros": pack(grid.zeros.long(), form.bits)}


def code_offset(form: Integers | IndexedIntegers) -> int:
    """Return what is added to a code that is stored."""
    return 2**(form.bits - 1) if isinstance(form.range, Symmetric) else 0


def read_codes(parts: Mapping[str, Tensor], inputs: int, form: Integers | IndexedIntegers) -> tuple[Tensor, Grid]:
    """Return the codes [O, I], int32, and their steps."""
    scales = parts["scales"].float()
    zeros = unpack(parts["zeros"], scales.shape[1], form.bits).float() if "zeros" in parts else torch.zeros_like(scales)
    return unpack(parts["codes"], inputs, form.bits) - code_offset(form), Grid(scales, zeros, *code_range(form))


def decode_integers(parts: Mapping[str, Tensor], shape: tuple[int, int], form: Integers) -> Tensor:
    """Return the numbers. Shapes: -> [O, I], float32."""
    scales, codes = parts["scales"].float(), unpack(parts["codes"], shape[1], form.bits).float()
    grouped = split_groups(codes, form)
    grouped -= unpack(parts["zeros"], scales.shape[1], form.bits)[..., None] if "zeros" in parts else code_offset(form)
    grouped *= scales[..., None]
    return grouped.flatten(1)[:, :shape[1]]


def integer_layout(shape: tuple[int, int], form: Integers) -> Layout:
    """Say which tensors there are."""
    rows, inputs = shape
    groups = -(-inputs // group_size(inputs, form))
    found: Layout = {"codes": ((rows, row_bytes(inputs, form.bits)), torch.uint8),
                     "scales": ((rows, groups), DTYPES[form.scales])}
    zeros: Layout = {"zeros": ((rows, row_bytes(groups, form.bits)), torch.uint8)}
    return found if isinstance(form.range, Symmetric) else found | zeros


def integer_fault(parts: Mapping[str, Tensor], shape: tuple[int, int], form: Integers | IndexedIntegers) -> str:
    """Say what is wrong with the tensors of integers."""
    codes, grid = read_codes(parts, shape[1], form)
    if bool((codes < grid.lowest).any()):
        return f"codes are not in {grid.lowest} … {grid.highest}"
    if not bool((grid.scales.isfinite() & (grid.scales >= 0)).all()):
        return "scales are negative or not finite"
    spare = [("codes", shape[1]), *([("zeros", grid.scales.shape[1])] if "zeros" in parts else [])]
    return next((f"{name} has bits after its last value" for name, count in spare
                 if has_spare_bits(parts[name], count, form.bits)), "")


def refuse_encoding(weight: Tensor, form: IndexedIntegers) -> Parts:
    """Say that an index of groups comes with codes, and is not made here."""
    raise AssertionError("select_maps takes no such format")


def decode_indexed(parts: Mapping[str, Tensor], shape: tuple[int, int], form: IndexedIntegers) -> Tensor:
    """Return the numbers. Shapes: -> [O, I], float32."""
    codes, grid = read_codes(parts, shape[1], form)
    index = parts["index"].long()
    return grid.scales[:, index] * (codes - grid.zeros[:, index])


def indexed_layout(shape: tuple[int, int], form: IndexedIntegers) -> Layout:
    """Say which tensors there are."""
    rows, inputs = shape
    found: Layout = {"codes": ((rows, row_bytes(inputs, form.bits)), torch.uint8),
                     "scales": ((rows, form.groups), DTYPES[form.scales]), "index": ((inputs,), torch.int32)}
    zeros: Layout = {"zeros": ((rows, row_bytes(form.groups, form.bits)), torch.uint8)}
    return found if isinstance(form.range, Symmetric) else found | zeros


def indexed_fault(parts: Mapping[str, Tensor], shape: tuple[int, int], form: IndexedIntegers) -> str:
    """Say what is wrong with the tensors of integers whose groups have an index."""
    index = parts["index"]
    if bool((index < 0).any()) or bool((index >= form.groups).any()):
        return f"index names groups that are not in 0 … {form.groups - 1}"
    return integer_fault(parts, shape, form)


def take_indexed(parts: Mapping[str, Tensor], rows: Tensor, shape: tuple[int, int], form: IndexedIntegers) -> Tensor:
    """Return some rows; the index is that of all."""
    some = {name: part if name == "index" else part[rows] for name, part in parts.items()}
    return decode_indexed(some, (len(rows), shape[1]), form)


def has_spare_bits(packed: Tensor, count: int, bits: int) -> bool:
    """Say whether rows of packed codes have bits after their last code."""
    used = count * bits % 8
    return bool(used) and bool((packed[:, -1] >> used).any())


def take_rows(decode: Callable[..., Tensor]) -> Callable[[Mapping[str, Tensor], Tensor, tuple[int, int], Any], Tensor]:
    """Return what decodes some rows alone, for a format each of whose tensors has the rows first."""
    def take(parts: Mapping[str, Tensor], rows: Tensor, shape: tuple[int, int], form: Any) -> Tensor:
        return decode({name: part[rows] for name, part in parts.items()}, (len(rows), shape[1]), form)

    return take


def encode_normal(weight: Tensor, form: NormalFloat) -> Parts:
    """Round a matrix to NF4."""
    return dict(quantize(weight, form)._asdict())


def decode_normal(parts: Mapping[str, Tensor], shape: tuple[int, int], form: NormalFloat) -> Tensor:
    """Return the numbers. Shapes: -> [O, I], float32."""
    return dequantize(PackedWeight(**parts), torch.Size(shape), form, torch.float32)


def normal_layout(shape: tuple[int, int], form: NormalFloat) -> Layout:
    """Say which tensors there are."""
    blocks = -(-shape[0] * shape[1] // form.block)
    return {"codes": ((blocks * form.block // 2,), torch.uint8), "scales": ((blocks,), torch.uint8),
            "scale_scales": ((-(-blocks // form.scale_block),), torch.float32), "mean": ((), torch.float32)}


def normal_fault(parts: Mapping[str, Tensor], shape: tuple[int, int], form: NormalFloat) -> str:
    """Say what is wrong with the tensors of NF4."""
    floats = (parts["scales"].view(torch.float8_e4m3fn).float(), parts["scale_scales"], parts["mean"])
    return "" if all(bool(one.isfinite().all()) for one in floats) else "scales are not finite"


def take_normal(parts: Mapping[str, Tensor], rows: Tensor, shape: tuple[int, int], form: NormalFloat) -> Tensor:
    """Return some rows; blocks may go across rows, so all are widened."""
    return decode_normal(parts, shape, form)[rows]


CODECS: Mapping[type, Codec] = {
    Integers: Codec(encode_integers, decode_integers, integer_layout, integer_fault, take_rows(decode_integers)),
    IndexedIntegers: Codec(refuse_encoding, decode_indexed, indexed_layout, indexed_fault, take_indexed),
    NormalFloat: Codec(encode_normal, decode_normal, normal_layout, normal_fault, take_normal),
    LearnedBasis: Codec(learned_basis.encode, learned_basis.decode, learned_basis.layout, learned_basis.fault,
                        take_rows(learned_basis.decode))}
"""Kind of number format -> what is done with it."""


def encode(weight: Tensor, form: StoredFormat) -> Parts:
    """Round a matrix to the nearest numbers of a format. Shapes: [O, I] -> see the module."""
    return CODECS[type(form)].encode(weight.detach().float(), form)


def decode(parts: Mapping[str, Tensor], shape: tuple[int, int], form: StoredFormat) -> Tensor:
    """Return the numbers that tensors stand for. Shapes: -> [O, I], float32."""
    return CODECS[type(form)].decode(parts, shape, form)
