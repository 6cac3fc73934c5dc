"""How much of a batch is real: the names of its inputs, their masks, and the tokens that are read. No torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MASKS = {"input_ids": "attention_mask", "decoder_input_ids": "decoder_attention_mask"}
"""Which mask tells what of an input is padding; without it none is."""


def tokens_read(batch: Mapping[str, Any]) -> tuple[int, int]:
    """Count the tokens of a batch that each side of a model reads (0 where there is none); padding is none."""
    first, second = (int(batch[mask].sum()) if mask in batch else batch[name].numel() if name in batch else 0
                     for name, mask in MASKS.items())
    return first, second
