"""Random legal GPTs."""

from __future__ import annotations

import random
from typing import Any

from tests.parity.draws import gpt2
from transformers import OpenAIGPTConfig


def inputs(config: Any, name: str, rng: random.Random) -> dict[str, Any]:
    """Return a batch as for GPT-2; the reference cannot take a mask of several choices."""
    given = gpt2.inputs(config, name, rng)
    if "DoubleHeads" in name:
        del given["attention_mask"]
    return given


def draw(rng: random.Random) -> tuple[OpenAIGPTConfig, list[str]]:
    """Return a config, and the classes it may be used with."""
    config = OpenAIGPTConfig(**gpt2.sizes(rng), afn=rng.choice(["gelu", "relu", "silu", "swish"]))
    return config, ["OpenAIGPTLMHeadModel", "OpenAIGPTDoubleHeadsModel", "OpenAIGPTForSequenceClassification",
                    "OpenAIGPTModel"]
