"""NF4: weights in four bits at the quantiles of a normal distribution, with 8-bit scales.

Letters: N values, B blocks of values, S blocks of scales.
"""

from __future__ import annotations

import importlib.util
from functools import cache
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from saucier.adaptation.quantization.schemes import NormalFloat

LARGEST_FLOAT8 = torch.finfo(torch.float8_e4m3fn).max


@cache
def nf4_levels() -> Tensor:
    """Return the 16 levels, sorted, from -1 to 1 with an exact zero. Shapes: -> [16], float32.

    Eight quantiles of the negative half of a normal distribution and nine of the positive one, of which both have the
    zero; the outermost leave equal shares of the distribution outside. Source: Dettmers et al. 2023, §3, eq 4, and
    appendix E for the values, arXiv:2305.14314.
    """
    outer = 1 - (1 / 30 + 1 / 32) / 2

    def half(count: int) -> Tensor:
        return cast(Tensor, torch.special.ndtri(torch.linspace(outer, 0.5, count + 1, dtype=torch.float64)[:-1]))

    found = torch.cat([-half(7), torch.zeros(1, dtype=torch.float64), half(8).flip(0)])
    return (found / found.max()).float()


@cache
def all_levels(device: torch.device) -> Tensor:
    """Return the two levels of every byte: that of its upper half, then that of its lower. Shapes: -> [256, 2]."""
    table = nf4_levels()
    return torch.stack([table.repeat_interleave(16), table.repeat(16)], dim=1).to(device)


class PackedWeight(NamedTuple):
    """A tensor in four bits."""

    codes: Tensor
    """[N / 2] bytes, two values each."""
    scales: Tensor
    """[B] bytes: the largest value of each block as an 8-bit float, less `mean`, over its block's scale."""
    scale_scales: Tensor
    """[S], float32."""
    mean: Tensor
    """[], float32, of the largest values."""


def quantize(weight: Tensor, store: NormalFloat) -> PackedWeight:
    """Round a tensor to four bits. Shapes: any -> see `PackedWeight`. Source: Dettmers et al. 2023, §2 eq 1 and §3."""
    flat = weight.detach().float().flatten()
    blocks = nn.functional.pad(flat, (0, -len(flat) % store.block)).view(-1, store.block)
    largest = blocks.abs().amax(1)
    scales, scale_scales, mean = quantize_scales(largest, store.scale_block)
    used = dequantize_scales(scales, scale_scales, mean, store.scale_block)
    scaled, levels = blocks / used.clamp(min=torch.finfo(torch.float32).tiny)[:, None], nf4_levels().to(weight.device)
    codes = torch.bucketize(scaled, (levels[1:] + levels[:-1]) / 2).to(torch.uint8).view(-1, 2)  # the nearest levels
    return PackedWeight(codes[:, 0] * 16 + codes[:, 1], scales, scale_scales, mean)


def quantize_scales(largest: Tensor, block: int) -> tuple[Tensor, Tensor, Tensor]:
    """Round the scales of blocks to 8-bit floats ("double quantization"). Shapes: [B] -> [B], [S], [].

    The mean is taken away first, so that signs are used. Source: Dettmers et al. 2023, §3, which says 8-bit floats
    without their kind; here they have 4 bits of exponent and 3 of fraction.
    """
    mean = largest.mean()
    centred = largest - mean
    rows = nn.functional.pad(centred, (0, -len(centred) % block)).view(-1, block)
    scale = (rows.abs().amax(1) / LARGEST_FLOAT8).clamp(min=torch.finfo(torch.float32).tiny)
    rounded = (rows / scale[:, None]).clamp(-LARGEST_FLOAT8, LARGEST_FLOAT8).to(torch.float8_e4m3fn)
    return rounded.flatten()[:len(largest)].view(torch.uint8).contiguous(), scale, mean


def dequantize_scales(scales: Tensor, scale_scales: Tensor, mean: Tensor, block: int) -> Tensor:
    """Return the largest value of each block, as it is used. Shapes: [B], [S], [] -> [B], float32."""
    values = scales.view(torch.float8_e4m3fn).float()
    return (values * scale_scales.repeat_interleave(block)[:len(values)] + mean).clamp(min=0)


def dequantize(packed: PackedWeight, shape: torch.Size, store: NormalFloat, dtype: torch.dtype) -> Tensor:
    """Widen a tensor again, by bitsandbytes where it and CUDA are there (which no test here runs)."""
    largest = dequantize_scales(packed.scales, packed.scale_scales, packed.mean, store.scale_block)
    count = shape.numel()
    if packed.codes.is_cuda and importlib.util.find_spec("bitsandbytes") is not None:
        return dequantize_on_cuda(packed.codes, largest, store, dtype)[:count].view(shape)
    values = all_levels(packed.codes.device)[packed.codes.int()].view(-1, store.block) * largest[:, None]
    return values.flatten()[:count].view(shape).to(dtype)


def dequantize_on_cuda(codes: Tensor, largest: Tensor, store: NormalFloat, dtype: torch.dtype) -> Tensor:
    """Widen by bitsandbytes' kernel, which has the same levels and the same order of halves. Shapes: -> [N]."""
    from bitsandbytes import functional

    state = functional.QuantState(absmax=largest, shape=torch.Size((2 * len(codes),)),
                                  code=nf4_levels().to(codes.device),
                                  blocksize=store.block, quant_type="nf4", dtype=dtype)
    return cast(Tensor, functional.dequantize_4bit(codes[:, None], state))
