"""LQ-Nets: each number of a row is a sum of the row's learned basis, every part of it added or subtracted.

Letters: O rows, I inputs, K numbers of a basis, L = 2^K levels.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from saucier.adaptation.quantization.config import LearnedBasis
from saucier.adaptation.quantization.packing import pack, row_bytes, unpack


def sign_table(bits: int, device: torch.device) -> Tensor:
    """Return the signs of every code: bit k of the code says whether part k is added. Shapes: -> [L, K], float32."""
    codes = torch.arange(2**bits, device=device)[:, None]
    return ((codes >> torch.arange(bits, device=device) & 1) * 2 - 1).float()


def nearest_codes(weight: Tensor, basis: Tensor) -> Tensor:
    """Return the code of the level nearest to each value. Shapes: [O, I], [O, K] -> [O, I].

    Levels are sorted, and the borders lie half way between them. Source: Zhang et al. 2018, §3.1, eq 3.
    """
    levels, order = (basis @ sign_table(basis.shape[1], basis.device).T).sort(-1)
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


def encode(weight: Tensor, form: LearnedBasis) -> dict[str, Tensor]:
    """Find codes and basis in turn ("QEM"), from the levels of a uniform grid. Shapes: [O, I] -> codes, basis.

    Source: Zhang et al. 2018, §3.2, algorithm 1. A round never raises the error of a row, so the last one is the best.
    """
    wide = weight.double()
    steps = wide.abs().amax(1, keepdim=True) / 2**form.bits
    basis = steps * 2.0**torch.arange(form.bits, device=weight.device)  # levels ±1, ±3, …, half a step inside the range
    codes = nearest_codes(wide, basis)
    for _ in range(form.rounds):
        basis = fit_basis(wide, codes, basis)
        codes = nearest_codes(wide, basis)
    stored = basis.float()
    return {"codes": pack(nearest_codes(wide, stored.double()), form.bits), "basis": stored}


def decode(parts: Mapping[str, Tensor], shape: tuple[int, int], form: LearnedBasis) -> Tensor:
    """Return the numbers. Shapes: -> [O, I], float32."""
    basis = parts["basis"]
    levels = basis @ sign_table(form.bits, basis.device).T
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
