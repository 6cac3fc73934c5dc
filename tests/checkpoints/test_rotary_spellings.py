"""Rotary settings of published configs: the older and the newer spelling say the same, and nothing is ignored."""

from __future__ import annotations

from typing import Any

import pytest

from saucier import InputError
from saucier import config as c
from saucier.families.llama import LLAMA_LAYOUT

BASE = {"model_type": "llama", "hidden_size": 24, "num_attention_heads": 3, "num_hidden_layers": 1,
        "intermediate_size": 20, "vocab_size": 31, "max_position_embeddings": 64}


def tree(**fields: Any) -> c.Transformer:
    """The tree of a config with these fields beside."""
    return LLAMA_LAYOUT.tree({**BASE, **fields}, "LlamaForCausalLM", "config.json")


def rotary(**fields: Any) -> c.Rotary:
    """The rotary positions of such a config."""
    decoder = tree(**fields).decoder
    assert decoder is not None
    attention = decoder.blocks()[0].sublayers[0].inner
    assert isinstance(attention, c.SelfAttention) and isinstance(attention.positions, c.Rotary)
    return attention.positions


@pytest.mark.parametrize(("scaling", "wanted"), [
    ({"type": "linear", "factor": 2.0}, c.LinearScaling(factor=2)),
    ({"type": "dynamic", "factor": 4.0}, c.DynamicScaling(factor=4, length=64)),
    ({"rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4,
      "original_max_position_embeddings": 16}, c.Llama3Scaling(factor=8, length=16)),
    ({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}, c.Yarn(factor=4, length=16)),
    ({"rope_type": "yarn", "factor": 4.0}, c.Yarn(factor=4, length=64)),
    ({"rope_type": "longrope", "short_factor": [1.0] * 4, "long_factor": [2.0] * 4, "attention_factor": 1.5},
     c.LongRope(short=(1,) * 4, long=(2,) * 4, length=64, attention=1.5)),
])
def test_both_spellings_and_the_way_back(scaling: dict[str, Any], wanted: c.Scaling) -> None:
    older = rotary(rope_theta=500.0, rope_scaling=scaling)
    assert older == c.Rotary(base=500, scaling=wanted)
    newer = {"rope_type": scaling.get("type"), **scaling, "rope_theta": 500.0}
    newer.pop("type", None)
    assert rotary(rope_parameters=newer) == older
    built = tree(rope_theta=500.0, rope_scaling=scaling)
    document = LLAMA_LAYOUT.document(built, {})
    assert document["rope_parameters"]["rope_theta"] == 500.0
    assert LLAMA_LAYOUT.tree(document, "LlamaForCausalLM", "again") == built


def test_without_a_word_the_base_is_ten_thousand() -> None:
    assert rotary() == c.Rotary(base=10000.0)


@pytest.mark.parametrize(("fields", "said"), [
    ({"rope_scaling": {"type": "spiral", "factor": 2}}, "scaling 'spiral' is not known"),
    ({"rope_scaling": {"type": "linear", "factor": 2, "wobble": 1}}, "linear scaling with wobble"),
    ({"rope_scaling": {"type": "linear"}}, "cannot be expressed"),
    ({"rope_scaling": {"type": "linear", "factor": 0.5}}, "factor: should be greater than or equal to 1"),
])
def test_what_is_not_known_is_refused_by_name(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        rotary(**fields)
