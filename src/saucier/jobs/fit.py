"""Training on tensors and a loss of one's own, by the loop that all other jobs train with: the same optimizers,
checkpoints, resume and report.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import TypeAdapter, ValidationError
from torch import Tensor, nn

from saucier.checkpoints.steps import usable_checkpoint
from saucier.config.base import Config
from saucier.devices import move_batch
from saucier.errors import InputError, expect
from saucier.files import read_object, refuse_unwritable, write_json
from saucier.jobs.finetuning.results import draw_loss
from saucier.jobs.run.console import Console
from saucier.jobs.run.folder import HARMLESS_TRAINING_KEYS, Job, JobKind, open_or_create, write_settings
from saucier.jobs.run.passport import start_passport
from saucier.model import Transformer
from saucier.objectives.base import Batch, Loss, LossPart, Objective, RowCorruption
from saucier.opened import PASSPORT_FILE
from saucier.recipes.source import Source, apply_overrides, read_yaml
from saucier.recipes.validation import validate_config
from saucier.report.page import REPORT_FILE, write_page
from saucier.report.results import read_metrics
from saucier.result import Result
from saucier.table import Table
from saucier.text.rows.batch import Batches, Ints, take_share
from saucier.training.evaluation import evaluation_mode
from saucier.training.hyperparameters import Training
from saucier.training.loop import TrainingResult, train
from saucier.training.processes import join_processes
from saucier.training.progress import EVENTS, METRICS
from saucier.training.reporters import check_reporters, flatten_values
from saucier.training.resume import load_modules, load_weights_into
from saucier.training.update import Evaluate, TrainingData

GivenBatch = Tensor | Sequence[Tensor] | Mapping[str, Tensor]
"""Tensors of equal first size, the rows: one, several in order, or by name."""
Supply = Sequence[GivenBatch] | Callable[[int], GivenBatch]
"""All batches, which are gone through again and again; or a function from the number of the step to its batch."""
LossFunction = Callable[[Any, Any], Tensor | Loss]
Measure = Sequence[GivenBatch] | Callable[[Any], float | Mapping[str, float]]
SETTINGS_FILE, RESULT_FILE = "fit.yaml", "fitted.json"
ROWS = "rows"
"""The name of the part of the loss: its weight is the number of rows."""


class FitSettings(Config):
    """What decides a fit: the schema of `fit.yaml`."""

    name: str
    """What its folder is called."""
    model: dict[str, Any]
    """The config of the model."""
    training: Training
    """How it is trained."""
    data: str
    """SHA-256 of the first batch."""

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, as they are in the file."""
        return self.model_dump(mode="json")


def read_settings(path: Path) -> FitSettings:
    """Read `fit.yaml`. Raises `InputError` for another file."""
    return validate_config(read_yaml(path.read_text(encoding="utf-8"), str(path)), FitSettings)


def deciding_settings(settings: FitSettings, whole: bool = False) -> dict[str, Any]:
    """Return what decides the weights that a fit ends with."""
    return settings.model_dump(mode="json", exclude={"name": True, "training": {*HARMLESS_TRAINING_KEYS}})


FIT = JobKind(settings=SETTINGS_FILE, last=RESULT_FILE,
              header="# What decides this fit. `saucier.fit` with the same model and batches goes on with it.\n",
              read=read_settings, essential=deciding_settings, other="another fit", foreign="no fit",
              remedy="give a new folder as out, or the same model, batches and training",
              unstarted=(SETTINGS_FILE, PASSPORT_FILE, METRICS, EVENTS))


@dataclass(frozen=True, slots=True)
class Fitted(Result):
    """How a fit ended; the model that was given has its best weights."""

    folder: str
    steps: int
    reason: str
    """`done`, `patience` or `time`."""
    loss: float | None
    """Training loss of the last update."""
    scores: dict[str, float] = field(default_factory=dict)
    """The best evaluation; empty where nothing was measured."""
    best_step: int | None = None
    """The update after which it was made."""
    seconds: float = 0.0
    """Time that the updates and evaluations took, over all parts of the run."""
    dtype: str = ""
    """Number format of the multiplications."""

    def view(self) -> Table:
        """Show every figure."""
        rows = [(name.replace("_", " "), f"{value:.6g}" if isinstance(value, float) else str(value))
                for name, value in flatten_values(self.to_dict())]
        return Table(("", ""), rows)


@dataclass(frozen=True, slots=True)
class TensorRows:
    """The rows of a batch by the names of their tensors."""

    tensors: dict[str, Tensor]
    row: Ints
    """Each row's number in the whole batch."""

    def __len__(self) -> int:
        return len(self.row)

    def select(self, rows: slice) -> TensorRows:
        """Take some of the rows."""
        return TensorRows({name: one[rows] for name, one in self.tensors.items()}, self.row[rows])


def read_batch(given: Any, what: str) -> TensorRows:
    """Return a batch as tensors by name. Raises `InputError` for what is no batch; `what`: which batch it is."""
    named = given if isinstance(given, Mapping) else dict(enumerate(given if isinstance(given, list | tuple)
                                                                    else [given]))
    found = {str(name): torch.as_tensor(one) if isinstance(one, Tensor | np.ndarray) else one
             for name, one in named.items()}
    wrong = {name: one for name, one in found.items() if not isinstance(one, Tensor) or not one.dim()}
    if wrong or not found:
        name, one = next(iter(wrong.items()), ("it", given))
        kind = "a single number" if isinstance(one, Tensor) else type(one).__name__
        raise InputError(f"{name} is {kind}", where=what,
                         remedy="give tensors with a row for each example: one, a tuple, or by name")
    sizes = {name: len(one) for name, one in found.items()}
    if len({*sizes.values()}) > 1 or not max(sizes.values()):
        raise InputError(f"rows: {', '.join(f'{name} {size}' for name, size in sizes.items())}", where=what,
                         remedy="give every tensor the same number of rows, at least one")
    return TensorRows(found, np.arange(max(sizes.values())))


@dataclass(frozen=True, slots=True)
class SuppliedBatches(Batches[TensorRows]):
    """Batches of one's own, by the number of the step."""

    supply: Supply

    @property
    def steps_per_epoch(self) -> int:
        """How many there are; one where they come from a function."""
        return 1 if callable(self.supply) else len(self.supply)

    @property
    def counts(self) -> dict[str, int]:
        """Nothing is counted."""
        return {}

    def rows(self, step: int, rank: int = 0, world: int = 1) -> TensorRows:
        """Give the rows of batch `step` that process `rank` of `world` works on."""
        given = self.supply(step) if callable(self.supply) else self.supply[step % len(self.supply)]
        found = read_batch(given, f"batch {step}")
        return found if world == 1 else found.select(take_share(len(found), rank, world))


class AsGiven(RowCorruption):
    """Rows as they are."""

    __slots__ = ()

    def __call__(self, rows: TensorRows, *, seed: int, step: int) -> Batch:
        """Return the tensors."""
        return rows.tensors


@dataclass(frozen=True, slots=True)
class FunctionObjective(Objective):
    """A loss of one's own: the mean over the rows of what it is called with."""

    function: LossFunction
    form: Any
    """A batch as it was given, by which others are handed on."""

    @property
    def parts(self) -> tuple[str, ...]:
        """One, over rows."""
        return (ROWS,)

    @property
    def modules(self) -> Mapping[str, nn.Module]:
        """The loss, where it is a module that learns too."""
        learns = isinstance(self.function, nn.Module) and any(True for _ in self.function.parameters())
        return {"loss": self.function} if learns else {}  # type: ignore[dict-item]  # as the line before says

    def bind(self, model: nn.Module) -> None:
        """Bring the loss to where the model is."""
        for module in self.modules.values():
            module.to(next(model.parameters()).device)

    def count(self, batch: Batch) -> dict[str, float]:
        """Number of rows."""
        return {ROWS: float(len(next(iter(batch.values()))))}

    def __call__(self, model: nn.Module, batch: Batch) -> Loss:
        """Call the function. Raises `InputError` for what is no loss."""
        rows = self.count(batch)[ROWS]
        found = self.function(model, self.as_given(batch))
        if isinstance(found, Loss):
            mean = torch.stack([part.total / max(1.0, part.weight) for part in found.parts.values()]).sum()
        elif isinstance(found, Tensor) and found.numel() == 1 and found.is_floating_point():
            mean = found.reshape(())
        else:
            what = f"{list(found.shape)} {found.dtype}" if isinstance(found, Tensor) else type(found).__name__
            raise InputError(f"returned {what}", where="loss", remedy="return one number, the mean over the batch")
        if torch.is_grad_enabled() and not mean.requires_grad:
            raise InputError("returned a number without a gradient", where="loss",
                             remedy="make it of the model's outputs, without detach, item or no_grad")
        return Loss({ROWS: LossPart(mean * rows, rows)})

    def as_given(self, batch: Batch) -> Any:
        """Return a batch in the form in which batches are given."""
        if isinstance(self.form, Mapping):
            return batch
        return tuple(batch.values()) if isinstance(self.form, list | tuple) else next(iter(batch.values()))


def read_training(given: Training | Mapping[str, Any] | Sequence[str]) -> Training:
    """Return the settings of the loop from plain values or `key=value` words. Raises `InputError`."""
    if isinstance(given, Training):
        return given
    if isinstance(given, str) or not isinstance(given, Mapping | list | tuple):
        raise InputError(f"is {type(given).__name__}", where="training",
                         remedy="give a mapping such as {'steps': 100}, or words such as ['steps=100']")
    source = Source("training", dict(given) if isinstance(given, Mapping) else {})
    if not isinstance(given, Mapping):
        apply_overrides(source, sorted(given, key=lambda word: "." in word.split("=")[0]), Training)
    return validate_config(source, Training)


def make_evaluate(measure: Measure | None, objective: FunctionObjective) -> Evaluate | None:
    """Return what the loop measures: one's own function, or the loss over batches. Raises `InputError`."""
    if measure is None:
        return None
    if not callable(measure):
        expect(measure, (list, tuple), "evaluate", "give a list of batches, or a function of the model")
        if not measure:
            raise InputError("is empty", where="evaluate",
                             remedy="give a list of batches, or leave it out: then nothing is measured")
    batches = None if callable(measure) else [read_batch(one, f"evaluate, batch {number}")
                                              for number, one in enumerate(measure)]

    def evaluate(model: nn.Module) -> dict[str, float]:
        with torch.no_grad(), evaluation_mode(model) as evaluated:
            if batches is None:
                found = measure(evaluated)  # type: ignore[operator]  # it is callable
                scores = {key: float(one) for key, one in found.items()} if isinstance(found, Mapping) else {
                    "loss": float(found)}
                if "loss" not in scores:
                    raise InputError(f"gave {', '.join(scores)}", where="evaluate",
                                     remedy="name one of them loss: the lower the better")
                return scores
            device = next(model.parameters()).device
            parts = [objective(evaluated, move_batch(one.tensors, device)).parts[ROWS] for one in batches]
            return {"loss": float(sum(float(one.total) for one in parts) / sum(one.weight for one in parts))}

    return evaluate


def digest_batch(rows: TensorRows) -> str:
    """Return the SHA-256 of a batch."""
    digest = hashlib.sha256()
    for name, one in sorted(rows.tensors.items()):
        digest.update(f"{name} {one.dtype} {list(one.shape)}\n".encode())
        digest.update(one.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def fit(model: Transformer, batches: Supply, loss: LossFunction, *,
        training: Training | Mapping[str, Any] | Sequence[str], out: str | PathLike[str],
        evaluate: Measure | None = None, quiet: bool = False) -> Fitted:
    """Train a model in place on batches of one's own, or go on where that stopped in `out`.

    `batches`: a sequence, gone through again and again, or a function of the number of the step, from 0, that gives
    the same batch for the same number. `loss(model, batch)` returns the mean over the batch; it may be a module with
    weights that learn too. `evaluate`: batches on which the loss is measured, or a function of the model that returns
    a loss, or several figures with one called `loss`. At the end the model has the weights of the best evaluation, or
    the last ones. Raises `InputError` before the first step for what cannot be trained; `WorkError` as all training.
    """
    settings, objective = prepare_fit(model, batches, loss, training, Path(out))
    measured = make_evaluate(evaluate, objective)
    folder = Path(out)
    with join_processes() as processes:
        processes.write_once(lambda: open_or_create(folder, settings, FIT))
        console = Console(silent=quiet or not processes.first)
        console.heading(f"{settings.name} → {folder}")
        objective.bind(model)
        if not (folder / RESULT_FILE).is_file():
            run = Job(folder, FIT, console, processes, start_passport(folder, settings.name,
                                                                     {"training": settings.training.seed}))
            run.note(data={"first batch": settings.data})
            if processes.first:
                write_settings(folder, settings, FIT)
            with console.stage("train"):
                result = train(model, TrainingData(SuppliedBatches(batches), AsGiven(), objective), settings.training,
                               run_folder=folder, evaluate=measured, reporters=run.reporters(settings.training),
                               recipe=deciding_settings(settings))
            processes.write_once(lambda: finish_fit(run, settings, result))
        best = usable_checkpoint(folder)
        load_weights_into(model, best)
        load_modules(objective.modules, best)
        return read_fitted(folder)


def prepare_fit(model: Transformer, batches: Supply, loss: LossFunction, training: Any,
                out: Path) -> tuple[FitSettings, FunctionObjective]:
    """Return the settings and the objective. Raises `InputError` for what cannot be trained."""
    settled = read_training(training)
    check_reporters(settled)
    refuse_unwritable(out, folder=True)
    if not callable(loss):
        raise InputError(f"is {type(loss).__name__}", where="loss", remedy="give a function of the model and a batch")
    indexed = hasattr(batches, "__getitem__") and hasattr(batches, "__len__") and not isinstance(batches, Mapping | str)
    if not callable(batches) and not (indexed and len(batches)):
        raise InputError(f"is {type(batches).__name__ if not indexed else 'empty'}", where="batches",
                         remedy="give a list of batches, or a function of the number of the step: a run that goes on "
                         "asks for the same batch again")
    given = batches(0) if callable(batches) else batches[0]
    settings = FitSettings(name=out.absolute().name or "fit", model=model.config.model_dump(mode="json"),
                           training=settled, data=digest_batch(read_batch(given, "batch 0")))
    return settings, FunctionObjective(loss, given)


def finish_fit(run: Job, settings: FitSettings, result: TrainingResult) -> None:
    """Write the passport, the report and, last, the result, on the process that writes."""
    lines = read_evaluations(run.path / METRICS)
    best = result.best
    found = Fitted(str(run.path), result.steps, result.reason, result.loss,
                   lines.get(best.step, {"loss": best.loss}) if best else {}, best.step if best else None,
                   result.seconds, result.dtype)
    with run.console.stage("report"):
        about = f"{result.steps:,} updates in {result.dtype}"
        shown = {key: value for key, value in found.to_dict().items() if key != "folder"}
        run.console.say(str(write_page(run.path / REPORT_FILE, "fit.html", title=settings.name, settings=settings,
                                       about=about, result=shown, loss=draw_loss(run.path / METRICS))))
    run.passport = run.passport.in_environment(dtype=result.dtype)
    run.close()
    write_json(run.path / RESULT_FILE, found.to_dict())


def read_evaluations(path: Path) -> dict[int, dict[str, float]]:
    """Return the scores of each evaluation by its step."""
    return {line["step"]: line["evaluation"] for line in read_metrics(path) if "evaluation" in line}


def read_fitted(folder: Path) -> Fitted:
    """Read how a finished fit ended. Raises `InputError` for a damaged file."""
    document = read_object(folder / RESULT_FILE)
    try:
        return TypeAdapter(Fitted).validate_python(document | {"folder": str(folder)})
    except ValidationError as error:
        raise InputError(f"not the result of a fit: {str(error).splitlines()[0]}", where=str(folder / RESULT_FILE),
                         remedy="remove it, and fit again") from error
