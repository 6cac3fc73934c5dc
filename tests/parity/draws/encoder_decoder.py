"""Random legal pairs of an encoder and a decoder."""

from __future__ import annotations

import random
from typing import Any

from tests.parity.batches import batch
from tests.parity.draws.bert_generation import sizes
from torch import Tensor
from transformers import (
    BertConfig,
    BertGenerationConfig,
    ElectraConfig,
    EncoderDecoderConfig,
    LongformerConfig,
    RobertaConfig,
)

KINDS: list[Any] = [BertConfig, BertGenerationConfig, RobertaConfig]


def draw(rng: random.Random) -> tuple[EncoderDecoderConfig, list[str]]:
    """Return a config, and its class."""
    dim = rng.choice([8, 20])
    encoder = rng.choice([*KINDS, ElectraConfig, LongformerConfig])(**sizes(rng, dim))
    if isinstance(encoder, LongformerConfig):
        encoder.attention_window = 4
    decoder = rng.choice(KINDS)(**sizes(rng, dim))
    config = EncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder)
    config.decoder_start_token_id, config.pad_token_id, config.eos_token_id = 3, 0, 4
    return config, ["EncoderDecoderModel"]


def inputs(config: Any, name: str, rng: random.Random) -> dict[str, Tensor]:
    """Return a batch for both sides."""
    return batch(config, "both sides", rng)
