"""Products of many tokens and attention of whole rows, against float64, on every instruction set of this machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from tests.unit.native.products import multiply_panels, round_activations

from saucier.native import library
from saucier.native.encoding import count_attention_room, cut_passes, run_pass, take_buffers
from saucier.native.matrices import Format, Matrix, lay_out_panels, round_groups, store_matrix
from saucier.native.plan import ACTIVATIONS, MIXED, STREAM, Distances, Plan, Step

FORMATS: tuple[Format, ...] = ("float32", "bfloat16", "int8", "int4")
REACH = 330
"""Tokens of a row, at most, that attention is tried for."""
pytestmark = pytest.mark.parametrize("path", library.list_paths())


def multiply(path: str, matrix: Matrix, x: np.ndarray, **more: Any) -> np.ndarray:
    return multiply_panels(path, lay_out_panels(matrix), x, **more)


def check(path: str, matrix: Matrix, tokens: int, random: np.random.Generator) -> None:
    x = (random.normal(size=(tokens, matrix.inputs)) * 10.0 ** random.integers(-2, 3)).astype(np.float32)
    expected = round_activations(x, matrix, path) @ matrix.values().T
    size = np.abs(x).max() * np.abs(matrix.values()).max() * np.sqrt(matrix.inputs)
    assert_allclose(multiply(path, matrix, x), expected, rtol=1e-5, atol=1e-6 * size,
                    err_msg=f"{matrix.format} {tokens}x{matrix.inputs}x{matrix.rows}")


@pytest.mark.parametrize("form", FORMATS)
def test_products_are_those_of_the_stored_numbers(path: str, form: Format) -> None:
    random = np.random.default_rng(0)
    shapes = [(1, 1, 1), (3, 37, 5), (6, 32, 16), (7, 33, 17), (150, 96, 33), (32, 128, 300), (13, 1100, 20),
              (300, 513, 18), *((int(n), int(i), int(o)) for n, i, o in random.integers(1, (200, 700, 200), (8, 3)))]
    for tokens, inputs, rows in shapes:
        check(path, store_matrix(random.normal(size=(rows, inputs)).astype(np.float32), form), tokens, random)


@pytest.mark.parametrize(("form", "group"), [("int4", 64), ("int4", 192), ("int8", 32), ("int8", 96)])
def test_groups_of_inputs(path: str, form: Format, group: int) -> None:
    random = np.random.default_rng(1)
    weight = random.normal(size=(70, 960)).astype(np.float32)
    codes, scales = round_groups(weight, group, 127 if form == "int8" else 7, np.dtype(np.float32))
    check(path, Matrix(form, codes, 960, scales, group), 31, random)


@pytest.mark.parametrize("form", ["int4", "int8"])
@pytest.mark.parametrize("step", [0.0, 2.0**-5, 2.0])
def test_a_given_step_of_the_activations(path: str, form: Format, step: float) -> None:
    """What is beyond 127 steps is cut, and what lies between two of them goes to the even one."""
    random = np.random.default_rng(6)
    for tokens, inputs, rows in ((1, 45, 17), (5, 128, 40), (40, 300, 33)):
        matrix = replace(store_matrix(random.normal(size=(rows, inputs)).astype(np.float32), form), step=step)
        check(path, matrix, tokens, random)
    halves = np.arange(-300, 300, dtype=np.float32)[None] / 2 * np.float32(step)
    matrix = replace(store_matrix(random.normal(size=(20, 600)).astype(np.float32), form), step=step)
    expected = np.clip(np.rint(np.arange(-300, 300) / 2), -127, 127) * step @ matrix.values().T
    assert_allclose(multiply(path, matrix, halves)[0], expected, rtol=1e-4, atol=1e-3)


def test_the_largest_codes_of_4_bits_do_not_overflow(path: str) -> None:
    """The sums of a unit are held in 16 bits, and codes reach from -8 to 7."""
    alike = np.full((7, 96), 3, np.float32)
    changing = alike * np.where(np.arange(96) % 2, np.float32(-1), np.float32(1))
    for codes in (0x00, 0xFF, 0x0F):
        matrix = Matrix("int4", np.full((17, 48), codes, np.uint8), 96, np.ones((17, 3), np.float32), 32)
        for x in (alike, -alike, changing):
            assert_allclose(multiply(path, matrix, x), x.astype(np.float64) @ matrix.values().T, rtol=1e-6, atol=1e-4)


def test_zeros_stay_zeros(path: str) -> None:
    matrix = store_matrix(np.zeros((20, 40), np.float32), "int8")
    assert (multiply(path, matrix, np.zeros((9, 40), np.float32)) == 0).all()


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("form", FORMATS)
def test_what_follows_a_product(path: str, form: Format, threads: int) -> None:
    random = np.random.default_rng(2)
    matrix = store_matrix(random.normal(size=(523, 100)).astype(np.float32), form)
    x, bias = random.normal(size=(40, 100)).astype(np.float32), random.normal(size=523).astype(np.float32)
    residual = random.normal(size=(40, 523)).astype(np.float32)
    plain = round_activations(x, matrix, path) @ matrix.values().T + bias
    for base, activation, expected in ((None, "identity", plain), (residual, "identity", plain + residual),
                                       (None, "relu", np.maximum(plain, 0))):
        found = multiply(path, matrix, x, bias=bias, base=base, activation=ACTIVATIONS[activation], threads=threads)
        assert_allclose(found, expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("form", FORMATS)
def test_a_token_is_the_same_in_any_company(path: str, form: Format) -> None:
    random = np.random.default_rng(3)
    matrix = store_matrix(random.normal(size=(50, 1100)).astype(np.float32), form)
    x = random.normal(size=(160, 1100)).astype(np.float32)
    together = multiply(path, matrix, x)
    for first, last in ((0, 1), (5, 9), (1, 9), (3, 14), (7, 55), (100, 160)):  # tiles of all sizes, few and many
        assert (multiply(path, matrix, np.ascontiguousarray(x[first:last])) == together[first:last]).all()


@pytest.mark.parametrize("inputs", [160, 784, 70])
@pytest.mark.parametrize("form", FORMATS)
def test_whatever_their_number_tokens_give_what_each_gives_alone(path: str, form: Format, inputs: int) -> None:
    """Where one token is left over by whole tiles, on Intel the second of two panels once missed it."""
    random = np.random.default_rng(9)
    panels = lay_out_panels(store_matrix(random.normal(size=(160, inputs)).astype(np.float32), form))
    x = random.normal(size=(301, inputs)).astype(np.float32)
    alone = np.concatenate([multiply_panels(path, panels, token[None]) for token in x])
    for tokens in (*range(2, 62), *range(144, 158), 289, 300, 301):
        assert (multiply_panels(path, panels, x[:tokens]) == alone[:tokens]).all(), tokens


@pytest.mark.parametrize("group", [32, 96, 128, 192, 256])
@pytest.mark.parametrize("form", ["int8", "int4"])
def test_a_token_is_the_same_in_any_company_in_groups(path: str, form: Format, group: int) -> None:
    random = np.random.default_rng(4)
    weight = random.normal(size=(20, 768)).astype(np.float32)
    codes, scales = round_groups(weight, group, 127 if form == "int8" else 7, np.dtype(np.float16))
    matrix, x = Matrix(form, codes, 768, scales, group), random.normal(size=(60, 768)).astype(np.float32)
    together = multiply(path, matrix, x)
    assert_allclose(together, round_activations(x, matrix, path) @ matrix.values().T, rtol=1e-5, atol=1e-3)
    for token in (0, 33):
        assert (multiply(path, matrix, x[token:token + 1]) == together[token]).all()


@pytest.mark.parametrize("form", FORMATS)
def test_some_rows_of_panels(path: str, form: Format) -> None:
    """What the rows of a vocabulary map give is what they give among all."""
    random = np.random.default_rng(6)
    panels = lay_out_panels(store_matrix(random.normal(size=(77, 70)).astype(np.float32), form))
    rows = np.array([0, 76, 5, 31, 32, 33, 60, 5, 16, 15, 40, 41, 42, 43, 44, 45, 46, 9])
    x = random.normal(size=(3, 70)).astype(np.float32)
    some = panels.take_rows(rows)
    assert some.rows == len(rows) and some.bytes < panels.bytes
    assert (multiply_panels(path, some, x) == multiply_panels(path, panels, x)[:, rows]).all()


def test_half_a_byte_each(path: str) -> None:
    """Panels take no more than the numbers as they are stored: half a byte, and two for the scale of 32."""
    matrix = store_matrix(np.random.default_rng(7).normal(size=(64, 96)).astype(np.float32), "int4")
    assert lay_out_panels(matrix).bytes == matrix.bytes == 64 * 96 // 2 + 64 * 3 * 2


def attend(path: str, heads: np.ndarray, lengths: list[int], sizes: dict[str, int], *, before: int, after: int,
           scale: float, rounded: bool = False, threads: int = 1, **arrays: Any) -> np.ndarray:
    """A plan of one step, for rows of up to `REACH` tokens. Shapes: heads [T, (H + 2G)E] -> [T, H E]."""
    width = sizes["heads"] * sizes["head"]
    step = Step("attend_rows", "attention", {"source": STREAM, "to": MIXED, "width": width, "before": before,
                                             "after": after, "scale": scale, "reach": REACH, "rounded": rounded,
                                             **sizes}, arrays=arrays)
    widths = [heads.shape[1] if buffer == STREAM else width for buffer in range(8)]
    plan = Plan((step,), tuple(widths), (), REACH, 0)
    starts = np.cumsum([0, *lengths]).astype(np.int32)
    held = take_buffers(plan, len(heads))
    run_pass(plan, heads, starts, np.zeros(len(heads), np.int32), threads, path, held)
    return held.buffers[MIXED][:len(heads)]


def check_attention(found: np.ndarray, x: np.ndarray, lengths: list[int], sizes: dict[str, int], *, before: int,
                    after: int, scale: float, added: Callable[[int, np.ndarray, np.ndarray], np.ndarray],
                    atol: float = 1e-5) -> None:
    """Hold attention to its definition; `added`: head, queries and keys [L, E] -> what is added to scores [L, L]."""
    heads, groups, head = sizes["heads"], sizes["groups"], sizes["head"]
    for start, length in zip(np.cumsum([0, *lengths]), lengths, strict=False):
        rows = x[start:start + length].astype(np.float64).reshape(length, heads + 2 * groups, head)
        for one in range(heads):
            group = heads + one * groups // heads
            scores = scale * rows[:, one] @ rows[:, group].T + added(one, rows[:, one], rows[:, group])
            away = find_distances(length)
            scores[(away < -before) | (away > after)] = -np.inf
            weights = np.exp(scores - scores.max(1, keepdims=True, initial=-1e9))
            weights /= weights.sum(1, keepdims=True)
            assert_allclose(found[start:start + length, one * head:(one + 1) * head], weights @ rows[:, group + groups],
                            rtol=1e-5, atol=atol)


def find_distances(length: int) -> np.ndarray:
    """The place of each key less that of each query. Shapes: -> [L, L]."""
    return np.arange(length)[None] - np.arange(length)[:, None]


@pytest.mark.parametrize("rounded", [False, True])
@pytest.mark.parametrize(("heads", "groups", "head", "before", "after", "biased"), [
    (4, 4, 13, 99, 99, False), (4, 2, 32, 99, 0, True), (6, 1, 8, 3, 3, False), (3, 3, 17, 99, 99, True),
    (2, 2, 16, 0, 0, False), (1, 1, 64, 5, 40, True), (2, 1, 80, 70, 0, False)])
def test_attention_of_whole_rows(path: str, heads: int, groups: int, head: int, before: int, after: int,
                                 biased: bool, rounded: bool) -> None:
    """Where matrices are rounded, 16 bits of its numbers are enough."""
    random = np.random.default_rng(5)
    lengths = [1, 35, 0, 6, 17, 64, *([63, 101, 144] if rounded else [])]
    x = random.normal(size=(sum(lengths), (heads + 2 * groups) * head)).astype(np.float32)
    bias = random.normal(size=(heads, 2 * REACH - 1)).astype(np.float32) if biased else None
    sizes = {"heads": heads, "groups": groups, "head": head}
    seen: dict[str, Any] = {"before": before, "after": after, "scale": 0.3}
    found = attend(path, x, lengths, sizes, **seen, rounded=rounded, table=bias)
    assert (attend(path, x, lengths, sizes, **seen, rounded=rounded, table=bias, threads=3) == found).all()
    check_attention(found, x, lengths, sizes, **seen, atol=1e-4 if rounded else 1e-5, added=lambda one, queries, keys: (
        0 if bias is None else bias[one, REACH - 1 + find_distances(len(keys))]))


@pytest.mark.parametrize(("heads", "groups", "head", "before", "after", "terms", "near"), [
    (2, 2, 16, 999, 999, "kq", 40), (4, 2, 13, 999, 0, "q", 3), (3, 1, 8, 20, 20, "kq", 999),
    (2, 2, 32, 999, 999, "k", 1), (1, 1, 7, 0, 60, "kq", 0)])
def test_tokens_meet_the_vectors_of_distances(path: str, heads: int, groups: int, head: int, before: int, after: int,
                                              terms: str, near: int) -> None:
    """The vectors of near distances follow each other; far ones share some, and some are met by none."""
    random = np.random.default_rng(8)
    lengths = [1, 35, 0, 6, 17, 64, 129, 300]
    x = random.normal(size=(sum(lengths), (heads + 2 * groups) * head)).astype(np.float32)
    far = random.choice([0, 1, 5], 2 * REACH - 1, p=[0.7, 0.2, 0.1])
    rows = np.cumsum(np.where(np.abs(np.arange(1 - REACH, REACH)) > near, far, 1)).astype(np.int32)
    vectors = {term: 0.3 * random.normal(size=(rows[-1] + 2, heads, head)).astype(np.float32) for term in terms}
    panels = [None if term not in terms else lay_out_panels(Matrix("float32", vectors[term].reshape(rows[-1] + 2, -1),
                                                                   heads * head)) for term in "kq"]
    met = Distances(*panels, np.stack([rows, rows]))
    sizes = {"heads": heads, "groups": groups, "head": head}
    seen: dict[str, Any] = {"before": before, "after": after, "scale": 0.3}
    found = attend(path, x, lengths, sizes, **seen, distances=met)
    assert (attend(path, x, lengths, sizes, **seen, distances=met, threads=3) == found).all()

    def added(one: int, queries: np.ndarray, keys: np.ndarray) -> np.ndarray:
        by_key = REACH - 1 + find_distances(len(keys))
        total = np.zeros(by_key.shape)
        if "k" in terms:
            total += np.take_along_axis(queries @ vectors["k"][:, one].T, rows[by_key], 1)
        if "q" in terms:
            total += np.take_along_axis(keys @ vectors["q"][:, one].T, rows[by_key], 1).T
        return total

    check_attention(found, x, lengths, sizes, **seen, added=added)


def test_room_and_passes(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are never cut; a row that is longer than a pass has one of its own."""
    from saucier.native import encoding

    monkeypatch.setattr(encoding, "MOST_TOKENS", 10)
    starts = np.cumsum([0, 4, 5, 3, 25, 0, 10, 1]).astype(np.int32)
    assert list(cut_passes(starts)) == [(0, 2), (2, 3), (3, 4), (4, 6), (6, 7)]
    assert count_attention_room(Plan((), (0,) * 8, (), 1, 0), 40) == 64 * 16
