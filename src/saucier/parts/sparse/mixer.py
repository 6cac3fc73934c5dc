"""One tile of attention, forward and backward: PyTorch's fused kernel where it can, products and a softmax elsewhere.

Letters: H heads, G heads of the keys, N heads of a group, Q queries, W keys, E head width.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from saucier.parts.dropout import LEVELS

FLASH = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
FLASH_BACKWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


@dataclass(slots=True)
class Mixer:
    """How tiles are mixed; one for a pass forward, and one for a pass backward that draws the same."""

    scale: float
    dropout: float
    seed: int
    device: torch.device
    labelled: bool = False
    """Whether scores have slopes of their own, which the fused kernel does not give."""
    generator: torch.Generator | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        """Begin the draws."""
        if self.dropout:
            self.generator = torch.Generator(self.device).manual_seed(self.seed)

    @property
    def fused(self) -> bool:
        """Whether the fused kernel is to be used."""
        return self.device.type == "cpu" and not self.dropout

    def forward(self, query: Tensor, key: Tensor, value: Tensor, addend: Tensor | None) -> tuple[Tensor, Tensor]:
        """Mix the values, and give the logarithm of the sum of the exponentials of each query's scores.

        Shapes: query [H, Q, E], key and value [G, W, E], addend [1 or H, 1 or Q, W] -> [H, Q, E], [H, Q].
        """
        heads, queries, groups = *query.shape[:2], len(key)
        query, addend = grouped(query, groups), grouped_addend(addend, heads, queries, groups)
        if self.fused:
            mask = None if addend is None else addend[None].to(exact(query))  # the kernel reads its bits as they are
            mixed, total = FLASH(query[None], key[None], value[None], attn_mask=mask, scale=self.scale)
            mixed, total = mixed[0], total[0]
            if addend is not None:  # the kernel says 0 for a query that sees nothing
                total = total.masked_fill((addend == -torch.inf).all(-1), -torch.inf)
        else:
            scores = self.scores(query, key, addend)
            total = scores.logsumexp(-1)
            weights = (scores - total.masked_fill(total == -torch.inf, 0.0)[..., None]).exp()
            mixed = (self.kept(weights) @ value.to(exact(value))).to(query.dtype)
        return mixed.reshape(heads, queries, -1), total.reshape(heads, queries)

    def backward(self, known: list[Tensor], key: Tensor, value: Tensor,
                 addend: Tensor | None) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """Give the slopes of query, key and value, and of the scores where these have labels.

        Known are the slope of what was mixed, the query, what was mixed, and its total, both over all tiles together.
        Shapes: known [H, Q, E] three times and [H, Q], key and value [G, W, E] -> the same, and [H, Q, W].
        """
        slope, query, mixed, total = known
        heads, queries, groups = *query.shape[:2], len(key)
        addend = grouped_addend(addend, heads, queries, groups)
        slope, query, mixed = (grouped(x, groups) for x in (slope, query, mixed))
        total = grouped(total[..., None], groups)[..., 0]
        to_scores: Tensor | None = None
        if self.fused and not self.labelled:
            tensors = (x[None] for x in (slope, query, key, value, mixed, total))
            mask = None if addend is None else addend[None].to(exact(query))
            found = FLASH_BACKWARD(*tensors, 0.0, False, attn_mask=mask, scale=self.scale)
            to_query, to_key, to_value = (x[0] for x in found)
        else:
            slope, query, mixed, key, value = (x.to(exact(x)) for x in (slope, query, mixed, key, value))
            weights = (self.scores(query, key, addend) - total[..., None]).exp()
            kept = self.draw(weights)
            to_value = (weights if kept is None else weights * kept).transpose(1, 2) @ slope
            to_weights = slope @ value.transpose(1, 2)
            to_weights = to_weights if kept is None else to_weights * kept
            to_scores = weights * (to_weights - (slope * mixed).sum(-1, keepdim=True))
            to_query, to_key = to_scores @ key * self.scale, to_scores.transpose(1, 2) @ query * self.scale
            to_scores = to_scores.reshape(heads, queries, -1)
        return to_query.reshape(heads, queries, -1), to_key, to_value, to_scores

    def scores(self, query: Tensor, key: Tensor, addend: Tensor | None) -> Tensor:
        """Shapes: query [G, N·Q, E], key [G, W, E] -> [G, N·Q, W]."""
        found = (query.to(exact(query)) * self.scale) @ key.to(exact(key)).transpose(1, 2)
        return found if addend is None else found + addend

    def kept(self, weights: Tensor) -> Tensor:
        """Drop some of the weights, and scale up the others."""
        drawn = self.draw(weights)
        return weights if drawn is None else weights * drawn

    def draw(self, weights: Tensor) -> Tensor | None:
        """Draw which weights stay, and their factor; None where all do. Shapes: as the weights."""
        if self.generator is None:
            return None
        bits = torch.empty(weights.shape, dtype=torch.int32, device=self.device)
        bits.random_(0, LEVELS, generator=self.generator)
        dropped = round(self.dropout * LEVELS)
        return (bits >= dropped).to(weights.dtype) * (LEVELS / (LEVELS - dropped))


def exact(x: Tensor) -> torch.dtype:
    """Return the format that sums are kept in: float32 at least."""
    return torch.promote_types(x.dtype, torch.float32)


def grouped(x: Tensor, groups: int) -> Tensor:
    """Put the queries of a group's heads behind each other. Shapes: [H, Q, E] -> [G, N·Q, E]."""
    return x if len(x) == groups else x.reshape(groups, -1, x.shape[-1])


def grouped_addend(addend: Tensor | None, heads: int, queries: int, groups: int) -> Tensor | None:
    """Likewise for an addend. Shapes: [1 or H, 1 or Q, W] -> [1 or G, 1 or Q or N·Q, W]."""
    if addend is None or heads == groups or addend.shape[:2] == (1, 1):
        return addend
    if len(addend) == 1:
        return addend.expand(1, queries, -1).repeat(1, heads // groups, 1)
    return addend.expand(-1, queries, -1).reshape(groups, -1, addend.shape[-1])
