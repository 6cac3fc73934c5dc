"""The way into a fine-tuning: options, files, columns and labels are checked without torch, then the job begins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from saucier.checkpoints.hub import TUNED
from saucier.files import is_file
from saucier.jobs.finetuning.settings import LOSS, Finetuning, check_model, read_finetuning_words

if TYPE_CHECKING:
    from saucier.jobs.finetuning.data import Splits
    from saucier.jobs.finetuning.finished import Finetuned

FINISHED = "scores.json"
"""The file that is written last."""


def run_finetuning(task: str, changes: Sequence[str] = (), *, model: str | None = None,
                   files: Mapping[str, Sequence[str]] | None = None, out: Path | None = None, quiet: bool = False,
                   search: int | None = None, find_rate: bool = False) -> Finetuned:
    """Fine-tune as a person asks for it, or go on where that stopped, and return what came of it.

    `task`: a kind of task, a file of settings, or the folder of a fine-tuning; `files`: by the names of the fields of
    `LabelledFiles`; `search`: combinations to try first; `find_rate`: whether a range test tells the rate.
    Raises `InputError` for options, files, columns and labels that are wrong, before torch is imported.
    """
    words = [*changes, *([f"search.trials={search}"] if search is not None else []),
             *(["range_test.steps=100"] if find_rate else [])]
    settings, folder = read_finetuning_words(task, words, model, files or {})
    check_model(settings)
    target = out or folder
    splits = None if target is not None and is_finished(target) else read_checked(settings)
    from saucier.jobs.finetuning.finetune import finetune
    from saucier.jobs.finetuning.finished import read_finetuned
    from saucier.jobs.finetuning.job import FINETUNING
    from saucier.jobs.run.folder import default_folder

    done = finetune(settings, target or default_folder(settings, FINETUNING), quiet=quiet, splits=splits)
    return read_finetuned(done.path)


def is_finished(folder: Path) -> bool:
    """Say whether a fine-tuning in a folder ended, so that its files need not be there any more."""
    return is_file(folder / TUNED) and is_file(folder / FINISHED)


def read_checked(settings: Finetuning) -> Splits:
    """Read the labelled rows, and check what depends on them."""
    from saucier.jobs.finetuning.data import read_splits
    from saucier.tasks.build import build_task

    splits = read_splits(build_task(settings.task), settings.data, seed=settings.training.seed)
    stop = settings.training.early_stop
    if stop is not None and stop.metric != LOSS:
        from saucier.jobs.finetuning.chosen_metric import choose_metric

        choose_metric(splits.task, splits.held_out, stop.metric)
    return splits
