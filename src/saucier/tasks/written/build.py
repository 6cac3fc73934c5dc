"""From the config of a task whose answer is a text to the task."""

from __future__ import annotations

from typing import Any

from saucier.tasks.written.config import (
    Instruction,
    LabelToText,
    NumberToText,
    StepByStep,
    Summarization,
    TextToText,
    Translation,
)
from saucier.tasks.written.instruction import Instructions
from saucier.tasks.written.mixture import MixedTask
from saucier.tasks.written.mixture_config import Mixture, WrittenTask
from saucier.tasks.written.spoken_labels import SpokenClasses, SpokenNumbers
from saucier.tasks.written.step_by_step import Reasoning
from saucier.tasks.written.texts import Texts
from saucier.tasks.written.writing import WritingTask


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
            return MixedTask({name: written_task(one.task) for name, one in config.tasks.items()},
                             written_task(config.each), config)
