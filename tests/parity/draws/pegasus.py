"""Random legal Pegasus models."""

from __future__ import annotations

import random

from tests.parity.draws.bart import alone, inputs, sizes
from transformers import PegasusConfig

__all__ = ["draw", "inputs"]


def draw(rng: random.Random) -> tuple[PegasusConfig, list[str]]:
    """Return a config, and the classes it may be used with."""
    config = PegasusConfig(**sizes(rng))
    return config, ["PegasusForConditionalGeneration", "PegasusModel", *alone(config, "PegasusForCausalLM")]
