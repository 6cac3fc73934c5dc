"""How well a model predicts a text, from the sum of its losses."""

from __future__ import annotations

import math


def perplexity(nats: float, tokens: int) -> float:
    """Give `exp(nats / tokens)`: among how many equally likely tokens the model chooses, so to say.

    `nats` is the sum of the losses of `tokens` target tokens. Two models can be compared by it only over the same
    tokens; `bits_per_byte` has no such condition. Infinite where the number is too large for a float.

    Errors: `ValueError` where nothing was scored.
    Source: Jelinek et al. 1977, "Perplexity: a measure of the difficulty of speech recognition tasks", JASA 62.
    """
    if tokens <= 0:
        raise ValueError(f"perplexity of {tokens} tokens")
    try:
        return math.exp(nats / tokens)
    except OverflowError:
        return math.inf


def bits_per_byte(nats: float, byte_count: int) -> float:
    """Give the bits that the model needs for one UTF-8 byte of the text, as a compressor would.

    That is `nats / ln 2 / byte_count`, where `nats` is the sum of the losses of all tokens that spell these bytes.

    Errors: `ValueError` where there is no text.
    Source: Gao et al. 2020, "The Pile", §3.1, arXiv:2101.00027.
    """
    if byte_count <= 0:
        raise ValueError(f"bits per byte of {byte_count} bytes")
    return nats / math.log(2) / byte_count
