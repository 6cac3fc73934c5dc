"""What a head does, in figures."""

from __future__ import annotations

import numpy as np
import pytest

from saucier.lens.attention_weights import AttentionWeights, Tokens
from saucier.lens.head_roles import describe_heads, roles_table

TOKENS = Tokens(("[CLS]", "a", "b", "a", "[SEP]"), (1, 5, 6, 5, 2), (True, False, False, False, True), (0,) * 5)


def attention(*heads: object, side: str = "encoder", rows: Tokens = TOKENS) -> AttentionWeights:
    """Return an attention with these weights."""
    weights = np.array(heads, dtype=np.float32)
    return AttentionWeights(side, 2, "softmax", rows, TOKENS, weights, None, tuple(range(len(heads))))  # type: ignore[arg-type]


def shifted(by: int) -> np.ndarray:  # type: ignore[type-arg]
    """Return weights that are at a distance, a little elsewhere."""
    made = np.full((5, 5), 0.02)
    for row in range(5):
        made[row, min(max(row + by, 0), 4)] += 0.9
    return made


def column(place: int) -> np.ndarray:  # type: ignore[type-arg]
    """Return weights on one token."""
    made = np.full((5, 5), 0.02)
    made[:, place] += 0.9
    return made


def test_each_kind_is_named() -> None:
    """By what has most of the weight."""
    heads = (shifted(-1), shifted(1), shifted(0), column(0), column(4), np.full((5, 5), 0.2))
    found = list(describe_heads(attention(*heads)))
    assert [one.role for one in found] == ["previous token", "next token", "itself", "first token", "separator",
                                           "broad"]
    assert found[3].share == pytest.approx(0.92)
    assert found[3].special == pytest.approx(0.94)
    assert found[5].entropy == pytest.approx(np.log2(5))
    assert found[5].distance == pytest.approx(1.6)


def test_a_causal_first_token_tells_nothing() -> None:
    """The only key that a query sees is not counted."""
    weights = np.tril(shifted(0))
    weights[0] = [1, 0, 0, 0, 0]
    weights /= weights.sum(1, keepdims=True)
    [one] = describe_heads(attention(weights))
    assert one.role == "itself"
    assert one.share == pytest.approx(np.mean([weights[row, row] for row in range(1, 5)]))


def test_two_texts_have_a_diagonal() -> None:
    """And no distance."""
    rows = Tokens(("x", "y", "z"), (1, 2, 3), (False,) * 3, (0,) * 3)
    weights = np.full((3, 5), 0.02)
    for row in range(3):
        weights[row, 2 * row] += 0.9
    [one] = describe_heads(attention(weights, side="cross", rows=rows))
    assert (one.role, one.distance) == ("diagonal", None)


def test_a_line_for_each_layer() -> None:
    """The most common kind comes first."""
    table = roles_table(list(describe_heads(attention(column(0), shifted(-1), column(0)))))
    assert table.rows[0][:3] == ("encoder", 2, "first token 0, 2; previous token 1")
