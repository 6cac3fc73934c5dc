"""The judge of single words: fine-tune a pretrained model to tag them, as `saucier finetune tagging`, and count.

What a word is among its neighbours is learned long before whole texts are, so this tells short trainings apart.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass

from saucier.comparison.config import Tagging
from saucier.comparison.preparation import Trial
from saucier.finetuning.config import Finetuning, LabelledFiles, finetuning
from saucier.finetuning.data import read_splits
from saucier.finetuning.job import finetune
from saucier.tasks import config as tasks
from saucier.tasks.build import build_task

FOLDER = "tag"
"""Inside the folder of the run that is judged."""


@dataclass(frozen=True, slots=True)
class Tagged:
    """What was told of each sentence: words that were tagged rightly, and all words."""

    right: tuple[float, ...]
    words: tuple[float, ...]


def rows_of(judge: Tagging) -> LabelledFiles:
    """Return the files of a judge."""
    return LabelledFiles(train=(judge.train,), held_out=(judge.dev,), limit=judge.limit)


def check_tagged(judge: Tagging) -> None:
    """Read both files. Raises `InputError` for what cannot be used, such as a tag that is never learned."""
    read_splits(build_task(tasks.Tagging()), rows_of(judge))


def settings(judge: Tagging, trial: Trial) -> Finetuning:
    """Return the fine-tuning of a trial's model."""
    return finetuning(
        {"name": FOLDER, "model": str(trial.folder), "task": {"kind": "tagging"},
         "data": rows_of(judge).model_dump(mode="json")},
        [f"training.epochs={judge.epochs}", f"training.batch={judge.batch}", f"training.seed={trial.seed}",
         f"training.optimizer.learning_rate={judge.learning_rate}"])


def tagged(trial: Trial, judge: Tagging) -> Tagged:
    """Fine-tune a trial's model, and tag the sentences of `dev`; it is always done anew. Raises as `finetune`."""
    place = trial.folder / FOLDER
    if place.exists():
        shutil.rmtree(place)
    done = finetune(settings(judge, trial), place, quiet=True)
    rows = [json.loads(line) for line in done.predictions("held-out").read_text(encoding="utf-8").splitlines()]
    right = (sum(told == gold for told, gold in zip(row["prediction"], row["gold"], strict=True)) for row in rows)
    return Tagged(tuple(map(float, right)), tuple(float(len(row["gold"])) for row in rows))
