"""Attention by random features (Performer): sums over keys in place of weights for every pair.

Letters: B batch, H heads, L length, Q queries, N blocks, C positions in a block, M features, E head width.
Values have one column more than the head is wide, of ones: what comes out in it is what the rest is divided by.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saucier import config as c
from saucier.config.kernels import advance_draws
from saucier.errors import InputError
from saucier.parts.context import Context, KernelCall
from saucier.parts.hashing import find_key_positions, pad_length, widen_format
from saucier.parts.kernels import repeat_heads
from saucier.parts.masks import refuse_split_documents

FEATURES_AT_ONCE = 2**20
"""Values of the features that are made at a time, about."""
HIGHEST_EXPONENT = 60.0
"""No exponent of a key's feature is above this, so that sums over any length stay finite in float32."""


RANDOM_STREAM = 37
"""Which random numbers of a seed directions are made of."""
LEAST_SUM = 1e-30
"""Sums of weights below this are taken for nothing: each key is far from every direction."""
NO_STEP = 2**62
"""A step after any training."""
NO_DOCUMENT = -1
"""The document of positions that are in none."""


@lru_cache(maxsize=256)
def draw_directions(kernel: c.Favor, width: int, layer: int) -> np.ndarray:
    """Draw the directions of a layer: orthogonal in groups of as many as the width, as long as Gaussian vectors are.

    Shapes: -> [M, E], float64. Source: Choromanski et al. 2021, §2.4, arXiv:2009.14794.
    """
    random = np.random.Generator(np.random.Philox(np.random.SeedSequence([kernel.seed, RANDOM_STREAM, layer,
                                                                          kernel.draw])))
    found = []
    for _ in range(-(-kernel.features // width)):
        turned, upper = np.linalg.qr(random.standard_normal((width, width)))
        lengths = np.sqrt(random.chisquare(width, size=(width, 1)))
        found.append((turned * np.sign(np.diag(upper))).T * lengths)
    return np.concatenate(found)[:kernel.features]


def exponents(x: Tensor, ways: Tensor, shift: Tensor) -> Tensor:
    """Return `w·x + shift` for each direction, in one product. Shapes: [..., E], [M, E], [..., 1] -> [..., M]."""
    return torch.cat([x, shift], dim=-1) @ F.pad(ways, (0, 1), value=1.0).T


def half_squared_norms(x: Tensor) -> Tensor:
    """Return `-|x|²/2`, which makes the mean over w of products of features `exp(q·k)`. Shapes: [..., E] -> [..., 1].

    Source: Choromanski et al. 2021, lemma 1.
    """
    return x.square().sum(-1, keepdim=True) / -2


def key_features(key: Tensor, ways: Tensor, real: Tensor | None) -> Tensor:
    """Return features, scaled down alike where one could be too large to be added up: it is at most `exp(|w|²/2)`.

    Unlike the published code's largest exponent of all keys, the scale does not depend on later tokens.
    Shapes: key [..., E], real [..., L], False where nothing is to be added -> [..., M].
    """
    shift = half_squared_norms(key) - max(0.0, -float(half_squared_norms(ways).min()) - HIGHEST_EXPONENT)
    if real is not None:
        shift = shift.masked_fill(~real[..., None], float("-inf"))
    return exponents(key, ways, shift).exp_()


@dataclass(slots=True)
class FeatureRows:
    """Queries, keys and values of an attention, scaled, of as many heads; features are made a piece at a time."""

    query: Tensor
    """[B, H, L, E]"""
    key: Tensor
    """[B, H, L, E]"""
    value: Tensor
    """[B, H, L, E + 1], the last column of ones."""
    real: Tensor | None
    """[B, 1, L], False where a key adds nothing."""
    ways: Tensor
    """[M, E]"""

    def asking(self, part: slice = slice(None)) -> Tensor:
        """Return the features of queries, each query's largest being 1: the weights are divided by the scale again.

        Shapes: -> [B, H, P, M].
        """
        found = self.query[:, :, part] @ self.ways.T
        largest = found.detach().amax(-1, keepdim=True)
        return found.sub_(largest).exp_()  # in place: these are the largest tensors here

    def keys(self, part: slice = slice(None)) -> Tensor:
        """Return the features of keys. Shapes: -> [B, H, P, M]."""
        return key_features(self.key[:, :, part], self.ways, None if self.real is None else self.real[..., part])

    def pieces(self, block: int) -> list[slice]:
        """Cut the positions into pieces of whole blocks, whose features stay in the processor's cache."""
        rows, heads, length, _ = self.query.shape
        size = max(1, FEATURES_AT_ONCE // (rows * heads * len(self.ways) * block)) * block
        return [slice(start, start + size) for start in range(0, length, size)]


def attend_by_features(query: Tensor, key: Tensor, value: Tensor, call: KernelCall) -> Tensor:
    """Mix values by features of queries and keys. Shapes: query [B, H, L, E], key and value [B, G, L, E] -> as query.

    With a cache the sums over all earlier keys are its state. Padded keys add nothing; documents are kept separate.
    Source: Choromanski et al. 2021, §2.2 and appendix B.1, arXiv:2009.14794.
    """
    attention, context, kernel, heads = call.config, call.context, call.kernel, query.shape[1]
    causal = isinstance(attention.visibility, c.Causal)
    start, length = context.span.start, query.shape[2]
    real = find_key_positions(context, start + length).real
    with torch.autocast(query.device.type, enabled=False):
        query, key, value_ = (widen_format(x) for x in (query * call.scale**0.5, key * call.scale**0.5, value))
        drawn = draw_directions(kernel, query.shape[-1], context.slots.get("self_attention", 0) - 1)
        ways = torch.from_numpy(drawn).to(query.device, query.dtype)
        rows = FeatureRows(query, repeat_heads(key, heads), repeat_heads(F.pad(value_, (0, 1), value=1.0), heads),
                           None if real is None else real[..., start:], ways)
        document = find_documents(context)
        if context.want_weights:
            sums = mix_by_weights(rows, attention, context)
        elif document is not None:
            sums = mix_in_documents(rows, kernel.block, document, causal=causal)
        else:
            sums = (mix_in_order if causal else mix_unordered)(rows, kernel.block, context)
        return (sums[..., :-1] * invert_sums(sums[..., -1:])).to(value.dtype)


def mix_unordered(rows: FeatureRows, block: int, context: Context) -> Tensor:
    """Mix where every query sees every key. Shapes: -> [B, H, L, E + 1]."""
    sums, pieces = read_sums(rows, context), rows.pieces(block)
    for part in pieces:
        sums = sums + rows.keys(part).transpose(-1, -2) @ rows.value[:, :, part]
    store_sums(sums, context)
    return torch.cat([rows.asking(part) @ sums for part in pieces], dim=2)


def mix_in_order(rows: FeatureRows, block: int, context: Context) -> Tensor:
    """Mix within blocks of positions, and carry sums from block to block. Shapes: -> [B, H, L, E + 1]."""
    size = min(block, rows.query.shape[2])
    alone = size == rows.query.shape[2] and context.cache is None
    sums = read_sums(rows, context)
    found = []
    for part in rows.pieces(size):
        asking, keys, value = split_into_blocks(size, rows.asking(part), rows.keys(part), rows.value[:, :, part])
        mixed = (asking @ keys.transpose(-1, -2)).tril_() @ value
        if not alone:
            before = torch.cat([sums[:, :, None], keys.transpose(-1, -2) @ value], dim=2).cumsum(2)
            mixed, sums = mixed + asking @ before[:, :, :-1], before[:, :, -1]
        found.append(mixed.flatten(2, 3))
    store_sums(sums, context)
    return torch.cat(found, dim=2)[:, :, :rows.query.shape[2]]


def split_into_blocks(size: int, *parts: Tensor) -> list[Tensor]:
    """Cut positions into blocks, zeros after the last. Shapes: [B, H, L, ...] -> [B, H, N, C, ...] each."""
    whole = -(-parts[0].shape[2] // size) * size
    return [pad_length(part, whole).unflatten(2, (-1, size)) for part in parts]


def read_sums(rows: FeatureRows, context: Context) -> Tensor:
    """Return the sums over the keys that a cache has seen, or zeros. Shapes: -> [B, H, M, E + 1]."""
    (batch, heads, _, values), slot = rows.value.shape, context.slots.get("recurrent", 0)
    if context.cache is not None and slot in context.cache.states:
        return context.cache.states[slot][0]
    return rows.value.new_zeros(batch, heads, len(rows.ways), values)


def store_sums(sums: Tensor, context: Context) -> None:
    """Let a cache hold the sums over all keys so far. Shapes: sums [B, H, M, E + 1]."""
    if context.cache is not None:
        context.cache.states[context.next_slot("recurrent")] = (sums,)


def invert_sums(total: Tensor) -> Tensor:
    """Return one over sums of weights; zero where there is next to nothing, so that gradients are finite."""
    found = total > LEAST_SUM
    return found / total.where(found, 1.0)


def mix_by_weights(rows: FeatureRows, attention: c.SelfAttention, context: Context) -> Tensor:
    """Mix by weights of every pair, which the pass then records. Shapes: -> [B, H, L, E + 1]."""
    if context.span.start:
        raise InputError("kernel favor keeps sums of earlier keys, so their weights are not known",
                         where="output_attentions", remedy="give the whole text without a cache")
    pairs, mask = rows.asking() @ rows.keys().transpose(-1, -2), context.mask(attention.visibility)
    pairs = pairs.tril() if mask.causal else pairs if mask.allowed is None else pairs * mask.allowed
    weights = pairs * invert_sums(pairs.sum(-1, keepdim=True))
    context.attentions.append(weights)
    return weights @ rows.value


def mix_in_documents(rows: FeatureRows, block: int, document: Tensor, *, causal: bool) -> Tensor:
    """Mix within documents, in blocks as `mix_in_order` does. Shapes: document [B, L] -> [B, H, L, E + 1]."""
    length = document.shape[1]
    size = min(block, length)
    asking, keys, value = split_into_blocks(size, rows.asking(), rows.keys(), rows.value)
    document = F.pad(document, (0, -length % size), value=NO_DOCUMENT).unflatten(1, (-1, size))[:, None]
    pairs = asking @ keys.transpose(-1, -2) * (document[..., None] == document[..., None, :])
    mixed = (pairs.tril() if causal else pairs) @ value
    mixed = mixed + mix_earlier_blocks(asking, keys, value, document)
    if not causal:  # the same from the other side
        turned = (x.flip(2, 3) for x in (asking, keys, value, document))
        mixed = mixed + mix_earlier_blocks(*turned).flip(2, 3)
    return mixed.flatten(2, 3)[:, :, :length]


def find_documents(context: Context) -> Tensor | None:
    """Return the document of each position. Shapes: -> [B, L]; None where rows are not packed documents.

    Raises `InputError` for documents in pieces, and together with a cache.
    """
    found = context.span.query_documents
    if found is not None:
        if context.cache is not None:
            raise InputError("sums over earlier keys know no documents", where="documents",
                             remedy="give one text a row, or no cache")
        context.once("documents in one piece", lambda: refuse_split_documents(found))
    return found


def mix_earlier_blocks(asking: Tensor, keys: Tensor, value: Tensor, document: Tensor) -> Tensor:
    """Return what queries find of their own document in earlier blocks: only the one that a block ends in goes on.

    Shapes: [B, H, N, C, ...], document [B, 1, N, C] -> [B, H, N, C, E + 1].
    """
    last = document[..., -1:]
    alike = document == last
    own = (keys * alike[..., None]).transpose(-1, -2) @ value
    goes_on = F.pad(alike.all(-1)[:, :, 1:] & (last[:, :, 1:, 0] == last[:, :, :-1, 0]), (1, 0))
    carried, sums = torch.zeros_like(own[:, :, 0]), []
    for block in range(own.shape[2]):
        sums.append(carried)
        carried = own[:, :, block] + carried * goes_on[:, :, block, None, None]
    reads = F.pad(document[:, :, 1:] == last[:, :, :-1], (0, 0, 1, 0))
    return (asking * reads[..., None]) @ torch.stack(sums, dim=2)


class Redraws:
    """What draws the directions of attention by features again while a model is trained."""

    def __init__(self, models: Iterable[nn.Module]) -> None:
        """Find everything whose config says how often that is done."""
        held = ((part, getattr(part, "config", None)) for model in models for part in model.modules())
        self.parts = [(part, config) for part, config in held
                      if isinstance(config, c.Config) and advance_draws(config, NO_STEP) is not config]

    def at(self, step: int) -> None:
        """Let configs name the draw of a step (from 0): the one they began with, and one more for each period.

        Directions are a function of the config and the layer, so a saved model has them.
        """
        for part, config in self.parts:
            part.config = advance_draws(config, step)  # type: ignore[assignment]  # any module that holds a config
