"""Saving and resuming a training run: model, optimizer, objective modules and state, into and out of a checkpoint
folder.

Which checkpoint is whole, best or newest is asked of `checkpoints.steps`. A checkpoint is a model folder (it can
be loaded by itself); of a rewritten model it is an adapter, which can be loaded by itself, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from saucier.adaptation.own_adapter import fill_learned, write_own_adapter
from saucier.checkpoints.own_folder import fill_weights, stored_weights, write_model
from saucier.checkpoints.steps import AVERAGE, CARRIED, FOLDER, TrainingState, weights_file, write_state
from saucier.checkpoints.weight_files import SAFE, read_tensors, write_tensors
from saucier.errors import InputError
from saucier.files import write_atomically
from saucier.model import Transformer
from saucier.plain import first_difference
from saucier.training.optimizers import Optimizer

Json = Mapping[str, Any]
Modules = Mapping[str, nn.Module]
NO_MODULES: Modules = MappingProxyType({})
Tensors = Mapping[str, Tensor]
NO_TENSORS: Tensors = MappingProxyType({})


def save_checkpoint(run_folder: Path, model: Transformer, optimizer: Optimizer, state: TrainingState, *,
                    modules: Modules = NO_MODULES, carried: Tensors = NO_TENSORS) -> Path:
    """Write `checkpoints/step-N` atomically. Raises `WorkError` when the disk is full; older checkpoints stay.

    `modules`: those of the objective. A model among them gets a model folder of its own, `step-N/NAME`. `carried`: what
    the objective carries from step to step, of all processes.
    """
    def write(folder: Path) -> None:
        write_weights(model, folder)
        for name, module in modules.items():
            if isinstance(module, Transformer):
                write_model(module, folder / name)
            else:
                write_tensors(stored_weights(module), folder / f"{name}.safetensors")
        write_tensors(optimizer.state(), folder / "optimizer.safetensors")
        if carried:
            write_tensors(carried, folder / CARRIED)
        write_state(folder, state)

    target = run_folder / FOLDER / f"step-{state.step}"
    write_atomically(target, write)
    return target


def write_weights(model: Transformer, folder: Path, weights: Mapping[str, Tensor] | None = None) -> None:
    """Write a model, or of a rewritten one what its base does not hold. `weights` are written in place of its own."""
    if model.provenance.rewrites:
        write_own_adapter(model, folder, weights=weights)
    else:
        write_model(model, folder, weights)


def load_weights_into(model: Transformer, folder: Path) -> None:
    """Put a checkpoint's weights into a model. Raises `InputError` for files that do not belong to it."""
    if model.provenance.rewrites:
        fill_learned(model, folder)
    else:
        fill_weights(model, folder / SAFE)


def restore_checkpoint(folder: Path, model: Transformer, optimizer: Optimizer,
                       modules: Modules = NO_MODULES) -> TrainingState:
    """Put a checkpoint's weights and state back. Raises `InputError` for files that do not belong to this model."""
    load_weights_into(model, folder)
    load_modules(modules, folder)
    for module in (model, *modules.values()):
        refuse_infinite(module, folder)
    optimizer.load(dict(read_tensors(folder / "optimizer.safetensors")))
    return TrainingState.read(folder)


def refuse_infinite(module: nn.Module, folder: Path) -> None:
    """Raise `InputError` for weights that no training saves."""
    for name, parameter in module.named_parameters():
        if parameter.is_floating_point() and not bool(parameter.detach().isfinite().all()):
            raise InputError(f"{name} holds numbers that are not finite", where=str(folder),
                             remedy="remove this checkpoint, so that the run goes on from the one before")


def read_carried(folder: Path) -> dict[str, Tensor]:
    """Read what an objective carried when a checkpoint was saved; nothing, mostly."""
    path = folder / CARRIED
    return dict(read_tensors(path)) if path.is_file() else {}


def load_modules(modules: Modules, folder: Path) -> None:
    """Put the weights of an objective's modules back. Raises `InputError` for files that do not belong to them."""
    for name, module in modules.items():
        whole = isinstance(module, Transformer)
        fill_weights(module, folder / name / "model.safetensors" if whole else folder / f"{name}.safetensors")


def holds_module(folder: Path, name: str) -> bool:
    """Whether a checkpoint has the weights of an objective's module."""
    return (folder / f"{name}.safetensors").is_file() or (folder / name / "model.safetensors").is_file()


def refuse_other_recipe(then: Json, now: Json, where: Path) -> None:
    """Raise `InputError`, naming the first key that differs, when a run was begun with another recipe."""
    found = first_difference(then, now)
    if found is not None:
        key, old, new = found
        raise InputError(f"this run was begun with another recipe: {key} was {old!r} and is now {new!r}",
                         where=str(where), remedy="resume with the run's own recipe, or give a new folder")


def average_weights(folders: list[Path]) -> dict[str, Tensor]:
    """Return the mean of the weights of several checkpoints, added up in float64. Source: Vaswani et al. 2017, §6.1."""
    total: dict[str, Tensor] = {}
    for folder in folders:
        for name, value in read_tensors(weights_file(folder)):
            total[name] = total[name] + value.double() if name in total else value.double()
    return {name: (value / len(folders)).to(torch.float32) for name, value in total.items()}


def save_average(run_folder: Path, model: Transformer, weights: Mapping[str, Tensor], state: TrainingState) -> Path:
    """Write averaged weights as `checkpoints/average`, a model folder without an optimizer."""
    def write(folder: Path) -> None:
        write_weights(model, folder, weights)
        write_state(folder, state)

    target = run_folder / FOLDER / AVERAGE
    write_atomically(target, write)
    return target
