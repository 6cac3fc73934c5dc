"""The judge of single words: fine-tune a pretrained model to tag them, as `saucier finetune tagging`, and count.

What a word is among its neighbours is learned long before whole texts are, so this tells short trainings apart.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from typing import Any

from saucier.comparison.config import Tagging
from saucier.comparison.preparation import Trial
from saucier.finetuning.config import Finetuning, finetuning
from saucier.finetuning.data import read_splits
from saucier.finetuning.job import finetune
from saucier.tasks.build import build_task

FOLDER = "tag"
"""Inside the folder of the run that is judged."""


@dataclass(frozen=True, slots=True)
class Tagged:
    """What was told of each sentence: words that were tagged rightly, and all words."""

    right: tuple[float, ...]
    words: tuple[float, ...]


def settings(judge: Tagging, model: str, seed: int = 0) -> Finetuning:
    """Return the fine-tuning of a judge."""
    training: dict[str, Any] = {"epochs": judge.epochs, "batch": judge.batch, "seed": seed}
    return finetuning(
        {"name": FOLDER, "model": model, "task": {"kind": "tagging"},
         "data": {"train": [judge.train], "held_out": [judge.dev], "limit": judge.limit}},
        [*(f"training.{name}={value}" for name, value in training.items()),
         f"training.optimizer.learning_rate={judge.learning_rate}"])


def check_tagged(judge: Tagging) -> None:
    """Read both files. Raises `InputError` for what cannot be used, such as a tag that is never learned."""
    wanted = settings(judge, "gpt-nano")
    read_splits(build_task(wanted.task), wanted.data)


def tagged(trial: Trial, judge: Tagging) -> Tagged:
    """Fine-tune a trial's model, and tag the sentences of `dev`; it is always done anew. Raises as `finetune`."""
    place = trial.folder / FOLDER
    shutil.rmtree(place, ignore_errors=True)
    done = finetune(settings(judge, str(trial.folder), trial.seed), place, quiet=True)
    rows = [json.loads(line) for line in done.predictions("held-out").read_text(encoding="utf-8").splitlines()]
    right = (sum(told == gold for told, gold in zip(row["prediction"], row["gold"], strict=True)) for row in rows)
    return Tagged(tuple(map(float, right)), tuple(float(len(row["gold"])) for row in rows))
