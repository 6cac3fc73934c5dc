"""Nyströmformer's attention: softmax through landmarks, each text of a batch by itself.

Letters: B batch, L length, H heads, E head width, T texts, N longest text, S landmarks, C size of the convolution.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saucier import config as c
from saucier.parts.context import KernelCall
from saucier.parts.kernels import Scores, attend
from saucier.parts.masks import Mask, document_starts, positions_in_document


class ValueFilter(nn.Module):
    """A convolution of each head's values along the text. Source: Xiong et al. 2021, §3.4 and code release."""

    def __init__(self, heads: int, size: int) -> None:
        """Build one filter for each head."""
        super().__init__()
        self.weight = nn.Parameter(torch.empty(heads, size))

    def forward(self, value: Tensor) -> Tensor:
        """Shapes: [T, H, N, E] -> the same."""
        heads, size = self.weight.shape
        filters = self.weight.to(value.dtype)[:, None, :, None]
        found: Tensor = F.conv2d(value, filters, padding=(size // 2, 0), groups=heads)
        return found


def build_filter(attention: c.SelfAttention) -> ValueFilter | None:
    """Return the convolution of a kernel, if it has one."""
    kernel = attention.kernel
    assert isinstance(kernel, c.Nystrom), "MIXERS calls it for no other"
    return ValueFilter(attention.projection.heads, kernel.convolution) if kernel.convolution else None


class SeparateTexts:
    """Where each token of padded or packed rows goes so that every text has a row of its own, without a gap."""

    def __init__(self, real: Tensor, document: Tensor | None) -> None:
        """Number the texts of a batch. Shapes: [B, L] each; document: the text of a token within its row."""
        starts = F.pad(torch.zeros_like(real[:, 1:]), (1, 0), value=True) if document is None else document_starts(
            document)
        text, place = starts.flatten().long().cumsum(0) - 1, positions_in_document(real, document).flatten()
        self.real, self.count = real, int(text[-1]) + 1
        self.longest = int(torch.where(real.flatten(), place, 0).max()) + 1
        self.slot = (text * self.longest + place)[real.flatten()]
        """[real tokens]"""
        self.mask = self.split(real[:, None, :, None])[:, 0, :, 0]
        """[T, N], True where a token is."""

    def split(self, x: Tensor) -> Tensor:
        """Shapes: [B, H, L, E] -> [T, H, N, E], zeros after each text."""
        tokens = x.transpose(1, 2)[self.real]
        rows = tokens.new_zeros(self.count * self.longest, *tokens.shape[1:]).index_copy(0, self.slot, tokens)
        full: Tensor = rows.unflatten(0, (self.count, self.longest))
        return full.transpose(1, 2)

    def join(self, x: Tensor) -> Tensor:
        """Undo `split`. Shapes: [T, H, N, E] -> [B, H, L, E], zeros at padding."""
        tokens = x.transpose(1, 2).flatten(0, 1)[self.slot]
        rows = x.new_zeros(*self.real.shape, *tokens.shape[1:])
        return rows.masked_scatter(self.real[..., None, None], tokens).transpose(1, 2)


def attend_by_landmarks(query: Tensor, key: Tensor, value: Tensor, call: KernelCall) -> Tensor:
    """Mix the values of each text through its landmarks. Shapes: [B, H, L, E] each -> the same.

    Landmarks are means of a text's own tokens, so that padding and other texts change nothing. No weight is dropped, as
    in the published code. Source: Xiong et al. 2021, §3, algorithm 1, arXiv:2102.03902.
    """
    kernel, context = call.kernel, call.context
    call.refuse_cache()
    texts = context.texts(SeparateTexts)
    if texts is not None:
        query, key, value = texts.split(query), texts.split(key), texts.split(value)
    real = None if texts is None else texts.mask
    record: list[Tensor] = []
    if kernel.is_exact(query.shape[2]):
        scores = Scores(Mask(allowed=None if real is None else real[:, None, None], device=query.device,
                             whole=real is None), call.scale)
        mixed = attend(query, key, value, scores, record if context.want_weights else None)
    else:
        mixed = mix_by_landmarks(query, key, value, call, real, record)
    if call.weights is not None:
        mixed = mixed + call.weights(value)
    if context.want_weights:
        context.attentions += record if texts is None else map(texts.join, record)
    return mixed if texts is None else texts.join(mixed)


def mix_by_landmarks(query: Tensor, key: Tensor, value: Tensor, call: KernelCall, real: Tensor | None,
                     record: list[Tensor]) -> Tensor:
    """Mix values; `record` gets the weights of landmarks, [T, H, N, S]. Shapes: real [T, N] -> [T, H, N, E]."""
    kernel = call.kernel
    query, key = query * call.scale**0.5, key * call.scale**0.5
    lengths = torch.full((len(query),), query.shape[2], device=query.device) if real is None else real.sum(1)
    means = average_segments(lengths, query.shape[2], kernel.landmarks).to(query.dtype)[:, None]
    near = None if real is None else (means.sum(-1) > 0)[:, :, None]  # landmarks that a short text fills
    asking, keys = means @ query, means @ key
    to_landmarks = softmax_over(query @ keys.transpose(-1, -2), near)
    of_landmarks = softmax_over(asking @ key.transpose(-1, -2), None if real is None else real[:, None, None]) @ value
    among = softmax_over(asking @ keys.transpose(-1, -2), near)
    among = among if near is None else among * near.transpose(-1, -2)
    weights = to_landmarks @ invert_iteratively(among, kernel.iterations, shared=kernel.shared_start)
    if real is not None and bool((lengths <= kernel.landmarks).any()):  # its landmarks are its tokens
        short = (lengths <= kernel.landmarks)[:, None, None, None]
        weights = torch.where(short, to_landmarks, weights)
        of_landmarks = torch.where(short, means @ value, of_landmarks)
    record.append(weights)
    return weights @ of_landmarks


def softmax_over(scores: Tensor, allowed: Tensor | None) -> Tensor:
    """Softmax over what is allowed, None being all. Shapes: scores [T, H, Q, K], allowed broadcasts to them."""
    return (scores if allowed is None else scores.masked_fill(~allowed, torch.finfo(scores.dtype).min)).softmax(-1)


def average_segments(lengths: Tensor, longest: int, count: int) -> Tensor:
    """Return the share of each token in each landmark: equal segments of a text, or single tokens where it is short.

    Shapes: lengths [T] -> [T, S, N].
    """
    places = torch.arange(longest, device=lengths.device)
    segment = torch.where(lengths[:, None] > count, places * count // lengths[:, None].clamp(min=1), places)
    real = places < lengths[:, None]
    found = (segment[:, None] == torch.arange(count, device=lengths.device)[:, None]) & real[:, None]
    return found / found.sum(-1, keepdim=True).clamp(min=1)


def invert_iteratively(matrix: Tensor, steps: int, *, shared: bool) -> Tensor:
    """Return nearly the pseudo-inverse of matrices whose rows sum to one, in 32 bits at least. Shapes: [T, H, S, S].

    Source: Xiong et al. 2021, §3.3, eq 11, arXiv:2102.03902, after Razavi et al. 2014.
    """
    with torch.autocast(matrix.device.type, enabled=False):
        wide = matrix.float() if matrix.dtype in (torch.float16, torch.bfloat16) else matrix
        columns = wide.sum(-2)
        largest = columns.max() if shared else columns.amax(-1)[..., None, None].clamp(min=1e-6)
        unit, found = torch.eye(wide.shape[-1], dtype=wide.dtype, device=wide.device), wide.transpose(-1, -2) / largest
        for _ in range(steps):
            product = wide @ found
            found = 0.25 * found @ (13 * unit - product @ (15 * unit - product @ (7 * unit - product)))
        return found.to(matrix.dtype)
