"""Random legal Reformers, with inputs of one chunk and of many."""

from __future__ import annotations

import random
from math import lcm

import torch
from tests.parity.batches import batch
from torch import Tensor
from transformers import ReformerConfig


def draw(rng: random.Random) -> tuple[ReformerConfig, list[str]]:
    """Return a config, and the classes it may be used with."""
    heads, width, causal = rng.choice([1, 3, 4]), rng.choice([4, 6]), rng.random() < 0.5
    dim, layers = heads * 6, [rng.choice(["local", "lsh"]) for _ in range(rng.choice([1, 2, 3]))]
    config = ReformerConfig(
        vocab_size=rng.choice([61, 97]), hidden_size=dim, num_attention_heads=heads, attention_head_size=width,
        attn_layers=layers, feed_forward_size=rng.choice([17, 40]), hidden_act=rng.choice(["gelu", "relu", "silu"]),
        axial_pos_embds=rng.random() < 0.6, axial_pos_shape=rng.choice([(4, 12), (6, 8)]),
        axial_pos_embds_dim=(dim // 3, dim - dim // 3), max_position_embeddings=48, is_decoder=causal,
        local_attn_chunk_length=rng.choice([2, 3, 4]), local_num_chunks_before=rng.choice([0, 1, 2]),
        local_num_chunks_after=0 if causal else rng.choice([0, 1]), lsh_attn_chunk_length=rng.choice([3, 4, 6]),
        lsh_num_chunks_before=rng.choice([0, 1, 2]), lsh_num_chunks_after=0 if causal else rng.choice([0, 1]),
        num_hashes=rng.choice([1, 2, 3]), num_buckets=rng.choice([None, 2, 4, [2, 4], [6]]),
        hash_seed=rng.randint(0, 9),
        hidden_dropout_prob=rng.choice([0.0, 0.1]), lsh_attention_probs_dropout_prob=rng.choice([0.0, 0.2]),
        local_attention_probs_dropout_prob=rng.choice([0.0, 0.2]), classifier_dropout=rng.choice([None, 0.3]),
        layer_norm_eps=rng.choice([1e-12, 1e-5]), num_labels=rng.choice([1, 2, 5]),
        tie_word_embeddings=rng.random() < 0.2)
    both = ["ReformerModel", "ReformerForSequenceClassification"]
    if config.num_labels == 2:
        both.append("ReformerForQuestionAnswering")
    return config, [*both, "ReformerModelWithLMHead" if causal else "ReformerForMaskedLM"]


def inputs(config: ReformerConfig, name: str, rng: random.Random) -> dict[str, Tensor]:
    """Return a batch of whole chunks: the reference pads hidden states and weights of other lengths."""
    chunks = {"local": config.local_attn_chunk_length, "lsh": config.lsh_attn_chunk_length}
    whole = lcm(*(chunks[kind] for kind in set(config.attn_layers)))
    made = batch(config, name, rng)
    made = {key: torch.cat([value[:, :12], value[:, :12]], dim=1) for key, value in made.items()}
    made["attention_mask"][:, 12:] = made["attention_mask"][:, :12].cumprod(1) * made["attention_mask"][:, 11:12]
    length = rng.choice([min(chunks[kind] for kind in set(config.attn_layers)), *range(whole, 25, whole)])
    made = {key: value[:, :length].clone() for key, value in made.items()}
    if "local" in config.attn_layers:  # the reference's weights in a chunk of padding alone are rounding errors
        made["attention_mask"] = torch.tensor([[int(rng.random() < 0.7 or not place % chunks["local"])
                                                for place in range(length)] for _ in made["input_ids"]])
    made["attention_mask"][:, 0] = 1
    return made
