"""Random legal ELECTRAs, generators and discriminators."""

from __future__ import annotations

import random

from tests.parity.draws.roberta import classes, sizes
from transformers import ElectraConfig


def draw(rng: random.Random) -> tuple[ElectraConfig, list[str]]:
    """Return a config, and the classes it may be used with."""
    common = sizes(rng)
    projected = rng.random() < 0.7
    config = ElectraConfig(
        **common, embedding_size=rng.choice([7, 12, common["hidden_size"]]),
        summary_type=rng.choice(["first", "last", "mean", "cls_index"]), summary_use_proj=projected,
        summary_activation=rng.choice(["gelu", "tanh", "relu", ""]) if projected else "linear",
        summary_last_dropout=rng.choice([0.0, 0.1]))
    return config, [*classes(config, "Electra"), "ElectraForPreTraining"]
