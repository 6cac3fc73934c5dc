"""The judge of representations: fine-tune a pretrained model on labelled texts, and count the right answers.

Every model is used in one way: its encoder (or its decoder, where it has no encoder), the mean of its vectors, a new
linear map. Axes: B texts, L positions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import torch

from saucier import config as c
from saucier.adaptation.starting_weights import initialize_from
from saucier.config import learned_length
from saucier.devices import AutocastDtype, autocast, choose_autocast_dtype, move_batch
from saucier.errors import InputError
from saucier.jobs.comparison.experiment import Classification
from saucier.jobs.comparison.preparation import Trial
from saucier.jobs.finetuning.start import remove_unused_parts
from saucier.jobs.run.passport import file_digest
from saucier.model import Transformer, build
from saucier.objectives.base import Batch, RowCorruption, to_int_tensor
from saucier.objectives.labels import ClassLabels, get_logits, run_model
from saucier.recipes import Recipe
from saucier.text.reading.documents import Document
from saucier.text.reading.sources import SourceFile, find_sources
from saucier.text.reading.tables import TableRow, read_text_cell
from saucier.text.reading.tables import read_rows as table_rows
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


LabelledText = tuple[Document, str]
"""A text and its label, as a word."""


def read_labelled(file: str, limit: int | None = None) -> list[LabelledText]:
    """Read the columns `label` and `text` of a table. Raises `InputError` for a row without one of them."""
    rows = (read_labelled_row(row, source, file) for source in find_sources([file])
            for row in table_rows(source, ("label", "text")))
    return list(islice(rows, limit))


def read_labelled_row(row: TableRow, source: SourceFile, file: str) -> LabelledText:
    """Read one row."""
    text, label = read_text_cell(row, "text", source), row.cells.get("label")
    if label in (None, "") or not text or not text.strip():
        raise InputError(f"has no {'text' if label not in (None, '') else 'label'}",
                         where=f"{source.name}, line {row.line}", remedy="fill it, or leave the row out")
    return Document(text, file, row.line), str(label)


def check_labelled(judge: Classification) -> list[str]:
    """Return the classes, in order. Raises `InputError` for fewer than two, and for a label that is never trained."""
    classes = sorted({label for _, label in read_labelled(judge.train, judge.limit)})
    if len(classes) < 2:
        raise InputError(f"has {len(classes)} class" + "es" * (not classes), where=judge.train,
                         remedy="give texts of two classes or more")
    for document, label in read_labelled(judge.dev):
        if label not in classes:
            raise InputError(f"label {label!r} is not among those of {judge.train}",
                             where=f"{judge.dev}, line {document.line}",
                             remedy="leave the row out, or train on that label too")
    return classes


def build_classifier(model: Transformer, classes: int, seed: int) -> Transformer:
    """Return a classifier that begins with a model's weights; only its map is new. The model loses what is not used."""
    changes: dict[str, object] = {"pooler": None, "default_target": None, "head": c.ClassificationHead(
        pick=c.PickVector(kind="mean"), classes=classes, dropout=DROPOUT)}
    if model.config.encoder is not None:
        changes |= {"decoder": None, "decoder_embed": None}
    found = build(model.config.model_copy(update=changes), seed=seed, device=next(model.parameters()).device)
    remove_unused_parts(model, found.config)
    initialize_from(found, model)
    return found


@dataclass(frozen=True, slots=True)
class LabelBatch(RowCorruption):
    """Rows of single texts to a batch with their labels. Shapes: labels [N texts]; gives labels [B]."""

    labels: Ints

    def __call__(self, rows: Rows, *, seed: int, step: int) -> Batch:
        """Look the labels up; nothing is drawn."""
        return {"input_ids": to_int_tensor(rows.tokens), "attention_mask": to_int_tensor(rows.mask),
                "labels": to_int_tensor(self.labels[rows.item])}


def encode_labelled_texts(found: Sequence[LabelledText], classes: list[str], folder: Path,
                          tokenizer: Tokenizer) -> tuple[TokenStore, LabelBatch]:
    """Encode texts, each inside the tokens that begin and end a text where there are some; return also their labels."""
    begin, end = (framing if special is None else special for special, framing in
                  zip((tokenizer.cls_id, tokenizer.sep_id), get_document_frame(tokenizer), strict=True))
    store = write_documents(folder, (document for document, _ in found), tokenizer, begin=begin, end=end)
    return store, LabelBatch(np.array([classes.index(label) for _, label in found]))


def score_classification(trial: Trial, judge: Classification, model: Transformer,
                         tokenizer: Tokenizer) -> tuple[float, ...]:
    """Fine-tune, and say of each text of `dev` whether it was classified rightly: 1 or 0."""
    classes, place = check_labelled(judge), trial.folder / CLASSIFICATION_FOLDER
    learned, labels = encode_labelled_texts(read_labelled(judge.train, judge.limit), classes, place / "train",
                                            tokenizer)
    scored = encode_labelled_texts(read_labelled(judge.dev), classes, place / "dev", tokenizer)
    limits = BatchLimits(batch=judge.batch, length=learned_length(model.config) or trial.recipe.training.length,
                         ends=TextEnds(tokenizer.sep_id if tokenizer.sep_id is not None else tokenizer.eos_id,
                                       tokenizer.pad_id or 0))
    classifier = build_classifier(model, len(classes), trial.seed)
    batches = BucketedTexts(learned, limits, seed=trial.seed)
    training = classification_training(judge, trial.recipe, batches.steps_per_epoch, trial.seed)
    identity = {"judge": judge.model_dump(mode="json"), "train": file_digest(Path(judge.train)),
                "training": training.model_dump(mode="json", exclude={"reporters"})}
    train(classifier, TrainingData(batches, labels, ClassLabels()), training, run_folder=place, reporters=[],
          recipe=identity)
    dtype: AutocastDtype = choose_autocast_dtype(training.dtype, next(classifier.parameters()).device)[0]
    with torch.no_grad(), autocast(dtype, next(classifier.parameters()).device):
        return tuple(check_predictions(classifier.eval(), *scored, limits))


def classification_training(judge: Classification, recipe: Recipe, steps_per_epoch: int, seed: int) -> Training:
    """Return how a model is fine-tuned: AdamW, a short warm-up, a line down to zero.

    Source: Devlin et al. 2019, appendix A.3.
    """
    steps = judge.epochs * steps_per_epoch
    return Training(steps=steps, batch=judge.batch,
                    optimizer=AdamW(learning_rate=judge.learning_rate, beta2=0.999, weight_decay=0.01),
                    schedule=Linear(warmup=max(1, steps // 10)), evaluate_every=steps, keep=1,
                    log_every=max(1, steps // 20), events="off", seed=seed, dtype=recipe.training.dtype)


def check_predictions(model: Transformer, store: TokenStore, labels: LabelBatch,
                      limits: BatchLimits) -> Iterator[float]:
    """Yield for each text, in order, whether the likeliest class is the right one."""
    device = next(model.parameters()).device
    for start in range(0, len(store), limits.batch):
        items = np.arange(start, min(start + limits.batch, len(store)))
        tokens, lengths = pad_texts(store, items, limits.length, limits.ends)
        rows = make_text_rows(tokens, lengths, row=items - start, item=items)
        batch = move_batch(labels(rows, seed=0, step=0), device)
        yield from (get_logits(run_model(model, batch)).argmax(-1) == batch["labels"]).float().tolist()
