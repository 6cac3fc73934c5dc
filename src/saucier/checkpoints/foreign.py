"""Reading and writing folders in a published layout: config fields by its keys, weights by its rules.

Every parameter of ours is filled exactly once, every foreign tensor is used, ignored by name, or belongs to a head that
was not asked for; all faults come in one error.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from saucier import config as c
from saucier.checkpoints.keys import SPECIAL_IDS, Layout
from saucier.checkpoints.model_folder import read_json
from saucier.checkpoints.tensors import read_tensors, write_tensors
from saucier.errors import InputError, nearest
from saucier.files import write_atomically
from saucier.model import Transformer, retie

BASE = "@"
"""Stands in rules for the prefix that classes with a head put before the body's names."""


def read_foreign(folder: Path, layout: Layout, *, published: str | None, dtype: torch.dtype | None,
                 device: torch.device) -> Transformer:
    """Build the model of a published folder as one of its classes (None: the one that was saved)."""
    document = read_json(folder / "config.json")
    where = str(folder / "config.json")
    name = published or saved_class(document, layout)
    if name not in layout.classes:
        raise InputError(f"{layout.model_type} has no head {name!r}", where="head",
                         remedy=nearest(name, sorted(layout.classes)))
    tree = layout.tree(document, name, where)
    with torch.device("meta"):
        model = Transformer(tree)
    model = (model if dtype is None else model.to(dtype)).to_empty(device=device)
    retie(model)
    copy_weights(model, layout, dict(read_shards(folder)), str(folder))
    model.generation = generation_defaults(folder, document)
    return model


def saved_class(document: Mapping[str, Any], layout: Layout) -> str:
    """Return the class that a folder says it holds, or the family's first."""
    known = [name for name in document.get("architectures") or () if name in layout.classes]
    return known[0] if known else next(iter(layout.classes))


def read_shards(folder: Path) -> list[tuple[str, Tensor]]:
    """Read all tensors of a folder, from one file or from the shards that its index names."""
    index = folder / "model.safetensors.index.json"
    if not index.is_file():
        return list(read_tensors(folder / "model.safetensors"))
    shards = read_json(index).get("weight_map")
    if not isinstance(shards, dict) or not all(isinstance(name, str) for name in shards.values()):
        raise InputError("weight_map is missing or not a table of file names", where=str(index),
                         remedy="copy the folder again")
    tensors: list[tuple[str, Tensor]] = []
    for name in sorted(set(shards.values())):
        if Path(name).name != name:
            raise InputError(f"the shard {name!r} is outside the folder", where=str(index),
                             remedy="do not use this folder")
        tensors += read_tensors(folder / name)
    return tensors


def copy_weights(model: Transformer, layout: Layout, source: dict[str, Tensor], where: str) -> None:
    """Fill every parameter by the layout's rules. Raises `InputError` with all faults at once."""
    rules, faults, used = layout.weights(model.config), [], set()
    for name, parameter in model.named_parameters():
        match = rules.match(name)
        if match is None:
            faults.append(f"{name} has no rule")
            continue
        foreign = [present(template, layout.base, source) for template in match.theirs]
        missing = [template for template, found in zip(match.theirs, foreign, strict=True) if found is None]
        if missing:
            faults.append(f"{', '.join(missing).replace(BASE, layout.base)} is missing")
            continue
        names = [found for found in foreign if found is not None]
        used.update(names)
        try:
            tensor = match.operation.ours([source[found] for found in names])
        except ValueError as error:
            faults.append(f"{', '.join(names)}: {error}")
            continue
        if tensor.shape != parameter.shape:
            faults.append(f"{', '.join(names)} gives {list(tensor.shape)} instead of {list(parameter.shape)}")
        else:
            parameter.data.copy_(tensor)
    faults += [f"{name} is unknown" for name in source if name not in used and not spare(name, layout, model.config)]
    if faults:
        raise InputError("; ".join(faults[:5]) + (f"; and {len(faults) - 5} more" if len(faults) > 5 else ""),
                         where=where,
                         remedy="the weights do not belong to this config.json")


def present(template: str, base: str, source: Mapping[str, Tensor]) -> str | None:
    """Return the name that stands in the file, with the body's prefix or without it."""
    for name in (template.replace(BASE, base), template.replace(BASE, "")):
        if name in source:
            return name
    return None


def spare(name: str, layout: Layout, tree: c.Transformer) -> bool:
    """Say whether an unused tensor may be left: a known copy, or a part of the whole family that this class has not."""
    short = BASE + name.removeprefix(layout.base) if layout.base and name.startswith(layout.base) else name
    rules = layout.weights(tree)
    if rules.ignores(name) or rules.ignores(short) or rules.ignores(BASE + name):
        return True
    return rules.knows(name) or rules.knows(short) or rules.knows(BASE + name)


def generation_defaults(folder: Path, document: Mapping[str, Any]) -> dict[str, Any]:
    """Return what generation reads: the config's special ids, overruled by generation_config.json."""
    found = {name: document[name] for name in SPECIAL_IDS if document.get(name) is not None}
    path = folder / "generation_config.json"
    if path.is_file():
        found |= {name: value for name,
                  value in read_json(path).items() if value is not None and name != "transformers_version"}
    return found


def write_foreign(model: Transformer, layout: Layout, folder: Path) -> None:
    """Write a model in a published layout, atomically. Raises `InputError` when the layout cannot express it."""
    document = layout.document(model.config)
    document |= {name: value for name, value in model.generation.items() if name in SPECIAL_IDS}
    document["dtype"] = str(next(model.parameters()).dtype).removeprefix("torch.")
    bare = document["architectures"][0] == layout.bare
    rules, tensors = layout.weights(model.config), {}
    for name, parameter in model.named_parameters():
        match = rules.match(name)
        if match is None:
            raise InputError(f"{name} has no place in the layout of {layout.model_type}", where="model",
                             remedy="save it in our own layout")
        for foreign, tensor in zip(match.theirs, match.operation.theirs(parameter.detach().cpu()), strict=True):
            tensors[foreign.replace(BASE, "" if bare else layout.base)] = tensor.contiguous()

    def write(temporary: Path) -> None:
        temporary.mkdir(parents=True)
        (temporary / "config.json").write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
        if model.generation:
            (temporary / "generation_config.json").write_text(json.dumps(model.generation, indent=2) + "\n",
                                                              encoding="utf-8")
        write_tensors(tensors, temporary / "model.safetensors")

    write_atomically(folder, write)
