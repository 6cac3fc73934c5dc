"""An encoder that feeds an encoder: tokens of another vocabulary to vectors in the place of token vectors.

Not here: running it, which the model does as with every stack.
"""

from __future__ import annotations

from torch import nn

from saucier import config as c
from saucier.parts.embedding import Embedding
from saucier.parts.stack import Stack


class SourceEncoder(nn.Module):
    """Its embedding and its stack. Source: Lewis et al. 2020, §3.4, arXiv:1910.13461."""

    def __init__(self, config: c.SourceEncoder, dim: int) -> None:
        """Build both for vectors of width `dim`."""
        super().__init__()
        self.embed, self.stack = Embedding(config.embed, dim), Stack(config.stack, dim)
