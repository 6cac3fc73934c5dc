"""Random legal Switch Transformers."""

from __future__ import annotations

import random

from tests.parity.draws.t5 import sizes
from transformers import SwitchTransformersConfig


def draw(rng: random.Random) -> tuple[SwitchTransformersConfig, list[str]]:
    """Return a config, and the classes it may be used with."""
    config = SwitchTransformersConfig(
        **sizes(rng), num_sparse_encoder_layers=rng.choice([0, 1, 2]), num_sparse_decoder_layers=rng.choice([0, 1, 2]),
        num_experts=rng.choice([1, 2, 5]), expert_capacity=rng.choice([1, 3, 64]), router_bias=rng.random() < 0.5,
        dense_act_fn=rng.choice(["relu", "gelu", "silu"]), router_jitter_noise=rng.choice([0.0, 0.01]),
        tie_word_embeddings=rng.random() < 0.7)
    return config, ["SwitchTransformersForConditionalGeneration", "SwitchTransformersModel",
                    "SwitchTransformersEncoderModel"]
