"""More epochs on a finished fine-tuning: a second phase from its model, whose results then take the place of the first.

The checkpoints of a finished fine-tuning are gone, and its rate has fallen to zero: a phase has an optimizer, a warm-up
and a decay of its own. It is a fine-tuning in a folder inside the first, `to-epochs-N`, so that the finished result is
whole at any moment. The old scores stay, as `scores-epochs-N.json`.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from saucier.errors import InputError
from saucier.files import remove_path, write_atomically
from saucier.jobs.finetuning.job import FINETUNING, deciding_settings
from saucier.jobs.finetuning.settings import Finetuning, read_finetuning
from saucier.jobs.finetuning.task_folder import TaskFolder
from saucier.jobs.run.folder import write_settings
from saucier.jobs.run.passport import EarlierEnd, read_passport
from saucier.plain import first_difference
from saucier.report.page import REPORT_FILE
from saucier.report.results import METRICS

PHASE = "to-epochs-"


@dataclass(frozen=True, slots=True)
class Extension:
    """A finished fine-tuning that is to have more epochs."""

    folder: TaskFolder
    before: Finetuning
    after: Finetuning

    @property
    def phase(self) -> TaskFolder:
        """Where the further epochs are trained."""
        return TaskFolder(self.folder.path / f"{PHASE}{self.after.training.epochs:g}")

    @property
    def settings(self) -> Finetuning:
        """The further epochs as a fine-tuning: from the finished model, on the same rows held out by the same seed."""
        epochs = self.after.training.epochs - self.before.training.epochs
        return self.after.model_copy(update={
            "model": str(self.folder.model.absolute()), "recipe": {}, "fresh_head": False, "search": None,
            "range_test": None,
            "training": self.after.training.model_copy(update={"epochs": epochs})})

    def describe(self) -> str:
        """Say what is done, and what it is not."""
        then, now = self.before.training.epochs, self.after.training.epochs
        return (f"{then:g} epochs are done; {now - then:g} more begin with its model and a new optimizer, and the rate "
                f"rises and falls again: not what {now:g} epochs from the start give. The model stays as it is until "
                "they are done")

    def adopt(self) -> None:
        """Let the phase's results take the place of the first ones; after a kill it is done again.

        The scores of before are kept first, and the settings come last: until then it is asked for again.
        """
        folder, phase = self.folder, self.phase
        if not (kept := folder.path / f"scores-epochs-{self.before.training.epochs:g}.json").exists():
            write_atomically(kept, partial(shutil.copyfile, folder.scores))
        for name in ("model", "predictions"):
            write_atomically(folder.path / name, partial(shutil.copytree, phase.path / name))
        for name in (REPORT_FILE, METRICS, phase.scores.name):
            if (phase.path / name).is_file():
                write_atomically(folder.path / name, partial(shutil.copyfile, phase.path / name))
        first, second = read_passport(folder.path), read_passport(phase.path)
        done = self.before.training.epochs
        if done not in [one.steps for one in first.earlier]:  # times of two quick trainings may be equal
            end = EarlierEnd(steps=done, ended=first.ended)
            seconds = {name: first.seconds.get(name, 0.0) + second.seconds.get(name, 0.0)
                       for name in {**first.seconds, **second.seconds}}
            first.model_copy(update={"earlier": (*first.earlier, end), "ended": second.ended, "seconds": seconds,
                                     "parts": first.parts + second.parts}).write(folder.path)
        write_settings(folder.path, self.after, FINETUNING)
        for old in folder.path.glob(f"{PHASE}*"):
            remove_path(old)


def find_extension(out: Path, settings: Finetuning) -> Extension | None:
    """Return what is to be done where a folder is finished, and more epochs are all that is asked for; else None.

    Raises `InputError` for an adapter, of which the next one would be trained on the first, and for settings that were
    searched for.
    """
    folder = TaskFolder(out)
    if not (FINETUNING.is_started(out) and folder.is_finished):
        return None
    before = read_finetuning(out / FINETUNING.settings)
    training = before.training.model_copy(update={"epochs": settings.training.epochs})
    grown = before.model_copy(update={"training": training})
    if settings.training.epochs <= before.training.epochs or first_difference(deciding_settings(grown),
                                                                              deciding_settings(settings)):
        return None
    if before.tuning is not None:
        raise InputError("training.epochs: an adapter that is finished gets no more epochs: the next one would be "
                         "trained on top of it", where=str(out),
                         remedy=f"merge it (saucier merge {folder.model} --out NEW) and fine-tune that, or train with "
                         "more epochs into a new folder with --out")
    if before.search is not None or before.range_test is not None:
        raise InputError("training.epochs: the settings of this fine-tuning were searched for, epochs included",
                         where=str(out), remedy=f"fine-tune its model: saucier finetune {before.task.kind} --model "
                         f"{folder.model} --data ...")
    return Extension(folder, before, settings)
