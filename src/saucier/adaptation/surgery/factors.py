"""Linear maps as products of two matrices, W = P·Q, and back: the factors of a map, and fewer of its ranks.

Letters: I inputs, O outputs, R rank.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from saucier import config as c
from saucier.adaptation.quantization.maps import refuse_quantized
from saucier.adaptation.surgery.operations import Factorize, Ranks
from saucier.adaptation.surgery.tables import ModelState
from saucier.adaptation.surgery.units import (
    Attention,
    Feeding,
    Place,
    check_numbers,
    find_places,
    list_places,
    put_inner,
)
from saucier.errors import InputError, suggest_name
from saucier.model import Transformer
from saucier.parts.linear import Linear, LowRankLinear

INSIDE = ".inner."
"""Between the names of a sublayer and of a map of it."""


def list_maps(place: Place) -> dict[str, tuple[int, int]]:
    """Return inputs and outputs of each map of an attention or a feed-forward; nothing for other sublayers."""
    inner, dim = place.inner, place.dim
    match inner:
        case c.SelfAttention(projection=projection):
            query, key, _ = projection.widths(dim)
            return {"qkv": (dim, query + 2 * key), "out": (query, dim)}
        case c.CrossAttention(projection=projection):
            query, key, _ = projection.widths(dim)
            return {"q": (dim, query), "kv": (dim, 2 * key), "out": (query, dim)}
        case c.FeedForward(hidden=hidden):
            return {"up": (dim, hidden), "down": (hidden, dim)}
        case c.GatedFeedForward(hidden=hidden):
            return {"up": (dim, 2 * hidden), "down": (hidden, dim)}
    return {}


def find_ranks(inner: c.Config) -> Mapping[str, int]:
    """Return the ranks of those maps of a sublayer that are products, by the names of the maps."""
    given = inner.projection.ranks if isinstance(inner, Attention) else getattr(inner, "ranks", ())
    return {name: rank for name, rank in given or () if rank is not None}


def put_ranks(inner: c.Config, ranks: Mapping[str, int | None]) -> c.Config:
    """Return a sublayer's config with other ranks of some maps."""
    kind = c.AttentionRanks if isinstance(inner, Attention) else c.FeedForwardRanks
    every = {name: rank for name, rank in {**find_ranks(inner), **ranks}.items() if rank is not None}
    changed = {"ranks": kind(**every) if every else None}
    if isinstance(inner, Attention):
        return inner.model_copy(update={"projection": inner.projection.model_copy(update=changed)})
    return inner.model_copy(update=changed)


def list_whole_maps(config: c.Transformer) -> dict[str, int]:
    """Return the largest rank, min(I, O), of each map of attentions and feed-forwards that is one matrix, by its name.

    Raises `InputError` for a model with experts: which of them a text visits is not known before it is read.
    """
    found = {}
    for path, place in list_places(config).items():
        if isinstance(place.inner, c.Experts):
            raise InputError("experts are not factorized", where=path, remedy="put gates before heads instead")
        done = find_ranks(place.inner)
        found.update({f"{path}{INSIDE}{name}": min(sizes) for name, sizes in list_maps(place).items()
                      if name not in done})
    return found


def find_maps(state: ModelState, names: Mapping[str, Any], field: str) -> dict[str, tuple[Place, str]]:
    """Return the sublayer of each map that is named, and the map's name in it.

    Raises `InputError` for a map that there is not, in layers that share weights, of experts, of an attention that
    hashes, and for a bottleneck's map that reads two widths.
    """
    known = {f"{path}{INSIDE}{name}": (path, place, name) for path, place in list_places(state.config).items()
             for name in list_maps(place)}
    experts = [path for path, place in list_places(state.config).items() if isinstance(place.inner, c.Experts)]
    for one in names:
        if any(one.startswith(f"{path}.") for path in experts):
            raise InputError("experts are not factorized", where=f"{field}.{one}", remedy="leave them out")
        if one not in known:
            raise InputError(f"there is no map {one}", where=f"{field}.{one}", remedy=suggest_name(one, [*known]))
    find_places(state, {known[one][0]: () for one in names}, Attention | Feeding, "linear maps", field)
    for one in names:
        _, place, name = known[one]
        if isinstance(place.inner, c.SelfAttention) and isinstance(place.inner.kernel, c.Hashing):
            raise InputError("maps of an attention that hashes are not factorized", where=f"{field}.{one}",
                             remedy="leave them out")
        block = state.stacks()[place.stack].layers.stored()[place.layer]
        if name == "qkv" and block.bottleneck is not None:
            raise InputError("in a bottleneck the map to queries, keys and values is two of them",
                             where=f"{field}.{one}", remedy="leave it out")
    return {one: known[one][1:] for one in names}


def split_matrix(weight: Tensor, rank: int) -> tuple[Tensor, Tensor]:
    """Return Q and P, whose product P·Q is the nearest of this rank; the roots of singular values are in both.

    The least singular value is the first, so that it closes first where gates are alike. Shapes: [O, I] -> [R, I],
    [O, R]. Source: Wang et al. 2020, code release, for the roots; Eckart and Young 1936 for the nearest.
    """
    left, values, right = torch.linalg.svd(weight.double(), full_matrices=False)
    kept, roots = torch.arange(rank - 1, -1, -1, device=weight.device), values[:rank].sqrt()
    first, second = roots[kept, None] * right[kept], left[:, kept] * roots[kept]
    return first.to(weight.dtype).contiguous(), second.to(weight.dtype).contiguous()


def factorize(state: ModelState, by: Factorize) -> ModelState:
    """Make some maps products. Raises `InputError` as `find_maps`, for one that is a product, and for a larger rank."""
    weights, places, same = dict(state.weights), dict[str, Place](), float("inf")
    ranks: dict[str, dict[str, int | None]] = {}
    for one, (place, name) in find_maps(state, by.ranks, "ranks").items():
        path, most, rank = one.removesuffix(INSIDE + name), min(list_maps(place)[name]), by.ranks[one]
        if name in find_ranks(place.inner):
            raise InputError("the map is a product of two matrices already", where=f"ranks.{one}",
                             remedy="take some of its ranks out (Ranks), or leave it out")
        if rank > most:
            raise InputError(f"a rank of {rank} is more than the {most} of the map", where=f"ranks.{one}",
                             remedy=f"give at most {most}")
        first, second = split_matrix(weights.pop(f"{one}.weight"), rank)
        weights |= {f"{one}.first.weight": first, f"{one}.second.weight": second}
        if f"{one}.bias" in weights:
            weights[f"{one}.second.bias"] = weights.pop(f"{one}.bias")
        places[path], ranks.setdefault(path, {})[name] = place, rank
        same = same if rank == most else 0
    changed = {path: (place, put_ranks(place.inner, ranks[path])) for path, place in places.items()}
    return state.put(put_inner(state, changed), weights, same=same)


def keep_ranks(state: ModelState, by: Ranks) -> ModelState:
    """Leave out ranks; a map whose product is no smaller than its matrix is multiplied out.

    Raises `InputError` as `find_maps` and `check_numbers`, and for a map that is no product.
    """
    weights, places, same = dict(state.weights), dict[str, Place](), float("inf")
    ranks: dict[str, dict[str, int | None]] = {}
    for one, (place, name) in find_maps(state, by.kept, "kept").items():
        path, (inputs, outputs), had = one.removesuffix(INSIDE + name), list_maps(place)[name], find_ranks(place.inner)
        if name not in had:
            raise InputError("the map is one matrix, and has no ranks", where=f"kept.{one}",
                             remedy="factorize it first (Factorize)")
        numbers = check_numbers(one, by.kept[one], had[name], "rank")
        index = torch.tensor(numbers, device=weights[f"{one}.first.weight"].device)
        first, second = weights.pop(f"{one}.first.weight")[index], weights.pop(f"{one}.second.weight")[:, index]
        whole = len(numbers) * (inputs + outputs) >= inputs * outputs
        if whole:
            weights[f"{one}.weight"] = (second.double() @ first.double()).to(first.dtype)
            if f"{one}.second.bias" in weights:
                weights[f"{one}.bias"] = weights.pop(f"{one}.second.bias")
        else:
            weights |= {f"{one}.first.weight": first, f"{one}.second.weight": second}
        places[path], ranks.setdefault(path, {})[name] = place, None if whole else len(numbers)
        same = same if len(numbers) == had[name] else 0
    changed = {path: (place, put_ranks(place.inner, ranks[path])) for path, place in places.items()}
    return state.put(put_inner(state, changed), weights, same=same)


def factorize_in_place(model: Transformer) -> None:
    """Make every map of a model's stacks that is one matrix a product of its full rank, in place.

    Raises `InputError` as `list_whole_maps` and `factorize`, and for a model in few bits.
    """
    refuse_quantized(model, "factorized")
    model.restore_stored()
    ranks = list_whole_maps(model.config)
    if not ranks:
        return
    state = factorize(ModelState(model.config, model.state_dict()), Factorize(ranks=ranks))
    for one, rank in ranks.items():
        above, _, name = one.rpartition(".")
        parent = model.get_submodule(above)
        plain, first = parent.get_submodule(name), state.weights[f"{one}.first.weight"]
        assert isinstance(plain, Linear), "list_whole_maps names no other"
        plain.in_features = rank
        plain.weight = nn.Parameter(state.weights[f"{one}.second.weight"])
        made = LowRankLinear(first.shape[1], rank, plain)
        made.first.weight = nn.Parameter(first)
        setattr(parent, name, made.train(plain.training))
    model.config = state.config
    model.provenance = replace(model.provenance, unread={}, stored=None, saved=None)
