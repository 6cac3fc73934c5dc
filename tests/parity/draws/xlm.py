"""Random legal XLMs."""

from __future__ import annotations

import random
from typing import Any

import torch
from tests.parity.batches import batch
from torch import Tensor
from transformers import XLMConfig


def draw(rng: random.Random) -> tuple[XLMConfig, list[str]]:
    """Return a config, and the classes it may be used with."""
    heads = rng.choice([1, 3, 4])
    summaries = rng.random() < 0.5
    config = XLMConfig(
        vocab_size=rng.choice([61, 97]), emb_dim=heads * rng.choice([5, 8]), n_heads=heads,
        n_layers=rng.choice([1, 2, 3]), max_position_embeddings=rng.choice([24, 40]), n_langs=rng.choice([1, 2, 3]),
        use_lang_emb=rng.random() < 0.7, causal=rng.random() < 0.4, gelu_activation=rng.random() < 0.5,
        sinusoidal_embeddings=rng.random() < 0.3, layer_norm_eps=rng.choice([1e-12, 1e-5]),
        dropout=rng.choice([0.0, 0.1]), attention_dropout=rng.choice([0.0, 0.2]), mask_token_id=rng.choice([0, 5]),
        lang_id=rng.choice([0, 1]), summary_type=rng.choice(["first", "last", "mean", "cls_index"]),
        summary_activation=rng.choice([None, "tanh", "relu"]) if summaries else None,
        summary_first_dropout=rng.choice([0.0, 0.1]), num_labels=2 if rng.random() < 0.5 else rng.choice([1, 4]),
        tie_word_embeddings=rng.random() < 0.7)
    classes = ["XLMModel", "XLMWithLMHeadModel", "XLMForTokenClassification", "XLMForMultipleChoice"]
    if config.num_labels == 2:
        classes.append("XLMForQuestionAnsweringSimple")
    if config.summary_activation is None:
        classes.append("XLMForSequenceClassification")
    return config, classes


def inputs(config: XLMConfig, name: str, rng: random.Random) -> dict[str, Tensor]:
    """Return the common batch with languages, and sometimes segments, which are looked up among the tokens."""
    given: dict[str, Any] = batch(config, name, rng)
    ids = given["input_ids"]
    if config.n_langs > 1 and config.use_lang_emb:
        given["langs"] = torch.tensor([rng.randrange(config.n_langs) for _ in range(ids.numel())]).view(ids.shape)
    if rng.random() < 0.5:
        given["token_type_ids"] = ids.flip(-1)
    return given
