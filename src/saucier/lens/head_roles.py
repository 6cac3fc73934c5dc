"""What an attention head does, in figures: what it looks at most, how far away, and how widely.

Source: Clark et al. 2019, "What Does BERT Look At?", §3, arXiv:1906.04341, for the kinds of heads and the entropy.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from saucier.lens.attention_weights import AttentionWeights, Numbers
from saucier.table import Table

CLEAR = 0.4
"""The least share of the weight that names what a head does."""
BROAD = 0.9
"""Of the highest entropy: what counts as looking at all tokens alike."""
NEAR = 1.0
"""Tokens beside the diagonal that count as on it, where two texts are aligned."""


@dataclass(frozen=True, slots=True)
class HeadRole:
    """One head, on one text. Shares and means are over the queries that see two keys or more."""

    side: str
    layer: int
    head: int
    role: str
    """What most of its weight is on; `broad`: all alike, `mixed`: nothing in particular."""
    share: float
    """Of the weight, for `broad` of the highest entropy; of `mixed`, the largest share."""
    entropy: float
    """Bits, the mean over queries."""
    distance: float | None
    """Tokens between a query and what it looks at, the mean; None where rows and columns are two texts."""
    special: float
    """Share of the weight on special tokens."""

    def as_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {"side": self.side, "layer": self.layer, "head": self.head, "role": self.role,
                "share": round(self.share, 4), "entropy": round(self.entropy, 4),
                "distance": None if self.distance is None else round(self.distance, 4),
                "special": round(self.special, 4)}


def describe_heads(one: AttentionWeights) -> Iterator[HeadRole]:
    """Yield what each head of an attention does."""
    kinds = find_relations(one)
    special = np.array(one.columns.special)
    place = np.abs(np.arange(one.weights.shape[1])[:, None] - np.arange(one.weights.shape[2]))
    for number, weights in zip(one.heads, one.weights, strict=True):
        asking = np.count_nonzero(weights > 0, axis=1) > 1
        if not asking.any():
            asking[:] = True
        shares = {name: mean_share(weights, related, asking) for name, related in kinds.items()}
        logs = np.log2(weights, where=weights > 0, out=np.zeros_like(weights))
        entropy = float(-(weights * logs).sum(1)[asking].mean())
        most = float(np.log2(np.count_nonzero(weights > 0, axis=1).clip(min=1))[asking].mean())
        role = max(shares, key=lambda name: shares[name])
        share = shares[role]
        if share < CLEAR:
            role, share = ("broad", entropy / most) if most and entropy > BROAD * most else ("mixed", share)
        distance = float((weights * place).sum(1)[asking].mean()) if one.side != "cross" and one.rows == one.columns \
            else None
        yield HeadRole(one.side, one.layer, number, role, share, entropy, distance,
                       float(weights[:, special].sum(1)[asking].mean()))


def find_relations(one: AttentionWeights) -> dict[str, Any]:
    """Return for each kind of head the pairs that it looks at. Shapes: [Q, K], True for such a pair."""
    rows, columns = one.weights.shape[1:]
    query, key = np.arange(rows)[:, None], np.arange(columns)[None]
    first = np.broadcast_to(key == 0, (rows, columns))
    separator = np.broadcast_to((np.array(one.columns.special) & (np.arange(columns) > 0))[None], (rows, columns))
    if one.side == "cross" or rows != columns:
        slope = max(1, columns - 1) / max(1, rows - 1)
        return {"diagonal": np.abs(query * slope - key) <= NEAR, "first token": first, "separator": separator}
    ids = np.array(one.columns.ids)
    return {"previous token": key == query - 1, "next token": key == query + 1, "itself": key == query,
            "first token": first, "separator": separator,
            "same token": (ids[:, None] == ids[None]) & (key != query) & (ids[None] >= 0)}


def mean_share(weights: Numbers, related: Any, asking: Any) -> float:
    """Return the share of the weight on related pairs, over the queries that have such a pair."""
    having = asking & (related & (weights >= 0)).any(1)
    return float((weights * related).sum(1)[having].mean()) if having.sum() * 2 >= asking.sum() else 0.0


def roles_table(roles: Sequence[HeadRole]) -> Table:
    """Return a line for each layer: how many heads do what, and which."""
    layers: dict[tuple[str, int], dict[str, list[HeadRole]]] = defaultdict(lambda: defaultdict(list))
    for one in roles:
        layers[one.side, one.layer][one.role].append(one)
    rows = []
    for (side, layer), kinds in layers.items():
        every = [one for group in kinds.values() for one in group]
        ordered = sorted(kinds.items(), key=lambda item: -len(item[1]))
        text = "; ".join(f"{role} {', '.join(str(one.head) for one in group)}" for role, group in ordered)
        rows.append((side, layer, text, f"{np.mean([one.entropy for one in every]):.2f}",
                     f"{np.mean([one.special for one in every]):.0%}"))
    return Table(("", "layer", "what its heads look at", "entropy, bits", "special"), rows, numbers=(1, 3, 4),
                 folded=(2,), cut_words=False)
