"""Random legal ALBERTs, with several groups of layers and several layers in a group."""

from __future__ import annotations

import random

from tests.parity.draws.roberta import sizes
from transformers import AlbertConfig


def draw(rng: random.Random) -> tuple[AlbertConfig, list[str]]:
    """Return a config, and the classes it may be used with."""
    common = sizes(rng)
    common = {name: value for name, value in common.items() if name not in ("is_decoder", "classifier_dropout")}
    config = AlbertConfig(
        **common, embedding_size=rng.choice([7, 12, common["hidden_size"]]), inner_group_num=rng.choice([1, 1, 2, 3]),
        num_hidden_groups=rng.randint(1, common["num_hidden_layers"]), classifier_dropout_prob=rng.choice([0.0, 0.1]))
    heads = ["AlbertForPreTraining", "AlbertForMaskedLM", "AlbertForSequenceClassification",
             "AlbertForTokenClassification", "AlbertForMultipleChoice", "AlbertModel"]
    return config, [*heads, "AlbertForQuestionAnswering"] if config.num_labels == 2 else heads
