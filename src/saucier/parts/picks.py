"""One vector for a whole text: pooled, first, last, mean, or at a position that the batch names.

Letters: B batch, L length, D dim.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from saucier import config as c
from saucier.errors import InputError

if TYPE_CHECKING:
    from saucier.parts.heads import Reading


def picked(pick: c.Pick, reading: Reading) -> Tensor:
    """Return the vector of each text. Shapes: -> [B, D]. Raises `InputError` where the batch lacks what it needs."""
    hidden = reading.hidden
    match pick:
        case c.Pooled():
            assert reading.pooled is not None, "check() refuses a head that needs a pooler where there is none"
            return reading.pooled
        case c.First():
            return hidden[:, 0]
        case c.FirstUnmasked():
            return hidden[:, 0] if reading.mask is None else at(hidden, reading.mask.int().argmax(-1))
        case c.Last():
            return hidden[:, -1]
        case c.LastToken(padding=padding):
            return last_token(hidden, reading.ids, padding)
        case c.EndToken(token=token):
            return end_token(hidden, reading.ids if reading.source is None else reading.source, token)
        case c.Mean():
            return mean(hidden, reading.mask)
        case c.MeanAll():
            return hidden.mean(1)
        case c.Chosen():
            places = (reading.inputs or {}).get("mc_token_ids")
            return hidden[:, -1] if places is None else at(hidden, places.flatten())


def at(hidden: Tensor, places: Tensor) -> Tensor:
    """Shapes: hidden [B, L, D], places [B] -> [B, D]."""
    return hidden[torch.arange(len(hidden), device=hidden.device), places]


def last_token(hidden: Tensor, ids: Tensor | None, padding: int | None) -> Tensor:
    """The last position that is not padding; the last of all where the ids are not known. Shapes: -> [B, D]."""
    if padding is None or ids is None:
        return hidden[:, -1]
    places = torch.arange(ids.shape[1], device=ids.device)
    return at(hidden, (places * (ids != padding)).argmax(-1))


def end_token(hidden: Tensor, ids: Tensor | None, token: int) -> Tensor:
    """The last position that holds the token; a decoder beside an encoder is read where the source has it.

    Shapes: -> [B, D].
    """
    if ids is None:
        raise InputError("the head looks for the end-of-text token, and there are only vectors", where="input_ids",
                         remedy="give ids")
    found = (ids == token).sum(1)
    if bool((found != found[0]).any()) or int(found[0]) == 0:
        raise InputError(f"rows hold {found.tolist()} end tokens (id {token})", where="input_ids",
                         remedy="give every row equally many, at least one")
    places = torch.arange(ids.shape[1], device=ids.device)
    return at(hidden, (places * (ids == token)).argmax(-1))


def mean(hidden: Tensor, mask: Tensor | None) -> Tensor:
    """The mean over real tokens. Shapes: hidden [B, L, D], mask [B, L] -> [B, D]."""
    if mask is None:
        return hidden.mean(1)
    kept = mask[..., None].to(hidden.dtype)
    return (hidden * kept).sum(1) / kept.sum(1).clamp(min=1e-9)
