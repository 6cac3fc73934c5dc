"""Products by the library, and what they read, for the tests."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch

from saucier.native import library
from saucier.native.library import CWideProduct
from saucier.native.matrices import Format, Matrix, Panels, lay_out_panels, make_tiles, narrow, store_matrix, widen


def address(array: np.ndarray) -> int:
    return array.ctypes.data


def find_block(matrix: Matrix) -> int:
    """How many inputs are rounded together: 128, 64 or 32, the largest of which groups are whole multiples."""
    group = matrix.struct.group
    return 128 if group >= matrix.inputs else next(size for size in (128, 64, 32) if group % size == 0)


def rounds_activations(form: Format, path: str) -> bool:
    """Whether panels are multiplied by rounded activations: those of bfloat16 where a path multiplies such numbers."""
    return form in ("int8", "int4") or (form == "bfloat16" and path in ("avx512bf16", "amx"))


def round_activations(x: np.ndarray, matrix: Matrix, path: str = "portable") -> np.ndarray:
    """What a matrix is multiplied with: codes of -127..127 times the largest value of their block where it is of whole
    numbers, and numbers of bfloat16 where `rounds_activations`."""
    if matrix.format == "bfloat16" and rounds_activations("bfloat16", path):
        return widen(narrow(x)).astype(np.float64)
    if matrix.scales is None:
        return x.astype(np.float64)
    if matrix.step is not None:
        step = np.float32(matrix.step)
        return np.rint(np.clip(x / step if step else 0 * x, -127, 127)).astype(np.float64) * step
    block = find_block(matrix)
    found = x.astype(np.float64)
    for start in range(0, x.shape[1], block):
        part = x[:, start:start + block]
        largest = np.abs(part).max(1, keepdims=True)
        inverse = np.divide(np.float32(127), largest, out=np.zeros_like(largest), where=largest > 0)
        scaled = part * inverse
        codes = np.trunc(scaled + np.where(scaled < 0, np.float32(-0.5), np.float32(0.5)))
        found[:, start:start + block] = codes.astype(np.float64) * (largest / np.float32(127))
    return found


def multiply(path: str, matrix: Matrix, x: np.ndarray, **more: Any) -> np.ndarray:
    """A product with a matrix, which is laid out in panels first."""
    return multiply_panels(path, lay_out_panels(matrix), x, **more)


def multiply_panels(path: str, panels: Panels, x: np.ndarray, *, bias: np.ndarray | None = None, activation: int = 0,
                    base: np.ndarray | None = None, threads: int = 1) -> np.ndarray:
    """A product with panels; what a row of the output has behind the product stays as it is."""
    tokens, inputs = x.shape
    tiles, scales = make_tiles(tokens, inputs)
    tiles[:], scales[:] = np.nan, np.nan
    to = np.full((tokens, panels.rows + 3), 7, np.float32)
    if base is not None:
        to[:, :-3] = base
    product = CWideProduct(
        ctypes.pointer(panels.struct), address(x), inputs, tokens, address(tiles), address(scales),
        None if bias is None else address(bias), address(to), to.shape[1], activation, int(base is not None), None)
    library.load_library().saucier_multiply(path.encode(), product, threads)
    assert (to[:, -3:] == 7).all(), "nothing is written behind the last row of a matrix"
    return to[:, :-3]


def use_stored_numbers(model: torch.nn.Module, parts: Iterable[torch.nn.Module], form: Format,
                       path: str = "portable") -> None:
    """Let maps of a model in float64 multiply what their stored matrices stand for by what their rounded inputs are."""
    stored = {one: store_matrix(one.weight.detach().float().numpy(), form) for part in parts for one in part.modules()
              if isinstance(one, torch.nn.Linear)}

    def multiply(layer: torch.nn.Linear, given: tuple[torch.Tensor]) -> torch.Tensor:
        read = round_activations(given[0].flatten(0, -2).float().numpy(), stored[layer], path)
        return torch.from_numpy(read).view_as(given[0])

    with torch.no_grad():
        for layer, matrix in stored.items():
            layer.weight.copy_(torch.from_numpy(matrix.values()))
            layer.register_forward_pre_hook(multiply)


def use_stored_keys(decoder: torch.nn.Module, form: Format) -> None:
    """Let attention of a decoder in float64 read keys and values as the cache stores them: bfloat16 but beside float32.

    For models without rotation, and with as many key heads as heads.
    """
    def store(layer: torch.nn.Linear, given: object, found: torch.Tensor) -> torch.Tensor:
        first = 0 if layer in pairs else found.shape[-1] // 3
        return torch.cat([found[..., :first], found[..., first:].bfloat16().double()], -1)

    pairs = {one for name, one in decoder.named_modules() if name.endswith(".kv")}
    for name, one in decoder.named_modules():
        if form != "float32" and name.endswith((".qkv", ".kv")):
            one.register_forward_hook(store)


def check_apart(found: np.ndarray, expected: np.ndarray, form: Format, path: str = "portable") -> None:
    """Numbers are equal but for inputs between two steps, which may be rounded to the other one."""
    apart = np.abs(found - expected)
    assert np.median(apart) < 1e-5 * expected.std()
    assert apart.max() < (1e-2 if rounds_activations(form, path) else 1e-4) * expected.std()
