"""Random legal mBARTs."""

from __future__ import annotations

import random

from tests.parity.draws.bart import alone, inputs, sizes
from transformers import MBartConfig

__all__ = ["draw", "inputs"]


def draw(rng: random.Random) -> tuple[MBartConfig, list[str]]:
    """Return a config, and the classes it may be used with."""
    config = MBartConfig(**sizes(rng), classifier_dropout=rng.choice([0.0, 0.3]), num_labels=rng.choice([1, 2, 5]))
    return config, ["MBartForConditionalGeneration", "MBartModel", "MBartForSequenceClassification",
                    "MBartForQuestionAnswering", *alone(config, "MBartForCausalLM")]
