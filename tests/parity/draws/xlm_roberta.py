"""Random legal XLM-Rs."""

from __future__ import annotations

import random

from tests.parity.draws.roberta import classes, sizes
from transformers import XLMRobertaConfig


def draw(rng: random.Random) -> tuple[XLMRobertaConfig, list[str]]:
    """Return a config, and the classes it may be used with."""
    config = XLMRobertaConfig(**sizes(rng))
    return config, classes(config, "XLMRoberta")
