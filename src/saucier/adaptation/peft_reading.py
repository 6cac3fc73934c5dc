"""An adapter of PEFT on its base model, kept apart from it: what `rewrite` would have made, with the adapter's values.

Not here: adapters that are merged while the base is read, in `saucier.checkpoints.adapters`.
Letters: N rows, R rank.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from pydantic import ValidationError
from torch import Tensor, nn

from saucier.adaptation import config as a
from saucier.adaptation.foreign_names import ForeignMap, foreign_maps
from saucier.adaptation.low_rank import LowRankTable, named_pairs
from saucier.adaptation.places import Place, places
from saucier.adaptation.rewrite import rewrite
from saucier.checkpoints.adapters import PREFIX, Adapter
from saucier.checkpoints.foreign import Names
from saucier.errors import InputError
from saucier.model import Transformer


def put_on(model: Transformer, adapter: Adapter, modules: Mapping[str, str], names: Names) -> Transformer:
    """Put an adapter's pairs beside the maps of its base model.

    `modules`: published weight -> module of the adapter. Raises `InputError` for a module that is no map of ours.
    """
    maps = {bare(one.name, names): one for one in foreign_maps(model, names).values()}
    known = {(place.module, place.start, place.rows): place for place in places(model)}
    groups: dict[a.Lora, list[tuple[Place, str, ForeignMap]]] = {}
    for weight, module in modules.items():
        one = maps.get(bare(weight.removesuffix(".weight"), names))
        place = known.get((one.module, one.start, one.rows)) if one is not None else None
        if one is None or place is None:
            raise InputError(f"{module} is no map that we hold apart", where=str(adapter.folder),
                             remedy="load it merged, with saucier.load")
        groups.setdefault(settings(adapter, module), []).append((place, module, one))
    for by, members in groups.items():
        rewrite(model, by=by, where=tuple(place.name for place, _, _ in members))
        for place, module, one in members:
            fill(model, place, one, *adapter.pair(module))
    return model


def bare(name: str, names: Names) -> str:
    """Return a published name without what may stand before a body's names."""
    return next((name.removeprefix(base) for base in names.layout.bases if base and name.startswith(base)), name)


def settings(adapter: Adapter, module: str) -> a.Lora:
    """Return rank and alpha of a module of an adapter, as our config says them."""
    down, _ = adapter.pair(module)
    scaling: a.Scaling = a.ByRootOfRank() if adapter.options.get("use_rslora") else a.ByRank()
    try:
        return a.Lora(rank=len(down), alpha=adapter.alpha(module.removeprefix(PREFIX)), scaling=scaling,
                      dropout=adapter.options.get("lora_dropout") or 0.0)
    except ValidationError as error:
        first = error.errors()[0]
        raise InputError(f"{first['loc'][0]}: {first['msg']}", where=f"{adapter.folder}: {module}",
                         remedy="load it merged, with saucier.load") from error


def fill(model: nn.Module, place: Place, one: ForeignMap, down: Tensor, up: Tensor) -> None:
    """Give a pair its values."""
    _, module, pair = named_pairs(model)[place.name]
    rows = up if isinstance(module, LowRankTable) else one.ours(up)
    with torch.no_grad():
        pair.down.weight.copy_(down)
        pair.up.weight.copy_(rows)
