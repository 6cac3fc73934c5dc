"""Starting weights: how large scores are at the start does not depend on where the model scales them."""

from __future__ import annotations

import torch
from tests.laws import zoo

from saucier import config as c
from saucier.model import Transformer, build


def scaled(by: float | None) -> Transformer:
    """Return T5 at its start, whose attention multiplies scores by a number; None: by 1 over the root of the width."""
    text = zoo.family("t5").model_dump_json()
    said = '"output_bias":false,"scale":'
    assert text.count(f"{said}1.0") == 3
    tree = c.Transformer.model_validate_json(text.replace(f"{said}1.0", f"{said}{'null' if by is None else by}"))
    return build(tree, seed=1)


def test_queries_start_smaller_where_scores_are_not_scaled() -> None:
    """Their product with the scale is the same: what a model multiplies by, its queries need not have."""
    plain, half, whole = (scaled(by) for by in (None, 0.5, 1.0))
    for own, halved, other in zip(*(model.decoder.modules() for model in (plain, half, whole)), strict=True):
        if not hasattr(own, "qkv") and not hasattr(own, "q"):
            continue
        rows = slice(own.widths[0]) if hasattr(own, "qkv") else slice(None)
        first, second, third = ((one.qkv if hasattr(one, "qkv") else one.q).weight[rows] * one.scale
                                for one in (own, halved, other))
        torch.testing.assert_close(second, first)
        torch.testing.assert_close(third, first)
