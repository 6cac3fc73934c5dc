"""The checkpoints of a run, `checkpoints/step-N/`: their state and file sizes in `state.json`, which of them is
whole, newest or best, and which are removed. Knows neither models nor optimizers; `training.resume` writes and
restores them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError

from saucier.checkpoints.adapter_folder import WEIGHTS
from saucier.checkpoints.weight_files import SAFE
from saucier.config.base import LARGEST_NUMBER
from saucier.errors import InputError
from saucier.files import read_object, remove_path, write_json

FOLDER, BEST, AVERAGE, CARRIED = "checkpoints", "best.json", "average", "carried.safetensors"
SHOWN = 80
"""Letters of a key that an error shows."""
Count = Annotated[int, Field(ge=0, le=LARGEST_NUMBER)]
STEP_NAME = re.compile(r"step-(\d+)")


@dataclass(slots=True)
class BestCheckpoint:
    """The best evaluation so far: that with the lowest loss, or by whatever else checkpoints are chosen."""

    name: str
    """Folder of its checkpoint."""
    step: Count
    loss: float
    badness: float | None = None
    """What it was chosen by, the lowest; None: the loss."""


@dataclass(slots=True)
class TrainingState:
    """What a run must remember in addition to weights and optimizer; the data's place follows from the step."""

    step: Count = 0
    """Updates done."""
    tokens: Count = 0
    """Targets learned from."""
    tokens_read: Count = 0
    """Tokens that the model read."""
    seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    """Time spent, over all parts of the run."""
    best: BestCheckpoint | None = None
    stale: Count = 0
    """Evaluations since the best one."""
    dtype: Literal["", "float32", "bfloat16"] = ""
    """Number format of the multiplications; a resumed run keeps it."""
    recipe: dict[str, Any] = field(default_factory=dict)
    """The recipe that the run was started with."""

    @classmethod
    def read(cls, folder: Path) -> TrainingState:
        """Read it from a whole checkpoint. Raises `InputError` for a damaged one."""
        return read_state(folder)[0]


def weights_file(folder: Path) -> Path:
    """Return the file of a checkpoint's weights."""
    return folder / (WEIGHTS if (folder / WEIGHTS).is_file() else SAFE)


def write_state(folder: Path, state: TrainingState) -> None:
    """Write `state.json` last, with the size of every other file, so that damage can be seen later."""
    (folder / "state.json").write_text(json.dumps({**asdict(state), "files": file_sizes(folder)}, indent=2) + "\n",
                                       encoding="utf-8")


def file_sizes(folder: Path) -> dict[str, int]:
    """Return the size of every file in a folder."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.stat().st_size for path in files}


def mark_best(run_folder: Path, best: BestCheckpoint) -> None:
    """Point to the best checkpoint, for those who load the run."""
    write_json(run_folder / FOLDER / BEST, asdict(best))


@cache
def state_adapters() -> tuple[TypeAdapter[dict[str, int]], TypeAdapter[TrainingState]]:
    """Return what checks the sizes of files and the state: made once, which takes longer than to use them."""
    return TypeAdapter(dict[str, Count]), TypeAdapter(TrainingState)


def read_state(folder: Path) -> tuple[TrainingState, dict[str, int]]:
    """Read what `write_state` wrote: the state, and the sizes of the files. Raises `InputError` for a damaged one."""
    path = folder / "state.json"
    values = read_object(path, finite=False)  # a held-out loss may be infinite
    try:
        sizes = state_adapters()[0].validate_python(values.pop("files", None), strict=True)
        state = state_adapters()[1].validate_python(values)
    except ValidationError as error:
        first = error.errors()[0]
        at = ".".join(map(str, first["loc"]))[:SHOWN] or "files"
        raise InputError(f"is not the state of a run: {at}: {first['msg']}", where=str(path),
                         remedy="remove this checkpoint, so that the run goes on from the one before") from error
    if set(values) - {one.name for one in fields(TrainingState)} or "step" not in values or "recipe" not in values:
        raise InputError("is not the state of a run", where=str(path),
                         remedy="remove this checkpoint, so that the run goes on from the one before")
    return state, sizes


def find_damage(folder: Path) -> str | None:
    """Say what is wrong with a checkpoint; None when it is whole."""
    try:
        _, sizes = read_state(folder)
    except InputError as error:
        return f"state.json cannot be read ({error.what})"
    found = file_sizes(folder)  # a damaged name may be none that a folder takes: none is looked for
    for name, size in sizes.items():
        if found.get(name, 0) != size:
            return f"{name} has {found.get(name, 0)} of {size} bytes"
    return None


def list_checkpoints(run_folder: Path) -> list[Path]:
    """Return the step checkpoints of a run, whole or not, newest first."""
    found = {int(match[1]): path for path in (run_folder / FOLDER).glob("step-*")
             if (match := STEP_NAME.fullmatch(path.name))}
    return [found[step] for step in sorted(found, reverse=True)]


def latest_checkpoint(run_folder: Path, note: Callable[[str], None] = lambda text: None) -> Path | None:
    """Return the newest whole checkpoint; `note` is called with each damaged one that is passed over."""
    for folder in list_checkpoints(run_folder):
        reason = find_damage(folder)
        if reason is None:
            return folder
        note(f"{folder}: damaged, {reason}; falling back to the one before")
    return None


def usable_checkpoint(run_folder: Path) -> Path:
    """Return a run's best whole checkpoint, or else its newest. Raises `InputError` when there is none."""
    try:
        name = read_object(run_folder / FOLDER / BEST, finite=False).get("name")
        best = next((path for path in (run_folder / FOLDER).glob("*") if path.name == name), None)
        if best is not None and find_damage(best) is None:
            return best
    except InputError:
        pass  # the pointer is damaged: the newest one is as good
    found = latest_checkpoint(run_folder)
    if found is None:
        inside = sorted(path.parent.name for path in run_folder.glob("*/config.json"))
        raise InputError("no whole checkpoint here", where=str(run_folder), remedy=(
            f"{run_folder / inside[0]} looks like a model" if inside
            else "give a model folder, or a run folder whose training has saved"))
    return found


def mark_and_prune(run_folder: Path, keep: int, best: BestCheckpoint | None) -> None:
    """Point to the best checkpoint, and remove all but it and the newest `keep`, and what killed processes left half
    written; it may be called once more after a kill in the middle of it.
    """
    if best is not None:
        mark_best(run_folder, best)
    for folder in list_checkpoints(run_folder)[keep:]:
        if best is None or folder.name != best.name:
            remove_path(folder)
    for leftover in (run_folder / FOLDER).glob(".*"):
        remove_path(leftover)
