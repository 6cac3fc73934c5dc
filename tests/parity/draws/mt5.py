"""Random legal mT5 models."""

from __future__ import annotations

import random

from tests.parity.draws.t5 import inputs, projection, sizes
from transformers import MT5Config

__all__ = ["draw", "inputs"]


def draw(rng: random.Random) -> tuple[MT5Config, list[str]]:
    """Return a config, and the classes it may be used with."""
    config = MT5Config(**sizes(rng), feed_forward_proj=projection(rng), classifier_dropout=rng.choice([0.0, 0.3]),
                       num_labels=2)
    return config, ["MT5ForConditionalGeneration", "MT5Model", "MT5EncoderModel", "MT5ForSequenceClassification",
                    "MT5ForTokenClassification", "MT5ForQuestionAnswering"]
