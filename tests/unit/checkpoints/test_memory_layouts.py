"""Transformer-XL's settings, which no reference is left to compare with, survive both ways; the others are refused."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tests.laws.zoo import scrambled, tokens

import saucier
from saucier import InputError
from saucier.checkpoints.published_folder import express_model, write_published
from saucier.checkpoints.weight_names import PerHead, Reshaped
from saucier.families import LAYOUTS

LAYOUT = LAYOUTS["transfo-xl"]
BASE = {"model_type": "transfo-xl", "vocab_size": 40, "d_model": 16, "d_embed": 16, "d_head": 4, "d_inner": 12,
        "n_head": 3, "n_layer": 2, "cutoffs": [9, 20], "div_val": 1, "mem_len": 6, "clamp_len": 5, "same_length": True,
        "tie_projs": [False, True, True]}


def drawn(rng: random.Random) -> dict[str, Any]:
    """A random legal config."""
    memory, division = rng.choice([0, 3, 7]), rng.choice([1, 2])
    return {**BASE, "div_val": division, "d_embed": rng.choice([8, 16]), "mem_len": memory,
            "same_length": bool(memory) and rng.random() < 0.5, "clamp_len": rng.choice([-1, 4]),
            "untie_r": rng.random() < 0.5, "pre_lnorm": rng.random() < 0.5, "dropatt": rng.choice([0.0, 0.2]),
            "tie_projs": [rng.random() < 0.5 for _ in range(3)], "tie_word_embeddings": rng.random() < 0.7,
            "layer_norm_epsilon": rng.choice([1e-5, 1e-6])}


@pytest.mark.sampled
@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("name", ["TransfoXLLMHeadModel", "TransfoXLModel", "TransfoXLForSequenceClassification"])
def test_settings_and_weights_survive_both_ways(name: str, seed: int, tmp_path: Path) -> None:
    said = drawn(random.Random(seed))
    tree = LAYOUT.tree(said, name, "here")
    model = scrambled(tree)
    write_published(model, *express_model(model, LAYOUT), tmp_path / "out")
    written = json.loads((tmp_path / "out" / "config.json").read_text())
    assert {key: written[key] for key in said if key in written and "tie" not in key} == {
        key: value for key, value in said.items() if key in written and "tie" not in key}
    back = saucier.load(tmp_path / "out", head=name, dtype="float32", device="cpu")
    assert back.config.model_copy(update={"initialization": tree.initialization}) == tree
    ids = tokens(tree, 2, 5)
    with torch.no_grad():
        first, second = model(ids), back(ids)
    assert torch.equal(first.last_hidden_state, second.last_hidden_state)
    assert first.logits is None or torch.equal(first.logits, second.logits)


def test_names_of_clusters_and_shared_biases(tmp_path: Path) -> None:
    said = {**BASE, "div_val": 2, "untie_r": False, "tie_word_embeddings": False, "tie_projs": [False, False, True]}
    odd = scrambled(LAYOUT.tree(said, "TransfoXLLMHeadModel", "here"))
    write_published(odd, *express_model(odd, LAYOUT), tmp_path / "out")
    names = {name: list(tensor.shape) for name, tensor in load_file(tmp_path / "out" / "model.safetensors").items()}
    assert names["crit.out_layers.1.weight"] == [11, 8]
    assert names["crit.out_projs.1"] == [16, 8]
    assert "crit.out_projs.2" not in names
    assert names["transformer.r_w_bias"] == [3, 4]
    assert "transformer.layers.0.dec_attn.r_w_bias" not in names


@pytest.mark.parametrize(("change", "activation"), [({}, "tanh"), ({"summary_activation": None}, "identity"),
                                                    ({"summary_activation": "relu"}, "relu")])
def test_null_is_no_activation_and_a_missing_field_is_the_default(change: dict[str, Any], activation: str) -> None:
    document = {"vocab_size": 30, "d_model": 12, "n_head": 3, "n_layer": 1, "d_inner": 8, **change}
    head = LAYOUTS["xlnet"].tree(document, "XLNetForSequenceClassification", "here").head
    assert head.transform.activation == activation


@pytest.mark.parametrize(("kind", "name", "change", "word"), [
    ("transfo-xl", "TransfoXLLMHeadModel", {"attn_type": 1}, "attn_type"),
    ("transfo-xl", "TransfoXLLMHeadModel", {"sample_softmax": 5}, "sample_softmax"),
    ("xlm", "XLMWithLMHeadModel", {"asm": True}, "asm"),
    ("xlm", "XLMForSequenceClassification", {"summary_activation": "tanh"}, "summary_activation"),
    ("xlm", "XLMForSequenceClassification", {"summary_type": "attn"}, "summary_type"),
    ("xlm", "XLMForMultipleChoice", {"summary_use_proj": False}, "summary_use_proj"),
    ("xlnet", "XLNetForSequenceClassification", {"summary_type": "attn"}, "summary_type"),
    ("xlnet", "XLNetModel", {"untie_r": False}, "untie_r"),
    ("xlnet", "XLNetModel", {"attn_type": "sideways"}, "attn_type"),
])
def test_what_cannot_be_expressed_is_refused_by_name(kind: str, name: str, change: dict[str, Any], word: str) -> None:
    bases = {"transfo-xl": BASE, "xlm": {"vocab_size": 30, "emb_dim": 12, "n_heads": 3, "n_layers": 1},
             "xlnet": {"vocab_size": 30, "d_model": 12, "n_head": 3, "n_layer": 1, "d_inner": 8}}
    LAYOUTS[kind].tree(bases[kind], name, "here")
    with pytest.raises(InputError, match=word):
        LAYOUTS[kind].tree({**bases[kind], **change}, name, "here")


def test_maps_by_heads_come_back() -> None:
    stored = [torch.randn(6, 2, 3) for _ in range(3)]
    operation = PerHead(heads=2, maps=3)
    ours = operation.ours(stored)
    x = torch.randn(6)
    expected = torch.cat([torch.einsum("d,dhe->he", x, one).flatten() for one in stored])
    torch.testing.assert_close(ours @ x, expected)
    assert all(torch.equal(first, second) for first, second in zip(operation.theirs(ours), stored, strict=True))
    with pytest.raises(ValueError, match="width"):
        operation.ours([torch.randn(6, 3, 2)])
    shape = Reshaped((6, 6), (6, 2, 3))
    assert torch.equal(shape.theirs(shape.ours(stored[:1]))[0], stored[0])
