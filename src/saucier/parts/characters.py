"""Token vectors made of a token's characters.

Letters: T tokens, C characters of a token, E width of a character, W width of a filter, F filters, D dim, V vocab.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from saucier import config as c
from saucier.config.characters import BEGIN_WORD, END_WORD, PADDING, SYMBOLS
from saucier.errors import InputError
from saucier.parts.linear import Linear, Table

CARRY = -2.0
"""Where the bias of a highway's gate begins: it passes on what it reads. Source: Srivastava et al. 2015, §2.2."""


class CharacterTokens(nn.Module):
    """In the place of a token table: a network over the characters of each token.

    What the characters are is no parameter: `spell` says it, as whoever knows the tokenizer does. Until then a token
    is spelled by the digits of its id. Source: Peters et al. 2018, §3.4, arXiv:1802.05365.
    """

    def __init__(self, config: c.CharacterNetwork, vocab: int, width: int) -> None:
        """Build the network for vectors of `width`."""
        super().__init__()
        self.config, self.num_embeddings = config, vocab
        self.characters = Table(SYMBOLS, config.width)
        self.filters = nn.ModuleList(Linear(size * config.width, count, bias=True) for size, count in config.filters)
        self.highways = nn.ModuleList(Linear(config.features, 2 * config.features, bias=True)
                                      for _ in range(config.highways))
        self.project = Linear(config.features, width, bias=True)
        self.spellings: Tensor | None = None

    @property
    def weight(self) -> Tensor:
        """The table of characters, whose number format and device are those of all."""
        return self.characters.weight

    def begin(self) -> None:
        """Let the highways begin by passing on what they read."""
        for layer in self.highways:
            layer.bias[self.config.features:] = CARRY  # type: ignore[operator]  # a parameter

    def spell(self, spellings: Tensor) -> None:
        """Say of which characters each token is made. Raises `InputError` for a table of another size. Shapes: [V, C].
        """
        if spellings.shape != (self.num_embeddings, self.config.longest):
            raise InputError(f"spellings {list(spellings.shape)}", where="embed.characters",
                             remedy=f"give {[self.num_embeddings, self.config.longest]}")
        self.spellings = spellings

    def forward(self, ids: Tensor) -> Tensor:
        """Shapes: [B, L] -> [B, L, D]."""
        if self.spellings is None:
            self.spellings = by_digits(self.num_embeddings, self.config.longest)
        self.spellings = self.spellings.to(ids.device)
        return self.read(self.spellings[ids])

    def read(self, spelled: Tensor) -> Tensor:
        """Make vectors of characters. Shapes: [..., C] -> [..., D]."""
        if spelled.shape[-1] != self.config.longest:
            raise InputError(f"{spelled.shape[-1]} characters a token", where="characters",
                             remedy=f"give {self.config.longest}, as saucier.text.spelling does")
        x = self.characters(spelled.reshape(-1, self.config.longest).long())
        found = [largest(x, size, layer) for (size, _), layer in zip(self.config.filters, self.filters, strict=True)]
        hidden = torch.cat(found, dim=-1)
        for highway in self.highways:
            new, gate = highway(hidden).chunk(2, dim=-1)
            gate = torch.sigmoid(gate)
            hidden = gate * torch.relu(new) + (1 - gate) * hidden
        return self.project(hidden).view(*spelled.shape[:-1], -1)  # type: ignore[no-any-return]


def largest(x: Tensor, size: int, layer: nn.Module) -> Tensor:
    """Return what filters of one size find at the best place of each token. Shapes: x [T, C, E] -> [T, F]."""
    windows = x.unfold(1, size, 1).transpose(2, 3).flatten(2)  # [T, C - W + 1, W * E]
    return torch.relu(layer(windows).amax(dim=1))


def by_digits(vocab: int, longest: int) -> Tensor:
    """Spell tokens by the digits of their ids. Shapes: [V, C]."""
    width = min(len(str(vocab)), longest - 2)
    numbers = np.arange(vocab)[:, None] // 10 ** np.arange(width)[::-1] % 10
    found = np.full((vocab, longest), PADDING, dtype=np.int64)
    found[:, 0], found[:, 1:1 + width], found[:, 1 + width] = BEGIN_WORD, ord("0") + numbers, END_WORD
    return torch.from_numpy(found)
