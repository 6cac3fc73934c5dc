"""Random legal pairs of an encoder and a decoder."""

from __future__ import annotations

import random
from typing import Any

from tests.parity.batches import batch
from tests.parity.draws.bert_generation import sizes
from torch import Tensor
from transformers import (
    AlbertConfig,
    BertConfig,
    BertGenerationConfig,
    BigBirdConfig,
    DebertaConfig,
    DebertaV2Config,
    DistilBertConfig,
    ElectraConfig,
    EncoderDecoderConfig,
    GPT2Config,
    LongformerConfig,
    ModernBertConfig,
    MPNetConfig,
    RobertaConfig,
    RoFormerConfig,
    XLMConfig,
)

KINDS: list[Any] = [BertConfig, BertGenerationConfig, RobertaConfig, ElectraConfig, RoFormerConfig]
READERS: list[Any] = [*KINDS, LongformerConfig, AlbertConfig, BigBirdConfig, MPNetConfig, DebertaConfig,
                      DebertaV2Config, ModernBertConfig, DistilBertConfig, XLMConfig]


def gpt2(sizes: dict[str, Any]) -> GPT2Config:
    """Return a GPT-2 of these sizes."""
    return GPT2Config(vocab_size=sizes["vocab_size"], n_embd=sizes["hidden_size"], n_head=sizes["num_attention_heads"],
                      n_layer=sizes["num_hidden_layers"], n_inner=17, n_positions=24, bos_token_id=2, eos_token_id=4)


def reader(kind: Any, sizes: dict[str, Any]) -> Any:
    """Return an encoder of a kind; those with names of their own for common fields take what they know."""
    if kind is XLMConfig or kind is DistilBertConfig:
        names = {"hidden_size": "emb_dim" if kind is XLMConfig else "dim", "num_hidden_layers": "n_layers",
                 "num_attention_heads": "n_heads", "max_position_embeddings": "max_position_embeddings",
                 "vocab_size": "vocab_size", **({} if kind is XLMConfig else {"intermediate_size": "hidden_dim"})}
        return kind(**{theirs: sizes[name] for name, theirs in names.items()})
    if kind is ModernBertConfig:
        left_out = ("layer_norm_eps", "hidden_dropout_prob", "attention_probs_dropout_prob", "hidden_act")
        return kind(**{name: value for name, value in sizes.items() if name not in left_out}, pad_token_id=0)
    made = kind(**sizes)
    if kind is LongformerConfig:
        made.attention_window = 4
    if kind is BigBirdConfig:
        made.attention_type = "original_full"
    return made


def draw(rng: random.Random) -> tuple[EncoderDecoderConfig, list[str]]:
    """Return a config, and its class."""
    dim = rng.choice([8, 24])
    encoder = reader(rng.choice(READERS), sizes(rng, dim))
    written = sizes(rng, rng.choice([dim, 16]))
    decoder = gpt2(written) if rng.random() < 0.3 else rng.choice(KINDS)(**written)
    config = EncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder)
    config.decoder_start_token_id, config.pad_token_id, config.eos_token_id = 3, 0, 4
    return config, ["EncoderDecoderModel"]


def inputs(config: Any, name: str, rng: random.Random) -> dict[str, Tensor]:
    """Return a batch for both sides."""
    return batch(config, "both sides", rng)
