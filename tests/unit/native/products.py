"""Products by the library, and what they read, for the tests."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable

import numpy as np
import torch

from saucier.native import library
from saucier.native.library import CInput, CProduct
from saucier.native.matrices import Format, Matrix, store_matrix


def address(array: np.ndarray) -> int:
    return array.ctypes.data


def round_activations(x: np.ndarray, matrix: Matrix, block: int | None = None) -> np.ndarray:
    """What an integer matrix is multiplied with: codes of -127..127 times the largest value of their block."""
    if matrix.scales is None:
        return x.astype(np.float64)
    block = block or library.load_library().saucier_block(matrix.struct)
    found = x.astype(np.float64)
    for start in range(0, x.shape[1], block):
        part = x[:, start:start + block]
        largest = np.abs(part).max(1, keepdims=True)
        inverse = np.divide(np.float32(127), largest, out=np.zeros_like(largest), where=largest > 0)
        scaled = part * inverse
        codes = np.trunc(scaled + np.where(scaled < 0, np.float32(-0.5), np.float32(0.5)))
        found[:, start:start + block] = codes.astype(np.float64) * (largest / np.float32(127))
    return found


def multiply(path: str, matrix: Matrix, x: np.ndarray, *, bias: np.ndarray | None = None, activation: int = 0,
             base: np.ndarray | None = None, threads: int = 1) -> np.ndarray:
    tokens, inputs = x.shape
    units = -(-inputs // 32) * 32
    block = library.load_library().saucier_block(matrix.struct)
    blocks = (inputs // block + 8) // 8 * 8
    codes, scales, sums = (np.empty((tokens, size), dtype) for size, dtype in (
        (units, np.int8), (blocks, np.float32), (blocks, np.float32)))
    to = np.zeros((tokens, len(matrix.codes)), np.float32) if base is None else base.copy()
    product = CProduct(
        ctypes.pointer(matrix.struct),
        CInput(address(x), inputs, address(codes), address(scales), address(sums), tokens, units, blocks, block),
        None if bias is None else address(bias), address(to), to.shape[1], activation, int(base is not None))
    library.load_library().saucier_product(path.encode(), product, threads)
    return to


def use_stored_numbers(model: torch.nn.Module, parts: Iterable[torch.nn.Module], form: Format) -> None:
    """Let maps of a model in float64 multiply what their stored matrices stand for by what their rounded inputs are."""
    stored = {one: store_matrix(one.weight.detach().float().numpy(), form) for part in parts for one in part.modules()
              if isinstance(one, torch.nn.Linear)}

    def multiply(layer: torch.nn.Linear, given: tuple[torch.Tensor]) -> torch.Tensor:
        read = round_activations(given[0].flatten(0, -2).float().numpy(), stored[layer])
        return torch.from_numpy(read).view_as(given[0])

    with torch.no_grad():
        for layer, matrix in stored.items():
            layer.weight.copy_(torch.from_numpy(matrix.values()))
            layer.register_forward_pre_hook(multiply)


def check_apart(found: np.ndarray, expected: np.ndarray, form: Format) -> None:
    """Numbers are equal but for inputs between two codes, which may be rounded to the other one."""
    apart = np.abs(found - expected)
    assert np.median(apart) < 1e-5 * expected.std()
    assert apart.max() < (1e-4 if form in ("float32", "bfloat16") else 1e-2) * expected.std()
