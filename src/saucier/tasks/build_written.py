"""From the config of a task whose answer is a text to the task."""

from __future__ import annotations

from typing import Any

from saucier.tasks.instruction import Instructions
from saucier.tasks.mixture import MixedTask
from saucier.tasks.mixture_config import Mixture, WrittenTask
from saucier.tasks.spoken_labels import SpokenClasses, SpokenNumbers
from saucier.tasks.step_by_step import Reasoning
from saucier.tasks.writing import WritingTask
from saucier.tasks.written_config import (
    Instruction,
    LabelToText,
    NumberToText,
    StepByStep,
    Summarization,
    TextToText,
    Translation,
)
from saucier.tasks.written_texts import Texts


def written_task(config: WrittenTask) -> WritingTask[Any]:
    """Return the task that a config describes."""
    match config:
        case TextToText() | Translation() | Summarization():
            return Texts(config)
        case LabelToText():
            return SpokenClasses(config)
        case NumberToText():
            return SpokenNumbers(config)
        case Instruction():
            return Instructions(config)
        case StepByStep():
            return Reasoning(config)
        case Mixture():
            return MixedTask({name: written_task(one.task) for name, one in config.tasks.items()}, config)
