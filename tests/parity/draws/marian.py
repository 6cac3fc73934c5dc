"""Random legal Marian models, with one vocabulary or two."""

from __future__ import annotations

import random

from tests.parity.draws.bart import alone, inputs, sizes
from transformers import MarianConfig

__all__ = ["draw", "inputs"]


def draw(rng: random.Random) -> tuple[MarianConfig, list[str]]:
    """Return a config, and the classes it may be used with."""
    shared = rng.random() < 0.5
    given = sizes(rng)
    target = given["vocab_size"] if shared else rng.choice([given["vocab_size"], 83])
    config = MarianConfig(**given, share_encoder_decoder_embeddings=shared, decoder_vocab_size=target, pad_token_id=60,
                          decoder_start_token_id=60, eos_token_id=0)
    writers = alone(config, "MarianForCausalLM") if target == given["vocab_size"] else []
    return config, ["MarianMTModel", "MarianModel", *writers]
