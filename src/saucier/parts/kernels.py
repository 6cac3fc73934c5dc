"""Attention itself: from queries, keys and values to the mixed values, by PyTorch's fused kernel or step by step.

Letters: B batch, H heads, G key-value heads, Q queries, K keys, E head width.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from saucier.parts.dropout import dropout
from saucier.parts.visibility import Mask

STEPWISE_PAIRS = 1024 * 1024
"""Up to so many query-key pairs, training on a CPU in bfloat16 goes step by step: the fused kernel's backward pass is
two to six times slower there (seen at 18, 48, 128 and 256 positions with torch 2.13, forward and backward together)."""


@dataclass(slots=True)
class Scores:
    """What enters the softmax beside query times key."""

    mask: Mask
    scale: float
    bias: Tensor | None = None
    """Added to the scaled scores, broadcasts to [B, H, Q, K]."""
    dropout: float = 0.0
    """On the weights; 0 outside training."""


def attend(query: Tensor, key: Tensor, value: Tensor, scores: Scores) -> Tensor:
    """Softmax attention by the faster of two equal ways; a query that sees nothing gives zeros.

    Shapes: query [B, H, Q, E]; key, value [B, G, K, E] -> [B, H, Q, E].
    Source: Vaswani et al. 2017, §3.2.1, eq 1.
    """
    on_cpu = query.device.type == "cpu"
    learning = torch.is_grad_enabled() and query.requires_grad
    if on_cpu and learning and (query.dtype == torch.bfloat16
                                or scores.dropout) and query.shape[2] * key.shape[2] <= STEPWISE_PAIRS:
        return stepwise(query, key, value, scores)[0]
    return fused(query, key, value, scores)


def fused(query: Tensor, key: Tensor, value: Tensor, scores: Scores) -> Tensor:
    """Attention through PyTorch's kernel. Shapes: as `attend`.

    Source: Dao et al. 2022, arXiv:2205.14135, for the blocks.
    """
    grouped = key.shape[1] != query.shape[1]
    if grouped and query.shape[2] == 1 and scores.bias is None:
        return one_query(query, key, value, scores)
    mask, addend = scores.mask, scores.mask.allowed
    if scores.bias is not None:  # the kernel takes the causal flag or a tensor, not both
        addend = merged(mask, scores.bias, query.dtype)
    return F.scaled_dot_product_attention(query, key, value, attn_mask=addend, dropout_p=scores.dropout,
                                          scale=scores.scale,
                                          is_causal=mask.causal and addend is None, enable_gqa=grouped)


def one_query(query: Tensor, key: Tensor, value: Tensor, scores: Scores) -> Tensor:
    """Decode grouped heads without copying keys: the heads of a group become queries of one head.

    Shapes: as `attend`, Q = 1.
    """
    grouped = query[:, :, 0].unflatten(1, (key.shape[1], -1))
    allowed = scores.mask.allowed
    if allowed is not None and allowed.shape[1] > 1:
        allowed = allowed[:, :, 0].unflatten(1, (key.shape[1], -1))
    mixed = F.scaled_dot_product_attention(grouped, key, value, attn_mask=allowed, dropout_p=scores.dropout,
                                           scale=scores.scale)
    return mixed.flatten(1, 2)[:, :, None]


def merged(mask: Mask, bias: Tensor, dtype: torch.dtype) -> Tensor:
    """Put mask and bias into the one tensor that is added to the scores. Shapes: broadcasts to [B, H, Q, K]."""
    addend = mask.addend(bias.shape[-1], dtype)
    return bias.to(dtype) if addend is None else bias.to(dtype) + addend


def stepwise(query: Tensor, key: Tensor, value: Tensor, scores: Scores) -> tuple[Tensor, Tensor]:
    """The same step by step, returning the weights too. Shapes: as `attend` -> ([B, H, Q, E], [B, H, Q, K])."""
    weights = attention_weights(query, key, scores)
    return dropout(weights, scores.dropout) @ spread(value, query.shape[1]), weights


def attention_weights(query: Tensor, key: Tensor, scores: Scores) -> Tensor:
    """Softmax over the visible keys; a query that sees nothing gets zeros, never NaN. Shapes: -> [B, H, Q, K]."""
    raw = (query * scores.scale) @ spread(key, query.shape[1]).transpose(-1, -2)
    if scores.bias is not None:
        raw = raw + scores.bias
    mask = scores.mask
    if mask.allowed is not None and not mask.whole:
        weights = raw.masked_fill(~mask.allowed, torch.finfo(raw.dtype).min).softmax(-1)
        return weights.masked_fill(~mask.allowed, 0.0)
    addend = mask.addend(raw.shape[-1], raw.dtype)
    return (raw if addend is None else raw + addend).softmax(-1)


def spread(x: Tensor, heads: int) -> Tensor:
    """Give every query head its key or value head. Shapes: [B, G, K, E] -> [B, H, K, E]."""
    return x if x.shape[1] == heads else x.repeat_interleave(heads // x.shape[1], dim=1)
