"""The maps of an attention as data: how many heads there are for queries and for keys and values, and how wide."""

from __future__ import annotations

from pydantic import Field

from saucier.config.base import Config


class Projection(Config):
    """The linear maps of an attention: heads for queries, and as many or fewer for keys and values.

    `kv_heads` equal to `heads` is multi-head (Vaswani et al. 2017), 1 is multi-query (Shazeer 2019,
    arXiv:1911.02150), in between is grouped-query attention (Ainslie et al. 2023, arXiv:2305.13245).
    """

    heads: int = Field(gt=0)
    kv_heads: int | None = Field(default=None, gt=0)
    """None: as many as `heads`."""
    head_dim: int | None = Field(default=None, gt=0)
    """None: the model's `dim` divided by `heads`."""
    bias: bool = True
    """Bias on queries, keys and values."""
    key_bias: bool = True
    """Whether the keys have one too, where queries and values do (DeBERTa's first version: He et al. 2021, release)."""
    output_bias: bool = True
    """Bias on the output map."""
    scale: float | None = Field(default=None, gt=0)
    """Factor on the scores; None: one over the square root of the head's width (T5 uses 1)."""

    def widths(self, dim: int) -> tuple[int, int, int]:
        """Return (query width, key width, head width) for a model of this `dim`."""
        head = self.head_dim or dim // self.heads
        return self.heads * head, (self.kv_heads or self.heads) * head, head
