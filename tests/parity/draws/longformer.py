"""Random legal Longformers."""

from __future__ import annotations

import random

import torch
from tests.parity.batches import batch
from torch import Tensor
from transformers import LongformerConfig


def draw(rng: random.Random) -> tuple[LongformerConfig, list[str]]:
    """Return a config, and the classes it may be used with."""
    heads, layers = rng.choice([1, 3, 4]), rng.choice([1, 2, 3])
    window = rng.choice([4, 6, [rng.choice([4, 8]) for _ in range(layers)]])
    config = LongformerConfig(
        vocab_size=rng.choice([61, 97]), hidden_size=heads * rng.choice([5, 8]), num_attention_heads=heads,
        num_hidden_layers=layers, intermediate_size=rng.choice([17, 40]), attention_window=window,
        hidden_act=rng.choice(["gelu", "relu", "silu", "gelu_new"]), max_position_embeddings=rng.choice([24, 40]),
        type_vocab_size=rng.choice([1, 2, 3]), layer_norm_eps=rng.choice([1e-12, 1e-5]),
        pad_token_id=rng.choice([1, 3]), sep_token_id=rng.choice([2, 5]), hidden_dropout_prob=rng.choice([0.0, 0.1]),
        attention_probs_dropout_prob=rng.choice([0.0, 0.2]), num_labels=rng.choice([1, 2, 5]),
        tie_word_embeddings=rng.random() < 0.7)
    classes = ["LongformerForMaskedLM", "LongformerModel", "LongformerForSequenceClassification",
               "LongformerForTokenClassification", "LongformerForMultipleChoice"]
    return config, [*classes, "LongformerForQuestionAnswering"] if config.num_labels == 2 else classes


def inputs(config: LongformerConfig, name: str, rng: random.Random) -> dict[str, Tensor]:
    """Return ids with three separators in every row, and sometimes the tokens that are global."""
    made = batch(config, name, rng)
    tokens = made["input_ids"]
    for place in ((2,), (2, 3))[rng.random() < 0.5]:
        tokens[..., place] = config.sep_token_id
    lengths = made["attention_mask"].sum(-1, keepdim=True)
    tokens.masked_fill_((tokens == config.sep_token_id) & (torch.arange(tokens.shape[-1]) > 3), 7)
    count = 3 - (tokens == config.sep_token_id).sum(-1, keepdim=True)
    from_end = lengths - 1 - torch.arange(tokens.shape[-1])
    tokens.masked_fill_((from_end >= 0) & (from_end < count), config.sep_token_id)
    if rng.random() < 0.5:
        made["global_attention_mask"] = (torch.rand(tokens.shape, generator=torch.Generator().manual_seed(
            rng.randrange(99))) < 0.3).long()
    return made
