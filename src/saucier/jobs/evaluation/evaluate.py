"""`evaluate`: what the opened model is decides how it is measured. A run is measured by its objective, a decoder by the
likelihood of texts, a masked encoder by hidden tokens, a model for a task by the scores of its answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from saucier import config as c
from saucier.checkpoints.hub import TUNED, resolve_folder
from saucier.errors import InputError
from saucier.folders.kinds import find_model_folder
from saucier.generation.feeds import prediction_kind
from saucier.jobs.evaluation.answers import TaskModel, evaluate_task, for_task
from saucier.jobs.evaluation.likelihood import (
    HiddenTokenModel,
    NextTokenModel,
    evaluate_language_model,
    evaluate_masked_model,
)
from saucier.jobs.evaluation.measurement import Evaluation, EvaluationOptions
from saucier.jobs.finetuning.predict import task_of_published
from saucier.jobs.finetuning.task_folder import read_task
from saucier.jobs.pretraining.held_out import evaluate_again, read_dtype
from saucier.opened import OpenModel, RunFolder, open_model, run_folder_of
from saucier.tasks.definitions import CosineScore, Embedding, InBatch
from saucier.tasks.examples import LABEL, SCORE
from saucier.tasks.language_baselines import KINDS
from saucier.tasks.written.definitions import Written
from saucier.text.reading.guessing import ReadOptions
from saucier.text.reading.sources import AS_GUESSED, find_sources
from saucier.text.reading.tables import list_columns

Subject = NextTokenModel | HiddenTokenModel | TaskModel
"""What a model is, where no run says it."""


def evaluate(model: str, files: Sequence[str] = (), options: EvaluationOptions | None = None) -> Evaluation:
    """Measure a model: a run, a fine-tuning, a folder in any layout, an adapter, or a hub id.

    `files`: text for a language model, labelled rows for a task; none: what a run or a fine-tuning holds out.
    Raises `InputError` for a model that cannot be measured on such files, and for options that it does not read.
    """
    options = options or EvaluationOptions()
    find_sources(list(files), options.read)  # a file that is not there is refused before any weights are read
    if RunFolder(run_folder_of(Path(model))).is_run:
        return evaluate_run(model, files, options)
    if not files and not (Path(model) / TUNED).is_file():
        resolve_folder(model)
        raise InputError("on which text or rows? This model comes without any", where=model,
                         remedy="name a file: text for a language model, labelled rows for a task")
    opened = open_model(Path(model), dtype="float32", base=options.base, format=options.format)
    opened = replace(opened, dtype=read_dtype(options.dtype) if opened.model.format is None else "float32")
    match identify_model(opened, files, options.read):
        case NextTokenModel(opened=found):
            return evaluate_language_model(found, files, options)
        case HiddenTokenModel(opened=found):
            return evaluate_masked_model(found, files, options)
        case TaskModel() as found:
            return evaluate_task(found, files, options)


def identify_model(opened: OpenModel, files: Sequence[str] = (), read: ReadOptions = AS_GUESSED) -> Subject:
    """Return what a model is: by the task in its folder, or else by its head.

    A decoder that learned to write answers is a language model where the files are plain text. The columns of `files`
    say what an embedder is measured by. Raises `InputError` for a model that can only be
    measured as a run.
    """
    config, where = opened.model.config, str(opened.path)
    saved = read_task(find_model_folder(resolve_folder(opened.path)))
    plain = bool(files) and all(one.format == "txt" for one in find_sources(list(files), read))
    if saved is not None and not (plain and isinstance(saved[0], Written) and config.encoder is None):
        return TaskModel(for_task(replace(opened, length=saved[1]), saved[0]), learned=True)
    match config.head:
        case c.EmbeddingHead():
            return TaskModel(for_task(opened, Embedding(learns=choose_comparison(files, read))))
        case c.ClassificationHead() | c.TokenHead() | c.SpanHead() | c.ChoiceHead():
            return TaskModel(for_task(opened, task_of_published(opened.model, where)))
        case c.LanguageHead() if opened.is_encoder_decoder:
            return TaskModel(for_task(opened, task_of_published(opened.model, where)))
        case c.LanguageHead() | c.AdaptiveHead() if config.encoder is None and prediction_kind(config).kind == "next":
            return NextTokenModel(opened)
        case c.LanguageHead() | c.PretrainingHead() if fills_masks(opened):
            return HiddenTokenModel(opened)
        case None:
            raise InputError("a body without a head says nothing that could be right or wrong", where=where,
                             remedy="fine-tune it first: saucier finetune TASK --model ... --data ...")
        case head:
            raise InputError(f"what a head of the kind {head.kind} says is measured in its own run only", where=where,
                             remedy="give the run that trained it, or fine-tune it: saucier finetune TASK --model ...")


def fills_masks(opened: OpenModel) -> bool:
    """Say whether a model tells what mask tokens hide; XLNet, for one, is asked in another way."""
    config = opened.model.config
    asks = prediction_kind(config).kind == "query_stream"
    return config.decoder is None and opened.tokenizer.mask_id is not None and not asks


def choose_comparison(files: Sequence[str], read: ReadOptions = AS_GUESSED) -> CosineScore | InBatch:
    """Return what vectors are measured by: scores of pairs where the first file has some, else finding the right pair.
    """
    first = find_sources(list(files), read)[0]
    known = ["score"] if first.format == "txt" else list_columns(first)
    return CosineScore() if {*known} & {*SCORE.usual, *LABEL.usual} else InBatch()


def evaluate_run(model: str, files: Sequence[str], options: EvaluationOptions) -> Evaluation:
    """Measure a run by its own objective, on its held-out text or on files."""
    options.refuse_idle("run", "baselines", "beams", "stride", "memory")
    if options.format is not None:
        raise InputError("a run is measured by its objective, which the model's own parts compute", where="--format",
                         remedy=f"leave it out; saucier bench {model} --data FILE measures every format")
    changes = {"baselines": KINDS if options.baselines else None, "beams": options.beams, "limit": options.limit,
               "stride": options.stride, "batch": options.batch}
    found = evaluate_again(Path(model), tuple(files), changes=changes, dtype=options.dtype, memory=options.memory,
                           base=options.base, words=options.words)
    return Evaluation(model, "run", found.figures, (), found.seconds, found.held_out.tokens, "tokens", run=found)
