"""`saucier diff`: what differs, and only that."""

from __future__ import annotations

import io
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from saucier.families import FAMILIES
from saucier.lens.diff import (
    Difference,
    differences,
    fold_rows,
    format_value,
    render_diff,
    shorten_diff_path,
)
from saucier.lens.subject import Subject, comparable_values, find_subject, paired_trees

values = st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=3),
                      lambda inner: st.dictionaries(st.sampled_from(["a", "b", "kind"]), inner), max_leaves=10)


def paths(left: Any, right: Any) -> dict[str, tuple[Any, Any]]:
    """Differences by path."""
    return {one.path: (one.left, one.right) for one in differences(left, right)}


def families(left: str, right: str) -> dict[str, tuple[Any, Any]]:
    """Differences of two families' trees."""
    return paths(*paired_trees(Subject(left, FAMILIES[left]()), Subject(right, FAMILIES[right]())))


@pytest.mark.slow
@given(values)
def test_nothing_differs_from_itself(value: Any) -> None:
    assert list(differences(value, value)) == []


@given(values, values)
def test_differences_are_found_the_same_from_both_sides(left: Any, right: Any) -> None:
    assert bool(paths(left, right)) == (left != right)
    assert {path: pair[::-1] for path, pair in paths(left, right).items()} == paths(right, left)


def test_only_what_differs_is_shown() -> None:
    assert paths({"a": 1, "b": {"c": 2, "d": 3}}, {"a": 1, "b": {"c": 2, "d": 4}}) == {"b.d": (3, 4)}


def test_gpt2_is_gpt_with_other_norms_sizes_and_start() -> None:
    found = families("gpt", "gpt2")
    assert found["model.decoder.layers.block.sublayers.attention.kind"] == ("post", "pre")
    assert {shorten_diff_path(path) for path in found} == {
        "model.embed.vocab", "model.embed.positions.length", "model.decoder.attention.residual",
        "model.decoder.feed_forward.residual", "model.decoder.final_norm", "model.initialization.depth_scaled"}


def test_parts_of_different_kinds_are_one_difference() -> None:
    found = families("gpt2", "llama")
    assert found["model.embed.positions"] == (
        {"kind": "learned", "length": 1024, "places": {"kind": "in_order", "offset": 0}}, {"kind": "none"})
    assert not any(path.startswith("model.embed.positions.") for path in found)


def test_an_encoder_is_laid_beside_a_decoder() -> None:
    found = families("gpt", "bert")
    assert found["model.side"] == ("decoder", "encoder")
    assert found["model.stack.layers.block.sublayers.attention.inner.visibility.kind"] == ("causal", "full")


def test_a_sublayer_in_between_does_not_shift_the_others() -> None:
    def sublayers(*kinds: str) -> list[dict[str, Any]]:
        return [{"kind": "pre", "inner": {"kind": kind}} for kind in kinds]

    left, right = sublayers("attention", "feed_forward"), sublayers("attention", "cross_attention", "feed_forward")
    found = list(differences(left, right))
    assert [(one.path, one.missing) for one in found] == [("cross_attention", "left")]


def test_a_missing_key_is_not_taken_for_none() -> None:
    missing, none = differences({}, {"a": None}), differences({"a": 1}, {"a": None})
    assert [one.as_json() for one in missing] == [{"path": "a", "left": None, "right": None, "missing": "left"}]
    assert [one.as_json() for one in none] == [{"path": "a", "left": 1, "right": None}]


def test_recipes_of_one_family_are_compared_by_what_their_files_say() -> None:
    pair = find_subject("gpt-nano"), find_subject("gpt-nano", ["model.dim=64", "training.steps=7", "about=Another"])
    found = paths(*comparable_values(*pair))
    assert found == {"model.dim": (192, 64), "training.steps": (found["training.steps"][0], 7)}


def test_the_same_change_in_many_places_is_one_row() -> None:
    found = [Difference("a.eps", 1, 2), Difference("b", 1, 2), Difference("c.eps", 1, 2)]
    assert fold_rows(found) == [(["a.eps", "c.eps"], "1", "2"), (["b"], "1", "2")]


def test_values_are_written_on_one_line() -> None:
    assert format_value({"kind": "rotary", "base": 1e4, "share": None}) == "rotary(base=10000.0)"
    assert format_value([True, None, "x"]) == "[true, none, x]"
    assert format_value({"kind": "a", "b": {"c": {"d": 1}}}) == "a(b=(c=(...)))"


def test_equal_sides_are_said_to_be_equal() -> None:
    console = Console(record=True, width=80, file=io.StringIO())
    console.print(render_diff(("a", "b"), []))
    assert console.export_text().strip() == "a and b say the same"
