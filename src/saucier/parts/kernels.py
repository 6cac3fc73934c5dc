"""Softmax attention from queries, keys and values, fused or step by step; over all keys, or over mixtures (Linformer).

Letters: B batch, H heads, G key-value heads, Q queries, K keys or mixtures, L length, E head width, N longest text,
S mixtures of all documents of a row.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from saucier import config as c
from saucier.errors import InputError
from saucier.parts.context import KernelCall, Mixtures, Observe
from saucier.parts.masks import Mask, document_starts, positions_in_document
from saucier.parts.norms import dropout

STEPWISE_PAIRS = 1024 * 1024
"""Up to this number of query-key pairs, training on a CPU in bfloat16 goes step by step: the fused kernel's backward
pass is two to six times slower there (seen at 18, 48, 128 and 256 positions with torch 2.13, forward and backward
together)."""


@dataclass(slots=True)
class Scores:
    """What enters the softmax in addition to query times key."""

    mask: Mask
    scale: float
    bias: Tensor | None = None
    """Added to the scaled scores, broadcasts to [B, H, Q, K]."""
    dropout: float = 0.0
    """On the weights; 0 outside training."""
    observe: Observe | None = None
    """Is given queries, keys and scores, where a lens looks at this attention."""


def attend(query: Tensor, key: Tensor, value: Tensor, scores: Scores, record: list[Tensor] | None = None) -> Tensor:
    """Softmax attention by the faster of two equal ways; a query that sees nothing gives zeros.

    `record` gets the weights, [B, H, Q, K]. Shapes: query [B, H, Q, E]; key, value [B, G, K, E] -> [B, H, Q, E].
    Source: Vaswani et al. 2017, §3.2.1, eq 1.
    """
    if record is not None:
        mixed, weights = attend_stepwise(query, key, value, scores)
        record.append(weights)
        return mixed
    on_cpu = query.device.type == "cpu"
    learning = torch.is_grad_enabled() and query.requires_grad
    if on_cpu and learning and (query.dtype == torch.bfloat16
                                or scores.dropout) and query.shape[2] * key.shape[2] <= STEPWISE_PAIRS:
        return attend_stepwise(query, key, value, scores)[0]
    with without_cudnn(query):
        return attend_fused(query, key, value, scores)


def without_cudnn(query: Tensor) -> AbstractContextManager[None]:
    """Leave cuDNN's kernel out; PyTorch chooses among all others.

    Under a mask of keys its backward pass gave gradients of the queries that were no numbers, where every other kernel
    gave numbers for the same weights and batch (T5 in bfloat16 on an H100, torch 2.11). It also plans each new shape,
    and rows, or keys in a cache, have many; what that costs was not measured.
    """
    if query.is_cuda:
        return sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH])
    return nullcontext()


def attend_fused(query: Tensor, key: Tensor, value: Tensor, scores: Scores) -> Tensor:
    """Attention through PyTorch's kernel. Shapes: as `attend`.

    Source: Dao et al. 2022, arXiv:2205.14135, for the blocks.
    """
    grouped = key.shape[1] != query.shape[1]
    if grouped and query.shape[2] == 1 and scores.bias is None:
        return attend_one_query(query, key, value, scores)
    mask, addend = scores.mask, scores.mask.allowed
    if scores.bias is not None:  # the kernel takes the causal flag or a tensor, not both
        addend = merge_mask_and_bias(mask, scores.bias, query.dtype)
    return F.scaled_dot_product_attention(query, key, value, attn_mask=addend, dropout_p=scores.dropout,
                                          scale=scores.scale,
                                          is_causal=mask.causal and addend is None, enable_gqa=grouped)


def attend_one_query(query: Tensor, key: Tensor, value: Tensor, scores: Scores) -> Tensor:
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


def merge_mask_and_bias(mask: Mask, bias: Tensor, dtype: torch.dtype) -> Tensor:
    """Put mask and bias into the one tensor that is added to the scores. Shapes: broadcasts to [B, H, Q, K]."""
    addend = mask.addend(bias.shape[-1], dtype)
    return bias.to(dtype) if addend is None else bias.to(dtype) + addend


def attend_stepwise(query: Tensor, key: Tensor, value: Tensor, scores: Scores) -> tuple[Tensor, Tensor]:
    """The same step by step, returning the weights too. Shapes: as `attend` -> ([B, H, Q, E], [B, H, Q, K])."""
    weights = attention_weights(query, key, scores)
    return dropout(weights, scores.dropout) @ repeat_heads(value, query.shape[1]), weights


def attention_weights(query: Tensor, key: Tensor, scores: Scores) -> Tensor:
    """Softmax over the visible keys; a query that sees nothing gets zeros, never NaN. Shapes: -> [B, H, Q, K]."""
    raw = (query * scores.scale) @ repeat_heads(key, query.shape[1]).transpose(-1, -2)
    if scores.bias is not None:
        raw = raw + scores.bias
    if scores.observe is not None:
        scores.observe(query, key, raw)
    mask = scores.mask
    if mask.allowed is not None and not mask.whole:
        return masked_softmax(raw, mask.allowed)
    addend = mask.addend(raw.shape[-1], raw.dtype)
    return (raw if addend is None else raw + addend).softmax(-1)


def masked_softmax(scores: Tensor, allowed: Tensor | None) -> Tensor:
    """Softmax over the allowed keys, None being all; zeros where there is none. Shapes: [..., Q, K] -> the same."""
    if allowed is None:
        return scores.softmax(-1)
    return scores.masked_fill(~allowed, torch.finfo(scores.dtype).min).softmax(-1).masked_fill(~allowed, 0.0)


def repeat_heads(x: Tensor, heads: int) -> Tensor:
    """Give every query head its key or value head. Shapes: [B, G, K, E] -> [B, H, K, E]."""
    return x if x.shape[1] == heads else x.repeat_interleave(heads // x.shape[1], dim=1)


def build_mixtures(attention: c.SelfAttention) -> Mixtures | None:
    """Return the maps that an attention has of its own, if it has any."""
    kernel = attention.kernel
    assert isinstance(kernel, c.LowRank), "MIXERS calls it for no other"
    return Mixtures(kernel, kernel.maps) if kernel.maps else None


def attend_to_mixtures(query: Tensor, key: Tensor, value: Tensor, call: KernelCall) -> Tensor:
    """Mix the values of a text by mixtures of its keys. Shapes: query [B, H, L, E], key and value [B, G, L, E].

    A token is weighed by its place in its text, padding not counted, so that padding and what else is in the row
    change nothing; packed documents have their own mixtures each.
    Source: Wang et al. 2020, §4, eq 7, arXiv:2006.04768.
    """
    context, maps = call.context, call.weights or call.context.mixtures
    assert isinstance(maps, Mixtures), "the stack has what the layer has not"
    call.refuse_cache()
    texts, length = context.texts(Texts), key.shape[2]
    longest, most = length if texts is None else texts.longest, maps.keys.shape[1]
    if longest > most:
        raise InputError(f"a text of {longest} tokens, and kernel low_rank mixes {most} at most", where="input_ids",
                         remedy="shorten the input, or train a model with a larger kernel.length")
    weigh = (lambda weight: weight[:, :length]) if texts is None else texts.weigh
    keys = mix_along_text(weigh(maps.keys), key)
    values = mix_along_text(weigh(maps.keys if maps.values is None else maps.values), value)
    scores = Scores(Mask() if texts is None else texts.mask(len(maps.keys)), call.scale, dropout=call.rate)
    return attend(query, keys, values, scores, context.attentions if context.want_weights else None)


def mix_along_text(weights: Tensor, x: Tensor) -> Tensor:
    """Shapes: weights [S, L] or [B, S, L], x [B, G, L, E] -> [B, G, S, E]."""
    return (weights if weights.dim() == 2 else weights[:, None]) @ x


class Texts:
    """Rows that are not one whole text each: padded, or several documents."""

    def __init__(self, real: Tensor, document: Tensor | None) -> None:
        """Find the place of every token, and the number of its document in the row."""
        self.real = real
        self.places = positions_in_document(real, document)
        """[B, L]"""
        self.number = None if document is None else document_starts(document).long().cumsum(1) - 1
        """[B, L], from 0; None where a row is one text."""
        self.longest = int(torch.where(real, self.places, 0).max()) + 1
        self.count = 1 if self.number is None else int(self.number.max()) + 1

    def weigh(self, weight: Tensor) -> Tensor:
        """Return the weight of each token in each mixture, zero in those of other documents.

        Shapes: [K, N] -> [B, S, L].
        """
        found = weight.T[self.places.clamp(max=weight.shape[1] - 1)] * self.real[..., None]
        if self.number is None:
            return found.transpose(1, 2)
        numbers = torch.arange(self.count, device=found.device)
        own = (self.number[:, None] == numbers[:, None])[:, :, None]  # [B, D, 1, L]
        return (found.transpose(1, 2)[:, None] * own).flatten(1, 2)

    def mask(self, rank: int) -> Mask:
        """Return which mixtures a token sees: those of its document."""
        if self.number is None:
            return Mask()
        numbers = torch.arange(self.count, device=self.real.device).repeat_interleave(rank)
        return Mask(allowed=(self.number[..., None] == numbers)[:, None], device=self.real.device)
