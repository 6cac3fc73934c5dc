"""What attends to what: read off built attentions, and held against the definition of each pattern."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import saucier
from saucier import config as c
from saucier.errors import InputError
from saucier.lens import attention_patterns
from saucier.lens.attention_patterns import (
    Pattern,
    PatternText,
    find_patterns,
    select_patterns,
)
from saucier.lens.pattern_pictures import format_ranges, pattern_lines
from saucier.recipes.catalogue import learned_length

PLACE = np.arange(24)
QUERY, KEY = PLACE[:, None], PLACE[None, :]


def model(attention: dict[str, Any], **stack: Any) -> c.Transformer:
    """Return a model of two layers with one kind of attention, of four heads unless it says otherwise."""
    projection = {"heads": 4} | attention.pop("projection", {})
    block = {"sublayers": [{"kind": "pre", "inner": {"kind": "attention", "projection": projection} | attention}]}
    layers = {"kind": "repeat", "block": block, "times": 2}
    return c.Transformer.model_validate({"dim": 32, "embed": {"vocab": 50}, "encoder": {"layers": layers} | stack})


def window(size: int) -> Any:
    """A sliding window."""
    return abs(QUERY - KEY) < size


CASES: dict[str, tuple[dict[str, Any], Callable[[], Any]]] = {
    "full": ({}, lambda: np.ones((24, 24), bool)),
    "causal": ({"visibility": {"kind": "causal"}}, lambda: QUERY >= KEY),
    "window": ({"visibility": {"kind": "window", "size": 3}}, lambda: window(3)),
    "both": ({"visibility": {"kind": "and", "terms": [{"kind": "causal"}, {"kind": "window", "size": 5}]}},
             lambda: (QUERY >= KEY) & window(5)),
    "global": ({"visibility": {"kind": "or", "terms": [{"kind": "window", "size": 3}, {"kind": "global"}]}},
               lambda: window(3) | (QUERY < 2) | (KEY < 2)),
    "own maps": ({"visibility": {"kind": "or", "terms": [{"kind": "window", "size": 3}, {"kind": "global"}]},
                  "global_maps": {}}, lambda: window(3) | (QUERY < 2) | (KEY < 2)),
    "prefix": ({"visibility": {"kind": "prefix"}}, lambda: (QUERY >= KEY) | (KEY < 6)),
    "blocks": ({"visibility": {"kind": "block_window", "size": 4, "reach": 1}},
               lambda: abs(QUERY // 4 - KEY // 4) < 2),
    "chunks": ({"kernel": {"kind": "chunks", "length": 4, "before": 1, "after": 0}, "visibility": {"kind": "causal"}},
               lambda: (QUERY >= KEY) & (QUERY // 4 - KEY // 4 < 2)),
    "far slopes": ({"positions": {"kind": "alibi"}, "visibility": {"kind": "causal"}}, lambda: QUERY >= KEY),
    "turned values": ({"positions": {"kind": "rotary", "values": True}, "visibility": {"kind": "window", "size": 2}},
                      lambda: window(2)),
    "vectors on values": ({"positions": {"kind": "shaw", "max_distance": 4}, "visibility": {"kind": "causal"}},
                          lambda: QUERY >= KEY),
    "random features": ({"kernel": {"kind": "favor", "features": 16, "block": 5}, "visibility": {"kind": "causal"}},
                        lambda: QUERY >= KEY),
    "shared keys": ({"projection": {"kv_heads": 2}, "visibility": {"kind": "causal"}}, lambda: QUERY >= KEY),
}


@pytest.mark.parametrize("name", CASES)
def test_patterns_are_what_their_definition_says(name: str) -> None:
    """All heads and layers at once, whatever the kernel and the positions."""
    attention, wanted = CASES[name]
    found = find_patterns(model(dict(attention)), PatternText(24, global_tokens=2, prefix=6))
    assert [(one.side, one.layers, one.heads) for one in found] == [("encoder", (0, 1), (0, 1, 2, 3))]
    assert (found[0].seen == wanted()).all()


def test_long_windows_are_read_off_the_sparse_kernel() -> None:
    """Where blocks of keys are gathered, the same places are seen."""
    place = np.arange(640)
    config = model({"visibility": {"kind": "or", "terms": [{"kind": "window", "size": 9}, {"kind": "global"}]}})
    (found,) = find_patterns(config, PatternText(640, global_tokens=1))
    wanted = (abs(place[:, None] - place[None, :]) < 9) | (place[:, None] < 1) | (place[None, :] < 1)
    assert (found.seen == wanted).all()


def test_hashes_keep_the_past_and_differ_between_heads() -> None:
    """Of a kernel that sorts by content the picture shows what it sorted."""
    kernel = {"kind": "lsh", "chunks": {"length": 4, "before": 1, "after": 0}, "seed": 3}
    found = find_patterns(model({"kernel": kernel, "visibility": {"kind": "causal"}}), PatternText(24))
    assert len(found) > 1
    assert all((one.seen <= (QUERY >= KEY)).all() and one.seen.any(1).all() for one in found)
    assert max(one.seen.sum(1).max() for one in found) <= 8


def test_random_blocks_are_drawn_in_training_alone() -> None:
    """Outside it the first block stands for them, in training every head has its own."""
    terms = [{"kind": "block_window", "size": 2}, {"kind": "global_blocks", "size": 2},
             {"kind": "random_blocks", "size": 2, "count": 2, "length": 24}]
    config = model({"visibility": {"kind": "or", "terms": terms}})
    still, drawn = (find_patterns(config, PatternText(24), training=training) for training in (False, True))
    assert len(still) == 1
    assert len(drawn) > 1
    assert all((one.seen >= still[0].seen).all() for one in drawn)


def test_a_memory_stands_before_the_text() -> None:
    """Its keys are columns too."""
    found = find_patterns(saucier.recipe("xlnet-nano").model, PatternText(16))
    assert all(one.seen.shape[1] >= 16 for one in found)


def test_layers_in_turn_are_told_apart() -> None:
    """Blocks that differ in their attention have a picture each; published names stay countable."""
    found = find_patterns(saucier.recipe("gpt-neo").model.model_copy(), PatternText(16))
    assert [one.layers[:2] for one in found] == [(0, 2), (1, 3)]
    assert select_patterns(found, 3, None) == [found[1]]
    with pytest.raises(InputError, match=r"--layer: there is no layer 99; layers are 0 to 23, heads 0 to 15"):
        select_patterns(found, 99, None)


def test_clusters_of_a_vocabulary_that_is_left_out() -> None:
    """Transformer-XL's tables are cut where the reduced model has no tokens any more."""
    found = find_patterns(saucier.recipe("transformer-xl").model, PatternText(12))
    assert [one.layers for one in found] == [tuple(range(16))]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt2", "mistral", "longformer-nano", "xlnet-nano", "t5-small"])
def test_a_narrow_stream_changes_no_pattern(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a model sees is read off attentions of the same widths; only what goes between them is narrower."""
    config = saucier.recipe(name).model
    narrow = find_patterns(config, PatternText(48))
    assert attention_patterns.reduce_model(config, 48)[0].dim == 64
    monkeypatch.setattr(attention_patterns, "WIDTH", 10**9)
    wide = find_patterns(config, PatternText(48))
    assert [(one.side, one.layers, one.heads) for one in narrow] == [(one.side, one.layers, one.heads) for one in wide]
    assert all((one.seen == other.seen).all() for one, other in zip(narrow, wide, strict=True))


@pytest.mark.parametrize("name", ["linformer-nano", "reformer-nano"])
def test_texts_beyond_the_tables_are_drawn(name: str) -> None:
    """Maps along the text and grids of positions are lengthened too."""
    config = saucier.recipe(name).model
    room = learned_length(config)
    assert room is not None
    found = find_patterns(config, PatternText(room + 16))
    assert {one.seen.shape for one in found} == {(room + 16, room + 16)}


def test_a_model_without_attention_is_refused() -> None:
    """Recurrent ones have none of their own."""
    with pytest.raises(InputError, match="the model has no self-attention"):
        find_patterns(saucier.recipe("elmo-nano").model, PatternText(8))


def test_two_queries_share_a_line() -> None:
    """Halves of a character are queries, characters are keys."""
    seen = np.tril(np.ones((3, 3), bool))
    assert list(pattern_lines([Pattern("decoder", (0, 1), (0, 1), 2, seen)])) == [
        "decoder, layers 0-1: 66.7% of all pairs", "  █▄", "  ▀▀▀", ""]


@pytest.mark.parametrize(("numbers", "told"), [
    ((3,), "layer 3"), ((0, 1, 2), "layers 0-2"), ((0, 2, 4), "layers 0, 2, 4"),
    ((1, 3, 5, 7, 9), "layers 1, 3, … 9"), ((0, 1, 5), "layers 0, 1, 5")])
def test_numbers_are_told_shortly(numbers: tuple[int, ...], told: str) -> None:
    """As a person would."""
    assert format_ranges("layer", numbers) == told
