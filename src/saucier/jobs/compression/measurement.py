"""What is measured of a model, as data; its size, and its answers against those of the teacher on the same rows.

The teacher is the model that the chain began with.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from saucier.config import flops_per_token, parameters
from saucier.config.base import Config
from saucier.devices import choose_autocast_dtype
from saucier.errors import WorkError
from saucier.folders.kinds import identify_folder, list_weight_files
from saucier.jobs.finetuning.data import Splits
from saucier.jobs.finetuning.predict import open_task
from saucier.model import Transformer
from saucier.opened import OpenModel
from saucier.tasks.encoded_examples import EncodedExamples
from saucier.tasks.metrics.metric import TEST_DRAWS, Measurement, Metric, bootstrap, full_value, percentiles
from saucier.tasks.scores import metrics_for, score_difference, scored
from saucier.tasks.task import Answer, Encoding, Predictor, Task
from saucier.text.rows.batch import make_generator


class Size(Config):
    """How large a model is."""

    parameters: int
    """As the config counts them, tied ones once."""
    disk: int
    """Bytes of the files of its weights."""
    weights: int
    """Bytes of its parameters and buffers when it is loaded for use."""
    flops: float
    """Forward FLOPs of a held-out row of the mean length; the count is of the shape, whatever the number format."""
    layout: str
    """Of its folder."""


class Speed(Config):
    """What answering the same rows takes."""

    batch: int
    """Rows in a pass."""
    milliseconds: float
    """A row; the median of the rounds."""
    teacher: float
    """The same of the teacher, measured in turn."""
    ratio: float
    """How many times faster: the median over the rounds of the teacher's time over this one's."""
    low: float
    """The least ratio of a round."""
    high: float
    """The greatest."""
    native: float | None = None
    """A row by the kernels in C, in the numbers that the model is stored in, likewise; None of models that write, and
    where the kernels cannot run one or there is no compiler."""
    native_ratio: float | None = None
    """How many times faster that is than the teacher by its own parts."""


class Cost(Config):
    """What a model costs on this machine."""

    machine: str
    """One line about it."""
    threads: int
    """That took part."""
    dtype: str
    """Number format of the multiplications."""
    speeds: tuple[Speed, ...]
    """For each number of rows in a pass."""
    peak: int | None
    """Bytes that loading the model and answering some rows took at most, on top of the program; None: not measured."""


class MetricResult(Config):
    """One metric of a model, next to the teacher's on the same rows."""

    name: str
    """As the task calls it."""
    better: Literal["higher", "lower"]
    """Which side is good."""
    value: float | None
    """The score; None where it is not defined."""
    low: float | None
    """With `high` its 95 % interval over rows."""
    high: float | None
    """See `low`."""
    difference: float | None
    """The score less the teacher's."""
    difference_low: float | None
    """With `difference_high` its 95 % interval, paired over rows."""
    difference_high: float | None
    """See `difference_low`."""
    count: int
    """Examples that it is about."""
    unit: str
    """What one is."""


class Share(Config):
    """A share of the teacher's score, with its 95 % interval over rows."""

    value: float
    """On these rows."""
    low: float
    """With `high` where it would be on other rows, drawn for both models together."""
    high: float
    """See `low`."""


class Agreement(Config):
    """How much the answers are those of the teacher."""

    what: Literal["equal answers", "equal tags", "correlation of answers"]
    """What is counted."""
    value: float
    """The share, or the correlation."""
    divergence: float | None = None
    """Mean Kullback-Leibler divergence of the probabilities from the teacher's, in nats; None where there are none."""


class SplitMeasured(Config):
    """Answers to the held-out or the test rows."""

    rows: int
    """How many."""
    metrics: tuple[MetricResult, ...]
    """All that the task has; the first one is what the bound is about."""
    kept: Share
    """The share of the teacher's first score that is kept."""
    agreement: Agreement
    """With the teacher."""


class Measured(Config):
    """All that was measured of one model."""

    name: str
    """`teacher`, or the step's number and kind."""
    size: Size
    """How large it is."""
    splits: dict[str, SplitMeasured]
    """`held-out`, and `test` where there is one."""
    cost: Cost
    """What it costs on this machine."""
    notes: tuple[str, ...] = ()
    """What a reader must know of how it was made."""

    @property
    def kept(self) -> Share:
        """The share of the teacher's first score on the held-out rows."""
        return self.splits["held-out"].kept

    def speed(self, batch: int) -> Speed:
        """Return the speed at a number of rows in a pass."""
        return next(one for one in self.cost.speeds if one.batch == batch)


@dataclass(frozen=True, slots=True)
class Subject:
    """A model that is measured, and what it says of the rows."""

    opened: OpenModel
    answers: dict[str, list[Answer]]
    """By the names of the splits."""
    probabilities: dict[str, torch.Tensor | None]
    """[rows or tags, classes], float32; None where the task has none."""

    @property
    def task(self) -> Task:
        """What it answers."""
        assert self.opened.task is not None, "open_task knows it"
        return self.opened.task


def measured_splits(splits: Splits) -> dict[str, list[Any]]:
    """Return the rows that are measured, by the names of their splits."""
    return {name: rows for name, rows in splits.named().items() if name != "train"}


def answer_splits(folder: Path, splits: Splits) -> Subject:
    """Open a model, and let it answer all rows that are measured."""
    opened = open_task(folder)
    found = Subject(replace(opened, task=splits.task), {}, {})
    for name, rows in measured_splits(splits).items():
        predictor, encoded = prepare(found, rows, 32)
        found.answers[name] = splits.task.predict(predictor, rows, encoded)
        found.probabilities[name] = read_probabilities(splits.task, predictor, encoded)
    return found


def prepare(subject: Subject, examples: Sequence[Any], batch: int) -> tuple[Predictor, EncodedExamples]:
    """Return what lets a model answer so many rows at a time, and the rows as it reads them."""
    opened = subject.opened
    encoding = make_encoding(opened)
    dtype = choose_autocast_dtype("auto", opened.device)[0]
    return Predictor(opened.model, encoding, batch, dtype), subject.task.encode(examples, encoding)


def make_encoding(opened: OpenModel) -> Encoding:
    """Return how rows are made for a model that was opened for a task."""
    assert opened.length is not None, "open_task knows it"
    return Encoding(opened.tokenizer, opened.length, opened.model.config,
                    opened.model.provenance.generation.get("decoder_start_token_id"))


def draw_rows(rows: Sequence[Any], count: int) -> list[Any]:
    """Draw some rows, always the same ones, in their order."""
    chosen = make_generator(0, 0).permutation(len(rows))[:count]
    return [rows[number] for number in sorted(chosen.tolist())]


def read_probabilities(task: Task, predictor: Predictor, encoded: EncodedExamples) -> torch.Tensor | None:
    """Return the probabilities of classes, row by row, or of tags, token by token; None for other tasks."""
    if task.scored_as not in ("classes", "tags"):
        return None
    found: dict[int, torch.Tensor] = {}
    for units, batch, output in predictor.outputs(encoded):
        assert output.logits is not None, "a head of classes gives them"
        shares = torch.softmax(output.logits.float().cpu(), -1)
        if shares.dim() == 3:
            mask = batch["attention_mask"].bool().cpu()
            found |= {int(unit): one[real] for unit, one, real in zip(units, shares, mask, strict=True)}
        else:
            found |= {int(unit): one[None] for unit, one in zip(units, shares, strict=True)}
    return torch.cat([found[unit] for unit in sorted(found)])


def measure_splits(subject: Subject, teacher: Subject, splits: Splits) -> dict[str, SplitMeasured]:
    """Score the answers to each split next to the teacher's."""
    return {name: measure_split(splits.task, rows, (subject.answers[name], teacher.answers[name]),
                                divergence(subject.probabilities[name], teacher.probabilities[name]))
            for name, rows in measured_splits(splits).items()}


Pair = tuple[Sequence[Answer], Sequence[Answer]]
"""The answers of a model, and of the teacher."""


def measure_split(task: Task, examples: Sequence[Any], answers: Pair, divergent: float | None) -> SplitMeasured:
    """Score answers next to the teacher's, for each part of the task."""
    metrics: list[MetricResult] = []
    share: Share | None = None
    for part in task.scored_parts(examples):
        golds = part.task.group_for_scoring(part.examples, [part.task.gold(one) for one in part.examples])
        own, theirs = (part.task.group_for_scoring(part.examples, [side[n].prediction for n in part.numbers])
                       for side in answers)
        chosen = metrics_for(part.task.scored_as, golds, own, theirs)
        before = f"{part.name}: " if part.name else ""
        metrics += (measure_metric(one, before, golds, own, theirs) for one in chosen)
        share = share or kept_share(chosen[0], golds, own, theirs)
    assert share is not None, "a task has parts"
    return SplitMeasured(rows=len(examples), metrics=tuple(metrics), kept=share,
                         agreement=agree(task, answers, divergent))


def measure_metric(metric: Metric, before: str, golds: Sequence[Any], own: Sequence[Any],
                   theirs: Sequence[Any]) -> MetricResult:
    """Return one metric, and how far it is from the teacher's."""
    [score] = scored((metric,), golds, own)
    gap = score_difference(metric, golds, (own, theirs))
    return MetricResult(
        name=before + metric.name, better=metric.better, value=finite(score.value), low=finite(score.low),
        high=finite(score.high), difference=finite(gap.value), difference_low=finite(gap.low),
        difference_high=finite(gap.high), count=score.count, unit=score.unit)


def finite(value: float) -> float | None:
    """Return a number, or None for one that is not defined."""
    return value if math.isfinite(value) else None


def kept_share(metric: Metric, golds: Sequence[Any], own: Sequence[Any], theirs: Sequence[Any]) -> Share:
    """Return the share of the teacher's score that is kept, with its interval over rows, drawn for both together.

    Of an error, which is better where it is smaller, it is the teacher's over this one's. Raises `WorkError` where the
    teacher's score is not above 0.
    """
    first, second = (metric.measure(golds, side) for side in (own, theirs))
    if metric.better == "lower":
        first, second = second, first
    value, whole = full_value(first), full_value(second)
    if not whole > 0:
        raise WorkError(f"the {metric.name} of the model is {full_value(second):.4g}, so that no share of it can be "
                        "kept", remedy="fine-tune it first until it is above 0")
    with np.errstate(invalid="ignore", divide="ignore"):
        drawn = draw(first) / draw(second)
    low, high = percentiles(drawn)
    return Share(value=finite(value / whole) or 0.0, low=finite(low) or 0.0, high=finite(high) or 0.0)


def draw(measured: Measurement) -> Any:
    """Draw rows with replacement; two methods that are drawn so have the same rows in each draw. Shapes: [R]."""
    return bootstrap(measured, seed=0, draws=TEST_DRAWS)


def agree(task: Task, answers: Pair, divergent: float | None) -> Agreement:
    """Return how much answers are those of the teacher."""
    own, theirs = (list[Any](one.prediction for one in side) for side in answers)
    if task.scored_as == "numbers":
        value = float(np.corrcoef(np.array(own, dtype=float), np.array(theirs, dtype=float))[0, 1])
        return Agreement(what="correlation of answers", value=finite(value) or 0.0)
    if task.scored_as == "tags":
        pairs = [pair for one, two in zip(own, theirs, strict=True) for pair in zip(one, two, strict=True)]
        return Agreement(what="equal tags", value=float(np.mean([one == two for one, two in pairs])),
                         divergence=divergent)
    equal = [one == two for one, two in zip(own, theirs, strict=True)]
    return Agreement(what="equal answers", value=float(np.mean(equal)), divergence=divergent)


def divergence(own: torch.Tensor | None, theirs: torch.Tensor | None) -> float | None:
    """Return the mean of KL(teacher ‖ model) over rows, in nats; None where the two are not of the same things.

    Shapes: [N, C] each.
    """
    if own is None or theirs is None or own.shape != theirs.shape:
        return None
    least = torch.finfo(own.dtype).tiny
    first, second = own.double().clamp_min(least), theirs.double().clamp_min(least)
    return max(0.0, float((second * (second.log() - first.log())).sum(-1).mean()))


def measure_size(folder: Path, subject: Subject, splits: Splits) -> Size:
    """Return how large a model is, on disk and in memory, and what a row costs."""
    model, kind = subject.opened.model, identify_folder(folder)
    _, encoded = prepare(subject, splits.held_out, 1)
    mean = float(encoded.lengths[:, 0].mean())
    document = json.loads((kind.path / "config.json").read_text()) if (kind.path / "config.json").is_file() else {}
    return Size(parameters=parameters(model.config), disk=sum(path.stat().st_size for path in list_weight_files(kind)),
                weights=weight_bytes(model), flops=flops_per_token(model.config, max(1, round(mean))) * mean,
                layout=str(document.get("model_type", "sentence-transformers")))


def weight_bytes(model: Transformer) -> int:
    """Return the bytes of all parameters and buffers; what is shared counts once."""
    found = {one.untyped_storage().data_ptr(): one.untyped_storage().nbytes()
             for one in (*model.parameters(), *model.buffers())}
    return sum(found.values())
