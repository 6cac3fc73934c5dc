"""Evaluating a run again: on its own held-out text, or on any other files."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from saucier.adaptation.starting_weights import rebuild_model
from saucier.checkpoints.hub import resolve_folder
from saucier.config.model import set_memory_length
from saucier.devices import AutocastDtype, choose_autocast_dtype, choose_device
from saucier.errors import InputError, suggest_name
from saucier.folders.kinds import find_model_folder
from saucier.jobs.pretraining.batching import build_run_objectives
from saucier.jobs.pretraining.data import (
    Store,
    iterate_held_out,
    load_collocations,
    open_corpus,
    open_store,
    write_token_store,
)
from saucier.jobs.pretraining.held_out import baseline_scores, held_out_loss, translation_scores
from saucier.objectives.build import join_objectives
from saucier.objectives.config import Causal, ShuffledRows, list_single_objectives
from saucier.opened import RunFolder, open_model, run_folder_of
from saucier.recipes import Recipe
from saucier.report.results import HeldOut, Score
from saucier.tasks.language_baselines import KINDS, Baseline
from saucier.text.config import LanguageData, PairData, TextData
from saucier.text.reading.corpus import add_reverse_pair
from saucier.text.reading.documents import Document, Pair, read_documents, read_pairs
from saucier.text.rows.store import TokenStore, write_pairs
from saucier.text.tokenizer.tokenizer import Tokenizer
from saucier.training.resume import load_modules


@dataclass(frozen=True, slots=True)
class EvaluationRequest:
    """What a person wants to know."""

    run: Path
    files: tuple[str, ...] = ()
    """None: the run's own held-out text."""
    baselines: bool = False
    beams: int | None = None
    limit: int | None = None
    dtype: str = "auto"
    stride: int | None = None
    """Rows that overlap, each this number of tokens after the last."""
    rows: int | None = None
    """Rows in one forward pass."""
    memory: int | None = None
    """Tokens that a model with a memory remembers; None: as many as in training."""
    base: str | None = None
    """Of an adapter, instead of the one that it names."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What was measured."""

    held_out: HeldOut
    baselines: tuple[Baseline, ...]
    scores: tuple[Score, ...]
    seconds: float
    """What the held-out loss took."""

    @property
    def tokens_per_second(self) -> float:
        """Targets scored in a second."""
        return self.held_out.tokens / self.seconds

    def as_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {"held_out": self.held_out.model_dump(mode="json"),
                "baselines": [one.model_dump(mode="json") for one in self.baselines],
                "scores": [one.model_dump(mode="json") for one in self.scores],
                "tokens_per_second": round(self.tokens_per_second, 1)}


def evaluate_again(question: EvaluationRequest) -> Evaluation:
    """Measure. Raises `InputError` for a folder that is no run, and for files that cannot be read."""
    opened = open_model(question.run, dtype="float32", base=question.base)
    recipe, model = override_recipe(opened.own_recipe, question), opened.model
    if question.memory is not None:
        model = rebuild_model(model, set_memory_length(model.config, question.memory))
        recipe = recipe.model_copy(update={"blueprint": model.config})
    objectives = build_run_objectives(recipe, opened.tokenizer,
                                   load_collocations(recipe, RunFolder(run_folder_of(question.run))))
    _, objective = join_objectives(objectives, recipe.training.seed)
    objective.bind(model)
    load_modules(objective.modules, find_model_folder(resolve_folder(question.run)))
    found = replace(opened, model=model, recipe=recipe, dtype=read_dtype(question.dtype), objectives=objectives)
    folder = RunFolder(run_folder_of(question.run))
    with open_evaluation_data(recipe, question.files, opened.tokenizer, folder) as (store, items), torch.no_grad():
        compared = question.baselines and folder.train_store.is_dir()
        texts = (item.text for item in items if isinstance(item, Document))
        pairs = (item for item in items if isinstance(item, Pair))
        begin = time.perf_counter()
        held_out, others = held_out_loss(found, store)
        seconds = time.perf_counter() - begin
        return Evaluation(
            held_out=held_out, seconds=seconds,
            baselines=baseline_scores(recipe, TokenStore(folder.train_store), store, texts, opened.tokenizer.vocab_size)
            if compared else (),
            scores=others + translation_scores(found, pairs))


def override_recipe(recipe: Recipe, question: EvaluationRequest) -> Recipe:
    """Return the recipe with what the person wants otherwise."""
    wanted = {"beams": question.beams, "limit": question.limit, "baselines": KINDS if question.baselines else None}
    wanted |= {"stride": question.stride, "batch": question.rows}
    if question.stride is not None and not all(isinstance(one, Causal) and isinstance(one.rows, ShuffledRows)
                                               for one in list_single_objectives(recipe.objective)):
        raise InputError("rows overlap only where the next token is learned in shuffled rows", where="--stride",
                         remedy="leave it out; a model with a memory takes --memory")
    changed = {name: value for name, value in wanted.items() if value is not None}
    return recipe.model_copy(update={"evaluation": recipe.evaluation.model_copy(update=changed)})


def read_dtype(asked: str) -> AutocastDtype:
    """Return the number format of the multiplications. Raises `InputError` for an unknown name."""
    match asked:
        case "auto" | "float32" | "bfloat16":
            return choose_autocast_dtype(asked, choose_device("auto"))[0]
    raise InputError(f"unknown dtype {asked!r}", where="--dtype",
                     remedy=suggest_name(asked, ["auto", "float32", "bfloat16"]))


@contextmanager
def open_evaluation_data(recipe: Recipe, files: tuple[str, ...], tokenizer: Tokenizer,
                         folder: RunFolder) -> Iterator[tuple[Store, Iterable[Document | Pair]]]:
    """Give a store to score and what it was made from; one made of other files lives as long as the context."""
    if not files:
        yield open_store(recipe, folder.held_out_store), iterate_held_out(open_corpus(recipe))
        return
    with TemporaryDirectory() as temporary:
        match recipe.data:
            case PairData(source=source, target=target, languages=languages) as data:
                read = read_pairs(files, source=source, target=target, told=languages is not None)
                pairs = [way for pair in read for way in add_reverse_pair(pair, data)]
                yield write_pairs(Path(temporary) / "store", pairs, tokenizer), pairs
            case TextData(column=column, document=unit):
                documents = list(read_documents(files, column=column, unit=unit))
                yield write_token_store(recipe, tokenizer, documents, Path(temporary) / "store"), documents
            case LanguageData():
                raise InputError("of which language are these files? The run knows several", where=files[0],
                                 remedy="leave them out: the run's own held-out text is measured")
