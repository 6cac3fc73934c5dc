"""Every kernel against its definition in float64, over random shapes, on every instruction set of this machine."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from tests.unit.native.products import address, multiply, round_activations

from saucier.native import library
from saucier.native.library import CAttention
from saucier.native.matrices import CODES, Format, Matrix, narrow, round_groups, store_matrix, widen
from saucier.native.plan import ACTIVATIONS
from saucier.native.session import log_softmax

PATHS = library.list_paths()
FORMATS: tuple[Format, ...] = ("float32", "bfloat16", "int8", "int4")
STORED: list[Format] = ["float32", "bfloat16"]
"""What keys and values are stored in."""


def store_keys(keys: np.ndarray, values: np.ndarray, stored: Format) -> tuple[np.ndarray, np.ndarray]:
    """Return them as a cache has them. Shapes: [..., P, E] twice."""
    *rows, places, head = keys.shape
    keys = keys.reshape(*rows, places // 16, 16, head).swapaxes(-1, -2)
    if stored == "bfloat16":
        keys = narrow(keys.reshape(*rows, places // 16, head // 2, 2, 16).swapaxes(-1, -2))
        values = narrow(values.reshape(*rows, places // 2, 2, head).swapaxes(-1, -2))
    return np.ascontiguousarray(keys), np.ascontiguousarray(values)
pytestmark = pytest.mark.parametrize("path", PATHS)


def kernels(path: str) -> library.CKernels:
    return library.load_library().saucier_kernels(path.encode()).contents


def by_registers(path: str, head: int, stored: Format) -> bool:
    """Whether attention is by AMX, which splits queries and what keys weigh in two numbers of bfloat16."""
    return path == "amx" and stored == "bfloat16" and head % 32 == 0


@pytest.mark.parametrize("form", FORMATS)
def test_products_are_those_of_the_stored_numbers(path: str, form: Format) -> None:
    random = np.random.default_rng(0)
    shapes = [(1, 1, 1), (3, 37, 5), (8, 32, 4), (1, 64, 7), (5, 96, 9), (32, 128, 6), (2, 320, 67), (7, 300, 130),
              *((int(n), int(i), int(o)) for n, i, o in random.integers(1, (32, 400, 200), (12, 3)))]
    for tokens, inputs, rows in shapes:
        weight = random.normal(size=(rows, inputs)).astype(np.float32)
        x = (random.normal(size=(tokens, inputs)) * 10.0 ** random.integers(-2, 3)).astype(np.float32)
        matrix = store_matrix(weight, form)
        expected = round_activations(x, matrix, path) @ matrix.values().T
        found = multiply(path, matrix, x)
        size = np.abs(x).max() * np.abs(weight).max() * np.sqrt(inputs)
        assert_allclose(found, expected, rtol=1e-5, atol=1e-5 * size, err_msg=f"{form} {tokens}x{inputs}x{rows}")


@pytest.mark.parametrize("form", FORMATS)
def test_a_token_is_the_same_in_any_company(path: str, form: Format) -> None:
    """Cached is uncached, however many rows share a step: to the last bit."""
    random = np.random.default_rng(8)
    matrix = store_matrix(random.normal(size=(75, 1035)).astype(np.float32), form)
    x = random.normal(size=(library.MOST_TOKENS, 1035)).astype(np.float32)
    alone = np.concatenate([multiply(path, matrix, x[token:token + 1]) for token in range(len(x))])
    for tokens in (2, 3, 4, 6, 7, 9, 10, 12, 13, 32, library.MOST_TOKENS):
        assert (multiply(path, matrix, x[:tokens]) == alone[:tokens]).all(), tokens


@pytest.mark.parametrize(("form", "group"), [("int4", 64), ("int4", 128), ("int4", 256), ("int4", 768), ("int8", 32),
                                             ("int8", 384)])
def test_other_groups(path: str, form: Format, group: int) -> None:
    random = np.random.default_rng(1)
    weight = random.normal(size=(13, 768)).astype(np.float32)
    codes, scales = round_groups(weight, group, 7 if form == "int4" else 127, np.dtype(np.float16))
    matrix = Matrix(form, codes, 768, scales, group)
    x = random.normal(size=(5, 768)).astype(np.float32)
    expected = round_activations(x, matrix, path) @ matrix.values().T
    assert_allclose(multiply(path, matrix, x), expected, rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize(("form", "group"), [("int4", 32), ("int4", 128), ("int4", 1100), ("int8", 32), ("int8", 1100)])
def test_groups_with_shifts_and_out_of_order(path: str, form: Format, group: int) -> None:
    """Of codes over their whole range; a token gives the same in any company."""
    random, inputs, rows = np.random.default_rng(5), 1100 if group == 1100 else 768, 37
    groups, bits = -(-inputs // group), 4 if form == "int4" else 8
    codes = random.integers(0, 256, (rows, inputs * bits // 8)).astype(np.uint8)
    scales, shifts = (random.normal(size=(rows, groups)).astype(np.float32) for _ in range(2))
    order = random.permutation(inputs).astype(np.int32)
    matrix = Matrix(form, codes, inputs, scales, group, shifts=2**(bits - 1) * shifts, order=order)
    x = random.normal(size=(150, inputs)).astype(np.float32)
    found = multiply(path, matrix, x)
    expected = round_activations(x[:, order], matrix, path) @ matrix.values()[:, order].T
    assert_allclose(found, expected, rtol=1e-5, atol=1e-6 * np.abs(matrix.values()).sum(1).max())
    plain = multiply(path, Matrix(form, codes, inputs, scales, group), x)
    assert np.abs(found - plain).mean() > 0.3 * expected.std()
    for tokens in (1, 3, 13, 40):
        assert (multiply(path, matrix, x[:tokens]) == found[:tokens]).all(), tokens


@pytest.mark.parametrize("form", ["int8", "int4"])
def test_the_largest_numbers_do_not_saturate(path: str, form: Format) -> None:
    for sign in (1, -1):
        matrix = store_matrix(np.full((8, 256), sign, np.float32), form)
        x = np.ones((2, 256), np.float32)
        x[1] = -1
        expected = round_activations(x, matrix, path) @ matrix.values().T
        assert_allclose(multiply(path, matrix, x), expected, rtol=1e-5)
        assert abs(expected[0, 0]) > 255


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_a_product_with_what_follows_it(path: str, threads: int) -> None:
    random = np.random.default_rng(2)
    weight, bias, x, base = (random.normal(size=size).astype(np.float32) for size in (
        (1000, 64), 1000, (3, 64), (3, 1000)))
    matrix = store_matrix(weight, "float32")
    raw = x.astype(np.float64) @ weight.T.astype(np.float64) + bias
    relu = multiply(path, matrix, x, bias=bias, activation=ACTIVATIONS["relu"], threads=threads)
    assert_allclose(relu, np.maximum(raw, 0), rtol=1e-5, atol=1e-5)
    assert_allclose(multiply(path, matrix, x, bias=bias, base=base, threads=threads), raw + base, rtol=1e-5, atol=1e-5)


def test_activations(path: str) -> None:
    import torch

    from saucier.parts.linear import ACTIVATIONS as DEFINED

    x = np.concatenate([np.linspace(-12, 12, 997), [0, -100, 100, 1e-6]]).astype(np.float32)
    for name, number in ACTIVATIONS.items():
        expected = DEFINED[name](torch.from_numpy(x.astype(np.float64))).numpy()  # type: ignore[index]
        found, gated = x.copy(), np.concatenate([x, x[::-1]]).astype(np.float32)
        kernels(path).activate(number, address(found), len(found))
        kernels(path).gate(number, address(gated), len(x))
        assert_allclose(found, expected, rtol=2e-6, atol=1e-6, err_msg=name)
        assert_allclose(gated[:len(x)], expected * x[::-1], rtol=1e-5, atol=1e-5, err_msg=f"gate {name}")


@pytest.mark.parametrize("threads", [1, 3])
def test_log_probabilities_are_those_of_wide_numbers(path: str, threads: int) -> None:
    for rows, width in ((1, 1), (2, 17), (5, 770), (3, 50_257)):
        scores = np.random.default_rng(4).normal(size=(rows, width)).astype(np.float32) * 9
        scores[:, 1::5] = -np.inf
        wide = scores.astype(np.float64)
        found = log_softmax(scores.copy(), threads, path)
        assert_allclose(found, wide - np.log(np.exp(wide).sum(1, keepdims=True)), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("kind", [0, 1])
def test_norms(path: str, kind: int) -> None:
    random = np.random.default_rng(3)
    for width in (1, 7, 64, 770):
        x, gain, bias = (random.normal(size=width).astype(np.float32) + 1 for _ in range(3))
        to = np.empty_like(x)
        kernels(path).norm(kind, address(x), address(to), width, address(gain), address(bias), 1e-5)
        wide = x.astype(np.float64) - (0 if kind else x.astype(np.float64).mean())
        assert_allclose(to, wide / np.sqrt((wide**2).mean() + 1e-5) * gain + bias, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("neighbours", [0, 1])
def test_rotation_is_that_of_complex_numbers(path: str, neighbours: int) -> None:
    random = np.random.default_rng(4)
    heads, head, width = 3, 10, 6
    x = random.normal(size=(heads, head)).astype(np.float32)
    angles = random.normal(size=width // 2)
    turns = np.concatenate([np.cos(angles), np.sin(angles)]).astype(np.float32)
    turned = x.copy()
    kernels(path).rotate(address(turned), heads, head, width, neighbours, address(turns))
    pairs = x[:, :width].reshape(heads, -1, 2) if neighbours else x[:, :width].reshape(heads, 2, -1).swapaxes(1, 2)
    numbers = (pairs[..., 0] + 1j * pairs[..., 1]) * np.exp(1j * angles)
    both = np.stack([numbers.real, numbers.imag], -1)
    expected = (both if neighbours else both.swapaxes(1, 2)).reshape(heads, -1)
    assert_allclose(turned[:, :width], expected, rtol=1e-5, atol=1e-6)
    assert (turned[:, width:] == x[:, width:]).all()


def test_numbers_are_narrowed_to_bfloat16_as_by_torch(path: str) -> None:
    """To the nearest, the even one of two; what is no number stays none."""
    import torch

    every = widen(np.arange(1 << 15, dtype=np.uint16))
    every = every[np.isfinite(every)]
    between = (every[1:] + every[:-1].astype(np.float64)) / 2
    beside = [np.nextafter(between.astype(np.float32), np.float32(to)) for to in (0, np.inf)]
    x = np.concatenate([every, between, *beside, [3.4e38, np.inf]]).astype(np.float32)
    x = np.concatenate([x, -x, np.float32([np.nan])])
    found = np.zeros(len(x), np.uint16)
    kernels(path).narrow(address(x), len(x), address(found))
    expected = torch.from_numpy(x).bfloat16().view(torch.uint16).numpy()
    assert np.array_equal(found[:-1], expected[:-1]) and np.isnan(widen(found)[-1])


@pytest.mark.parametrize("stored", STORED, ids=str)
@pytest.mark.parametrize(("heads", "groups", "window", "reach", "head"), [
    (4, 4, 0, 0, 13), (4, 2, 0, 5, 22), (6, 1, 3, 0, 14), (3, 3, 7, 20, 64), (1, 1, 1, 0, 40), (18, 1, 0, 9, 32),
    (2, 1, 12, 0, 96), (2, 2, 0, 3, 96), (2, 2, 40, 0, 80)])
def test_attention(path: str, heads: int, groups: int, window: int, reach: int, head: int, stored: Format) -> None:
    random = np.random.default_rng(5)
    rows, capacity, tokens = 3, 128, 4
    if stored == "bfloat16":
        head += head % 2
    keys, values = (random.normal(size=(rows, groups, capacity, head)).astype(np.float32) for _ in range(2))
    if stored == "bfloat16":
        keys, values = (widen(narrow(one)) for one in (keys, values))
    query = random.normal(size=(tokens, heads * head)).astype(np.float32)
    bias = random.normal(size=(heads, max(reach, 1))).astype(np.float32)
    at, places = np.array([2, 0, 2, 1], np.int32), np.array([0, 127, 66, 4], np.int32)
    found, scores = np.zeros_like(query), np.empty(library.TOGETHER * capacity, np.float32)
    stored_keys, stored_values = store_keys(keys, values, stored)
    call = CAttention(address(query), address(found), query.shape[1], found.shape[1], address(stored_keys),
                      address(stored_values), CODES[stored], capacity, address(at), address(places), heads, groups,
                      head, window, 0.3, address(bias) if reach else None, reach)
    for token in range(tokens):
        for group in range(groups):
            kernels(path).attend(call, token, 1, group, address(scores))
        place = int(places[token])
        first = max(0, place - window + 1) if window else 0
        for one in range(heads):
            key, value = (part[at[token], one * groups // heads, first:place + 1].astype(np.float64)
                          for part in (keys, values))
            score = 0.3 * key @ query[token, one * head:(one + 1) * head]
            if reach:
                score = score + bias[one, np.minimum(place - np.arange(first, place + 1), reach - 1)]
            weights = np.exp(score - score.max())
            assert_allclose(found[token, one * head:(one + 1) * head], weights / weights.sum() @ value, rtol=1e-5,
                            atol=4e-5 if by_registers(path, head, stored) else 1e-5)


@pytest.mark.parametrize("stored", STORED, ids=str)
@pytest.mark.parametrize(("heads", "groups", "window", "head"), [(4, 2, 0, 64), (2, 2, 5, 24), (3, 1, 0, 40)])
def test_tokens_that_attend_together_give_what_each_gives_alone(path: str, heads: int, groups: int, window: int,
                                                                head: int, stored: Format) -> None:
    random = np.random.default_rng(7)
    capacity, tokens, first = 96, 16, 70
    keys, values = (random.normal(size=(groups, capacity, head)).astype(np.float32) for _ in range(2))
    values[:, first + tokens:] = np.nan
    keys, values = store_keys(keys, values, stored)
    query = random.normal(size=(tokens, heads * head)).astype(np.float32)
    at, places = np.zeros(tokens, np.int32), np.arange(first, first + tokens, dtype=np.int32)
    scores = np.empty(library.TOGETHER * capacity, np.float32)
    alone, together = np.zeros((2, *query.shape), np.float32)
    for found, size in ((alone, 1), (together, tokens)):
        call = CAttention(address(query), address(found), query.shape[1], query.shape[1], address(keys),
                          address(values), CODES[stored], capacity, address(at), address(places), heads, groups,
                          head, window, 0.3)
        for token in range(0, tokens, size):
            for group in range(groups):
                kernels(path).attend(call, token, size, group, address(scores))
    assert (alone == together).all() and np.abs(alone).min(1).max() > 0


def test_bfloat16_is_rounded_as_torch_rounds_it(path: str) -> None:
    import torch

    x = np.random.default_rng(6).normal(size=1000).astype(np.float32)
    expected = torch.from_numpy(x).bfloat16()
    assert (narrow(x) == expected.view(torch.uint16).numpy()).all()
    assert (widen(narrow(x)) == expected.float().numpy()).all()
