"""Random legal GPT-2s, and what GPT shares with them."""

from __future__ import annotations

import random
from typing import Any

from tests.parity.batches import batch, ids
from transformers import GPT2Config


def inputs(config: Any, name: str, rng: random.Random) -> dict[str, Any]:
    """Return a batch, now and then with segments, which are tokens here; for double heads with the tokens to read."""
    given = batch(config, name, rng)
    if rng.random() < 0.5:
        given["token_type_ids"] = ids(config, tuple(given["input_ids"].shape), rng)
    if "DoubleHeads" in name and rng.random() < 0.7:
        given["mc_token_ids"] = given["attention_mask"].sum(-1) - 1
    return given


def sizes(rng: random.Random) -> dict[str, Any]:
    """Return what both generations have."""
    heads = rng.choice([1, 3, 4])
    return {"vocab_size": rng.choice([61, 97]), "n_embd": heads * rng.choice([5, 8]), "n_head": heads,
            "n_layer": rng.choice([1, 2, 3]), "n_positions": rng.choice([24, 40]),
            "layer_norm_epsilon": rng.choice([1e-5, 1e-3]), "resid_pdrop": rng.choice([0.0, 0.2]),
            "embd_pdrop": rng.choice([0.0, 0.1]), "attn_pdrop": rng.choice([0.0, 0.3]),
            "summary_activation": rng.choice([None, "tanh"]), "summary_first_dropout": rng.choice([0.0, 0.1]),
            "tie_word_embeddings": rng.random() < 0.6, "pad_token_id": 0, "num_labels": rng.choice([1, 2, 5])}


def draw(rng: random.Random) -> tuple[GPT2Config, list[str]]:
    """Return a config, and the classes it may be used with."""
    config = GPT2Config(
        **sizes(rng), n_inner=rng.choice([None, 17]), scale_attn_weights=rng.random() < 0.6,
        activation_function=rng.choice(["gelu_new", "gelu", "relu", "silu"]), bos_token_id=1, eos_token_id=2,
        scale_attn_by_inverse_layer_idx=rng.random() < 0.4, reorder_and_upcast_attn=rng.random() < 0.2)
    return config, ["GPT2LMHeadModel", "GPT2DoubleHeadsModel", "GPT2ForSequenceClassification",
                    "GPT2ForTokenClassification", "GPT2ForQuestionAnswering", "GPT2Model"]
