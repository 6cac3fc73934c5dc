"""Attention inside a recurrence: scores of the source's places, the reach of local attention, and what is mixed.

Letters: B batch, Q queries, S source length, D dim, A width of the alignment.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saucier import config as c
from saucier.parts.linear import Linear


@dataclass(slots=True)
class Source:
    """What a decoder looks at, and which of it each of its tokens may see."""

    vectors: Tensor
    """[B, S, D], the encoder's output."""
    keys: Tensor
    """[B, S, A], what the score makes of it once; the vectors themselves where it makes nothing."""
    visible: Tensor | None = None
    """[B, 1 or Q, S], True where a place may be seen; None: all of them."""

    def at(self, place: int) -> Source:
        """Return it as one token of the target sees it."""
        if self.visible is None or self.visible.shape[1] == 1:
            return self
        return replace(self, visible=self.visible[:, place, None])

    def places(self) -> tuple[Tensor, Tensor]:
        """Number the places of each text from 0, and count them. Shapes: -> [B, 1 or Q, S], [B, 1 or Q, 1]."""
        if self.visible is None:
            length = self.vectors.shape[1]
            places = torch.arange(length, device=self.vectors.device)[None, None].float()
            return places, torch.full_like(places[..., :1], length)
        return (self.visible.cumsum(-1) - 1).float(), self.visible.sum(-1, keepdim=True).float()


def build_score(config: c.DotScore | c.GeneralScore | c.ConcatScore, dim: int) -> Products | Sums:
    """Return the module for a score."""
    match config:
        case c.DotScore():
            return Products(None)
        case c.GeneralScore():
            return Products(Linear(dim, dim, bias=False))
        case c.ConcatScore(width=width):
            return Sums(dim, width or dim)


class Products(nn.Module):
    """Inner products, with a matrix between or without. Source: Luong et al. 2015, §3.1, eq 8, arXiv:1508.04025."""

    def __init__(self, between: Linear | None) -> None:
        """Keep the matrix, which turns the query."""
        super().__init__()
        self.query = between

    def keys(self, vectors: Tensor) -> Tensor:
        """Return what is made of the source once: nothing. Shapes: [B, S, D] -> the same."""
        return vectors

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        """Shapes: [B, Q, D], [B, S, D] -> [B, Q, S]."""
        return (query if self.query is None else self.query(query)) @ keys.transpose(1, 2)


class Sums(nn.Module):
    """`v tanh(W h + U s)`. Source: Bahdanau et al. 2015, A.1.2, arXiv:1409.0473; Luong's `concat` is the same map."""

    def __init__(self, dim: int, width: int) -> None:
        """Build the three maps."""
        super().__init__()
        self.query, self.source = Linear(dim, width, bias=False), Linear(dim, width, bias=False)
        self.weigh = nn.Parameter(torch.empty(1, width))

    def keys(self, vectors: Tensor) -> Tensor:
        """Return what is made of the source once. Shapes: [B, S, D] -> [B, S, A]."""
        return self.source(vectors)  # type: ignore[no-any-return]

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        """Shapes: [B, Q, D], [B, S, A] -> [B, Q, S]."""
        together = torch.tanh(self.query(query)[:, :, None] + keys[:, None])
        return F.linear(together, self.weigh).squeeze(-1)  # oneDNN takes ten times as long for one output


class Alignment(nn.Module):
    """Scores, a softmax over the words in reach, and their mean."""

    def __init__(self, config: c.Bahdanau | c.Luong, dim: int) -> None:
        """Build the score, and what predicts a place."""
        super().__init__()
        self.score: Products | Sums = build_score(config.score, dim)
        self.reach: c.GlobalReach | c.LocalMonotonic | c.LocalPredictive = (
            config.reach if isinstance(config, c.Luong) else c.GlobalReach())
        self.centre = Centre(self.reach, dim) if isinstance(self.reach, c.LocalPredictive) else None

    def forward(self, query: Tensor, source: Source, places: Tensor) -> tuple[Tensor, Tensor]:
        """Mix the source for queries that stand at these places of their text.

        Shapes: query [B, Q, D], places [B or 1, Q] -> context [B, Q, D], weights [B, Q, S].
        """
        scores = self.score(query, source.keys)
        visible, factor = source.visible, None
        if not isinstance(self.reach, c.GlobalReach):
            near, factor = self.near(query, source, places)
            visible = near if visible is None else near & visible
        weights = softmax_over(scores, visible)
        weights = weights if factor is None else weights * factor.to(weights.dtype)
        return weights @ source.vectors, weights

    def near(self, query: Tensor, source: Source, places: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return which words are in reach, and the Gaussian that weights them. Shapes: -> [B, Q, S] twice."""
        order, count = source.places()
        match self.reach:
            case c.LocalPredictive(reach=reach):
                assert self.centre is not None, "built with the reach"
                distance = order - count * self.centre(query).float()
                return distance.abs() <= reach, torch.exp(-2 * (distance / reach).square())
            case c.LocalMonotonic(reach=reach):
                return (order - places[:, :, None]).abs() <= reach, None
            case c.GlobalReach():
                return torch.ones_like(order, dtype=torch.bool), None


class Centre(nn.Module):
    """Where in the source to look, as a share of its length. Source: Luong et al. 2015, §3.2, eq 9."""

    def __init__(self, config: c.LocalPredictive, dim: int) -> None:
        """Build both maps."""
        super().__init__()
        self.up, self.down = Linear(dim, config.width or dim, bias=False), Linear(config.width or dim, 1, bias=False)

    def forward(self, query: Tensor) -> Tensor:
        """Shapes: [B, Q, D] -> [B, Q, 1], from 0 to 1."""
        return torch.sigmoid(self.down(torch.tanh(self.up(query))))


def softmax_over(scores: Tensor, visible: Tensor | None) -> Tensor:
    """Softmax over the visible places; all zeros where there is none. Shapes: [B, Q, S] -> the same."""
    if visible is None:
        return scores.softmax(-1)
    hidden = ~visible
    return scores.masked_fill(hidden, torch.finfo(scores.dtype).min).softmax(-1).masked_fill(hidden, 0.0)
