"""Random legal M2M-100 models."""

from __future__ import annotations

import random

from tests.parity.draws.bart import inputs, sizes
from transformers import M2M100Config

__all__ = ["draw", "inputs"]


def draw(rng: random.Random) -> tuple[M2M100Config, list[str]]:
    """Return a config, and the classes it may be used with."""
    return M2M100Config(**sizes(rng), pad_token_id=rng.choice([0, 1, 5])), ["M2M100ForConditionalGeneration",
                                                                            "M2M100Model"]
