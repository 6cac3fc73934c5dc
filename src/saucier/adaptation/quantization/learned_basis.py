"""LQ-Nets: each number of a row is a sum of the row's learned basis, every part of it added or subtracted.

Letters: O rows, I inputs, K numbers of a basis, L = 2^K levels.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from saucier.adaptation.quantization.packing import pack, row_bytes, unpack
from saucier.adaptation.quantization.schemes import LearnedBasis


def sign_table(bits: int, device: torch.device) -> Tensor:
    """Return the signs of every code: bit k of the code says whether part k is added. Shapes: -> [L, K], float32."""
    codes = torch.arange(2**bits, device=device)[:, None]
    return ((codes >> torch.arange(bits, device=device) & 1) * 2 - 1).float()


def nearest_codes(weight: Tensor, basis: Tensor) -> Tensor:
    """Return the code of the level nearest to each value. Shapes: [O, I], [O, K] -> [O, I].

    Levels are sorted, and the borders lie half way between them. Source: Zhang et al. 2018, §3.1, eq 3.
    """
    levels, order = (basis @ sign_table(basis.shape[1], basis.device).to(basis.dtype).T).sort(-1)
    place = torch.searchsorted(((levels[:, 1:] + levels[:, :-1]) / 2).contiguous(), weight.contiguous())
    return order.gather(1, place)


def fit_basis(weight: Tensor, codes: Tensor, before: Tensor) -> Tensor:
    """Return the basis of least squared error for codes. Shapes: [O, I], [O, I], [O, K] -> [O, K].

    Source: Zhang et al. 2018, §3.2, eq 7. Where signs of a row do not tell parts apart the basis stays as it was.
    """
    signs = sign_table(before.shape[1], codes.device).to(weight.dtype)[codes]
    gram, right = signs.mT @ signs, signs.mT @ weight[..., None]
    found, singular = torch.linalg.solve_ex(gram, right)
    fine = (singular == 0) & (torch.linalg.matrix_rank(gram, hermitian=True) == before.shape[1])
    return torch.where(fine[:, None], found[..., 0].nan_to_num(), before)


QUARTILE = 0.6744897501960817
"""Of the normal distribution: half of its values lie within this many deviations."""
ROWS = 4096
"""Rows of a matrix that are rounded at a time: the signs of all codes take much memory."""


def encode(weight: Tensor, form: LearnedBasis) -> dict[str, Tensor]:
    """Find codes and basis in turn ("QEM"). Shapes: [O, I] -> codes, basis.

    A round never raises the error of a row, so the last one is the best. Rows begin as the better of two uniform grids
    leads to: one over the whole range, and one over the middle of a normal distribution as the authors' code has it.
    Source: Zhang et al. 2018, §3.2, algorithm 1, and code release.
    """
    found = [encode_rows(part, form) for part in weight.double().split(ROWS)]
    return {name: torch.cat([one[name] for one in found]) for name in found[0]}


def encode_rows(weight: Tensor, form: LearnedBasis) -> dict[str, Tensor]:
    """Do the same for some rows, in float64."""
    powers = 2.0**torch.arange(form.bits, device=weight.device, dtype=weight.dtype)
    spread = weight.square().mean(1, keepdim=True).sqrt()
    steps = (weight.abs().amax(1, keepdim=True) / 2**form.bits, QUARTILE * spread / 2**(form.bits - 1))
    tried = [(basis, rounding_error(weight, basis)) for basis in (learn(weight, step * powers, form) for step in steps)]
    basis = torch.where((tried[0][1] <= tried[1][1])[:, None], tried[0][0], tried[1][0])
    return {"codes": pack(nearest_codes(weight, basis), form.bits), "basis": basis.float()}


def learn(weight: Tensor, basis: Tensor, form: LearnedBasis) -> Tensor:
    """Return a basis after some rounds, as float32 holds it. Shapes: [O, I], [O, K] -> [O, K], float64."""
    for _ in range(form.rounds):
        basis = fit_basis(weight, nearest_codes(weight, basis), basis)
    return basis.float().double()


def rounding_error(weight: Tensor, basis: Tensor) -> Tensor:
    """Return the squared error of each row. Shapes: [O, I], [O, K] -> [O]."""
    signs = sign_table(basis.shape[1], basis.device).to(basis.dtype)
    return ((basis @ signs.T).gather(1, nearest_codes(weight, basis)) - weight).square().sum(1)


def decode(parts: Mapping[str, Tensor], shape: tuple[int, int], form: LearnedBasis) -> Tensor:
    """Return the numbers. Shapes: -> [O, I], float32."""
    basis = parts["basis"]
    levels = (basis[:, None] * sign_table(form.bits, basis.device)).cumsum(-1)[..., -1]  # alike for any number of rows
    return levels.gather(1, unpack(parts["codes"], shape[1], form.bits).long())


def layout(shape: tuple[int, int], form: LearnedBasis) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
    """Say which tensors there are."""
    return {"codes": ((shape[0], row_bytes(shape[1], form.bits)), torch.uint8),
            "basis": ((shape[0], form.bits), torch.float32)}


def fault(parts: Mapping[str, Tensor], shape: tuple[int, int], form: LearnedBasis) -> str:
    """Say what is wrong with the tensors."""
    return "" if bool(parts["basis"].isfinite().all()) else "basis is not finite"


def multiply_bits(left: Tensor, left_basis: Tensor, right: Tensor, right_basis: Tensor) -> Tensor:
    """Return the products of two matrices of this format by bits alone: xnor, and the count of ones.

    `Σ_i Σ_j v_i u_j (2 · popcount(xnor(b_i, c_j)) - I)`. Codes are whole numbers of as many bits as each basis has
    numbers. Shapes: left [T, I] with basis [T, K], right [O, I] with basis [O, M] -> [T, O], float64.
    Source: Zhang et al. 2018, §3.1, eq 5 (C eq 58).
    """
    inputs, total = left.shape[1], left_basis.new_zeros(len(left), len(right), dtype=torch.float64)
    for i in range(left_basis.shape[1]):
        for j in range(right_basis.shape[1]):
            same = pack(left >> i & 1, 1)[:, None] ^ ~pack(right >> j & 1, 1)[None]  # of two equal bits xnor is 1
            spare = -inputs % 8  # bits after the last input are zero in both, and so count as equal
            equal = count_ones(same) - spare
            total += left_basis[:, i, None].double() * right_basis[:, j].double() * (2 * equal - inputs)
    return total


def count_ones(packed: Tensor) -> Tensor:
    """Return the number of ones in the bytes of each row. Shapes: [..., P] -> [...]."""
    table = (torch.arange(256, device=packed.device)[:, None] >> torch.arange(8, device=packed.device) & 1).sum(-1)
    return table[packed.int()].sum(-1)
