"""An adapter of PEFT on its base model, kept separate from it: what `rewrite` would make, with the adapter's values.

Not here: adapters that are merged while the base is read, in `saucier.checkpoints.adapter_folder`.
Letters: N rows, O outputs, R rank, P positions before the text, K key-value heads, E head width.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from saucier.adaptation import tuning as a
from saucier.adaptation.lora import LowRankTable, list_named_pairs
from saucier.adaptation.rewrite import apply_rewrite
from saucier.adaptation.target_modules import TargetMap, list_targets
from saucier.checkpoints.adapter_folder import PREFIX, VECTORS, Adapter, base_error
from saucier.checkpoints.layout import model_error
from saucier.checkpoints.published_names import BASE, PublishedNames
from saucier.checkpoints.weight_names import Concat, HeadByHead, Rule, Same, Transpose
from saucier.config.base import ConfigError
from saucier.errors import InputError
from saucier.model import Transformer
from saucier.parts.prefix import PrefixKeys, SoftPrompt

WEIGHT = ".weight"


@dataclass(frozen=True, slots=True)
class PublishedMap:
    """A linear map as it is published."""

    name: str
    """Of the module, without `.weight`."""
    module: str
    """Ours, which may hold several."""
    start: int
    """Its first row in ours."""
    rows: int
    turned: bool
    """Whether its matrix is stored as [inputs, outputs]."""
    theirs: Callable[[Tensor], Tensor]
    """Puts rows [O, R] of ours into the published order."""
    ours: Callable[[Tensor], Tensor]
    """The inverse."""


def keep_rows(rows: Tensor) -> Tensor:
    """Return the rows as they are."""
    return rows


def list_published_maps(model: nn.Module, names: PublishedNames) -> dict[str, PublishedMap]:
    """Return every linear map and token table that has a published name and rows of its own, by that name."""
    found: dict[str, PublishedMap] = {}
    for module, one in model.named_modules():
        added = module.endswith(".base") or ".pairs." in module  # inside what a rewrite put there
        match = names.rules.match(module + WEIGHT) if hasattr(one, "weight") and not added else None
        if match is not None:
            rows: int = getattr(one, "num_embeddings", 0) or getattr(one, "out_features", 0)
            found |= {each.name: each for each in split_published_maps(match, module, rows, names)}
    return found


def split_published_maps(rule: Rule, module: str, rows: int, names: PublishedNames) -> list[PublishedMap]:
    """Return the published maps that one of our matrices holds; none where its rule is of another kind."""
    theirs = [foreign.replace(BASE, names.layout.base_of(names.published)) for foreign in rule.foreign]
    if not rows or not all(name.endswith(WEIGHT) for name in theirs):
        return []
    short = [name.removesuffix(WEIGHT) for name in theirs]
    match rule.operation:
        case Same() | Transpose() as operation:
            return [PublishedMap(short[0], module, 0, rows, isinstance(operation, Transpose), keep_rows, keep_rows)]
        case Concat(rows=each):
            starts = [sum(each[:number]) for number in range(len(each))]
            return [PublishedMap(name, module, start, count, False, keep_rows, keep_rows)
                    for name, start, count in zip(short, starts, each, strict=True)]
        case HeadByHead() as operation:
            return [PublishedMap(short[0], module, 0, rows, False, lambda tensor: operation.theirs(tensor)[0],
                                 lambda tensor: operation.ours([tensor]))]
        case _:
            return []


def no_place_error(module: str, names: PublishedNames) -> InputError:
    """Build the error for a map of ours that no published module is."""
    return InputError(f"{module} has no module of its own in the layout of {names.layout.model_type}", where="model",
                      remedy="save the adapter in our own form (own)")


def attach_lora(model: Transformer, adapter: Adapter, modules: Mapping[str, str], names: PublishedNames) -> Transformer:
    """Put an adapter's pairs next to the maps of its base model.

    `modules`: published weight -> module of the adapter. Raises `InputError` for a module that is no map of ours.
    """
    maps = {strip_base(one.name, names): one for one in list_published_maps(model, names).values()}
    known = {(place.module, place.start, place.rows): place for place in list_targets(model)}
    groups: dict[a.Lora, list[tuple[TargetMap, str, PublishedMap]]] = {}
    for weight, module in modules.items():
        one = maps.get(strip_base(weight.removesuffix(".weight"), names))
        place = known.get((one.module, one.start, one.rows)) if one is not None else None
        if one is None or place is None:
            raise InputError(f"{module} is no map that we hold apart", where=str(adapter.folder),
                             remedy="load it merged, with saucier.load")
        groups.setdefault(read_lora_settings(adapter, module), []).append((place, module, one))
    for by, members in groups.items():
        apply_rewrite(model, by=by, where=tuple(place.name for place, _, _ in members))
        for place, module, one in members:
            fill_pair(model, place, one, *adapter.pair(module))
    return model


def strip_base(name: str, names: PublishedNames) -> str:
    """Return a published name without the prefix of a body's names."""
    return next((name.removeprefix(base) for base in names.layout.bases if base and name.startswith(base)), name)


def read_lora_settings(adapter: Adapter, module: str) -> a.Lora:
    """Return rank and alpha of a module of an adapter, as our config says them."""
    down, _ = adapter.pair(module)
    scaling: a.Scaling = a.ByRootOfRank() if adapter.options.get("use_rslora") else a.ByRank()
    try:
        return a.Lora(rank=len(down), alpha=adapter.alpha(module.removeprefix(PREFIX)), scaling=scaling,
                      dropout=adapter.options.get("lora_dropout") or 0.0)
    except ConfigError as error:
        raise model_error(error.cause, f"{adapter.folder}: {module}", "load it merged, with saucier.load") from error


def fill_pair(model: nn.Module, place: TargetMap, one: PublishedMap, down: Tensor, up: Tensor) -> None:
    """Give a pair its values."""
    _, module, pair = list_named_pairs(model)[place.name]
    rows = up if isinstance(module, LowRankTable) else one.ours(up)
    with torch.no_grad():
        pair.down.weight.copy_(down)
        pair.up.weight.copy_(rows)


def attach_prefix(model: Transformer, adapter: Adapter) -> Transformer:
    """Put an adapter's prefix or prompt before the text of its base model. Raises `InputError` for one of another."""
    where = str(adapter.folder)
    if VECTORS not in adapter.weights:
        raise InputError(f"{VECTORS} is missing", where=where, remedy="fetch the adapter again")
    values = adapter.weights[VECTORS].float()
    if values.dim() != 2 or not len(values):
        raise InputError(f"{VECTORS} is {list(values.shape)}", where=where, remedy="fetch the adapter again")
    stacks = adapter.options.get("num_transformer_submodules") or 1
    if adapter.options.get("peft_type") == "PROMPT_TUNING":
        values = values[:max(1, len(values) // stacks)]  # PEFT stores a prompt for the decoder too, and never reads it
        apply_rewrite(model, by=a.Prompt(length=len(values), start=a.FromNoise()))
    else:
        apply_rewrite(model, by=a.Prefix(length=len(values)))
    assert isinstance(model.front, PrefixKeys | SoftPrompt), "the rewrite put it there"
    if isinstance(model.front, PrefixKeys) and stacks > 1:
        values = select_peft_layers(values, model.front.widths)
    target = model.front.vectors if isinstance(model.front, SoftPrompt) else model.front.made.get_parameter("values")
    if target.shape != values.shape:
        raise base_error(f"{VECTORS} is {list(values.shape)} instead of {list(target.shape)}", adapter.folder,
                         adapter.base, model.provenance.path or adapter.base)
    with torch.no_grad():
        target.copy_(values)
    return model


def select_peft_layers(values: Tensor, widths: Sequence[tuple[int, int]]) -> Tensor:
    """Return the values of a prefix for two stacks in the order in which PEFT gives them to a decoder's layers.

    It cuts them as if self- and cross-attention had their own, and then drops those of the latter: layer l gets what
    is stored for layer 2·l, from the beginning again where there is none (seen in peft 0.21, with T5).
    Shapes: [P, stored layers · 2 · K · E] -> [P, layers · 2 · K · E].
    """
    wide = 2 * widths[0][0] * widths[0][1]
    if values.shape[1] % wide:
        return values  # refused by its shape
    parts = values.split(wide, dim=1)
    return torch.cat([parts[2 * layer % len(parts)] for layer in range(len(widths))], dim=1)
