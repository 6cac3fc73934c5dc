"""Reading and writing folders in a published layout: config fields by its keys, weights by its rules.

Every parameter of ours is filled exactly once, every foreign tensor is used, ignored by name, or belongs to a
head that was not requested; all faults come in one error.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from saucier import config as c
from saucier.checkpoints.adapter_folder import Source
from saucier.checkpoints.fields import SPECIAL_IDS, put
from saucier.checkpoints.layout import QUANTIZATION, Layout, class_of, saved_class
from saucier.checkpoints.own_folder import stored_weights, weights_error
from saucier.checkpoints.published_names import (
    BASE,
    PublishedNames,
    find_stored_names,
    read_generation_defaults,
    resolve_names,
    unlimited_top_k,
)
from saucier.checkpoints.sentence_folder import is_sentence_head, write_modules
from saucier.checkpoints.weight_files import check_shape, widest_dtype, write_tensors
from saucier.checkpoints.weight_names import Concat, Operation, Same, Table
from saucier.errors import InputError
from saucier.model import Transformer, allocate_model, build_on_meta, retie_head
from saucier.parts.initialization import allocate_weights
from saucier.parts.positions import SinusoidalPositions
from saucier.parts.provenance import Provenance

TABLE_TOLERANCE = 1e-3
"""How far a stored copy of a fixed table may be from what it must hold: they may have been stored in half precision."""


@dataclass(frozen=True, slots=True)
class PublishedFolder:
    """A model in a published layout: where it is, the layout that its config names, and the config."""

    path: Path
    """A folder, or a file that is read as one."""
    layout: Layout
    document: Mapping[str, Any]
    quantization: Any = None
    """What the config says of matrices in few bits, which is not in `document`; None: there are none."""

    def name_weights(self, model: Transformer) -> PublishedNames:
        """Return the published names of the weights of a model that was built from this folder."""
        return PublishedNames(self.layout.choose_layout(self.layout, self.document), model.config,
                              model.provenance.document["architectures"][0])


def build_published(folder: PublishedFolder, source: Source, *, published: str | None, dtype: torch.dtype | None,
                    device: torch.device,
                    install: Callable[[Transformer, PublishedNames], None] | None = None) -> Transformer:
    """Build the model of a published folder as one of its classes (None: the one that was saved).

    `source`: the folder's weights, which an adapter may have changed. `install` puts modules that hold matrices in few
    bits into the model while it has shapes alone; these need nothing of the source any more.
    """
    document = folder.document
    where = str(folder.path if folder.path.is_file() else folder.path / "config.json")
    if folder.quantization is not None and install is None:
        raise InputError(f"the weights are in few bits ({QUANTIZATION}), and here they must be in float", where=where,
                         remedy="use the folder in float")
    name = (saved_class(document, folder.layout, where) if published is None
            else class_of(folder.layout, document, published, where))
    names = resolve_names(folder.layout, document, name, source, where)
    if install is None:
        model = allocate_model(names.tree, dtype=dtype or torch.float32, device=device)
    else:
        model = build_on_meta(names.tree)
        install(model, names)
        allocate_weights(model, dtype=dtype or torch.float32, device=device)
        retie_head(model)
    copy_weights(model, names, source, str(folder.path))
    model.provenance = Provenance(document={**document, "architectures": [name]},
                                  generation=read_generation_defaults(folder.path, document),
                                  unread={one: source[one].clone() for one in names.rules.carried if one in source})
    return model


def copy_weights(model: Transformer, names: PublishedNames, source: Source, where: str) -> None:
    """Fill every parameter by the layout's rules. Raises `InputError` with all faults at once."""
    faults: list[str] = []
    used: set[str] = set()
    for name, parameter in model.named_parameters():
        match = names.rules.match(name)
        if match is None:
            faults.append(f"{name} has no rule")
            continue
        found = find_stored_names(names, match, source)
        if match.absent is not None and not any(found):
            parameter.data.fill_(match.absent)
            continue
        given = [name for name in found if name is not None]
        if given != found:
            missing = [template for template, name in zip(match.foreign, found, strict=True) if name is None]
            faults.append(f"{', '.join(missing).replace(BASE, names.layout.base)} is missing")
            continue
        used.update(given)
        try:
            write_parameter(match.operation, source, given, parameter.data)
        except (ValueError, RuntimeError, IndexError) as error:
            faults.append(f"{', '.join(given)}: {error}")
    faults += [*find_wrong_tables(names, source),
               *(f"{name} is unknown" for name in source if name not in used and not names.spare(name))]
    if faults:
        raise weights_error(faults, where)


def write_parameter(operation: Operation, source: Source, given: Sequence[str], target: Tensor) -> None:
    """Write what an operation makes of foreign tensors into a parameter; those that are parts of it go straight there.

    Raises `ValueError` where the shapes do not fit.
    """
    match operation:
        case Same() | Concat():  # not turned ones: PyTorch turns a whole matrix much faster than its rows
            for name, part in zip(given, operation.theirs(target), strict=True):
                source.write(name, part)
        case _:
            target.copy_(check_shape(operation.ours([source[name] for name in given]), target))


def find_wrong_tables(names: PublishedNames, source: Source) -> list[str]:
    """Return a fault for each stored copy of a fixed table that holds something else."""
    faults = []
    for table in names.rules.tables:
        name = names.present(table.name, source)
        if name is None:
            continue
        values, stored = compute_table(table), source[name].float()
        if stored.shape != values.shape or not torch.allclose(stored, values, atol=TABLE_TOLERANCE):
            faults.append(f"{name} is not the table that the config says")
    return faults


def compute_table(table: Table) -> Tensor:
    """Return all rows of a table of fixed positions. Shapes: -> [length, D]."""
    assert table.positions.length is not None, "a stored table has an end"
    rows: Tensor = SinusoidalPositions(table.positions, table.width)(torch.arange(table.positions.length)[None])[0]
    return rows.cpu()


def express_model(model: Transformer, layout: Layout) -> tuple[PublishedNames, dict[str, Any]]:
    """Return the names of a model's weights in a layout, and its config there.

    Names of outputs are taken over from any layout. Raises `InputError` when the layout cannot express the model.
    """
    said, config = model.provenance.document, model.config
    tree = put(config, {"head": None}) if is_sentence_head(config.head) else config  # its maps have files of their own
    if model.provenance.model_type != layout.model_type:
        named = said.get("id2label")
        agree = isinstance(named, dict) and len(named) == getattr(model.config.head, "classes", None)
        said = {name: said[name] for name in ("id2label", "label2id") if agree and name in said}
    document = layout.document(tree, said)
    return PublishedNames(layout.choose_layout(layout, document), tree, document["architectures"][0]), document


def list_published_tensors(weights: Mapping[str, Tensor], names: PublishedNames,
                           config: c.Transformer) -> dict[str, Tensor]:
    """Return the weights of a model of this config under their published names.

    Raises `InputError` for one that has no place.
    """
    tensors, base = {}, names.layout.base_of(names.published)
    for name, tensor in weights.items():
        if names.tree is not config and name.startswith("head."):
            continue
        match = names.rules.match(name)
        if match is None:
            raise InputError(f"{name} has no place in the layout of {names.layout.model_type}", where="model",
                             remedy="save it in our own layout")
        for foreign, part in zip(match.foreign, match.operation.theirs(tensor), strict=True):
            tensors[foreign.replace(BASE, base)] = part.contiguous()
    for table in names.rules.tables:
        if table.name not in names.layout.classes[names.published].unwritten:
            tensors[table.name.replace(BASE, base)] = compute_table(table).to(widest_dtype(weights))
    return tensors


def write_published(model: Transformer, names: PublishedNames, document: dict[str, Any], folder: Path,
                    weights: Mapping[str, Tensor] | None = None, more: Mapping[str, Tensor] | None = None) -> None:
    """Write a model's files in a published layout, for callers who make the folder atomic themselves.

    `names` and `document` are those of `express_model`. `weights` replaces the model's own, under our names; `more` are
    further tensors, under published names.
    """
    came_from, weights = model.provenance, stored_weights(model) if weights is None else weights
    said = names.layout.fields(names.published) & document.keys()
    document |= {name: value for name, value in came_from.generation.items()
                 if name in SPECIAL_IDS and name not in said}
    document["dtype"] = str(widest_dtype(weights)).removeprefix("torch.")
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    if came_from.generation:
        generation = {**came_from.generation, **unlimited_top_k(came_from.generation)}
        (folder / "generation_config.json").write_text(json.dumps(generation, indent=2) + "\n", encoding="utf-8")
    write_tensors({**list_published_tensors(weights, names, model.config), **(more or {}),
                   **{name: tensor for name, tensor in came_from.unread.items() if name in names.rules.carried}},
                  folder / "model.safetensors")
    if is_sentence_head(model.config.head):
        write_modules(model.config, folder, weights)
