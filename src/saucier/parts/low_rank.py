"""Attention to mixtures of keys (Linformer): maps along the text, and softmax over what they give.

Letters: B batch, H heads, G key-value heads, L length, E head width, N longest text, K mixtures, S mixtures of all
documents of a row.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from saucier import config as c
from saucier.config.checks.low_rank import layerwise
from saucier.errors import InputError
from saucier.parts.context import Context
from saucier.parts.documents import begins, places_in_text, refuse_pieces
from saucier.parts.kernels import Scores, attend, stepwise
from saucier.parts.visibility import Mask


class Mixtures(nn.Module):
    """Maps along the text, without a bias, as in the published code."""

    def __init__(self, kernel: c.LowRank, maps: int) -> None:
        """Make one map for keys and values, or one for each."""
        super().__init__()
        self.keys = nn.Parameter(torch.empty(kernel.rank, kernel.length))
        """[K, N]"""
        self.values = nn.Parameter(torch.empty(kernel.rank, kernel.length)) if maps > 1 else None
        """[K, N]; None: that of the keys."""


def build_mixtures(attention: c.SelfAttention) -> Mixtures | None:
    """Return the maps that an attention has of its own, if it has any."""
    kernel = attention.kernel
    return Mixtures(kernel, kernel.maps) if isinstance(kernel, c.LowRank) and kernel.maps else None


def build_shared_mixtures(stack: c.Stack) -> Mixtures | None:
    """Return the map that all layers of a stack share, if they do."""
    found = layerwise(stack)
    return Mixtures(found[0], 1) if found else None


def by_mixtures(query: Tensor, key: Tensor, value: Tensor, maps: Mixtures, context: Context, *, scale: float,
                rate: float) -> Tensor:
    """Mix the values of a text by mixtures of its keys. Shapes: query [B, H, L, E], key and value [B, G, L, E].

    A token is weighed by its place in its text, padding not counted, so that padding and what else stands in the row
    change nothing; packed documents have their own mixtures each. `rate` is the dropout on the weights.
    Source: Wang et al. 2020, §4, eq 7, arXiv:2006.04768.
    """
    if context.cache is not None:
        raise InputError("kernel low_rank reads whole texts, and a cache brings them in pieces", where="cache",
                         remedy="call without a cache")
    texts, length = texts_of(context), key.shape[2]
    refuse_longer(length if texts is None else texts.longest, maps)
    weigh = (lambda weight: weight[:, :length]) if texts is None else texts.weigh
    keys = mixed(weigh(maps.keys), key)
    values = mixed(weigh(maps.keys if maps.values is None else maps.values), value)
    scores = Scores(Mask() if texts is None else texts.mask(len(maps.keys)), scale, dropout=rate)
    if not context.want_weights:
        return attend(query, keys, values, scores)
    given, weights = stepwise(query, keys, values, scores)
    context.attentions.append(weights)
    return given


def mixed(weights: Tensor, x: Tensor) -> Tensor:
    """Shapes: weights [S, L] or [B, S, L], x [B, G, L, E] -> [B, G, S, E]."""
    return (weights if weights.dim() == 2 else weights[:, None]) @ x


class Texts:
    """Rows that are not one whole text each: padded, or several documents."""

    def __init__(self, real: Tensor, document: Tensor | None) -> None:
        """Find the place of every token, and the number of its document in the row."""
        self.real = real
        self.places = places_in_text(real, document)
        """[B, L]"""
        self.number = None if document is None else begins(document).long().cumsum(1) - 1
        """[B, L], from 0; None where a row is one text."""
        self.longest = int(torch.where(real, self.places, 0).max()) + 1
        self.count = 1 if self.number is None else int(self.number.max()) + 1

    def weigh(self, weight: Tensor) -> Tensor:
        """Return the weight of each token in each mixture, zero in those of other documents.

        Shapes: [K, N] -> [B, S, L].
        """
        found = weight.T[self.places.clamp(max=weight.shape[1] - 1)] * self.real[..., None]
        if self.number is None:
            return found.transpose(1, 2)
        numbers = torch.arange(self.count, device=found.device)
        own = (self.number[:, None] == numbers[:, None])[:, :, None]  # [B, D, 1, L]
        return (found.transpose(1, 2)[:, None] * own).flatten(1, 2)

    def mask(self, rank: int) -> Mask:
        """Return which mixtures a token sees: those of its document."""
        if self.number is None:
            return Mask()
        numbers = torch.arange(self.count, device=self.real.device).repeat_interleave(rank)
        return Mask(allowed=(self.number[..., None] == numbers)[:, None], device=self.real.device)


def texts_of(context: Context) -> Texts | None:
    """Return what the rows of a pass hold; None where each is one text. Raises `InputError` for documents in pieces."""
    real, document = context.real_keys(), context.span.query_documents
    if real is None and document is None:
        return None

    def find() -> Texts:
        if document is None:
            assert real is not None, "one of them is there"
            return Texts(real, None)
        refuse_pieces(document)
        return Texts(torch.ones_like(document, dtype=torch.bool) if real is None else real, document)

    return context.once("texts", find)


def refuse_longer(length: int, maps: Mixtures) -> None:
    """Refuse texts that the maps do not reach. Raises `InputError`."""
    most = maps.keys.shape[1]
    if length > most:
        raise InputError(f"a text of {length} tokens, and kernel low_rank mixes {most} at most", where="input_ids",
                         remedy="shorten the input, or train a model with a larger kernel.length")
