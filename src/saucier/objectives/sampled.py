"""Cross-entropy against tokens that are drawn, for vocabularies too large to score whole at every step.

Letters: N targets, D dim, V vocab, S samples.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from saucier.objectives.cross_entropy import Sums
from saucier.parts.linear import linear


def sampled_cross_entropy(features: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, *,
                          samples: int) -> Sums:
    """Sum the loss of the targets against drawn tokens; a drawn token that is a row's own target does not count there.

    Drawn with torch's generator, which the loop seeds for each step and its rows. Source: Jean et al. 2015, §3.1,
    arXiv:1412.2007. Shapes: features [N, D], weight [V, D], bias [V], targets [N].
    """
    drawn, tries = drawn_tokens(len(weight), samples, targets.device)
    ids = torch.cat([targets, drawn])
    rows, offsets = weight[ids], -expected(ids, len(weight), tries).log().float()
    if bias is not None:
        offsets = offsets + bias[ids]
    count = len(targets)
    own = (features * rows[:count]).sum(-1).float() + offsets[:count]
    others = linear(features, rows[count:], None).float() + offsets[count:]
    others = others.masked_fill(drawn == targets[:, None], -math.inf)
    loss = (torch.logsumexp(torch.cat([own[:, None], others], dim=1), dim=1) - own).sum()
    return Sums(loss, loss.detach(), torch.zeros_like(loss.detach()))


def drawn_tokens(vocab: int, samples: int, device: torch.device) -> tuple[Tensor, int]:
    """Draw different tokens log-uniformly; return them, and how many draws it took. Shapes: [S]."""
    drawn = torch.empty(0, dtype=torch.long)
    first = torch.empty(0, dtype=torch.long)
    while len(first) < samples:
        more = torch.exp(torch.rand(4 * samples, dtype=torch.float64) * math.log(vocab + 1)).long() - 1
        drawn = torch.cat([drawn, more.clamp(0, vocab - 1)])
        first = first_places(drawn, vocab)
    places = first[:samples]
    return drawn[places].to(device), int(places[-1]) + 1


def first_places(drawn: Tensor, vocab: int) -> Tensor:
    """Return where each token stands first, in order. Shapes: [N] -> [different tokens]."""
    seen = torch.full((vocab,), len(drawn), dtype=torch.long)
    seen.scatter_reduce_(0, drawn, torch.arange(len(drawn)), reduce="amin")
    return seen[seen < len(drawn)].sort().values


def expected(ids: Tensor, vocab: int, tries: int) -> Tensor:
    """Return how likely a token is among the drawn ones, after so many draws. Shapes: [N] -> the same."""
    chance = torch.log1p(1 / (ids.double() + 1)) / math.log(vocab + 1)
    return -torch.expm1(tries * torch.log1p(-chance))
