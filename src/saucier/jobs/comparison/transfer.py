"""The judge of representations: fine-tune a pretrained model on labelled texts, and count the right answers.

Every model is used in one way: its encoder (or its decoder, where it has no encoder), the mean of its vectors, a new
linear map. Axes: B texts, L positions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch

from saucier import config as c
from saucier.devices import AutocastDtype, autocast, choose_autocast_dtype, move_batch
from saucier.errors import InputError, WorkError
from saucier.jobs.comparison.experiment import Classification
from saucier.jobs.comparison.preparation import Trial
from saucier.jobs.run.passport import file_digest
from saucier.model import Transformer, build
from saucier.objectives.base import Batch, to_int_tensor
from saucier.objectives.labels import ClassLabels, get_logits, run_model
from saucier.recipes import Recipe
from saucier.recipes.catalogue import learned_length
from saucier.text.reading.documents import Document
from saucier.text.reading.sources import find_sources
from saucier.text.reading.tables import read_rows as table_rows
from saucier.text.reading.tables import read_text_cell
from saucier.text.rows.batch import Ints, Rows
from saucier.text.rows.bucketed import BatchLimits, BucketedTexts, TextEnds, make_text_rows, pad_texts
from saucier.text.rows.store import TokenStore, get_document_frame, write_documents
from saucier.text.tokenizer.tokenizer import Tokenizer
from saucier.training.hyperparameters import AdamW, Linear, Training
from saucier.training.loop import train
from saucier.training.update import TrainingData

CLASSIFICATION_FOLDER = "classify"
DROPOUT = 0.1
"""On the vector that the new map reads. Source: Devlin et al. 2019, §4.1 (the usual rate)."""


@dataclass(frozen=True, slots=True)
class LabelledTexts:
    """A table's texts and their labels, as words."""

    texts: tuple[str, ...]
    labels: tuple[str, ...]
    lines: tuple[int, ...]
    file: str


def read_labelled(file: str, limit: int | None = None) -> LabelledTexts:
    """Read the columns `label` and `text` of a table. Raises `InputError` for a row without one of them."""
    texts: list[str] = []
    labels: list[str] = []
    lines: list[int] = []
    for source in find_sources([file]):
        for row in table_rows(source, ("label", "text")):
            if limit is not None and len(texts) == limit:
                break
            text, label = read_text_cell(row, "text", source), row.cells.get("label")
            if label in (None, "") or not text or not text.strip():
                raise InputError(f"has no {'text' if label not in (None, '') else 'label'}",
                                 where=f"{source.name}, line {row.line}", remedy="fill it, or leave the row out")
            texts.append(text)
            labels.append(str(label))
            lines.append(row.line)
    return LabelledTexts(tuple(texts), tuple(labels), tuple(lines), file)


def check_labelled(judge: Classification) -> list[str]:
    """Return the classes, in order. Raises `InputError` for fewer than two, and for a label that is never trained."""
    classes = sorted(set(read_labelled(judge.train, judge.limit).labels))
    if len(classes) < 2:
        raise InputError(f"has {len(classes)} class" + "es" * (not classes), where=judge.train,
                         remedy="give texts of two classes or more")
    dev = read_labelled(judge.dev)
    for label, line in zip(dev.labels, dev.lines, strict=True):
        if label not in classes:
            raise InputError(f"label {label!r} is not among those of {judge.train}", where=f"{judge.dev}, line {line}",
                             remedy="leave the row out, or train on that label too")
    return classes


def build_classifier(model: Transformer, classes: int, seed: int) -> Transformer:
    """Return a classifier that begins with a model's weights; only its map is new.

    Raises `WorkError` where the model lacks a weight that the classifier needs, which would be a fault of ours.
    """
    config = model.config
    changes: dict[str, object] = {"pooler": None, "default_target": None, "head": c.ClassificationHead(
        pick=c.PickVector(kind="mean"), classes=classes, dropout=DROPOUT)}
    if config.encoder is not None:
        changes |= {"decoder": None, "decoder_embed": None}
    found = build(config.model_copy(update=changes), seed=seed, device=next(model.parameters()).device)
    weights = dict(model.named_parameters())
    with torch.no_grad():
        for name, parameter in found.named_parameters():
            if not name.startswith("head."):
                if name not in weights:
                    raise WorkError(f"the pretrained model has no {name}")
                parameter.copy_(weights[name])
    return found


@dataclass(frozen=True, slots=True)
class LabelBatch:
    """Rows of single texts to a batch with their labels. Shapes: labels [N texts]; gives labels [B]."""

    labels: Ints
    overlap: ClassVar[int] = 0

    def row_length(self, length: int) -> int:
        """The same."""
        return length

    def __call__(self, rows: Rows, *, seed: int, step: int) -> Batch:
        """Look the labels up; nothing is drawn."""
        return {"input_ids": to_int_tensor(rows.tokens), "attention_mask": to_int_tensor(rows.mask),
                "labels": to_int_tensor(self.labels[rows.item])}


@dataclass(frozen=True, slots=True)
class EncodedTexts:
    """One side of the labelled texts, encoded."""

    store: TokenStore
    labelling: LabelBatch


def encode_labelled_texts(found: LabelledTexts, classes: list[str], folder: Path, tokenizer: Tokenizer) -> EncodedTexts:
    """Encode texts, each inside the tokens that begin and end a text where there are some."""
    begin = tokenizer.cls_id if tokenizer.cls_id is not None else get_document_frame(tokenizer)[0]
    end = tokenizer.sep_id if tokenizer.sep_id is not None else get_document_frame(tokenizer)[1]
    documents = (Document(text, found.file, line) for text, line in zip(found.texts, found.lines, strict=True))
    store = write_documents(folder, documents, tokenizer, begin=begin, end=end)
    return EncodedTexts(store, LabelBatch(np.array([classes.index(label) for label in found.labels])))


def score_classification(trial: Trial, judge: Classification, model: Transformer,
                         tokenizer: Tokenizer) -> tuple[float, ...]:
    """Fine-tune, and say of each text of `dev` whether it was classified rightly: 1 or 0."""
    classes, place = check_labelled(judge), trial.folder / CLASSIFICATION_FOLDER
    learned = encode_labelled_texts(read_labelled(judge.train, judge.limit), classes, place / "train", tokenizer)
    asked = encode_labelled_texts(read_labelled(judge.dev), classes, place / "dev", tokenizer)
    limits = BatchLimits(batch=judge.batch, length=learned_length(model.config) or trial.recipe.training.length,
                         ends=TextEnds(tokenizer.sep_id if tokenizer.sep_id is not None else tokenizer.eos_id,
                                       tokenizer.pad_id or 0))
    classifier = build_classifier(model, len(classes), trial.seed)
    batches = BucketedTexts(learned.store, limits, seed=trial.seed)
    training = classification_training(judge, trial.recipe, batches.steps_per_epoch, trial.seed)
    identity = {"judge": judge.model_dump(mode="json"), "train": file_digest(Path(judge.train)),
                "training": training.model_dump(mode="json")}
    train(classifier, TrainingData(batches, learned.labelling, ClassLabels()), training, run_folder=place, reporters=[],
          recipe=identity)
    dtype: AutocastDtype = choose_autocast_dtype(training.dtype, next(classifier.parameters()).device)[0]
    with torch.no_grad(), autocast(dtype, next(classifier.parameters()).device):
        return tuple(check_predictions(classifier.eval(), asked, limits))


def classification_training(judge: Classification, recipe: Recipe, steps_per_epoch: int, seed: int) -> Training:
    """Return how a model is fine-tuned: AdamW, a short warm-up, a line down to zero.

    Source: Devlin et al. 2019, appendix A.3.
    """
    steps = judge.epochs * steps_per_epoch
    return Training(steps=steps, batch=judge.batch,
                    optimizer=AdamW(learning_rate=judge.learning_rate, beta2=0.999, weight_decay=0.01),
                    schedule=Linear(warmup=max(1, steps // 10)), evaluate_every=steps, keep=1,
                    log_every=max(1, steps // 20), events="off", seed=seed, dtype=recipe.training.dtype)


def check_predictions(model: Transformer, asked: EncodedTexts, limits: BatchLimits) -> Iterator[float]:
    """Yield for each text, in order, whether the likeliest class is the right one."""
    device = next(model.parameters()).device
    for start in range(0, len(asked.store), limits.batch):
        items = np.arange(start, min(start + limits.batch, len(asked.store)))
        tokens, lengths = pad_texts(asked.store, items, limits.length, limits.ends)
        rows = make_text_rows(tokens, lengths, row=items - start, item=items)
        batch = move_batch(asked.labelling(rows, seed=0, step=0), device)
        yield from (get_logits(run_model(model, batch)).argmax(-1) == batch["labels"]).float().tolist()
