"""Random legal BERTs and RoBERTas that write, and may read an encoder's output."""

from __future__ import annotations

import random
from typing import Any

from tests.parity.draws.bert_generation import inputs, sizes
from transformers import BertConfig, RobertaConfig

__all__ = ["draw", "inputs"]


def draw(rng: random.Random) -> tuple[Any, list[str]]:
    """Return a config, and the class it may be used with."""
    kind, name = rng.choice([(BertConfig, "BertLMHeadModel"), (RobertaConfig, "RobertaForCausalLM")])
    return kind(**sizes(rng), is_decoder=True, add_cross_attention=True, type_vocab_size=rng.choice([1, 2])), [name]
