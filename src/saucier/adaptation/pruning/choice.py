"""Which heads, neurons, layers and ranks of maps go: orders of scores, and places of layers.

Letters: H units (heads or neurons) of a sublayer, N layers, K layers that go, I inputs and O outputs of a map.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import groupby
from math import floor
from typing import Any

import torch
from torch import Tensor, nn

from saucier.adaptation.pruning import methods as p
from saucier.adaptation.pruning.scores import Evidence, Scores, mask_units
from saucier.adaptation.surgery.operate import operate
from saucier.adaptation.surgery.operations import Layers
from saucier.errors import InputError
from saucier.model import Transformer

Kept = dict[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Ranks:
    """What decides which units go."""

    scope: p.Scope
    share: float
    """The part that is to be gone, of all that there were at first."""
    had: Mapping[str, int]
    """Place -> units that there were at first."""
    together: Mapping[str, int]
    """Place -> neighbouring units that go together; 1 where it is not named."""
    multiple: int = 1
    """What stays of a sublayer is filled up to a multiple of this."""


def choose_ranks(values: Mapping[str, Tensor], sizes: Mapping[str, tuple[int, int]],
                 by: p.RankPruning) -> dict[str, int]:
    """Return the rank of each map that becomes a product, by its name; at least 1.

    `values`: singular values of each map, the largest first; `sizes`: its inputs and outputs. Shapes: [min(I, O)] each.
    """
    ranks = {name: len(one) for name, one in values.items()}
    match by.scope:
        case "matrix":
            ranks = {name: max(1, floor((1 - by.share) * inputs * outputs / (inputs + outputs) + 1e-9))
                     for name, (inputs, outputs) in sizes.items()}
        case "model":
            worth = sorted((float(value) ** 2 / sum(sizes[name]), name) for name, one in values.items()
                           for value in one[1:])
            costs = {name: inputs * outputs for name, (inputs, outputs) in sizes.items()}
            left, most = sum(costs.values()), (1 - by.share) * sum(costs.values())
            for _, name in worth:
                if left <= most:
                    break
                ranks[name] -= 1
                cost = min(sizes[name][0] * sizes[name][1], ranks[name] * sum(sizes[name]))
                left, costs[name] = left + cost - costs[name], cost
    return {name: rank for name, rank in ranks.items() if rank * sum(sizes[name]) < sizes[name][0] * sizes[name][1]}


def choose_kept(scores: Scores, ranks: Ranks) -> Kept:
    """Return the units that stay: at least one group of each sublayer."""
    grouped = {path: one.unflatten(0, (-1, ranks.together.get(path, 1))).sum(1) for path, one in scores.items()}
    found: dict[str, list[int]] = {}
    match ranks.scope.kind:
        case "model":
            found = keep_best(grouped, ranks)
        case "layer":
            for path, one in grouped.items():
                found |= keep_best({path: one}, ranks)
        case "stack":
            for paths in group_alike(grouped):
                total = torch.stack([grouped[path] for path in paths]).sum(0)
                found |= dict.fromkeys(paths, keep_best({paths[0]: total}, ranks)[paths[0]])
    sizes = {path: ranks.together.get(path, 1) for path in found}
    return {path: tuple(group * sizes[path] + place for group in groups for place in range(sizes[path]))
            for path, groups in found.items()}


def group_alike(grouped: Mapping[str, Tensor]) -> list[list[str]]:
    """Return the sublayers of the same name and number of units in each stack."""
    def key(path: str) -> tuple[str, str, int]:
        return path.partition(".")[0], path.rpartition(".")[2], len(grouped[path])

    return [list(paths) for _, paths in groupby(sorted(grouped, key=key), key)]


def keep_best(scores: Mapping[str, Tensor], ranks: Ranks) -> dict[str, list[int]]:
    """Return the groups of units that stay, where those of all these sublayers are ranked together."""
    sizes = {path: ranks.together.get(path, 1) for path in scores}
    had = sum(ranks.had[path] for path in scores)
    left = floor(ranks.share * had + 1e-9) - (had - sum(len(one) * sizes[path] for path, one in scores.items()))
    order = sorted((float(value), path, unit) for path, one in scores.items() for unit, value in enumerate(one))
    kept = {path: set(range(len(one))) for path, one in scores.items()}
    for _, path, unit in order:
        if left >= sizes[path] and len(kept[path]) > 1:
            kept[path].remove(unit)
            left -= sizes[path]
    for _, path, unit in reversed(order):
        if len(kept[path]) % ranks.multiple:
            kept[path].add(unit)
    return {path: sorted(one) for path, one in kept.items()}


def layers_by_place(count: int, by: p.LayersByPlace) -> set[int]:
    """Return the layers that go, from 1, of so many."""
    match by.kind:
        case "top":
            return set(range(count - by.count + 1, count + 1))
        case "bottom":
            return set(range(1, by.count + 1))
        case "even" | "odd":
            parity = 0 if by.kind == "even" else 1
            return set([layer for layer in range(count, 0, -1) if layer % 2 == parity][:by.count])
        case "symmetric":
            first = (count - by.count) // 2
            return set(range(first + 1, first + by.count + 1))


def every_nth(count: int, by: p.EveryNth) -> set[int]:
    """Return the layers d with d ≡ 0 (mod ⌊1/p⌋), from 1. Source: Fan et al. 2020, §3.2, arXiv:1909.11556."""
    step = floor(1 / by.rate + 1e-9)  # 1 / 0.2 is 5
    return {layer for layer in range(1, count + 1) if layer % step == 0}


def ideal_layer_drop(kept: int, layers: int) -> float:
    """Return the rate p* = 1 - r / N to train with, for r layers that are to stay of N.

    Source: Fan et al. 2020, §3.2, arXiv:1909.11556. Raises `InputError` for more layers than there are.
    """
    if not 0 < kept <= layers:
        raise InputError(f"{kept} layers of {layers}", where="kept", remedy=f"give 1 to {layers}")
    return 1 - kept / layers


def measure_similarity(model: Transformer, stack: str, tokens: str, evidence: Evidence) -> list[float]:
    """Return for each layer the mean cosine of its input and output. Source: Sajjad et al. 2020, §3.1."""
    evidence.need("contribution", loss=False)
    blocks: Any = getattr(model, stack).blocks
    sums, counts = [0.0] * len(blocks), [0.0] * len(blocks)
    mask: list[Tensor | None] = [None]

    def hook_for(number: int) -> Callable[[nn.Module, tuple[Any, ...], Tensor], None]:
        def compare(module: nn.Module, given: tuple[Any, ...], made: Tensor) -> None:
            cosine = torch.cosine_similarity(given[0], made, dim=-1).double()
            if tokens == "first":
                cosine, real = cosine[:, :1], torch.ones_like(cosine[:, :1])
            else:
                real = torch.ones_like(cosine) if mask[0] is None else mask[0].to(cosine)
            sums[number] += float((cosine * real).sum())
            counts[number] += float(real.sum())
        return compare

    with ExitStack() as hooks, mask_units(model, {}), torch.no_grad():
        for number, block in enumerate(blocks):
            hooks.callback(block.register_forward_hook(hook_for(number)).remove)
        for batch in evidence.batches:
            pair = model.paired and stack == "decoder"
            mask[0] = batch.get("decoder_attention_mask" if pair else "attention_mask")
            model(**batch)
    return [total / count for total, count in zip(sums, counts, strict=True)]


def least_contribution(model: Transformer, stack: str, by: p.LeastContribution | p.SimilarLayers,
                       evidence: Evidence) -> set[int]:
    """Return the layers that change their input least, from 1."""
    found = measure_similarity(model, stack, by.tokens, evidence)
    order = sorted(range(1, len(found) + 1), key=lambda layer: -found[layer - 1])
    if isinstance(by, p.LeastContribution):
        return set(order[:by.count])
    return {layer for layer in order if found[layer - 1] > by.above}


def search_layers(model: Transformer, stack: str, by: p.Searched, evidence: Evidence) -> set[int]:
    """Return the layers that go, from 1: each time the one without which the loss on the texts is lowest."""
    evidence.need("searched")
    left = list(range(len(getattr(model, stack).order)))
    decoder = stack == "decoder" and model.paired
    for _ in range(min(by.count, len(left) - 1)):
        losses = {}
        for layer in left:
            order = tuple(one for one in left if one != layer)
            smaller, _ = operate(model, by=[Layers(order=order, decoder=decoder)])
            losses[layer] = evidence.mean_loss(smaller.eval())
        left.remove(min(losses, key=lambda layer: losses[layer]))
    return set(range(1, len(getattr(model, stack).order) + 1)) - {layer + 1 for layer in left}


def choose_layers(model: Transformer, by: p.LayerPruning, evidence: Evidence) -> set[int]:
    """Return the layers that go, from 1. Raises `InputError` where none would be left, or none would go."""
    stack = "decoder" if by.decoder or model.encoder is None else "encoder"
    if by.decoder and not model.paired:
        raise InputError("the model has one stack", where="decoder", remedy="leave it out")
    count = len(getattr(model, stack).order)
    asked = getattr(by.choice, "count", 0)
    if asked >= count:
        raise InputError(f"{asked} layers go, and there are {count}", where="choice.count",
                         remedy=f"give at most {count - 1}")
    match by.choice:
        case p.LayersByPlace() as place:
            found = layers_by_place(count, place)
        case p.EveryNth() as nth:
            found = every_nth(count, nth)
        case p.LeastContribution() | p.SimilarLayers() as likeness:
            found = least_contribution(model, stack, likeness, evidence)
        case p.Searched() as searched:
            found = search_layers(model, stack, searched, evidence)
    if len(found) < asked:
        raise InputError(f"there are {len(found)} such layers, and {asked} are to go", where="choice.count",
                         remedy=f"give at most {len(found)}")
    if not 0 < len(found) < count:
        raise InputError("no layer would go" if not found else "no layer would stay", where="choice",
                         remedy="choose others")
    return found
