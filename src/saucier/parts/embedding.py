"""Tokens to vectors: tables, character networks, positions, segments and languages.

Letters: B batch, L length, D dim, T tokens, C characters of a token, E width of a character, F filters, V vocab.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from saucier import config as c
from saucier.config.embedding import BEGIN_WORD, END_WORD, PADDING, SYMBOLS
from saucier.devices import is_traced
from saucier.errors import InputError
from saucier.parts.adaptive import ClusterTables
from saucier.parts.inputs import Side, find_question
from saucier.parts.linear import Linear, Table
from saucier.parts.mixing import gather_neighbours
from saucier.parts.norms import Dropout, build_norm
from saucier.parts.positions import build_embedding_positions

CARRY_BIAS = -2.0
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
            layer.bias[self.config.features:] = CARRY_BIAS  # type: ignore[operator]  # a parameter

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
            self.spellings = encode_ids_by_digits(self.num_embeddings, self.config.longest)
        self.spellings = self.spellings.to(ids.device)
        return self.read(self.spellings[ids])

    def read(self, spelled: Tensor) -> Tensor:
        """Make vectors of characters. Shapes: [..., C] -> [..., D]."""
        if spelled.shape[-1] != self.config.longest:
            raise InputError(f"{spelled.shape[-1]} characters a token", where="characters",
                             remedy=f"give {self.config.longest}, as saucier.text.tokenizer.model_inputs does")
        x = self.characters(spelled.reshape(-1, self.config.longest).long())
        found = [apply_filter(x, size, layer) for (size, _), layer in zip(self.config.filters, self.filters,
                                                                          strict=True)]
        hidden = torch.cat(found, dim=-1)
        for highway in self.highways:
            new, gate = highway(hidden).chunk(2, dim=-1)
            gate = torch.sigmoid(gate)
            hidden = gate * torch.relu(new) + (1 - gate) * hidden
        return self.project(hidden).view(*spelled.shape[:-1], -1)  # type: ignore[no-any-return]


def apply_filter(x: Tensor, size: int, layer: nn.Module) -> Tensor:
    """Return what filters of one size find at the best place of each token. Shapes: x [T, C, E] -> [T, F]."""
    windows = x.unfold(1, size, 1).transpose(2, 3).flatten(2)  # [T, C - W + 1, W * E]
    return torch.relu(layer(windows).amax(dim=1))


def encode_ids_by_digits(vocab: int, longest: int) -> Tensor:
    """Spell tokens by the digits of their ids. Shapes: [V, C]."""
    width = min(len(str(vocab)), longest - 2)
    numbers = np.arange(vocab)[:, None] // 10 ** np.arange(width)[::-1] % 10
    found = np.full((vocab, longest), PADDING, dtype=np.int64)
    found[:, 0], found[:, 1:1 + width], found[:, 1 + width] = BEGIN_WORD, ord("0") + numbers, END_WORD
    return torch.from_numpy(found)


AFTER_SUM: Mapping[str, tuple[str, ...]] = {
    "sum": ("project", "norm", "dropout"), "undropped": ("norm", "project", "dropout"),
    "normed": ("norm", "dropout", "project")}
"""Kind of projection -> what follows the sum of tokens, positions and segments, where the projection is among it."""


class Embedding(nn.Module):
    """Token table, projection, positions, segments, norm, dropout: those that the config has."""

    def __init__(self, config: c.Embedding, dim: int) -> None:
        """Build the tables."""
        super().__init__()
        self.config, self.scale, self.first_position = config, config.scale, config.first_position
        narrow, width = config.widths(dim)
        self.dim = dim
        self.tokens: ClusterTables | CharacterTokens | Table
        if isinstance(config.projection, c.ProjectClusters):
            self.tokens = ClusterTables(config.projection, config.vocab, dim)
        elif config.characters:
            self.tokens = CharacterTokens(config.characters, config.vocab, narrow)
        else:
            self.tokens = Table(config.vocab, narrow)
        self.positions = build_embedding_positions(config.positions, width)
        self.segments: Any = None
        if isinstance(config.segments, c.SegmentTable | c.FirstSegment):
            self.segments = Table(config.segments.count, width)
        self.languages = nn.Embedding(config.languages.count, width) if config.languages else None
        self.project: nn.Module | None = None
        if config.projection and not isinstance(config.projection, c.ProjectClusters | c.ProjectTwice):
            taken = 3 if config.projection.kind == "trigram" else 1
            self.project = Linear(taken * narrow, dim, bias=config.projection.bias)
        self.norm = build_norm(config.norm, config.norm_width(dim)) if config.norm else None
        self.dropout = Dropout(config.dropout)
        steps = AFTER_SUM.get(config.projection.kind if config.projection else "", ("norm", "dropout"))
        self.after_sum = [name for name in steps if getattr(self, name) is not None]

    @property
    def like(self) -> Tensor:
        """A tensor of the token table's number format and device: the table, or what stands for it in few bits."""
        return cast(Tensor, self.tokens.like if hasattr(self.tokens, "like") else self.tokens.weight)

    def forward(self, side: Side) -> Tensor:
        """Embed one side of the model, packed where its rows are. Shapes: -> [B, L, D], or [1, T, D] when packed."""
        ids = side.packed(side.ids)
        x = self.summed(self.vectors(ids, side), side)
        for name in self.after_sum:
            x = self._modules[name](x)  # type: ignore[misc]  # those that there are
        return torch.cat([x, x], dim=-1) if isinstance(self.config.projection, c.ProjectTwice) else x

    def vectors(self, ids: Tensor, side: Side) -> Tensor:
        """The vectors of tokens, by their ids or by the characters that the batch gives. Shapes: -> [B, L, D].

        Trigrams are each token with the next and the one before; padding is dropped only then.
        """
        if self.config.projection is not None and self.config.projection.kind == "trigram":
            x = self.scaled(self.tokens(side.ids)) if side.vectors is None else side.vectors
            x = side.packed(gather_neighbours(x, 1, side.documents).flip(2).flatten(2))
        elif side.vectors is not None:
            x = side.packed(side.vectors)
        else:
            characters = side.inputs.get("characters")
            x = self.scaled(self.tokens(ids) if characters is None else self.read_characters(side.packed(characters)))
        return self.widened(x)

    def read_characters(self, characters: Tensor) -> Tensor:
        """The vectors of tokens that are given by their characters. Shapes: [B, L, C] -> [B, L, D]."""
        if not isinstance(self.tokens, CharacterTokens):
            raise InputError("this model reads no characters", where="characters", remedy="leave them out")
        return self.tokens.read(characters)

    def summed(self, x: Tensor, side: Side) -> Tensor:
        """Add the vectors of the place and the segment of each token. Shapes: x [B, L, D] -> the same."""
        positions = self.config.positions
        if self.positions is not None and not isinstance(positions, c.NoPositions):
            rows: Tensor = self.positions(side.packed(side.rows(positions.places)))
            x = add_to(x, rows.to(x.dtype), side)
        if (languages := side.inputs.get("langs")) is not None:
            if self.languages is not None:
                x = x + self.languages(side.packed(languages))
            else:
                refuse_numbers(languages, "langs", "languages")
        segments = None if side.segments is None else side.packed(side.segments)
        match self.config.segments:
            case c.SegmentTable(otherwise=otherwise):
                numbers = default_segments(otherwise, side) if segments is None else segments
                return add_to(x, self.segments(numbers), side)
            case c.FirstSegment():
                return add_to(x, self.segments(first_segments(side)), side)
            case c.TablelessSegments(kind="tokens") if segments is not None:
                return x + self.widened(self.scaled(self.tokens(segments)))
            case None if segments is not None:
                refuse_numbers(segments, "token_type_ids", "segments")
        return x

    def scaled(self, vectors: Tensor) -> Tensor:
        """Token vectors times the config's factor."""
        return vectors if self.scale == 1.0 else vectors * self.scale

    def widened(self, x: Tensor) -> Tensor:
        """Widen token vectors to the model's `dim`, where the projection comes before the sum."""
        if self.project is None or "project" in self.after_sum:
            return x
        return self.project(x)  # type: ignore[no-any-return]


def add_to(x: Tensor, y: Tensor, side: Side) -> Tensor:
    """Return a sum, in the memory of `x` where that is nobody else's: without gradients, of vectors that no batch gave.

    Memory for another one costs more than the sum: the system clears it first.
    """
    kept = torch.is_grad_enabled() or is_traced() or side.vectors is not None or x.dtype != y.dtype
    return x + y if kept else x.add_(y)


def refuse_numbers(numbers: Tensor, name: str, what: str) -> None:
    """Raise `InputError` for segments or languages other than 0 where a model knows none."""
    if not is_traced() and bool(numbers.any()):
        raise InputError(f"this model knows no {what}", where=name, remedy="leave them out")


def default_segments(otherwise: c.OneSegment | c.AfterToken, side: Side) -> Tensor:
    """Return the segments of a batch that gives none. Shapes: -> [B, L], [1, T] when packed, or as `first_segments`."""
    question = None
    if isinstance(otherwise, c.AfterToken) and side.vectors is None:
        question = find_question(side.ids, side.inputs, otherwise.token)
    return first_segments(side) if question is None else side.packed((~question).long())


def first_segments(side: Side) -> Tensor:
    """Return the first segment for all tokens, [B, L] or [1, T]; without gradients one number for all, [1, 1]."""
    alone = not torch.is_grad_enabled() and not is_traced()
    return side.ids.new_zeros(1, 1) if alone else side.packed(torch.zeros_like(side.ids))
