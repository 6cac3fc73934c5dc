"""The number formats of GGUF: how many numbers are stored together, in how many bytes, and what these stand for.

Blocks of 32 have a scale of their own in float16; those of the K family have 256 numbers in 8 or 16 parts, whose scales
(and minima) are whole numbers of few bits times one or two numbers in float16.
Source: ggml-common.h and ggml-quants.c of the ggml project.
Letters: N blocks, C numbers of a block.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor

Bytes = NDArray[np.uint8]
"""[N, bytes of a block]."""
Values = NDArray[np.float32]
"""[N, C]."""


@dataclass(frozen=True, slots=True)
class Blocks:
    """One number format."""

    name: str
    count: int
    """Numbers of a block."""
    nbytes: int
    decode: Callable[[Bytes], Tensor]
    """Gives the numbers of all blocks, flat."""
    encode: Callable[[Tensor], Bytes] | None = None
    """Rounds numbers in float32 to the nearest blocks, as llama.cpp does; None: it is only read."""


def halves(raw: Bytes) -> Values:
    """Read numbers in float16. Shapes: [N, 2k] -> [N, k]."""
    return np.ascontiguousarray(raw).view("<f2").astype(np.float32)


def nibbles(raw: Bytes) -> NDArray[np.uint8]:
    """Split bytes into their lower halves and then their upper ones. Shapes: [N, k] -> [N, 2k]."""
    return np.concatenate([raw & 15, raw >> 4], axis=1)


def high_bits(raw: Bytes) -> NDArray[np.uint8]:
    """Return the fifth bits of 32 codes, in place. Shapes: [N, 4] -> [N, 32]."""
    return (np.unpackbits(raw, axis=1, bitorder="little") << 4).astype(np.uint8)


def read_q4_0(raw: Bytes) -> Values:
    """Scale, 16 bytes."""
    return halves(raw[:, :2]) * (nibbles(raw[:, 2:]).astype(np.float32) - 8)


def read_q4_1(raw: Bytes) -> Values:
    """Scale, least number, 16 bytes."""
    return halves(raw[:, :2]) * nibbles(raw[:, 4:]) + halves(raw[:, 2:4])


def read_q5_0(raw: Bytes) -> Values:
    """Scale, 4 bytes of fifth bits, 16 bytes."""
    return halves(raw[:, :2]) * ((nibbles(raw[:, 6:]) | high_bits(raw[:, 2:6])).astype(np.float32) - 16)


def read_q5_1(raw: Bytes) -> Values:
    """Scale, least number, 4 bytes of fifth bits, 16 bytes."""
    return halves(raw[:, :2]) * (nibbles(raw[:, 8:]) | high_bits(raw[:, 4:8])) + halves(raw[:, 2:4])


def read_q8_0(raw: Bytes) -> Values:
    """Scale, 32 bytes."""
    return halves(raw[:, :2]) * raw[:, 2:].view(np.int8).astype(np.float32)


def two_bits(raw: Bytes) -> NDArray[np.uint8]:
    """Split 64 bytes into codes of two bits: each 32 bytes hold four times 32. Shapes: [N, 64] -> [N, 256]."""
    parts = raw.reshape(-1, 2, 1, 32) >> np.array([0, 2, 4, 6], np.uint8).reshape(1, 1, 4, 1)
    return (parts & 3).astype(np.uint8).reshape(-1, 256)


def four_bits(raw: Bytes, width: int) -> NDArray[np.uint8]:
    """Split 128 bytes into codes of four bits, `width` bytes at a time, lower halves first. Shapes: -> [N, 256]."""
    parts = raw.reshape(-1, 128 // width, 1, width) >> np.array([0, 4], np.uint8).reshape(1, 1, 2, 1)
    return (parts & 15).astype(np.uint8).reshape(-1, 256)


def spread(scales: NDArray[np.floating], parts: int) -> Values:
    """Repeat the scales of parts for their numbers. Shapes: [N, parts] -> [N, 256]."""
    return np.repeat(scales.astype(np.float32), 256 // parts, axis=1)


def read_q2_k(raw: Bytes) -> Values:
    """16 bytes of scales and minima (4 bits each), 64 of codes, scale and minimum."""
    scale, least = halves(raw[:, 80:82]), halves(raw[:, 82:84])
    return spread(scale * (raw[:, :16] & 15), 16) * two_bits(raw[:, 16:80]) - spread(least * (raw[:, :16] >> 4), 16)


def read_q3_k(raw: Bytes) -> Values:
    """32 bytes of third bits, 64 of codes, 12 of scales in six bits, scale."""
    third = np.unpackbits(raw[:, :32].reshape(-1, 32, 1), axis=2, bitorder="little").transpose(0, 2, 1).reshape(-1, 256)
    packed = raw[:, 96:108]
    lower = np.concatenate([packed[:, :8] & 15, packed[:, :8] >> 4], axis=1)
    upper = (packed[:, None, 8:] >> np.array([0, 2, 4, 6], np.uint8).reshape(1, 4, 1) & 3).reshape(-1, 16)
    scales = (lower | upper << 4).astype(np.int8) - 32
    codes: Values = two_bits(raw[:, 32:96]).astype(np.float32) - np.float32(4) * (third == 0)
    found: Values = spread(halves(raw[:, 108:110]) * scales, 16) * codes
    return found


def six_bit_scales(packed: Bytes) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Return scales and minima of eight parts, of which 12 bytes hold six bits each. Shapes: [N, 12] -> [N, 8] twice.
    """
    first, second, third = packed[:, :4], packed[:, 4:8], packed[:, 8:]
    scales = np.concatenate([first & 63, third & 15 | first >> 6 << 4], axis=1)
    return scales, np.concatenate([second & 63, third >> 4 | second >> 6 << 4], axis=1)


def read_q4_k(raw: Bytes) -> Values:
    """Scale, minimum, 12 bytes of both for eight parts, 128 of codes."""
    scales, minima = six_bit_scales(raw[:, 4:16])
    return (spread(halves(raw[:, :2]) * scales, 8) * four_bits(raw[:, 16:], 32)
            - spread(halves(raw[:, 2:4]) * minima, 8))


def read_q5_k(raw: Bytes) -> Values:
    """As the one of four bits, with 32 bytes of fifth bits before the codes."""
    scales, minima = six_bit_scales(raw[:, 4:16])
    fifth = np.unpackbits(raw[:, 16:48].reshape(-1, 32, 1), axis=2, bitorder="little").transpose(0, 2, 1)
    codes = four_bits(raw[:, 48:], 32) | fifth.reshape(-1, 256) << 4
    return spread(halves(raw[:, :2]) * scales, 8) * codes - spread(halves(raw[:, 2:4]) * minima, 8)


def read_q6_k(raw: Bytes) -> Values:
    """128 bytes of lower bits, 64 of upper ones, 16 scales in eight bits, scale."""
    codes = (four_bits(raw[:, :128], 64) | two_bits(raw[:, 128:192]) << 4).astype(np.float32) - 32
    return spread(halves(raw[:, 208:210]) * np.ascontiguousarray(raw[:, 192:208]).view(np.int8), 16) * codes


def read_q8_k(raw: Bytes) -> Values:
    """Scale in float32, 256 bytes, sums that are not needed."""
    return np.ascontiguousarray(raw[:, :4]).view("<f4") * raw[:, 4:260].view(np.int8).astype(np.float32)


def from_numpy(read: Callable[[Bytes], Values]) -> Callable[[Bytes], Tensor]:
    """Return what gives the numbers as a tensor."""
    def decode(raw: Bytes) -> Tensor:
        import torch

        with np.errstate(all="ignore"):  # a damaged scale may be no number
            return torch.from_numpy(np.ascontiguousarray(read(raw), dtype=np.float32)).flatten()

    return decode


def view_as(dtype: str) -> Callable[[Bytes], Tensor]:
    """Return what sees bytes as numbers of a format of PyTorch's."""
    def decode(raw: Bytes) -> Tensor:
        import torch

        return torch.from_numpy(raw).flatten().view(getattr(torch, dtype))

    return decode


def write_as(dtype: str) -> Callable[[Tensor], Bytes]:
    """Return what gives the bytes of numbers in a format of PyTorch's."""
    def encode(tensor: Tensor) -> Bytes:
        import torch

        raw: Bytes = tensor.to(getattr(torch, dtype)).contiguous().flatten().view(torch.uint8).numpy()
        return raw

    return encode


def round_away(values: Values) -> Values:
    """Round to the nearest whole number, halves away from zero, as C's roundf does."""
    found: Values = np.trunc(values + np.copysign(np.float32(0.5), values))
    return found


def inverse(scales: Values) -> Values:
    """Return 1 / scale, 0 where it is 0."""
    return np.divide(np.float32(1), scales, out=np.zeros_like(scales), where=scales != 0)


def write_q8_0(tensor: Tensor) -> Bytes:
    """The largest number is 127 steps."""
    values = tensor.contiguous().numpy().reshape(-1, 32)
    scales = (np.abs(values).max(axis=1, keepdims=True) / np.float32(127)).astype(np.float32)
    codes = round_away(values * inverse(scales)).astype(np.int8)
    return np.concatenate([scales.astype("<f2").view(np.uint8), codes.view(np.uint8)], axis=1)


def write_q4_0(tensor: Tensor) -> Bytes:
    """The number that is largest without its sign is -8 steps, so a step may be negative."""
    values = tensor.contiguous().numpy().reshape(-1, 32)
    largest = np.take_along_axis(values, np.abs(values).argmax(axis=1)[:, None], axis=1)
    scales = (largest / np.float32(-8)).astype(np.float32)
    codes = np.trunc(values * inverse(scales) + np.float32(8.5)).clip(0, 15).astype(np.uint8)
    return np.concatenate([scales.astype("<f2").view(np.uint8), codes[:, :16] | codes[:, 16:] << 4], axis=1)


BLOCKS: Mapping[int, Blocks] = {
    0: Blocks("F32", 1, 4, view_as("float32"), write_as("float32")),
    1: Blocks("F16", 1, 2, view_as("float16"), write_as("float16")),
    2: Blocks("Q4_0", 32, 18, from_numpy(read_q4_0), write_q4_0),
    3: Blocks("Q4_1", 32, 20, from_numpy(read_q4_1)),
    6: Blocks("Q5_0", 32, 22, from_numpy(read_q5_0)),
    7: Blocks("Q5_1", 32, 24, from_numpy(read_q5_1)),
    8: Blocks("Q8_0", 32, 34, from_numpy(read_q8_0), write_q8_0),
    10: Blocks("Q2_K", 256, 84, from_numpy(read_q2_k)),
    11: Blocks("Q3_K", 256, 110, from_numpy(read_q3_k)),
    12: Blocks("Q4_K", 256, 144, from_numpy(read_q4_k)),
    13: Blocks("Q5_K", 256, 176, from_numpy(read_q5_k)),
    14: Blocks("Q6_K", 256, 210, from_numpy(read_q6_k)),
    15: Blocks("Q8_K", 256, 292, from_numpy(read_q8_k)),
    28: Blocks("F64", 1, 8, view_as("float64")),
    30: Blocks("BF16", 1, 2, view_as("bfloat16"), write_as("bfloat16")),
}
"""Number in the file -> number format."""
KINDS = {one.name: kind for kind, one in BLOCKS.items()}
NAMES = {9: "Q8_1", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S", 20: "IQ4_NL", 21: "IQ3_S", 22: "IQ2_S",
         23: "IQ4_XS", 24: "I8", 25: "I16", 26: "I32", 27: "I64", 29: "IQ1_M", 34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4"}
"""Names of those that are not read."""


def read_codes(kind: int, raw: Bytes) -> tuple[NDArray[np.uint8], NDArray[np.float16], NDArray[np.uint8]] | None:
    """Return blocks as `scale * (code - zero)` exactly, with scales that are not negative; None for other formats.

    A negative step of Q4_0 is turned round: code c becomes 15 - c, and its zero 7 instead of 8.
    Shapes: [N, bytes] -> codes [N, 32], scales [N], zeros [N].
    """
    scales = np.ascontiguousarray(raw[:, :2]).view("<f2")[:, 0]
    match BLOCKS[kind].name:
        case "Q8_0":
            flipped = np.signbit(scales)
            signed = raw[:, 2:].view(np.int8).astype(np.int16)
            codes = np.where(flipped[:, None], 127 - signed, signed + 128).astype(np.uint8)
            return codes, np.abs(scales), np.where(flipped, 127, 128).astype(np.uint8)
        case "Q4_0":
            flipped = np.signbit(scales)
            codes = nibbles(raw[:, 2:])
            return (np.where(flipped[:, None], 15 - codes, codes), np.abs(scales),
                    np.where(flipped, 7, 8).astype(np.uint8))
        case _:
            return None
