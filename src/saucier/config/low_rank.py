"""Attention to a few mixtures of all keys (Linformer) as data."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from saucier.config.base import Config


class Headwise(Config):
    """Each layer has a map for keys and one for values, which all its heads share: two for a layer."""

    kind: Literal["headwise"] = "headwise"


class KeyValue(Config):
    """Each layer has one map, for keys and values of all its heads: one for a layer."""

    kind: Literal["key_value"] = "key_value"


class Layerwise(Config):
    """All layers of a stack have one map, for keys and values of all their heads: one for a stack."""

    kind: Literal["layerwise"] = "layerwise"


class LowRank(Config):
    """Softmax over `rank` mixtures of the keys of a text: trained maps along its length mix keys, and values alike.

    Time and memory are linear in the length, which the maps bound. A mixture holds later tokens too, so nothing can be
    causal. Source: Wang et al. 2020, "Linformer: Self-Attention with Linear Complexity", §4, eq 7, arXiv:2006.04768
    (S eq 111).
    """

    kind: Literal["low_rank"] = "low_rank"
    length: int = Field(default=512, gt=0)
    """The longest text, in tokens: n in the paper."""
    rank: int = Field(default=128, gt=0)
    """Mixtures that a query sees: k in the paper."""
    sharing: Annotated[Headwise | KeyValue | Layerwise, Field(discriminator="kind")] = Headwise()
    """Who has a map of their own."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Dropout on the attention weights."""

    @property
    def maps(self) -> int:
        """How many maps a layer has of its own."""
        return {"headwise": 2, "key_value": 1, "layerwise": 0}[self.sharing.kind]
