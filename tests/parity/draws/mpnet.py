"""Random legal MPNets."""

from __future__ import annotations

import random

from tests.parity.draws.roberta import classes, sizes
from transformers import MPNetConfig


def draw(rng: random.Random) -> tuple[MPNetConfig, list[str]]:
    """Return a config, and the classes it may be used with; padding is always id 1, and there are no decoders."""
    left_out = ("pad_token_id", "is_decoder", "type_vocab_size", "classifier_dropout")
    config = MPNetConfig(**{name: value for name, value in sizes(rng).items() if name not in left_out},
                         relative_attention_num_buckets=rng.choice([32, 32, 40]))
    return config, [name for name in classes(config, "MPNet") if not name.endswith("CausalLM")]
