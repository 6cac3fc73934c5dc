"""Checkpoints of a run, `checkpoints/step-N/`: written whole or not at all, found again, and checked before use.

A checkpoint is a model folder (so it can be loaded by itself) with the optimizer's state and `state.json` beside it. Of
a rewritten model it holds what learns and where the base is: an adapter, which can be loaded by itself, too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal

import torch
from pydantic import Field, TypeAdapter, ValidationError
from torch import Tensor, nn

from saucier.adaptation.own_form import refill, write_own
from saucier.checkpoints.adapters import WEIGHTS
from saucier.checkpoints.model_folder import fill, stored_weights, write_model
from saucier.checkpoints.source import SAFE
from saucier.checkpoints.tensors import read_tensors, write_tensors
from saucier.config.base import LARGEST
from saucier.errors import InputError
from saucier.files import read_object, remove, write_atomically, write_json
from saucier.model import Transformer
from saucier.plain import first_difference
from saucier.training.optimizers import Optimizer

FOLDER, BEST, AVERAGE, CARRIED = "checkpoints", "best.json", "average", "carried.safetensors"
SHOWN = 80
"""Letters of a key that an error shows."""
Count = Annotated[int, Field(ge=0, le=LARGEST)]
NAME = re.compile(r"step-(\d+)")
Json = Mapping[str, Any]
Modules = Mapping[str, nn.Module]
NO_MODULES: Modules = MappingProxyType({})
Tensors = Mapping[str, Tensor]
NOTHING: Tensors = MappingProxyType({})


@dataclass(slots=True)
class Best:
    """The evaluation with the lowest loss so far."""

    name: str
    """Folder of its checkpoint."""
    step: Count
    loss: float


@dataclass(slots=True)
class State:
    """What a run must remember besides weights and optimizer; the data's place follows from the step."""

    step: Count = 0
    """Updates done."""
    tokens: Count = 0
    """Targets learned from."""
    tokens_read: Count = 0
    """Tokens that the model read."""
    seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    """Time spent, over all parts of the run."""
    best: Best | None = None
    stale: Count = 0
    """Evaluations since the best one."""
    dtype: Literal["", "float32", "bfloat16"] = ""
    """Number format of the multiplications; a resumed run keeps it."""
    recipe: dict[str, Any] = field(default_factory=dict)
    """What the run was begun with."""

    @classmethod
    def read(cls, folder: Path) -> State:
        """Read it from a whole checkpoint. Raises `InputError` for a damaged one."""
        return sealed(folder)[0]


def save_checkpoint(run_folder: Path, model: Transformer, optimizer: Optimizer, state: State, *,
                    modules: Modules = NO_MODULES, carried: Tensors = NOTHING) -> Path:
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
        seal(folder, state)

    target = run_folder / FOLDER / f"step-{state.step}"
    write_atomically(target, write)
    return target


def write_weights(model: Transformer, folder: Path, weights: Mapping[str, Tensor] | None = None) -> None:
    """Write a model, or of a rewritten one what its base does not hold. `weights` are written in place of its own."""
    if model.rewrites:
        write_own(model, folder, weights=weights)
    else:
        write_model(model, folder, weights)


def weights_of(folder: Path) -> Path:
    """Return the file of a checkpoint's weights."""
    return folder / (WEIGHTS if (folder / WEIGHTS).is_file() else SAFE)


def fill_from(model: Transformer, folder: Path) -> None:
    """Put a checkpoint's weights into a model. Raises `InputError` for files that do not belong to it."""
    if model.rewrites:
        refill(model, folder)
    else:
        fill(model, folder / SAFE)


def seal(folder: Path, state: State) -> None:
    """Write `state.json` last, with the size of every other file, so that damage can be seen later."""
    (folder / "state.json").write_text(json.dumps({**asdict(state), "files": sizes_in(folder)}, indent=2) + "\n",
                                       encoding="utf-8")


def sizes_in(folder: Path) -> dict[str, int]:
    """Return the size of every file in a folder."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.stat().st_size for path in files}


def mark_best(run_folder: Path, best: Best) -> None:
    """Point to the best checkpoint, for those who load the run."""
    write_json(run_folder / FOLDER / BEST, asdict(best))


@cache
def adapters() -> tuple[TypeAdapter[dict[str, int]], TypeAdapter[State]]:
    """Return what checks the sizes of files and the state: made once, which takes longer than to use them."""
    return TypeAdapter(dict[str, Count]), TypeAdapter(State)


def sealed(folder: Path) -> tuple[State, dict[str, int]]:
    """Read what `seal` wrote: the state, and the sizes of the files. Raises `InputError` for a damaged one."""
    path = folder / "state.json"
    values = read_object(path, finite=False)  # a held-out loss may be infinite
    try:
        sizes = adapters()[0].validate_python(values.pop("files", None), strict=True)
        state = adapters()[1].validate_python(values)
    except ValidationError as error:
        first = error.errors()[0]
        at = ".".join(map(str, first["loc"]))[:SHOWN] or "files"
        raise InputError(f"is not the state of a run: {at}: {first['msg']}", where=str(path),
                         remedy="remove this checkpoint, so that the run goes on from the one before") from error
    if set(values) - {one.name for one in fields(State)} or "step" not in values or "recipe" not in values:
        raise InputError("is not the state of a run", where=str(path),
                         remedy="remove this checkpoint, so that the run goes on from the one before")
    return state, sizes


def damage(folder: Path) -> str | None:
    """Say what is wrong with a checkpoint; None when it is whole."""
    try:
        _, sizes = sealed(folder)
    except InputError as error:
        return f"state.json cannot be read ({error.what})"
    found = sizes_in(folder)  # a damaged name may be none that a folder takes: none is looked for
    for name, size in sizes.items():
        if found.get(name, 0) != size:
            return f"{name} has {found.get(name, 0)} of {size} bytes"
    return None


def checkpoints(run_folder: Path) -> list[Path]:
    """Return the step checkpoints of a run, whole or not, newest first."""
    found = {int(match[1]): path for path in (run_folder / FOLDER).glob("step-*")
             if (match := NAME.fullmatch(path.name))}
    return [found[step] for step in sorted(found, reverse=True)]


def latest(run_folder: Path, note: Callable[[str], None] = lambda text: None) -> Path | None:
    """Return the newest whole checkpoint; `note` hears of each damaged one that is passed over."""
    for folder in checkpoints(run_folder):
        reason = damage(folder)
        if reason is None:
            return folder
        note(f"{folder}: damaged, {reason}; falling back to the one before")
    return None


def usable_checkpoint(run_folder: Path) -> Path:
    """Return a run's best whole checkpoint, or else its newest. Raises `InputError` when there is none."""
    try:
        name = read_object(run_folder / FOLDER / BEST, finite=False).get("name")
        best = next((path for path in (run_folder / FOLDER).glob("*") if path.name == name), None)
        if best is not None and damage(best) is None:
            return best
    except InputError:
        pass  # the pointer is damaged: the newest one is as good
    found = latest(run_folder)
    if found is None:
        raise InputError("no whole checkpoint here", where=str(run_folder),
                         remedy="give a model folder, or a run folder whose training has saved")
    return found


def restore(folder: Path, model: Transformer, optimizer: Optimizer, modules: Modules = NO_MODULES) -> State:
    """Put a checkpoint's weights and state back. Raises `InputError` for files that do not belong to this model."""
    fill_from(model, folder)
    fill_modules(modules, folder)
    for module in (model, *modules.values()):
        refuse_infinite(module, folder)
    optimizer.load(dict(read_tensors(folder / "optimizer.safetensors")))
    return State.read(folder)


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


def fill_modules(modules: Modules, folder: Path) -> None:
    """Put the weights of an objective's modules back. Raises `InputError` for files that do not belong to them."""
    for name, module in modules.items():
        whole = isinstance(module, Transformer)
        fill(module, folder / name / "model.safetensors" if whole else folder / f"{name}.safetensors")


def holds_module(folder: Path, name: str) -> bool:
    """Whether a checkpoint has the weights of an objective's module."""
    return (folder / f"{name}.safetensors").is_file() or (folder / name / "model.safetensors").is_file()


def refuse_other(then: Json, now: Json, where: Path) -> None:
    """Raise `InputError`, naming the first key that differs, when a run was begun with another recipe."""
    found = first_difference(then, now)
    if found is not None:
        key, old, new = found
        raise InputError(f"this run was begun with another recipe: {key} was {old!r} and is now {new!r}",
                         where=str(where), remedy="resume with the run's own recipe, or give a new folder")


def after_save(run_folder: Path, keep: int, best: Best | None) -> None:
    """Point to the best checkpoint and remove what is no longer kept: once more after a kill in the middle of it."""
    if best is not None:
        mark_best(run_folder, best)
    prune(run_folder, keep, best)


def prune(run_folder: Path, keep: int, best: Best | None) -> None:
    """Remove all but the newest `keep` checkpoints and the best one, and what killed processes left half written."""
    for folder in checkpoints(run_folder)[keep:]:
        if best is None or folder.name != best.name:
            remove(folder)
    for leftover in (run_folder / FOLDER).glob(".*"):
        remove(leftover)


def average_weights(folders: list[Path]) -> dict[str, Tensor]:
    """Return the mean of the weights of several checkpoints, added up in float64. Source: Vaswani et al. 2017, §6.1."""
    total: dict[str, Tensor] = {}
    for folder in folders:
        for name, value in read_tensors(weights_of(folder)):
            total[name] = total[name] + value.double() if name in total else value.double()
    return {name: (value / len(folders)).to(torch.float32) for name, value in total.items()}


def save_average(run_folder: Path, model: Transformer, weights: Mapping[str, Tensor], state: State) -> Path:
    """Write averaged weights as `checkpoints/average`, a model folder without an optimizer."""
    def write(folder: Path) -> None:
        write_weights(model, folder, weights)
        seal(folder, state)

    target = run_folder / FOLDER / AVERAGE
    write_atomically(target, write)
    return target
