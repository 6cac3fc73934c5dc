"""Fine-tuning as the command line does it, and reading what a run folder says."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def finetuned(folder: Path, task: str, model: str, files: tuple[Path, Path], words: Sequence[str]) -> Path:
    """Learn a task from its rows, measure it on others, unless that is done, and return the folder."""
    from saucier.jobs.finetuning.finetune import finetune
    from saucier.jobs.finetuning.settings import read_finetuning_words

    train, held_out = (str(path) for path in files)
    settings, _ = read_finetuning_words(task, words, model, {"train": [train], "held_out": [held_out]})
    finetune(settings, folder)
    return folder


def scores(run: Path) -> dict[str, Any]:
    """Return what was measured on the held-out rows: `scores`, and `baselines` by their names."""
    found: dict[str, Any] = json.loads((run / "scores.json").read_text(encoding="utf-8"))["held-out"]
    return found


def named(found: list[dict[str, Any]], name: str) -> dict[str, Any]:
    """Return one score."""
    return next(one for one in found if one["name"] == name)


def accuracy(run: Path) -> dict[str, Any]:
    """Return the share of right answers."""
    return named(scores(run)["scores"], "accuracy")


def rights(run: Path) -> list[float]:
    """Return which held-out rows a run answers rightly."""
    from saucier.tasks.prediction_files import read_predictions

    return [float(row.prediction == row.gold)
            for row in read_predictions(str(run / "predictions" / "held-out.jsonl"))]


def said(score: dict[str, Any]) -> str:
    """Tell a score with its interval."""
    return f"{score['value']:.3f} ({score['low']:.3f}–{score['high']:.3f})"


def took(run: Path) -> float:
    """Return the seconds of all stages of a run."""
    passport = json.loads((run / "passport.json").read_text(encoding="utf-8"))
    return float(sum(passport["seconds"].values()))
