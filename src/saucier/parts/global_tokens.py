"""Which tokens are global: those that the batch names, or else those that the model's visibility finds by itself.

Letters: B batch, L length, K keys.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from saucier import config as c
from saucier.config.visibility import SEPARATORS
from saucier.errors import InputError

if TYPE_CHECKING:
    from saucier.parts.visibility import Span


def global_tokens(otherwise: c.GlobalTokens, span: Span) -> Tensor:
    """Return which keys are global. Shapes: -> [B or 1, K], True = global.

    Raises `InputError` where the batch's mask does not fit, and where rows lack the separators that are looked for.
    """
    if span.named is not None:
        return fitted(span.named, span.keys, exact=span.start == 0 and span.queries == span.keys)
    match otherwise:
        case c.NoTokens():
            return torch.zeros(1, span.keys, dtype=torch.bool, device=span.device)
        case c.FirstToken():
            return firsts(span, 1)
        case c.FirstTokens(count=count):
            return firsts(span, count)
        case c.BeforeSeparator(token=token):
            return torch.arange(span.keys, device=span.device) < first_separator(span, token)
        case c.AfterSeparator(token=token):
            return torch.arange(span.keys, device=span.device) > first_separator(span, token) + 1


def fitted(named: Tensor, keys: int, *, exact: bool) -> Tensor:
    """Cut a mask to the keys that there are, or take further keys as local, while decoding piece by piece."""
    if exact and named.shape[1] != keys:
        raise InputError(f"{named.shape[1]} positions for {keys} tokens", where="global_attention_mask",
                         remedy="give a mask of the shape of input_ids")
    return F.pad(named, (0, max(0, keys - named.shape[1])))[:, :keys]


def firsts(span: Span, count: int) -> Tensor:
    """The first real tokens of every row, or of every document in it. Shapes: -> [B or 1, K]."""
    places = torch.arange(span.keys, device=span.device)
    if span.key_documents is not None:
        documents, order = span.key_documents.sort(dim=1, stable=True)
        begins = F.pad(documents.diff(dim=1) != 0, (1, 0), value=True)
        rank = places - torch.where(begins, places, 0).cummax(dim=1).values
        return torch.zeros_like(begins).scatter(1, order, rank < count)
    first = 0 if span.padding is None else span.padding.long().argmax(-1, keepdim=True)
    return (places[None] >= first) & (places[None] < first + count)


def first_separator(span: Span, token: int) -> Tensor:
    """Where the first separator of each row stands. Shapes: -> [B, 1]."""
    if span.ids is None or span.ids.shape[1] != span.keys:
        raise InputError("global tokens are found by the separators, and the tokens are not known",
                         where="global_attention_mask", remedy="give it")
    found = span.ids == token
    counts = found.sum(1)
    if bool((counts != SEPARATORS).any()):
        raise InputError(f"rows hold {counts.tolist()} separators (id {token}), and {SEPARATORS} tell what is global",
                         where="input_ids", remedy="give global_attention_mask, or rows of question and text")
    return found.long().argmax(-1, keepdim=True)


def refuse_named(stack: c.Stack, named: Tensor | None) -> None:
    """Raise `InputError` where the batch names global tokens, and no layer would treat them so."""
    if named is None:
        return
    inner = [residual.inner for block in stack.blocks() for residual in block.sublayers]
    if not any(c.global_terms(part.visibility) for part in inner if isinstance(part, c.SelfAttention)):
        raise InputError("this model has no global tokens", where="global_attention_mask", remedy="leave it out")
