"""From hidden vectors to one vector for a whole text; `Reading` is what a head may read.

Letters: B batch, L length, D dim, E width of the vector, J layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from saucier import config as c
from saucier.errors import InputError
from saucier.parts.inputs import Inputs
from saucier.parts.linear import ACTIVATIONS, Linear
from saucier.parts.norms import Dropout, build_norm


@dataclass(slots=True)
class Reading:
    """What a head may read: the hidden vectors, the pooled one, and what came with the batch."""

    hidden: Tensor
    """[B, L, D]."""
    pooled: Tensor | None = None
    """[B, D]."""
    ids: Tensor | None = None
    """[B, L], the ids of the side that the hidden vectors belong to."""
    source: Tensor | None = None
    """[B, S], the ids that the encoder of an encoder-decoder read."""
    mask: Tensor | None = None
    """[B, L], True where a token is real; None when all are."""
    inputs: Inputs | None = None
    """Everything that was given by name."""
    choices: int | None = None
    """Number of texts in each group of choices; None where the ids were [B, L]."""


class Pooler(nn.Module):
    """Dense layer and activation on the first token. Source: Devlin et al. 2019, code release."""

    def __init__(self, config: c.Pooler, dim: int) -> None:
        """Build the dense layer."""
        super().__init__()
        self.dense = Linear(dim, dim) if config.dense else None
        self.activation = ACTIVATIONS[config.activation]

    def forward(self, hidden: Tensor) -> Tensor:
        """Shapes: hidden [B, L, D] -> [B, D]."""
        first = hidden[:, 0]
        return self.activation(first if self.dense is None else self.dense(first))


def pick_vector(pick: c.Pick, reading: Reading) -> Tensor:
    """Return the vector of each text. Shapes: -> [B, D]. Raises `InputError` where the batch lacks what it needs."""
    hidden = reading.hidden
    match pick.kind:
        case "pooled":
            assert reading.pooled is not None, "check() refuses a head that needs a pooler where there is none"
            return reading.pooled
        case "first":
            return hidden[:, 0]
        case "first_unmasked":
            return hidden[:, 0] if reading.mask is None else take_positions(hidden, reading.mask.int().argmax(-1))
        case "last":
            return hidden[:, -1]
        case "last_token":
            known = pick.padding is not None and reading.ids is not None
            return take_last(hidden, reading.ids != pick.padding) if known else hidden[:, -1]  # type: ignore[arg-type]
        case "end_token":
            return end_token_vector(hidden, reading.ids if reading.source is None else reading.source, pick.token)
        case "mean":
            return mean_vector(hidden, reading.mask)
        case "mean_all":
            return hidden.mean(1)
        case "chosen":
            places = (reading.inputs or {}).get("mc_token_ids")
            return hidden[:, -1] if places is None else take_positions(hidden, places.flatten())


def take_positions(hidden: Tensor, places: Tensor) -> Tensor:
    """Shapes: hidden [B, L, D], places [B] -> [B, D]."""
    return hidden[torch.arange(len(hidden), device=hidden.device), places]


def take_last(hidden: Tensor, chosen: Tensor) -> Tensor:
    """The last of the chosen positions. Shapes: hidden [B, L, D], chosen [B, L] -> [B, D]."""
    return take_positions(hidden, (torch.arange(chosen.shape[1], device=chosen.device) * chosen).argmax(-1))


def end_token_vector(hidden: Tensor, ids: Tensor | None, token: int) -> Tensor:
    """The last position that holds the token; a decoder with an encoder is read where the source has it.

    Shapes: -> [B, D].
    """
    if ids is None:
        raise InputError("the head looks for the end-of-text token, and there are only vectors", where="input_ids",
                         remedy="give ids")
    found = (ids == token).sum(1)
    if bool((found != found[0]).any()) or int(found[0]) == 0:
        raise InputError(f"rows hold {found.tolist()} end tokens (id {token})", where="input_ids",
                         remedy="give every row equally many, at least one")
    return take_last(hidden, ids == token)


def mean_vector(hidden: Tensor, mask: Tensor | None) -> Tensor:
    """The mean over real tokens. Shapes: hidden [B, L, D], mask [B, L] -> [B, D]."""
    return hidden.mean(1) if mask is None else weighted_mean(hidden, mask.to(hidden.dtype))


def pool_vectors(pooling: c.Pooling, reading: Reading) -> Tensor:
    """Return one vector a text. Shapes: -> [B, D]."""
    hidden = reading.hidden
    kept = torch.ones_like(hidden[..., 0]) if reading.mask is None else reading.mask.to(hidden.dtype)
    match pooling.kind:
        case "pooled" | "first":
            return pick_vector(c.PickVector(kind=pooling.kind), reading)
        case "cls":
            return take_positions(hidden, kept.argmax(-1))
        case "last":
            return take_last(hidden, kept)
        case "max":
            return hidden.masked_fill(kept[..., None] == 0, -1e9).amax(1)
        case "mean":
            return weighted_mean(hidden, kept)
        case "mean_sqrt_len":
            return (hidden * kept[..., None]).sum(1) / kept.sum(1, keepdim=True).clamp(min=1).sqrt()
        case "weighted_mean":  # by a token's place among the real ones, so that padding changes nothing
            return weighted_mean(hidden, kept * kept.cumsum(-1))


def weighted_mean(hidden: Tensor, weights: Tensor) -> Tensor:
    """The mean by weights that are whole numbers. Shapes: hidden [B, L, D], weights [B, L] -> [B, D]."""
    return (hidden * weights[..., None]).sum(1) / weights.sum(1, keepdim=True).clamp(min=1)


class LayerMix(nn.Module):
    """`γ Σ_j s_j h_j`, s = softmax of trained weights. Source: Peters et al. 2018, §3.2, eq 1, arXiv:1802.05365."""

    def __init__(self, config: c.LayerMix, dim: int, layers: int) -> None:
        """Build a weight for each layer, the embedding being one of them."""
        super().__init__()
        self.config = config
        self.weights, self.scale = nn.Parameter(torch.empty(layers)), nn.Parameter(torch.empty(1))
        self.norm = build_norm(config.norm, dim) if config.norm else None
        self.dropout = Dropout(config.dropout)

    def begin(self) -> None:
        """Begin with the plain mean."""
        self.weights.zero_()
        self.scale.fill_(self.config.scale)

    def forward(self, states: Sequence[Tensor]) -> Tensor:
        """Shapes: J times [B, L, D] -> [B, L, D]."""
        layers = torch.stack(tuple(states))
        normed = layers if self.norm is None else self.norm(layers)
        shares = (self.scale * self.weights.softmax(0)).to(normed.dtype)
        return self.dropout(torch.tensordot(shares, normed, dims=1))  # type: ignore[no-any-return]
