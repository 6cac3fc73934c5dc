"""Saving and resuming a training run: model, optimizer, objective modules and state, into and out of a checkpoint
folder.

`checkpoints.steps` says which checkpoint is whole, best or newest. A checkpoint is a model folder (it can
be loaded by itself); of a rewritten model it is an adapter, which can be loaded by itself, too.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from saucier.adaptation.own_adapter import fill_learned, learned_values, write_own_adapter
from saucier.checkpoints.own_folder import fill_weights, stored_weights, write_model
from saucier.checkpoints.steps import AVERAGE, CARRIED, FOLDER, TrainingState, weights_file, write_state
from saucier.checkpoints.weight_files import SAFE, read_tensors, write_tensors
from saucier.errors import InputError
from saucier.files import write_atomically
from saucier.model import Transformer
from saucier.objectives.base import Objective
from saucier.plain import first_difference
from saucier.training.optimizers import Optimizer
from saucier.training.processes import Processes

Json = Mapping[str, Any]
Modules = Mapping[str, nn.Module]
Tensors = Mapping[str, Tensor]


@dataclass(frozen=True, slots=True)
class CheckpointTensors:
    """All tensors of a checkpoint, whole; nothing on a process that does not write."""

    weights: Tensors
    """Of the model; of a rewritten one what its base does not hold."""
    optimizer: Tensors
    modules: Mapping[str, Tensors]
    """Of each module of the objective."""
    carried: Tensors
    """What the objective carries from step to step, the rows of all processes."""


def collect_tensors(model: Transformer, optimizer: Optimizer, objective: Objective,
                    processes: Processes) -> CheckpointTensors:
    """Gather what a checkpoint holds. Every process calls this, and in the same order."""
    take = learned_values if model.provenance.rewrites else stored_weights
    return CheckpointTensors(processes.gather_state(partial(take, model)), processes.gather_state(optimizer.state),
                             {name: processes.gather_state(partial(stored_weights, module))
                              for name, module in objective.modules.items()},
                             processes.gather_rows(objective.carried.state()))


def write_checkpoint(run_folder: Path, model: Transformer, modules: Modules, found: CheckpointTensors,
                     state: TrainingState) -> None:
    """Write `checkpoints/step-N` atomically. Raises `WorkError` when the disk is full; older checkpoints stay.

    `modules`: those of the objective. A model among them gets a model folder of its own, `step-N/NAME`.
    """
    def write(folder: Path) -> None:
        write_weights(model, folder, found.weights)
        for name, module in modules.items():
            if isinstance(module, Transformer):
                write_model(module, folder / name, found.modules[name])
            else:
                write_tensors(found.modules[name], folder / f"{name}.safetensors")
        write_tensors(found.optimizer, folder / "optimizer.safetensors")
        if found.carried:
            write_tensors(found.carried, folder / CARRIED)
        write_state(folder, state)

    write_atomically(run_folder / FOLDER / f"step-{state.step}", write)


def write_weights(model: Transformer, folder: Path, weights: Tensors) -> None:
    """Write a model with these weights; of a rewritten one, they are what its base does not hold."""
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


def restore_checkpoint(folder: Path, model: Transformer, optimizer: Optimizer, objective: Objective,
                       processes: Processes) -> TrainingState:
    """Put a checkpoint's weights and state back.

    Raises `InputError` for files that do not belong to this model, and for weights that no training saves.
    """
    load_weights_into(model, folder)
    load_modules(objective.modules, folder)
    for module in (model, *objective.modules.values()):
        for name, parameter in module.named_parameters():
            if parameter.is_floating_point() and not bool(parameter.detach().isfinite().all()):
                raise InputError(f"{name} holds numbers that are not finite", where=str(folder),
                                 remedy="remove this checkpoint, so that the run goes on from the one before")
    optimizer.load(dict(read_tensors(folder / "optimizer.safetensors")))
    state = TrainingState.read(folder)
    carried = dict(read_tensors(folder / CARRIED)) if (folder / CARRIED).is_file() else {}
    if carried:
        mine, first = processes.scatter_rows(carried)
        device = next(model.parameters()).device
        numbers = range(first, first + len(next(iter(mine.values()))))
        objective.carried.put(numbers, {name: rows.to(device) for name, rows in mine.items()})
    return state


def load_modules(modules: Modules, folder: Path) -> None:
    """Put the weights of an objective's modules back. Raises `InputError` for files that do not belong to them."""
    for name, module in modules.items():
        whole = isinstance(module, Transformer)
        fill_weights(module, folder / name / "model.safetensors" if whole else folder / f"{name}.safetensors")


def refuse_other_recipe(then: Json, now: Json, where: Path, may_differ: Collection[str] = ()) -> None:
    """Raise `InputError`, naming the first key that differs, when a run was started with another recipe.

    `may_differ`: paths such as `training.steps` that need not be equal.
    """
    found = first_difference(without_paths(then, may_differ), without_paths(now, may_differ))
    if found is not None:
        key, old, new = found
        raise InputError(f"this run was begun with another recipe: {key} was {old!r} and is now {new!r}",
                         where=str(where), remedy="resume with the run's own recipe, or give a new folder")


def without_paths(values: Json, paths: Collection[str]) -> dict[str, Any]:
    """Return nested values without those at some paths."""
    keys = [path.split(".", 1) for path in paths]
    inside = {key: [rest[0] for first, *rest in keys if first == key and rest] for key, *_ in keys}
    return {key: without_paths(value, inside[key]) if key in inside and isinstance(value, Mapping) else value
            for key, value in values.items() if [key] not in keys}


def average_weights(folders: list[Path]) -> dict[str, Tensor]:
    """Return the mean of the weights of several checkpoints, added up in float64. Source: Vaswani et al. 2017, §6.1."""
    total: dict[str, Tensor] = {}
    for folder in folders:
        for name, value in read_tensors(weights_file(folder)):
            total[name] = total[name] + value.double() if name in total else value.double()
    return {name: (value / len(folders)).to(torch.float32) for name, value in total.items()}


def write_average(run_folder: Path, model: Transformer, weights: Tensors, state: TrainingState) -> None:
    """Write averaged weights as `checkpoints/average`, a model folder without an optimizer."""
    def write(folder: Path) -> None:
        write_weights(model, folder, weights)
        write_state(folder, state)

    write_atomically(run_folder / FOLDER / AVERAGE, write)
