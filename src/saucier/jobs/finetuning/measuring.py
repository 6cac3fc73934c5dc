"""What held-out rows say of a model while it is trained: the loss, and the metric by which weights are chosen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from saucier.devices import choose_autocast_dtype
from saucier.jobs.finetuning.chosen_metric import LOSS, choose_metric, measure_metric
from saucier.jobs.finetuning.settings import FineTraining
from saucier.objectives.base import Objective
from saucier.tasks.encoded_examples import CollateExamples, EncodedExamples, order_by_length
from saucier.tasks.scores import slug
from saucier.tasks.task import Encoding, Predictor, Task
from saucier.training.evaluation import Evaluator
from saucier.training.processes import Processes
from saucier.training.update import HeldOut


@dataclass(frozen=True, slots=True)
class HeldOutRows:
    """Rows that are measured, in both forms."""

    examples: Sequence[Any]
    encoded: EncodedExamples
    encoding: Encoding


@dataclass(frozen=True, slots=True)
class MetricEvaluator:
    """The held-out loss, and a metric of what the model answers."""

    loss: Evaluator
    task: Task
    rows: HeldOutRows
    training: FineTraining
    metric: str

    def __call__(self, model: nn.Module) -> dict[str, float]:
        """Return the figures of the loss, and that of the metric under its name."""
        found = self.loss(model)
        dtype, _ = choose_autocast_dtype(self.training.dtype, next(model.parameters()).device)
        reader: Any = Predictor(model, self.rows.encoding, self.training.batch, dtype)  # type: ignore[arg-type]
        answers = self.task.predict(reader, self.rows.examples, self.rows.encoded)
        value = measure_metric(self.task, self.metric, self.rows.examples, [one.prediction for one in answers])
        return found | {self.metric: value}


@dataclass(frozen=True, slots=True)
class MetricBadness:
    """Checkpoints are chosen by a metric, of equal ones the first."""

    metric: str
    sign: float

    def __call__(self, scores: Mapping[str, float]) -> float:
        """Return how bad a model is; what has no number is worst."""
        value = scores[self.metric]
        return self.sign * value if value == value else float("inf")


def build_evaluator(task: Task, rows: HeldOutRows, training: FineTraining, processes: Processes, *,
                    objective: Objective, measured: EncodedExamples) -> HeldOut:
    """Return what measures the held-out rows, and what compares two such measurements.

    `objective`: what is learned; `measured`: the rows as it reads them.
    """
    loss = Evaluator(list(order_by_length(measured, training.batch)), CollateExamples(), objective.held_out(),
                     training.seed, processes)
    stop = training.early_stop
    if stop is None or stop.metric == LOSS:
        return HeldOut(loss)
    metric = choose_metric(task, rows.examples, stop.metric)
    name = slug(stop.metric)
    return HeldOut(MetricEvaluator(loss, task, rows, training, name),
                   MetricBadness(name, -1.0 if metric.better == "higher" else 1.0))
