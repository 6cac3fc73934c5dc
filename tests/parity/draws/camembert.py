"""Random legal CamemBERTs."""

from __future__ import annotations

import random

from tests.parity.draws.roberta import classes, sizes
from transformers import CamembertConfig


def draw(rng: random.Random) -> tuple[CamembertConfig, list[str]]:
    """Return a config, and the classes it may be used with."""
    config = CamembertConfig(**sizes(rng))
    return config, classes(config, "Camembert")
