"""Attention itself: from queries, keys and values to the mixed values, by PyTorch's fused kernel or step by step.

Letters: B batch, H heads, G key-value heads, Q queries, K keys, E head width.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from saucier.parts.visibility import Mask


@dataclass(slots=True)
class Scores:
    """What enters the softmax beside query times key."""

    mask: Mask
    scale: float
    bias: Tensor | None = None
    """Added to the scaled scores, broadcasts to [B, H, Q, K]."""
    dropout: float = 0.0
    """On the weights; 0 outside training."""


def merged(mask: Mask, bias: Tensor, dtype: torch.dtype) -> Tensor:
    """Put mask and bias into the one tensor that the fused kernel adds to the scores. Shapes: broadcasts to [B, H, Q, K]."""
    bias = bias.to(dtype)
    if mask.causal:
        bias = bias.masked_fill(~lower(bias.shape[-1], bias.device), float("-inf"))
    return bias if mask.allowed is None else bias.masked_fill(~mask.allowed, float("-inf"))


def fused(query: Tensor, key: Tensor, value: Tensor, scores: Scores) -> Tensor:
    """Softmax attention through PyTorch's kernel; a query that sees nothing gives zeros.

    Shapes: query [B, H, Q, E]; key, value [B, G, K, E] -> [B, H, Q, E].
    Source: Vaswani et al. 2017, §3.2.1, eq 1; Dao et al. 2022, arXiv:2205.14135, for the blocked computation.
    """
    if query.shape[2] == 1 and key.shape[1] != query.shape[1] and scores.bias is None:
        return one_query(query, key, value, scores)
    mask, addend = scores.mask, scores.mask.allowed
    if scores.bias is not None:  # the kernel takes the causal flag or a tensor, not both
        addend = merged(mask, scores.bias, query.dtype)
    return F.scaled_dot_product_attention(query, key, value, attn_mask=addend, dropout_p=scores.dropout, scale=scores.scale,
                                          is_causal=mask.causal and addend is None, enable_gqa=key.shape[1] != query.shape[1])


def one_query(query: Tensor, key: Tensor, value: Tensor, scores: Scores) -> Tensor:
    """Decode grouped heads without copying keys: the heads of a group become queries of one head. Shapes: as `fused`, Q = 1."""
    grouped = query[:, :, 0].unflatten(1, (key.shape[1], -1))
    mixed = F.scaled_dot_product_attention(grouped, key, value, attn_mask=scores.mask.allowed, dropout_p=scores.dropout, scale=scores.scale)
    return mixed.flatten(1, 2)[:, :, None]


def explicit(query: Tensor, key: Tensor, value: Tensor, scores: Scores) -> tuple[Tensor, Tensor]:
    """The same step by step, returning the weights too.

    Shapes: as `fused` -> ([B, H, Q, E], [B, H, Q, K]).
    """
    weights = attention_weights(query, key, scores)
    dropped = F.dropout(weights, scores.dropout) if scores.dropout else weights
    return dropped @ spread(value, query.shape[1]), weights


def attention_weights(query: Tensor, key: Tensor, scores: Scores) -> Tensor:
    """Softmax over the visible keys; a query that sees nothing gets zeros, never NaN. Shapes: -> [B, H, Q, K]."""
    raw = (query @ spread(key, query.shape[1]).transpose(-1, -2)) * scores.scale
    if scores.bias is not None:
        raw = raw + scores.bias
    allowed = scores.mask.allowed
    if scores.mask.causal:
        triangle = lower(query.shape[2], query.device)
        allowed = triangle if allowed is None else allowed & triangle
    if allowed is None:
        return raw.softmax(-1)
    weights = raw.masked_fill(~allowed, torch.finfo(raw.dtype).min).softmax(-1)
    return weights.masked_fill(~allowed, 0.0)


def spread(x: Tensor, heads: int) -> Tensor:
    """Give every query head its key or value head. Shapes: [B, G, K, E] -> [B, H, K, E]."""
    return x if x.shape[1] == heads else x.repeat_interleave(heads // x.shape[1], dim=1)


def lower(length: int, device: torch.device) -> Tensor:
    """The causal triangle. Shapes: -> [L, L]."""
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()
