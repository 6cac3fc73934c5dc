"""Checkpoints of a run, `checkpoints/step-N/`: written whole or not at all, found again, and checked before use.

A checkpoint is a model folder (so it can be loaded by itself) with the optimizer's state and `state.json` beside it. Of
a rewritten model it holds what learns and where the base is: an adapter, which can be loaded by itself, too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from saucier.adaptation.own_form import refill, write_own
from saucier.checkpoints.adapters import WEIGHTS
from saucier.checkpoints.model_folder import fill, stored_weights, write_model
from saucier.checkpoints.source import SAFE
from saucier.checkpoints.tensors import read_tensors, write_tensors
from saucier.errors import InputError
from saucier.files import remove, write_atomically, write_json
from saucier.model import Transformer
from saucier.plain import first_difference
from saucier.training.optimizers import Optimizer

FOLDER, BEST, AVERAGE, CARRIED = "checkpoints", "best.json", "average", "carried.safetensors"
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
    step: int
    loss: float


@dataclass(slots=True)
class State:
    """What a run must remember besides weights and optimizer; the data's place follows from the step."""

    step: int = 0
    """Updates done."""
    tokens: int = 0
    """Targets learned from."""
    tokens_read: int = 0
    """Tokens that the model read."""
    seconds: float = 0.0
    """Time spent, over all parts of the run."""
    best: Best | None = None
    stale: int = 0
    """Evaluations since the best one."""
    dtype: str = ""
    """Number format of the multiplications; a resumed run keeps it."""
    recipe: dict[str, Any] = field(default_factory=dict)
    """What the run was begun with."""

    @classmethod
    def read(cls, folder: Path) -> State:
        """Read it from a whole checkpoint."""
        values = json.loads((folder / "state.json").read_text(encoding="utf-8"))
        values.pop("files")
        best = values.pop("best")
        return cls(**values, best=Best(**best) if best else None)


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
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    sizes = {path.relative_to(folder).as_posix(): path.stat().st_size for path in files}
    (folder / "state.json").write_text(json.dumps({**asdict(state), "files": sizes}, indent=2) + "\n", encoding="utf-8")


def mark_best(run_folder: Path, best: Best) -> None:
    """Point to the best checkpoint, for those who load the run."""
    write_json(run_folder / FOLDER / BEST, asdict(best))


def damage(folder: Path) -> str | None:
    """Say what is wrong with a checkpoint; None when it is whole."""
    try:
        sizes = json.loads((folder / "state.json").read_text(encoding="utf-8"))["files"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        return f"state.json cannot be read ({type(error).__name__})"
    for name, size in sizes.items():
        path = folder / name
        found = path.stat().st_size if path.is_file() else 0
        if found != size:
            return f"{name} has {found} of {size} bytes"
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
        pointer = json.loads((run_folder / FOLDER / BEST).read_text(encoding="utf-8"))
        best = run_folder / FOLDER / str(pointer["name"])
        if damage(best) is None:
            return best
    except (OSError, ValueError, KeyError, TypeError):
        pass  # no evaluation yet, or the pointer is damaged: the newest one is as good
    found = latest(run_folder)
    if found is None:
        raise InputError("no whole checkpoint here", where=str(run_folder),
                         remedy="give a model folder, or a run folder whose training has saved")
    return found


def restore(folder: Path, model: Transformer, optimizer: Optimizer, modules: Modules = NO_MODULES) -> State:
    """Put a checkpoint's weights and state back. Raises `InputError` for files that do not belong to this model."""
    fill_from(model, folder)
    fill_modules(modules, folder)
    optimizer.load(dict(read_tensors(folder / "optimizer.safetensors")))
    return State.read(folder)


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
