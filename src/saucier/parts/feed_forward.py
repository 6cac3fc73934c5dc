"""Position-wise feed-forward networks: plain, gated, and experts of which each token visits the few its router chose.

Only chosen experts are computed, each once, on all of its tokens together.

Letters: B batch, L length, D dim, E experts, K experts of a token, T tokens of the batch, A tokens that were taken.
"""

from __future__ import annotations

from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saucier import config as c
from saucier.parts.context import Context
from saucier.parts.linear import ACTIVATIONS, build_map, linear_activation
from saucier.parts.norms import Dropout


class FeedForward(nn.Module):
    """`down(activation(up(x)))`. Source: Vaswani et al. 2017, §3.3."""

    parts: ClassVar[int] = 1
    """Vectors of the hidden width that `up` gives."""

    def __init__(self, config: c.FeedForward | c.GatedFeedForward, dim: int) -> None:
        """Build both maps for a residual of width `dim`."""
        super().__init__()
        self.up = build_map(dim, self.parts * config.hidden, bias=config.bias, rank=c.map_rank(config.ranks, "up"))
        self.down = build_map(config.hidden, dim, bias=config.bias, rank=c.map_rank(config.ranks, "down"))
        self.activation: c.Activation = config.activation
        self.dropout = Dropout(config.dropout)

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """Shapes: x [B, L, D] -> [B, L, D]. The context is not read: every position is on its own."""
        return self.down(self.dropout(linear_activation(self.up, x, self.activation)))  # type: ignore[no-any-return]


class GatedFeedForward(FeedForward):
    """`down(activation(gate(x)) * value(x))`; the rows of `up` are the gate's, then the value's.

    Source: Shazeer 2020, arXiv:2002.05202.
    """

    parts = 2

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """Shapes: x [B, L, D] -> [B, L, D]."""
        gate, value = self.up(x).chunk(2, dim=-1)
        return self.down(self.dropout(ACTIVATIONS[self.activation](gate) * value))  # type: ignore[no-any-return]


class Router(nn.Module):
    """Scores of all experts for each token, in 32 bits. Source: Fedus et al. 2021, §2.1 and §2.4, arXiv:2101.03961."""

    def __init__(self, config: c.Experts, dim: int) -> None:
        """Build the map from vectors to scores."""
        super().__init__()
        self.noise = config.noise
        self.weight = nn.Parameter(torch.empty(config.count, dim))
        self.bias = nn.Parameter(torch.empty(config.count)) if config.router_bias else None

    def forward(self, x: Tensor) -> Tensor:
        """Shapes: x [T, D] -> [T, E], float32 or, where `x` is more exact, as exact as `x`."""
        exact = torch.promote_types(x.dtype, torch.float32)
        x = x.to(exact)
        if self.training and self.noise:
            x = x * torch.empty_like(x).uniform_(1.0 - self.noise, 1.0 + self.noise)
        return F.linear(x, self.weight.to(exact), None if self.bias is None else self.bias.to(exact))


def choose_experts(router: c.TopOfSoftmax | c.SoftmaxOfTop, scores: Tensor) -> tuple[Tensor, Tensor]:
    """Return the experts of each token and their weights. Shapes: scores [T, E] -> [T, K] twice."""
    match router:
        case c.TopOfSoftmax(top=top):
            weights, experts = scores.softmax(-1).topk(top, dim=-1)
        case c.SoftmaxOfTop(top=top):
            values, experts = scores.topk(top, dim=-1)
            weights = values.softmax(-1)
    return experts, weights


class Experts(nn.Module):
    """The weighted sum of the chosen experts. Source: Shazeer et al. 2017, §2, eq 1, arXiv:1701.06538."""

    def __init__(self, config: c.Experts, dim: int) -> None:
        """Build the router and all experts."""
        super().__init__()
        self.config = config
        self.router = Router(config, dim)
        build = GatedFeedForward if isinstance(config.inner, c.GatedFeedForward) else FeedForward
        self.experts = nn.ModuleList(build(config.inner, dim) for _ in range(config.count))

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """Shapes: x [B, L, D] -> [B, L, D]."""
        flat = x.flatten(0, 1)
        scores = self.router(flat)
        if context.inputs.get("output_router_logits"):
            layout = context.layout  # zeros at padding where rows are packed: [B·L, E]
            context.router_logits.append(scores if layout is None else layout.unpack(scores[None]).flatten(0, 1))
        experts, weights = choose_experts(self.config.router, scores)
        return self.mixed(flat, experts, weights, context).view_as(x)

    def mixed(self, x: Tensor, experts: Tensor, weights: Tensor, context: Context) -> Tensor:
        """Send tokens to their experts and add up what these give.

        Shapes: x [T, D], experts and weights [T, K] -> [T, D].
        """
        tokens, width = experts.shape
        chosen = experts.flatten()
        order = chosen.argsort(stable=True)
        if context.span.padding is not None and context.layout is None:  # no expert spends time on padding
            order = order[(number_sequences(context, width) >= 0)[order]]
        if self.config.capacity is not None:
            order = order[(rank_in_expert(chosen, number_sequences(context, width)) < self.config.capacity)[order]]
        counts = chosen[order].bincount(minlength=len(self.experts)).tolist()
        parts = x.index_select(0, order // width).split(counts)
        done = [expert(part, context) for expert, part in zip(self.experts, parts, strict=True)
                if len(part) or torch.is_grad_enabled()]  # in training every parameter gets a gradient
        given = torch.cat(done) if done else x[:0]
        weighted = given * weights.flatten()[order][:, None].to(given.dtype)
        return weighted.new_zeros(tokens * width, x.shape[1]).index_copy(0, order, weighted).view(
            tokens, width, -1).sum(1)  # no place is written twice, so that the sum is the same every time


def number_sequences(context: Context, width: int) -> Tensor:
    """Return the number of the sequence that each token of the pass belongs to, as often as it has experts.

    Sequences are the rows of a batch, or the documents packed into them; padding is in none, and has the number -1.
    Shapes: -> [T·K].
    """
    span, layout = context.span, context.layout
    if layout is not None:
        rows = torch.repeat_interleave(torch.tensor(layout.lengths, device=span.device))
        return rows.repeat_interleave(width)
    rows = torch.arange(context.rows, device=span.device)[:, None].expand(-1, span.queries)
    if span.query_documents is not None:
        rows = rows * (int(span.query_documents.max()) + 1) + span.query_documents
    if span.padding is not None:
        rows = rows.where(span.padding[:, -span.queries:], -1)
    return rows.flatten().repeat_interleave(width)


def rank_in_expert(experts: Tensor, sequence: Tensor) -> Tensor:
    """Return how many earlier tokens of the same sequence want the same expert. Shapes: [T·K], [T·K] -> [T·K]."""
    pairs = (sequence - sequence.min()) * (int(experts.max()) + 1) + experts
    ordered, order = pairs.sort(stable=True)
    found = torch.arange(len(pairs), device=pairs.device) - torch.searchsorted(ordered, ordered)
    return torch.empty_like(found).index_copy(0, order, found)


def measure_imbalance(scores: Tensor, mask: Tensor | None = None, *, top: int = 1) -> Tensor:
    """Return how unevenly experts are used: their number times the sum of share of tokens times mean probability.

    1 (times `top`) where all are used alike. Shapes: scores [T, E], mask [T], 1 = real token -> [].
    Source: Fedus et al. 2021, §2.2, eq 4–6, arXiv:2101.03961.
    """
    probabilities = scores.softmax(-1)
    used = torch.zeros_like(probabilities).scatter(1, probabilities.topk(top, dim=-1).indices, 1.0)
    real = torch.ones_like(probabilities[:, 0]) if mask is None else mask.to(probabilities.dtype)
    total = real.sum()
    return probabilities.shape[1] * ((real @ used) / total * ((real @ probabilities) / total)).sum()
