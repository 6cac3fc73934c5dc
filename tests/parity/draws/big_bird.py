"""Random legal BigBirds, with inputs beyond the length up to which all is visible, and below it."""

from __future__ import annotations

import random

import torch
from tests.parity.batches import batch
from torch import Tensor
from transformers import BigBirdConfig


def draw(rng: random.Random) -> tuple[BigBirdConfig, list[str]]:
    """Return a config, and the classes it may be used with."""
    heads, causal = rng.choice([1, 3, 4]), rng.random() < 0.2
    config = BigBirdConfig(
        vocab_size=rng.choice([71, 97]), hidden_size=heads * rng.choice([5, 8]), num_attention_heads=heads,
        num_hidden_layers=rng.choice([1, 2, 3]), intermediate_size=rng.choice([17, 40]),
        hidden_act=rng.choice(["gelu", "relu", "silu", "gelu_new"]), max_position_embeddings=rng.choice([24, 40]),
        type_vocab_size=rng.choice([2, 3]), layer_norm_eps=rng.choice([1e-12, 1e-5]), is_decoder=causal,
        hidden_dropout_prob=rng.choice([0.0, 0.1]), attention_probs_dropout_prob=rng.choice([0.0, 0.2]),
        classifier_dropout=rng.choice([None, 0.3]), num_labels=rng.choice([1, 2, 5]),
        attention_type="original_full" if causal else rng.choice(["original_full", "block_sparse", "block_sparse"]),
        block_size=rng.choice([1, 2, 3]), num_random_blocks=rng.choice([1, 2]), use_bias=rng.random() < 0.5,
        rescale_embeddings=rng.random() < 0.5, sep_token_id=rng.choice([4, 66]),
        tie_word_embeddings=rng.random() < 0.7)
    if causal:
        return config, ["BigBirdForCausalLM"]
    return config, ["BigBirdForPreTraining", "BigBirdForMaskedLM", "BigBirdModel", "BigBirdForSequenceClassification",
                    "BigBirdForTokenClassification", "BigBirdForQuestionAnswering", "BigBirdForMultipleChoice"]


def inputs(config: BigBirdConfig, name: str, rng: random.Random) -> dict[str, Tensor]:
    """Return a batch whose length is whole blocks: the reference's hidden states of other lengths are padded."""
    made = batch(config, name, rng)
    made = {key: value[..., :12] for key, value in made.items()}
    if name.endswith("QuestionAnswering"):
        for row in made["input_ids"][1:]:  # the first row has no separator
            row[rng.randint(0, 3)] = config.sep_token_id
    if config.attention_type == "block_sparse" and rng.random() < 0.5 and made["input_ids"].dim() == 2:
        made = {key: torch.cat([value, value[:, :12]], dim=1) for key, value in made.items()}
        made["attention_mask"][:, 12:] = made["attention_mask"][:, :12].cumprod(1) * made["attention_mask"][:, 11:12]
    return made
