"""Transformer-XL's relative positions as a module, with XLNet's relative segments.

Letters: B batch, H heads, G key-value heads, Q queries, K keys, L length, M memory, P rows of the second stream,
E head width, D dim, N distances.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saucier import config as c
from saucier.parts.context import Context
from saucier.parts.dropout import dropout
from saucier.parts.kernels import spread
from saucier.parts.linear import Linear


class TransformerXLPositions(nn.Module):
    """What is added to the scaled scores of content, with all terms of Dai et al. 2019, §3.3 but the first.

    With q the query, k the key, r the distance's vector: `u·k + (q + v)·W r`; segments add `(q + s)·g`, g one of two
    vectors. Source: Dai et al. 2019, §3.3, arXiv:1901.02860 (C eq 87–91); Yang et al. 2019, §2.6, arXiv:1906.08237.
    """

    def __init__(self, config: c.TransformerXL, heads: int, head_dim: int, dim: int) -> None:
        """Build the map of the distances, and the biases that this layer has for itself."""
        super().__init__()
        self.config, self.dim = config, dim
        self.map = Linear(dim, heads * head_dim, bias=False)
        own = not config.shared_biases
        self.biases = RelativeBiases(heads, head_dim) if own else None
        self.segment_bias = nn.Parameter(torch.empty(heads, head_dim)) if config.segments else None
        self.segments = nn.Parameter(torch.empty(2, heads, head_dim)) if config.segments else None

    def forward(self, query: Tensor, key: Tensor, scale: float, context: Context) -> Tensor:
        """Shapes: query [B, H, Q, E], key [B, G, K, E] -> [B, H, Q, K]."""
        biases = self.biases or context.biases
        assert biases is not None, "the stack puts shared biases into the context"
        query, keys = query * scale, key.shape[2]  # scaled where there is less of it
        content = torch.einsum("he,bhke->bhk", biases.content * scale, spread(key, query.shape[1]))[:, :, None]
        asking = query + (biases.place * scale)[:, None]
        if context.span.targets is None and not self.config.mirrored:
            added = content + self.in_order(asking, keys, context)
        else:
            added = content + self.anywhere(asking, places_of(query, key, context), keys, context)
        segments = context.inputs.get("token_type_ids")
        if self.segments is not None and segments is not None:
            added = added + self.same_or_other(query, segments, scale, keys, context)
        return added

    def in_order(self, query: Tensor, keys: int, context: Context) -> Tensor:
        """Score the last places with every distance there is, and shift each row to its own.

        The shift is another view of the same numbers. Shapes: -> [B, H, Q, K].
        Source: Dai et al. 2019, appendix B; Huang et al. 2019, §3.4, arXiv:1809.04281, for the shift (S alg 1).
        """
        queries, count = query.shape[2], query.shape[2] + keys
        scores = query @ self.table(keys - 1, -queries, query, context)
        rows: Tensor = scores.flatten(2)[..., queries - 1:queries * count - 1].unflatten(2, (queries, count - 1))
        return rows[..., :keys]

    def anywhere(self, query: Tensor, places: Tensor, keys: int, context: Context) -> Tensor:
        """Score every query with every distance once, then pick. Shapes: places [B or 1, Q] -> [B, H, Q, K]."""
        far = keys  # no query and key of one pass are further apart
        apart = places[:, None, :, None] - torch.arange(keys, device=query.device)
        if self.config.mirrored:
            backwards = torch.arange(len(query), device=query.device) >= len(query) // 2
            apart = torch.where(backwards[:, None, None, None], -apart, apart)
        scores = query @ self.table(far, -far, query, context)
        return scores.gather(-1, (far - apart).expand(*scores.shape[:3], keys))

    def table(self, first: int, last: int, query: Tensor, context: Context) -> Tensor:
        """Map the vectors of the distances `first`, one less, … `last` for each head. Shapes: -> [H, E, N]."""
        vectors = context.once(("distances", self.config, self.dim, first, last),
                               lambda: self.vectors(first, last, query))
        found: Tensor = self.map(vectors).view(len(vectors), query.shape[1], -1).permute(1, 2, 0)
        return found

    def vectors(self, first: int, last: int, like: Tensor) -> Tensor:
        """Sines, then cosines, of the distances, in the format of `like`. Shapes: -> [N, D]."""
        distances = torch.arange(first, last - 1, -1, device=like.device, dtype=torch.float32)
        if self.config.clamp is not None:
            distances = distances.clamp(-self.config.clamp, self.config.clamp)
        even = torch.arange(0, self.dim, 2, device=like.device, dtype=torch.float32)
        angles = distances[:, None] * (1 / self.config.base ** (even / self.dim))
        found = torch.cat([angles.sin(), angles.cos()], dim=-1)[:, :self.dim].to(like.dtype)
        return dropout(found, self.config.dropout) if self.training else found

    def same_or_other(self, query: Tensor, segments: Tensor, scale: float, keys: int, context: Context) -> Tensor:
        """Score scaled queries by their segment and the key's; the memory is of segment 0. Shapes: -> [B, H, Q, K]."""
        assert self.segments is not None and self.segment_bias is not None, "asked where they are"
        of_keys = F.pad(segments, (keys - segments.shape[1], 0))
        targets = context.span.targets
        of_queries = segments if targets is None else torch.cat([segments, segments.gather(1, targets)], dim=1)
        other = (of_queries[:, :, None] != of_keys[:, None, :]).long()[:, None]
        scores = torch.einsum("bhqe,she->bhqs", query + (self.segment_bias * scale)[:, None], self.segments)
        return scores.gather(-1, other.expand(*scores.shape[:3], keys))


class RelativeBiases(nn.Module):
    """The two biases of Transformer-XL, u for content and v for places. Source: Dai et al. 2019, §3.3."""

    def __init__(self, heads: int, head_dim: int) -> None:
        """Build both [H, E]."""
        super().__init__()
        self.content = nn.Parameter(torch.empty(heads, head_dim))
        self.place = nn.Parameter(torch.empty(heads, head_dim))


def places_of(query: Tensor, key: Tensor, context: Context) -> Tensor:
    """Return the place of every query among the keys; rows of a second stream are where they ask. Shapes: -> [B, Q]."""
    targets = context.span.targets
    asking = 0 if targets is None else targets.shape[1]
    length = query.shape[2] - asking
    start = key.shape[2] - length
    places = torch.arange(start, start + length, device=query.device)[None]
    if targets is None:
        return places
    return torch.cat([places.expand(len(targets), -1), targets + start], dim=1)
