"""The judge that lets every model go on for a few updates, all with one objective, and asks it for that."""

from __future__ import annotations

import shutil
from pathlib import Path

from saucier.errors import WorkError
from saucier.recipes import Recipe
from saucier.runs.cook import cook
from saucier.runs.folder import RunFolder, open_run
from saucier.runs.job import Wishes
from saucier.training.resume import latest

FOLDER = "adapted"
"""Inside the folder of the run that is judged."""


def gone_on(run: Path, recipe: Recipe) -> Path:
    """Let a run's model go on by another recipe on the same text, and return the checkpoint; it is always done anew.

    Raises as `cook`.
    """
    if (run / FOLDER).exists():
        shutil.rmtree(run / FOLDER)
    first, (own, _) = RunFolder(run), open_run(run / FOLDER, recipe)
    shutil.copytree(first.data_file.parent, own.data_file.parent)
    cook(recipe, own.path, Wishes(calibrate=False, judge=False, quiet=True, start=run))
    checkpoint = latest(own.path)
    if checkpoint is None:
        raise WorkError("has no whole checkpoint left to score", where=str(own.path), remedy="compare again")
    return checkpoint
