"""What stands on top of a body: language heads, and BERT's pooler and sentence classifier.

Letters: B batch, L length, D dim, V vocab, C classes.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from saucier import config as c
from saucier.parts.feedforward import ACTIVATIONS
from saucier.parts.linear import Linear, linear
from saucier.parts.norms import build_norm


class Pooler(nn.Module):
    """Dense layer and tanh on the first token. Source: Devlin et al. 2019, code release."""

    def __init__(self, dim: int) -> None:
        """Build the dense layer."""
        super().__init__()
        self.dense = Linear(dim, dim)

    def forward(self, hidden: Tensor) -> Tensor:
        """Shapes: hidden [B, L, D] -> [B, D]."""
        return torch.tanh(self.dense(hidden[:, 0]))


class HeadTransform(nn.Module):
    """Dense layer, activation and norm before the output matrix. Source: Devlin et al. 2019, code release."""

    def __init__(self, config: c.HeadTransform, dim: int) -> None:
        """Build the dense layer and the norm."""
        super().__init__()
        self.dense = Linear(dim, dim)
        self.activation = ACTIVATIONS[config.activation]
        self.norm = build_norm(config.norm, dim)

    def forward(self, hidden: Tensor) -> Tensor:
        """Shapes: [..., D] -> [..., D]."""
        return self.norm(self.activation(self.dense(hidden)))  # type: ignore[no-any-return]


class LanguageHead(nn.Module):
    """Hidden vectors to logits over the vocabulary; `weight` is the token table itself when tied."""

    def __init__(self, config: c.LanguageHead, dim: int, tokens: nn.Embedding) -> None:
        """Build around the token embedding that a tied head shares."""
        super().__init__()
        self.scale = config.scale
        self.transform = HeadTransform(config.transform, dim) if config.transform else None
        self.weight = tokens.weight if config.tied else nn.Parameter(torch.empty(tokens.num_embeddings, dim))
        self.bias = nn.Parameter(torch.empty(tokens.num_embeddings)) if config.bias else None

    def prepare(self, hidden: Tensor) -> Tensor:
        """Everything before the output matrix, for those who apply it in pieces. Shapes: [..., D] -> [..., D]."""
        if self.transform is not None:
            hidden = self.transform(hidden)
        return hidden * self.scale if self.scale != 1.0 else hidden

    def forward(self, hidden: Tensor) -> Tensor:
        """Shapes: [..., D] -> [..., V]."""
        return linear(self.prepare(hidden), self.weight, self.bias)


class PretrainingHead(nn.Module):
    """A language head, and a classifier of the pooled first token. Source: Devlin et al. 2019, §3.1."""

    def __init__(self, config: c.PretrainingHead, dim: int, tokens: nn.Embedding) -> None:
        """Build both heads."""
        super().__init__()
        self.language = LanguageHead(config.language, dim, tokens)
        self.sentence = Linear(dim, config.classes)

    def forward(self, hidden: Tensor) -> Tensor:
        """Token logits; the sentence logits are `sentence(pooled)`. Shapes: [..., D] -> [..., V]."""
        return self.language(hidden)  # type: ignore[no-any-return]


def build_head(config: c.Head, dim: int, tokens: nn.Embedding) -> nn.Module:
    """Return the module for a head config."""
    match config:
        case c.LanguageHead():
            return LanguageHead(config, dim, tokens)
        case c.PretrainingHead():
            return PretrainingHead(config, dim, tokens)
