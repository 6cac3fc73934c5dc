"""Matrices in few bits as GPTQ, AWQ and compressed-tensors store them, and back: whole numbers, scales and zero points.

For a map with weights [O, I], `scale * (code - zero)`, words of 32 bits, the lowest bit first, no gaps:

gptq                qweight [I·bits/32, O], codes along the inputs; scales [G, O]; qzeros [G, O·bits/32]; g_idx [I]
awq (gemm)          qweight [I, O/8], along the outputs, of each eight 0 2 4 6 1 3 5 7; scales [G, O]; qzeros [G, O/8]
pack-quantized      weight_packed [O, ⌈I·bits/32⌉]; weight_scale [O, G]; weight_zero_point [⌈O·bits/32⌉, G], along the
                    outputs; weight_shape [2]; codes and zero points are signed, and stored + 2^(bits - 1)
int-quantized       weight [O, I] int8, weight_scale [O, 1], weight_zero_point [O, 1] int8

Source: code releases of AutoGPTQ, AutoAWQ and compressed-tensors.
Letters: O outputs, I inputs, G groups of a row, W words.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from saucier.adaptation.quantization.formats import DTYPES, Parts, code_offset, read_codes
from saucier.adaptation.quantization.packing import pack, unpack
from saucier.adaptation.quantization.schemes import IndexedIntegers, Integers, ScaleFormat, Symmetric, ZeroPoint
from saucier.errors import InputError

AWQ_PLACES = torch.tensor([0, 4, 1, 5, 2, 6, 3, 7])
"""At which place of a word of AWQ the eight outputs are, in their order."""
DAMAGED = "the file was changed, or does not belong to this config.json; copy the folder again"
Read = Callable[[str], Tensor]
"""Gives a tensor of a matrix by the end of its name. Raises `InputError` where there is none."""


@dataclass(frozen=True, slots=True)
class Codes:
    """A matrix [O, I] as `scales * (codes - zeros)`."""

    codes: Tensor
    """[O, I], int32, from 0."""
    scales: Tensor
    """[O, G], in the format in which they are stored."""
    zeros: Tensor
    """[O, G], int32."""
    bits: int
    group: int | None
    """Inputs that share a scale; None: all of a row."""
    index: Tensor | None = None
    """[I], int32: the group of each input, where they are out of order (`desc_act`)."""

    def values(self) -> Tensor:
        """Return the numbers [O, I], float32."""
        groups = torch.arange(self.codes.shape[1]) // (self.group or self.codes.shape[1])
        groups = groups if self.index is None else self.index.long()
        return self.scales.float()[:, groups] * (self.codes - self.zeros[:, groups])

    def store(self) -> tuple[Integers | IndexedIntegers, Parts]:
        """Return the number format that holds exactly this, and its tensors; the symmetric one where it can."""
        half = 2 ** (self.bits - 1)
        symmetric = bool((self.zeros == half).all()) and bool((self.codes > 0).all())
        span, scales = Symmetric() if symmetric else ZeroPoint(), name_format(self.scales)
        parts = {"codes": pack(self.codes, self.bits), "scales": self.scales.contiguous()}
        form: Integers | IndexedIntegers = Integers(bits=self.bits, group=self.group, range=span, scales=scales)
        if self.index is not None:
            form = IndexedIntegers(bits=self.bits, groups=self.scales.shape[1], range=span, scales=scales)
            parts["index"] = self.index
        return form, parts if symmetric else parts | {"zeros": pack(self.zeros, self.bits)}


def name_format(scales: Tensor) -> ScaleFormat:
    """Return the name of the number format of scales."""
    return next(name for name in get_args(ScaleFormat) if DTYPES[name] == scales.dtype)


@dataclass(frozen=True, slots=True)
class Grouping:
    """How many bits a code has, and how many inputs share a scale (None: all of a row)."""

    bits: int
    group: int | None

    def groups(self, inputs: int) -> int:
        """Return how many groups a row has."""
        return -(-inputs // self.group) if self.group else 1

    def of(self, inputs: int) -> int | None:
        """Return the group of a row of so many inputs; None where it is all of it."""
        return self.group if self.group and self.group < inputs else None


def read_checked(read: Read, end: str, shape: Sequence[int] | None, dtypes: Sequence[torch.dtype]) -> Tensor:
    """Return a tensor. Raises `ValueError` for one of another shape (None: any of two axes) or number format."""
    found = read(end)
    right = found.dim() == 2 and found.numel() if shape is None else tuple(found.shape) == tuple(shape)
    if found.dtype not in dtypes or not right:
        known = [str(one).removeprefix("torch.") for one in (found.dtype, *dtypes)]
        size = "with two axes" if shape is None else list(shape)
        raise ValueError(f"{end} is {known[0]} {list(found.shape)} instead of {' or '.join(known[1:])} {size}")
    return found


def read_scales(read: Read, end: str, shape: Sequence[int]) -> Tensor:
    """Return scales. Raises `ValueError` for a wrong shape, and for what is negative or no number."""
    scales = read_checked(read, end, shape, tuple(DTYPES.values()))
    if not bool(scales.isfinite().all()) or bool((scales < 0).any()):
        raise ValueError(f"{end} has values that are negative or not finite")
    return scales


def unpack_words(words: Tensor, count: int, bits: int) -> Tensor:
    """Take codes out of the rows of words. Shapes: [N, W] int32 -> [N, count] int32."""
    # flat before it is seen as bytes: a single column may have any stride and still be called contiguous
    return unpack(words.contiguous().flatten().view(torch.uint8).view(len(words), -1), count, bits)


def pack_words(codes: Tensor, bits: int) -> Tensor:
    """Put the codes of each row into words. Shapes: [N, count] -> [N, W] int32."""
    packed = pack(codes, bits)
    return F.pad(packed, (0, -packed.shape[1] % 4)).contiguous().view(torch.int32)


def read_gptq_zeros(read: Read, bits: int) -> Tensor:
    """Return the zero points of a matrix as they are stored, [G, O], int32. Raises `ValueError` for other shapes."""
    words = read_checked(read, "qzeros", None, [torch.int32])
    return unpack_words(words, words.shape[1] * 32 // bits, bits)


def read_gptq(read: Read, grouping: Grouping, shift: int) -> Codes:
    """Read a matrix of GPTQ; `shift` is added to the zero points. Raises `ValueError` for what does not fit together.
    """
    bits = grouping.bits
    words = read_checked(read, "qweight", None, [torch.int32])
    inputs, outputs = words.shape[0] * 32 // bits, words.shape[1]
    if words.shape[0] * 32 % bits or outputs * bits % 32:
        raise ValueError(f"qweight is {list(words.shape)}, which does not hold whole rows of {bits} bits")
    groups = grouping.groups(inputs)
    read_checked(read, "qzeros", (groups, outputs * bits // 32), [torch.int32])
    zeros, scales = read_gptq_zeros(read, bits) + shift, read_scales(read, "scales", (groups, outputs))
    if int(zeros.max()) >= 2**bits:
        raise ValueError(f"qzeros has a zero point of {int(zeros.max())}, which {bits} bits do not hold")
    return Codes(unpack_words(words.T, inputs, bits), scales.T, zeros.T, bits, grouping.of(inputs),
                 read_order(read, "g_idx", inputs, grouping))


def read_order(read: Read, end: str, inputs: int, grouping: Grouping) -> Tensor | None:
    """Return the group of each input [I], int32; None where they are in order, or the file, which may, says nothing.

    Raises `ValueError` for an index of another size, and for one that names a group that is not there.
    """
    try:
        index = read(end)
    except InputError:
        return None
    groups = grouping.groups(inputs)
    if tuple(index.shape) != (inputs,) or index.is_floating_point():
        raise ValueError(f"{end} is {list(index.shape)} instead of {[inputs]} whole numbers")
    if not 0 <= int(index.min()) <= int(index.max()) < groups:
        raise ValueError(f"{end} names groups from {int(index.min())} to {int(index.max())}, and there are {groups}")
    in_order = torch.equal(index.long(), torch.arange(inputs) // (grouping.of(inputs) or inputs))
    return None if in_order else index.int()


def read_awq(read: Read, grouping: Grouping) -> Codes:
    """Read a matrix of AWQ, of the version `gemm`. Raises `ValueError` for what does not fit together."""
    words = read_checked(read, "qweight", None, [torch.int32])
    inputs, outputs = words.shape[0], words.shape[1] * 8
    groups = grouping.groups(inputs)
    zeros = read_checked(read, "qzeros", (groups, words.shape[1]), [torch.int32])
    scales = read_scales(read, "scales", (groups, outputs))

    def spread(packed: Tensor) -> Tensor:
        return cast(Tensor, unpack_words(packed, outputs, 4).unflatten(1, (-1, 8))[..., AWQ_PLACES].flatten(1).T)

    return Codes(spread(words), scales.T, spread(zeros), 4, grouping.of(inputs))


def read_packed(read: Read, groupings: Sequence[Grouping]) -> Codes:
    """Read a matrix of pack-quantized, by the one of the config's groupings that its sizes fit.

    Raises `ValueError` for what does not fit together, and where several fit that differ.
    """
    words = read_checked(read, "weight_packed", None, [torch.int32])
    outputs, inputs = read_checked(read, "weight_shape", (2,), [torch.int64, torch.int32]).tolist()
    if outputs != words.shape[0] or not 0 < inputs <= words.shape[1] * 32:
        raise ValueError(f"weight_shape says {[outputs, inputs]}, and weight_packed is {list(words.shape)}")
    scales = read("weight_scale")
    columns = scales.shape[1] if scales.dim() == 2 else 1
    fits = {(one.bits, one.of(inputs)): one for one in groupings
            if -(-inputs * one.bits // 32) == words.shape[1] and one.groups(inputs) == columns}
    if len(fits) != 1:
        raise ValueError(f"weight_packed is {list(words.shape)} and weight_scale {list(scales.shape)} for "
                         f"{[outputs, inputs]} numbers, which {'more than one' if fits else 'no'} group of the config "
                         "says")
    one = next(iter(fits.values()))
    half = 2 ** (one.bits - 1)
    return Codes(unpack_words(words, inputs, one.bits), row_scales(read, outputs, columns),
                 read_signed_zeros(read, outputs, columns, one.bits) + half, one.bits, one.of(inputs),
                 read_order(read, "weight_g_idx", inputs, one))


def row_scales(read: Read, outputs: int, columns: int) -> Tensor:
    """Return the scales of rows or their groups [O, G]; one of a whole matrix is that of each row."""
    if read("weight_scale").numel() == 1:
        return read_scales(read, "weight_scale", read("weight_scale").shape).reshape(1, 1).repeat(outputs, 1)
    return read_scales(read, "weight_scale", (outputs, columns))


def read_signed_zeros(read: Read, outputs: int, columns: int, bits: int) -> Tensor:
    """Return zero points [O, G], int32, around 0: packed along the outputs, or plain int8; 0 where there are none."""
    try:
        found = read("weight_zero_point")
    except InputError:
        return torch.zeros(outputs, columns, dtype=torch.int32)
    half = 2 ** (bits - 1)
    if found.dtype == torch.int32:
        words = read_checked(read, "weight_zero_point", (-(-outputs * bits // 32), columns), [torch.int32])
        return cast(Tensor, unpack_words(words.T, outputs, bits).T - half)
    shape = found.shape if found.numel() == 1 else (outputs, columns)
    zeros = read_checked(read, "weight_zero_point", shape, [torch.int8]).int()
    if not -half <= int(zeros.min()) <= int(zeros.max()) < half:
        raise ValueError(f"weight_zero_point has values that {bits} bits do not hold")
    return zeros.reshape(1, 1).expand(outputs, columns) if found.numel() == 1 else zeros


def read_int8(read: Read, groupings: Sequence[Grouping]) -> Codes:
    """Read a matrix of int-quantized. Raises `ValueError` for what does not fit together."""
    weight = read_checked(read, "weight", None, [torch.int8])
    bits = max(one.bits for one in groupings)
    if bits != 8:
        raise ValueError(f"weight is int8, and the config says {bits} bits")
    return Codes(weight.int() + 128, row_scales(read, len(weight), 1),
                 read_signed_zeros(read, len(weight), 1, bits) + 128, bits, None)


def is_centred(parts: Mapping[str, Tensor], form: Integers) -> bool:
    """Say whether every zero point of a matrix is the middle of the codes."""
    return "zeros" not in parts or bool((unpack(parts["zeros"], parts["scales"].shape[1], form.bits)
                                         == 2 ** (form.bits - 1)).all())


def describe_packed(shape: tuple[int, int], form: Integers, symmetric: bool) -> dict[str, Any]:
    """Return what the config of pack-quantized says of the weights of a matrix."""
    group = form.group if form.group and form.group < shape[1] else None
    return {"num_bits": form.bits, "type": "int", "symmetric": symmetric, "dynamic": False,
            "strategy": "group" if group else "channel", "group_size": group}


def write_packed(parts: Mapping[str, Tensor], shape: tuple[int, int], form: Integers,
                 split: Callable[[Tensor], list[Tensor]], symmetric: bool) -> list[dict[str, Tensor]]:
    """Return the tensors of pack-quantized of each part of a matrix, whose rows `split` divides.

    `symmetric` leaves out the zero points, which must be in the middle then.
    """
    codes, grid = read_codes(parts, shape[1], form)
    zeros = grid.zeros.int() if isinstance(form.range, ZeroPoint) else grid.zeros.int() + code_offset(form)
    found = []
    for one, scales, zero in zip(split(codes + code_offset(form)), split(parts["scales"]), split(zeros), strict=True):
        tensors = {"weight_packed": pack_words(one, form.bits), "weight_scale": scales.contiguous(),
                   "weight_shape": torch.tensor(one.shape)}
        if not symmetric:
            tensors["weight_zero_point"] = pack_words(zero.T, form.bits).T.contiguous()
        found.append(tensors)
    return found
