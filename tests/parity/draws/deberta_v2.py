"""Random legal DeBERTas of the second and third versions."""

from __future__ import annotations

import random

from tests.parity.draws.deberta import common
from transformers import DebertaV2Config


def draw(rng: random.Random) -> tuple[DebertaV2Config, list[str]]:
    """Return a config, and the classes it may be used with."""
    fields = common(rng)
    size = rng.choice([0, 0, 1, 3, 5])
    groups = rng.choice([1, fields["num_attention_heads"]])
    config = DebertaV2Config(
        **fields, position_buckets=rng.choice([-1, 4, 9]), share_att_key=rng.random() < 0.5,
        norm_rel_ebd=rng.choice(["none", "layer_norm"]), conv_kernel_size=size, conv_groups=groups,
        conv_act=rng.choice(["tanh", "gelu"]), num_labels=rng.choice([1, 2, 5]))
    return config, ["DebertaV2ForMaskedLM", "DebertaV2Model", "DebertaV2ForSequenceClassification",
                    "DebertaV2ForTokenClassification", "DebertaV2ForMultipleChoice",
                    *(["DebertaV2ForQuestionAnswering"] if config.num_labels == 2 else [])]
