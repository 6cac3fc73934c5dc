"""A model as a folder, in our own layout: the config tree and the weights under the names of the built model.

`config.json` holds `{"model_type": "saucier", "model": <tree>}`, and of parts from outside the kinds with their
packages and versions; tied weights are stored once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError
from torch import Tensor, nn

from saucier import config as c
from saucier.checkpoints.layout import MODEL_TYPE
from saucier.checkpoints.weight_files import SafeShard, write_tensors
from saucier.config.registry import name_packages, require_packages
from saucier.errors import InputError
from saucier.files import read_json
from saucier.model import Transformer, allocate_model, build_on_meta, retie_head
from saucier.parts.initialization import allocate_weights

FORMAT = 1
"""Raised when the layout changes in a way that older readers cannot read."""
QUANTIZATION = "quantization"
"""Key of the config that says which matrices are in few bits, and how."""
QUANTIZATION_FORMAT = 1
"""The same for what it holds."""
SHOWN = 160
"""Characters of a fault."""
WRITTEN = {"config.json", "generation_config.json", "model.safetensors"}
"""Files of a saved model, which another save may replace."""


def check_target_folder(folder: Path, replaceable: Collection[str]) -> None:
    """Raise `InputError` for a folder that holds something else than the files that may be replaced."""
    if not folder.exists():
        return
    others = {path.name for path in folder.iterdir()} - {*replaceable} if folder.is_dir() else {folder.name}
    if others:
        raise InputError(f"the folder holds something else ({min(others)})", where=str(folder),
                         remedy="give a new folder")


def write_model(model: Transformer, folder: Path, weights: Mapping[str, Tensor] | None = None) -> None:
    """Write the model's files into a folder, for callers who make the folder atomic themselves.

    `weights` replaces the model's own (averaged ones, master weights), under the same names.
    """
    folder.mkdir(parents=True, exist_ok=True)
    tree = model.config.model_dump(mode="json")
    document = {"model_type": MODEL_TYPE, "format": FORMAT, **name_packages(tree), **describe_quantized(model),
                "model": tree}
    (folder / "config.json").write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    if defaults := model.provenance.generation:
        (folder / "generation_config.json").write_text(json.dumps(defaults, indent=2) + "\n", encoding="utf-8")
    write_tensors(stored_weights(model) if weights is None else weights, folder / "model.safetensors")


def describe_quantized(model: nn.Module) -> dict[str, Any]:
    """Return what a config says of matrices in few bits, whose modules say it of themselves; empty where there are
    none.
    """
    found = {name: module.stored_as for name, module in model.named_modules() if hasattr(module, "stored_as")}
    return {QUANTIZATION: {"format": QUANTIZATION_FORMAT, "modules": found}} if found else {}


def stored_weights(model: nn.Module) -> dict[str, Tensor]:
    """Return every parameter once, under its first name, and the parts of matrices in few bits, contiguous and on the
    CPU.
    """
    return {name: tensor.detach().cpu().contiguous()
            for name, tensor in (*model.named_parameters(), *model.named_buffers())}


def read_config(folder: Path) -> c.Transformer:
    """Read the config tree of a folder in our layout. Raises `InputError` for anything else."""
    path = folder / "config.json"
    document = read_json(path)
    if document.get("model_type") != MODEL_TYPE:
        raise InputError(f"model_type {document.get('model_type')!r} is not known", where=str(path),
                         remedy=f"known: {MODEL_TYPE}")
    if document.get("format") != FORMAT:
        raise InputError(f"format {document.get('format')!r} is not {FORMAT}", where=str(path),
                         remedy="use the version of Saucier that wrote it")
    require_packages(document, str(path))
    try:
        return c.Transformer.model_validate(document.get("model"))
    except ValidationError as error:
        first = error.errors()[0]
        at = ".".join(str(part) for part in first["loc"])
        raise InputError(first["msg"], where=f"{path}: model.{at}",
                         remedy="the file was changed; write it again") from error


def read_own_model(folder: Path, *, dtype: torch.dtype | None, device: torch.device,
                   install: Callable[[Transformer, Any, str], None]) -> Transformer:
    """Build the model of a folder and fill it.

    `install` puts modules for matrices in few bits into a model of shapes, as the config's key says, whose value and
    place it is given. Raises `InputError` that lists every missing, unknown or misshapen weight.
    """
    config, document = read_config(folder), read_json(folder / "config.json")
    if QUANTIZATION in document:
        model = build_on_meta(config)
        install(model, document[QUANTIZATION], f"{folder / 'config.json'}: {QUANTIZATION}")
        allocate_weights(model, dtype=dtype or torch.float32, device=device)
        retie_head(model)
    else:
        model = allocate_model(config, dtype=dtype or torch.float32, device=device)
    fill_weights(model, folder / "model.safetensors")
    if (folder / "generation_config.json").is_file():
        model.generation = read_json(folder / "generation_config.json")
    return model


def fill_weights(model: nn.Module, path: Path, names: Collection[str] | None = None) -> None:
    """Copy a file into the parameters of a model, or those of these names, each exactly once.

    Raises `InputError` with all faults.
    """
    faults, shard = [], SafeShard(path)
    buffers = dict(model.named_buffers())
    expected = {name: one for name, one in (*model.named_parameters(), *buffers.items())
                if names is None or name in names}
    for name in shard.names():
        parameter, tensor = expected.pop(name, None), shard.get(name)
        if parameter is None:
            faults.append(f"{name} is unknown")
        elif parameter.shape != tensor.shape:
            faults.append(f"{name} is {list(tensor.shape)} instead of {list(parameter.shape)}")
        elif name in buffers and parameter.dtype != tensor.dtype:
            faults.append(f"{name} is {tensor.dtype} instead of {parameter.dtype}".replace("torch.", ""))
        else:
            shard.write(name, parameter.data)
    faults += [f"{name} is missing" for name in expected]
    if faults:
        raise weights_error(faults, str(path))


def weights_error(faults: Sequence[str], where: str) -> InputError:
    """Build the one error for all weights that do not fit."""
    return InputError(summarize_faults(faults), where=where, remedy="the weights do not belong to this config.json")


def summarize_faults(faults: Sequence[str]) -> str:
    """Write the first faults, and how many more there are; a hostile file has names of any length, so they are cut."""
    shown = "; ".join(fault[:SHOWN] for fault in faults[:5])
    return shown + (f"; and {len(faults) - 5} more" if len(faults) > 5 else "")
