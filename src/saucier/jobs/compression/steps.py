"""What each kind of step makes of a model: a student that learns, parts that go, numbers of few bits.

A step's folder has `start` while it trains (what training begins with), `training` (a fine-tuning with its report), and
`model`, which comes last. After a kill it goes on where it was.
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from torch import Tensor, nn

from saucier import config as c
from saucier.adaptation.pruning.methods import MagnitudePruning, Pruning, VocabularyPruning
from saucier.adaptation.pruning.prune import Pruned, describe_sizes, prune
from saucier.adaptation.pruning.sparsity import measure_sparsity
from saucier.adaptation.quantization.aware import add_rounding, fix_rounding
from saucier.adaptation.quantization.calibration import cut_rows
from saucier.adaptation.quantization.maps import is_quantized
from saucier.adaptation.quantization.quantize import quantize_model, select_maps
from saucier.adaptation.quantization.schemes import Nearest, QuantizationAware, StaticInt8
from saucier.adaptation.surgery.operate import operate
from saucier.adaptation.surgery.operations import Layers
from saucier.config import parameters
from saucier.devices import move_batch
from saucier.errors import InputError
from saucier.files import is_folder, remove_path, replace_path, write_atomically, write_json
from saucier.folders.kinds import find_model_folder
from saucier.folders.save import choose_layout, save_bare
from saucier.jobs.compression.measurement import draw_rows, make_encoding
from saucier.jobs.compression.settings import (
    Compression,
    CompressionStep,
    Distil,
    KeptLayers,
    Node,
    Prune,
    Quantize,
    TaskVocabulary,
    plan_models,
)
from saucier.jobs.convert import write_converted_card
from saucier.jobs.finetuning.data import Splits
from saucier.jobs.finetuning.finetune import finetune
from saucier.jobs.finetuning.predict import open_task
from saucier.jobs.finetuning.settings import FineTraining, Finetuning, check_model
from saucier.jobs.finetuning.start import name_labels, open_start, training_texts
from saucier.jobs.finetuning.task_folder import TaskFolder, write_task
from saucier.jobs.finetuning.task_teacher import OUTPUTS
from saucier.machine import trim_memory
from saucier.model import Transformer
from saucier.objectives.base import Batch, Objective
from saucier.objectives.config import pruning as p
from saucier.objectives.distillation import build_distilled
from saucier.objectives.gates import GatedObjective, share_gone
from saucier.objectives.labels import TARGETS
from saucier.objectives.pruning import keep_pruned
from saucier.opened import OpenModel, load_model_tokenizer, room, run_folder_of
from saucier.text.reading.documents import read_documents
from saucier.text.tokenizer.tokenizer import Tokenizer

REHEARSED = 8
"""Training rows on which a pruning is rehearsed."""
NOTES = "notes.json"
"""Next to a model: what a reader must know of how it was made."""
TOLERATED = 0.01
"""Of the parameters behind gates: by how much a target may be missed without a word of advice."""
MANY_STEPS = 10_000
"""Steps of a training that is rehearsed: as many as any schedule needs."""


@dataclass(frozen=True, slots=True)
class Work:
    """What all steps of a chain share."""

    settings: Compression
    splits: Splits
    """The rows; its task knows the teacher's labels."""
    length: int
    """Most tokens in a row, as the teacher reads them."""
    begun: float = field(default_factory=time.perf_counter)
    """When the time began."""


def run_step(work: Work, step: CompressionStep, before: Path, folder: Path) -> Path:
    """Make the model of a step from the folder of the one before, unless it is there; return its folder."""
    model = folder / "model"
    if not is_folder(model):
        match step:
            case Distil():
                learn(work, step, step.training, partial(make_student, work, step, before), folder)
            case Prune(training=FineTraining() as training):
                learn(work, step, training, partial(make_pruned, work, step, before), folder)
            case Prune():
                make_pruned(work, step, before, model)
            case Quantize(training=FineTraining() as training):
                learn(work, step, training, lambda start: name_start(before), folder)
            case Quantize():
                opened = open_task(before)
                made = quantize_model(opened.model, step.scheme, batches=calibration_batches(work, step, opened))
                write_model(work, made, opened, model)
    remove_path(folder / "start")
    trim_memory()  # what a training keeps for its next batch, the next step has no use for
    return model


def make_student(work: Work, step: Distil, before: Path, target: Path) -> str:
    """Return the name of the model that a student begins with; one of some of the layers is written first."""
    if step.model is not None:
        return step.model
    opened = open_task(before)
    write_model(work, operate(opened.model, by=student_layers(step, opened.model.config))[0], opened, target)
    return str(target.absolute())


def make_pruned(work: Work, step: Prune, before: Path, target: Path) -> str:
    """Write a model without what it can do without, and return its folder; that of before for what is learned."""
    if isinstance(step.by, p.TRAINED):
        return name_start(before)
    opened = open_task(before)
    found = prune_opened(work, step.by, opened, labelled_batches(work, step.rows, opened))
    write_model(work, found.model, opened, target, found.tokenizer, found.summary())
    return str(target.absolute())


def name_start(before: Path) -> str:
    """Return the folder that a training begins with: of a run's checkpoint the run, which has the tokenizer."""
    return str(run_folder_of(before).absolute())


def prune_opened(work: Work, by: Pruning | TaskVocabulary, opened: OpenModel, batches: Sequence[Batch]) -> Pruned:
    """Prune a model by the loss of the task, its vocabulary by the texts of the training rows."""
    objective = work.splits.task.objective

    def loss(model: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
        found = objective(model, dict(batch))
        return found.over({name: part.weight for name, part in found.parts.items()})

    if not isinstance(by, TaskVocabulary):
        objective.bind(opened.model)
        return prune(opened.model, by, batches=batches, loss=loss, tokenizer=opened.tokenizer)
    with TemporaryDirectory() as folder:
        texts = Path(folder) / "texts.jsonl"
        texts.write_text("".join(json.dumps({"text": one}) + "\n" for one in
                                 training_texts(work.splits, opened.model.config)), encoding="utf-8")
        return prune(opened.model, VocabularyPruning(texts=(str(texts),)), tokenizer=opened.tokenizer)


def labelled_batches(work: Work, rows: int, opened: OpenModel) -> list[Batch]:
    """Return training rows as batches with their targets, where the model is, without padding: rows of a batch are
    equally long.
    """
    encoded = work.splits.task.encode(draw_rows(work.splits.train, rows), make_encoding(opened))
    groups: dict[tuple[int, ...], list[int]] = {}
    for number, lengths in enumerate(encoded.lengths.tolist()):
        groups.setdefault(tuple(lengths), []).append(number)
    return [move_batch(encoded.batch(np.array(units)), opened.device) for _, units in sorted(groups.items())]


def learn(work: Work, step: CompressionStep, training: FineTraining, begin: Callable[[Path], str],
          folder: Path) -> None:
    """Fine-tune what a step begins with, and put the result into its place.

    What the teacher gives for rows is kept for the other steps too, in the folder of the compression.
    """
    start, done = folder / "start", TaskFolder(folder / "training")
    name = str(start.absolute()) if is_folder(start) else begin(start)
    settings = training_settings(work, step, training, name)
    if settings.distillation is not None:
        settings = settings.model_copy(update={
            "distillation": settings.distillation.keep_outputs_in(folder.parents[1] / OUTPUTS)})
    finetune(settings, done.path, quiet=True, splits=work.splits)
    if isinstance(step, Prune) and isinstance(step.by, p.TRAINED):
        write_json(folder / NOTES, {"notes": describe_learned(step.by, Path(name), done.model)})
    replace_path(done.model, folder / "model")


def describe_learned(by: p.TrainedPruning, before: Path, made: Path) -> list[str]:
    """Say what a model lost while it learned, of gates with a target by how much it was missed."""
    model = open_task(made).model
    if not isinstance(by, p.UnitGates):
        return [measure_sparsity(model).line()]
    start = open_task(before).model
    lines = [describe_sizes(parameters(start.config), parameters(model.config))]
    if isinstance(by.aim, p.TargetSize):
        gone = share_gone(start, model, by)
        missed = "" if abs(gone - by.aim.share) <= TOLERATED else "; more epochs, or a larger `faster`, come closer"
        lines.append(f"{gone:.1%} of the parameters behind gates went, {by.aim.share:.1%} were to go{missed}")
    return lines


def training_settings(work: Work, step: CompressionStep, training: FineTraining, model: str) -> Finetuning:
    """Return the settings of the training of a step."""
    taught = step.distillation
    if taught is not None:
        taught = taught.model_copy(update={"teacher": taught.teacher or work.settings.model}).located()
    pruning, tuning = learned_changes(step)
    return Finetuning(name=step.kind, model=model, task=work.splits.task.config, data=work.settings.data,
                      distillation=taught, pruning=pruning, tuning=tuning,
                      training=training.model_copy(update={"length": training.length or work.length}))


def learned_changes(step: CompressionStep) -> tuple[p.TrainedPruning | None, QuantizationAware | None]:
    """Return what a model loses, and how its numbers are rounded, while it is trained in a step."""
    match step:
        case Prune(by=MagnitudePruning()):
            return p.KeptZeros(), None
        case Prune(by=by) if isinstance(by, p.TRAINED):
            return by, None
        case Quantize(by=QuantizationAware() as by):
            return None, by
    return None, None


def calibration_batches(work: Work, step: Quantize, opened: OpenModel) -> list[dict[str, Tensor]]:
    """Return inputs of the model on calibration text, without padding: rows of one batch are equally long.

    Raises `InputError` for a text that is empty or shorter than a row.
    """
    length = min(step.length, room(opened.model.config, work.length))
    if step.text:
        texts = (one.text for one in read_documents(step.text))
        return cut_rows(texts, opened.tokenizer, rows=step.rows, length=length)
    return [{name: value for name, value in batch.items() if name not in TARGETS}
            for batch in labelled_batches(work, step.rows, opened)]


def student_layers(step: Distil, config: c.Transformer) -> list[Layers]:
    """Return the layers that a student keeps. Raises `InputError` for layers that there are not."""
    stacks = [len(stack.blocks()) for stack in config.stacks]
    if step.decoder_layers is not None and len(stacks) < 2:
        raise InputError("the model has one stack", where="decoder_layers", remedy="use layers")
    given = (("layers", step.layers, stacks[0]), ("decoder_layers", step.decoder_layers, stacks[-1]))
    return [Layers(order=choose_layers(kept, there, name), decoder=name == "decoder_layers")
            for name, kept, there in given if kept is not None]


def choose_layers(kept: KeptLayers, there: int, where: str) -> tuple[int, ...]:
    """Return the numbers of layers, from 0, of so many. Raises `InputError` for those that there are not."""
    match kept:
        case float():
            return spread_layers(max(1, round(kept * there)), there)
        case int() if kept > there:
            raise InputError(f"the student is to have {kept} layers, and the model has {there}", where=where,
                             remedy=f"give at most {there}")
        case int():
            return spread_layers(kept, there)
    if wrong := [one for one in kept if one >= there]:
        raise InputError(f"there is no layer {wrong[0]}: they are numbered from 0 to {there - 1}", where=where,
                         remedy="give numbers of those")
    return kept


def spread_layers(count: int, layers: int) -> tuple[int, ...]:
    """Return evenly spaced layers, from 0, the last one among them: layer m of the student is m·L/K of the model.

    Source: Jiao et al. 2020, §3.1, arXiv:1909.10351, the uniform layer map.
    """
    return tuple(number * layers // count - 1 for number in range(1, count + 1))


def write_model(work: Work, model: Transformer, opened: OpenModel, target: Path,
                tokenizer: Tokenizer | None = None, notes: Sequence[str] = ()) -> None:
    """Write what a step made of a model, with tokenizer, task and card, and before it what a reader must know of it.

    `tokenizer`: another one than that of the model. Raises `InputError` for a layout that cannot hold it.
    """
    source = find_model_folder(opened.path)
    name_labels(model, source)
    known = tokenizer or opened.tokenizer

    def write(place: Path) -> None:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            save_bare(model, place, layout=work.settings.layout)
        write_json(target.with_name(NOTES), {"notes": [*notes, *dict.fromkeys(str(one.message) for one in said)]})
        known.save(place)
        write_task(place, work.splits.task.config, room(model.config, work.length))
        write_converted_card(place, model, opened.path, source, reshaped=True)

    write_atomically(target, write)


def check_steps(work: Work, teacher: OpenModel) -> None:
    """Raise `InputError` for a step that the model cannot take, and for a layout that cannot hold what it makes.

    Shapes are changed as the steps will change them, by scores of a few rows; nothing is trained.
    """
    def check(nodes: Sequence[Node], before: OpenModel) -> None:
        """Look at models that are made of another one."""
        for node in nodes:
            try:
                made = rehearse(work, node.step, before, teacher)
                if made is not None:
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")
                        choose_layout(made.model, work.settings.layout)
            except InputError as error:
                inside = "" if error.where is None else f": {error.where.lstrip('-')}"
                raise InputError(error.what, where=node.where + inside, remedy=error.remedy) from error
            if made is not None:  # else nobody knows yet what a recipe's tokenizer makes of its model
                check(node.children, made)

    check(plan_models(work.settings), teacher)


def rehearse(work: Work, step: CompressionStep, now: OpenModel, teacher: OpenModel) -> OpenModel | None:
    """Return a model of the shape that a step gives; None where only training can tell. `now`: the one before it."""
    if is_quantized(now.model):
        raise InputError("the model is quantized by the step before, and does not change any more",
                         remedy="put quantize last")
    match step:
        case Distil(model=None):
            made = replace(now, model=operate(now.model, by=student_layers(step, now.model.config))[0])
            check_losses(work, step, made, teacher)
            return made
        case Distil(model=name):
            assert name is not None, "a student is one or the other"
            settings = training_settings(work, step, step.training, name)
            check_model(settings)
            if not is_folder(name):
                return None
            tokenizer = load_model_tokenizer(name)
            return replace(now, model=open_start(settings).model(tokenizer), tokenizer=tokenizer)
        case Prune(by=by) if isinstance(by, p.TRAINED):
            check_losses(work, step, now, teacher)
            return replace(now, model=imitate_learning(work.splits.task.objective, by, now.model))
        case Prune():
            assert not isinstance(step.by, p.TRAINED), "these are learned"
            found = prune_opened(work, step.by, now, labelled_batches(work, REHEARSED, now))
            made = replace(now, model=found.model, tokenizer=found.tokenizer or now.tokenizer)
            if step.training is not None:
                check_losses(work, step, made, teacher)
            return made
        case Quantize(by=QuantizationAware() as aware):
            check_losses(work, step, now, teacher)
            rounds = deepcopy(now.model)
            add_rounding(rounds, aware, torch.Generator())
            return replace(now, model=fix_rounding(rounds))
        case Quantize(scheme=scheme):
            if not isinstance(scheme.method, Nearest) or isinstance(scheme.activations, StaticInt8):
                calibration_batches(work, step, now)
            select_maps(now.model, scheme)
            nearest = scheme.model_copy(update={"method": Nearest(), "activations": None})
            return replace(now, model=quantize_model(deepcopy(now.model), nearest))


def imitate_learning(objective: Objective, by: p.TrainedPruning, model: Transformer) -> Transformer:
    """Return a model of a shape that pruning while it learns may give it: as uneven as any, since nobody knows yet.

    Raises `InputError` for a model that cannot lose such parts.
    """
    made = deepcopy(model)
    pruned = keep_pruned(objective, by, MANY_STEPS)
    pruned.bind(made)
    if isinstance(pruned, GatedObjective):
        uneven = next((number for number, one in enumerate(pruned.state.places) if one.gates > 1), 0)
        pruned.state.raw[uneven].data[1:] = -torch.inf  # log α of a gate that is closed for sure
    elif isinstance(by, p.Ramp):
        made = prune(made, MagnitudePruning(share=by.share, scope=by.scope, where=by.where)).model
    return pruned.finished(made)


def check_losses(work: Work, step: CompressionStep, student: OpenModel, teacher: OpenModel) -> None:
    """Raise `InputError` for a loss that a student and the teacher of the chain cannot have."""
    if step.distillation is not None and step.distillation.teacher is None:
        build_distilled(work.splits.task.objective, step.distillation, teacher.model, body=student.model.config,
                        aligned=student.tokenizer is teacher.tokenizer, steps=MANY_STEPS)
