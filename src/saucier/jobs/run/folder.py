"""A job and its folder: who may write into it, its copy of standard input, and the job under way in it. No run ever
overwrites another.

Standard input can be read once only: a run keeps a copy of it, so that it can be resumed and repeated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Literal, Protocol, TypeVar

import yaml

from saucier.errors import InputError
from saucier.files import find_free_name, is_file, is_taken, list_entries, write_text
from saucier.jobs.run.console import Console
from saucier.jobs.run.passport import Passport, utc_now
from saucier.lens.subject import DESCRIPTIVE
from saucier.opened import PASSPORT_FILE, RunFolder
from saucier.plain import Difference, first_difference
from saucier.recipes import Recipe, recipe
from saucier.text.config import LanguageData
from saucier.text.reading.memory_rows import ROWS_FOLDER
from saucier.text.reading.sources import is_standard_input
from saucier.training.hyperparameters import Training
from saucier.training.processes import Processes
from saucier.training.progress import Reporter, choose_screen, shows_bar

SECTIONS_AFTER_TRAINING = ("evaluation", "sampling")
"""Sections that do not change what is learned; a run that was stopped may go on with others."""
HARMLESS_TRAINING_KEYS = ("micro_batch", "log_every", "keep", "events", "reporters", "save_every", "compile")
"""Keys of `training` that do not, either."""
Settings = TypeVar("Settings", bound="JobSettings")
RunState = Literal["new", "resumed", "finished"]


class JobSettings(Protocol):
    """What a job is to do."""

    @property
    def name(self) -> str:
        """The name of its folder."""

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, as they are in its file."""


@dataclass(frozen=True, slots=True)
class JobKind(Generic[Settings]):
    """What is in the folders of one kind of job, and what distinguishes two jobs of it."""

    settings: str
    """The file of the settings; with it a job is started."""
    last: str
    """The file that is written last; with it a job is finished."""
    header: str
    """The first line of the settings, for a person."""
    read: Callable[[Path], Settings]
    """Reads the settings."""
    essential: Callable[[Settings, bool], dict[str, Any]]
    """Returns what decides the outcome of a job: of an unfinished one, or (True) of a finished one."""
    other: str
    """What a folder with other settings holds."""
    foreign: str
    """What a folder without settings holds."""
    remedy: str = "give a new folder with --out"
    unstarted: tuple[str, ...] = ()
    """Files of a job of which nothing came, so that another one may take its folder; none: it never may."""

    def is_started(self, path: Path) -> bool:
        """Say whether a job of this kind was started in a folder."""
        return is_file(path / self.settings)

    def is_unstarted(self, path: Path) -> bool:
        """Say whether nothing came of the job in a folder."""
        return all(one.name in self.unstarted for one in list_entries(path))

    def difference(self, path: Path, settings: Settings) -> Difference | None:
        """Return the first key in which the job in a folder differs from the given settings."""
        whole = (path / self.last).is_file()
        return first_difference(self.essential(self.read(path / self.settings), whole), self.essential(settings, whole))


def open_or_create(path: Path, settings: Settings, kind: JobKind[Settings]) -> RunState:
    """Say whether a job begins in a folder, goes on there, or is finished. Nothing is written.

    Raises `InputError` for a folder with another job, or with anything else in it.
    """
    for place in (path, *path.parents):
        if place.exists() and not place.is_dir():
            raise InputError("is a file", where=str(place), remedy="give a new folder with --out")
    if not kind.is_started(path):
        if is_taken(path) and [one.name for one in list_entries(path)] != [ROWS_FOLDER]:  # rows from memory come first
            raise InputError(f"holds files that are {kind.foreign}", where=str(path),
                             remedy="give a new folder with --out")
        return "new"
    found = kind.difference(path, settings)
    if found is None:
        return "finished" if (path / kind.last).is_file() else "resumed"
    if kind.is_unstarted(path):
        return "new"
    key, old, new = found
    raise InputError(f"holds {kind.other}: {key} is {old!r} there, and {new!r} here", where=str(path),
                     remedy=kind.remedy)


def write_settings(path: Path, settings: Settings, kind: JobKind[Settings]) -> None:
    """Write the settings of a job into its folder."""
    write_text(path / kind.settings, kind.header + yaml.safe_dump(settings.as_dict(), sort_keys=False,
                                                                  allow_unicode=True, width=120))


def default_folder(settings: Settings, kind: JobKind[Settings], parent: Path = Path("runs")) -> Path:
    """Return `runs/NAME`, or the first of `runs/NAME-2`, ... that does not hold something else."""

    def holds_another(path: Path) -> bool:
        if not kind.is_started(path):
            return is_taken(path)
        try:
            return kind.difference(path, settings) is not None and not kind.is_unstarted(path)
        except InputError:
            return True  # of another version: leave it alone

    return find_free_name(parent / settings.name, holds_another)


def essential_settings(recipe: Recipe, whole: bool = False) -> dict[str, Any]:
    """Return what decides the weights that a run ends with; the `whole` result, with what is done after training."""
    without = DESCRIPTIVE if whole else DESCRIPTIVE + SECTIONS_AFTER_TRAINING
    values = {key: value for key, value in recipe.as_dict().items() if key not in without}
    values["training"] = {key: value for key, value in values["training"].items() if key not in HARMLESS_TRAINING_KEYS}
    return values


PRETRAINING = JobKind(
    settings="recipe.yaml", last="evaluation.json",
    header="# The recipe of this run, with every value. `saucier cook` goes on with it, `saucier rerun` repeats it.\n",
    read=recipe, essential=essential_settings, other="a run of another recipe", foreign="not a run",
    remedy="give a new folder with --out, and --from with this one to begin with its weights",
    unstarted=("recipe.yaml", PASSPORT_FILE))


def open_run(path: Path, settings: Recipe) -> tuple[RunFolder, RunState]:
    """Begin a run in a new or empty folder, or go on with the same one. Raises `InputError` as `open_or_create`."""
    state = open_or_create(path, settings, PRETRAINING)
    if state == "new":
        (path / PASSPORT_FILE).unlink(missing_ok=True)
    if state != "finished":
        write_settings(path, settings, PRETRAINING)
    return RunFolder(path), state


COPY_NAME = "input"


def copy_path(name: str, out: Path) -> Path:
    """Return where a run keeps its copy."""
    return out.absolute() / (COPY_NAME + (name[1:] or ".txt"))


def with_copied_input(recipe: Recipe, out: Path) -> Recipe:
    """Return the recipe with standard input replaced by the run's copy of it. Raises `InputError` among languages."""
    if isinstance(recipe.data, LanguageData):
        if any(map(is_standard_input, recipe.data.files)):
            raise InputError("standard input is no file of one language among several", where="data.languages",
                             remedy="write it to a file first")
        return recipe
    files = tuple(str(copy_path(name, out)) if is_standard_input(name) else name for name in recipe.data.files)
    return recipe.model_copy(update={"data": recipe.data.model_copy(update={"files": files})})


@dataclass(slots=True)
class Job:
    """A job of any kind; what only one kind has is next to it."""

    path: Path
    kind: JobKind[Any]
    console: Console
    processes: Processes
    passport: Passport

    def __post_init__(self) -> None:
        """Let the passport record how long each stage took."""
        self.console.on_stage_end = self.record_seconds

    def note(self, **found: Any) -> None:
        """Put something into the passport, in memory."""
        self.passport = self.passport.model_copy(update=found)

    def record_seconds(self, stage: str, seconds: float) -> None:
        """Put the time of a stage into the passport, and write that where the job is started in its folder."""
        self.passport = self.passport.timed(stage, seconds)
        if self.processes.first and self.kind.is_started(self.path):
            self.passport.write(self.path)

    def close(self, **found: Any) -> None:
        """Write the passport of a job that has ended."""
        self.note(**found, ended=utc_now())
        self.passport.write(self.path)

    def reporters(self, training: Training) -> list[Reporter]:
        """Return what shows the training: the first process's screen, and in silence only a bar."""
        shown = self.processes.first and (shows_bar() or not self.console.silent)
        return [choose_screen(training.steps, training.log_every)] if shown else []
