"""Random legal Mistrals."""

from __future__ import annotations

import random

from tests.parity.draws.llama import CLASSES, sizes
from transformers import MistralConfig


def draw(rng: random.Random) -> tuple[MistralConfig, list[str]]:
    """Return a config, and the classes it may be used with."""
    config = MistralConfig(**sizes(rng), sliding_window=rng.choice([None, 1, 3, 100]))
    return config, [f"Mistral{name}" for name in CLASSES]
