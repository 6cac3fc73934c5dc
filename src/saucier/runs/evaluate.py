"""Measuring a run again: on its own held-out text, or on any other files."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from saucier.adaptation.rebuilt import rebuilt
from saucier.config.remembering import with_memory
from saucier.devices import choose_device
from saucier.errors import InputError, nearest
from saucier.hub import folder_of
from saucier.inspection.results import Baseline, HeldOut, Score
from saucier.loading import model_folder_of
from saucier.objectives.build import joint
from saucier.objectives.config import Causal, ShuffledRows, Single, singles
from saucier.recipes import Recipe
from saucier.runs.collocations import stored
from saucier.runs.folder import RunFolder, run_of
from saucier.runs.opened import open_model
from saucier.runs.pantry import Store, held_out_items, kept, open_corpus, open_store
from saucier.runs.scoring import Candidate, held_out_loss, simpler_methods, translation_scores
from saucier.runs.study import make_lessons
from saucier.tasks.baselines.language import KINDS
from saucier.text.config import LanguageData, PairData, TextData
from saucier.text.corpus import both_ways
from saucier.text.encode import write_pairs
from saucier.text.read import Document, Pair, read_documents, read_pairs
from saucier.text.store import TokenStore
from saucier.text.tokenizer import Tokenizer
from saucier.training.precision import Dtype, choose_dtype
from saucier.training.resume import fill_modules


@dataclass(frozen=True, slots=True)
class Question:
    """What a person wants to know."""

    run: Path
    files: tuple[str, ...] = ()
    """None: the run's own held-out text."""
    baselines: bool = False
    beams: int | None = None
    limit: int | None = None
    dtype: str = "auto"
    stride: int | None = None
    """Rows that overlap, each so many tokens after the last."""
    rows: int | None = None
    """Rows in one forward pass."""
    memory: int | None = None
    """Tokens that a model with a memory remembers; None: as many as in training."""
    base: str | None = None
    """Of an adapter, instead of the one that it names."""


@dataclass(frozen=True, slots=True)
class Answer:
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


def answer(question: Question) -> Answer:
    """Measure. Raises `InputError` for a folder that is no run, and for files that cannot be read."""
    opened = open_model(question.run, dtype="float32", base=question.base)
    recipe, model = adjusted(opened.needed_recipe(), question), opened.model
    if question.memory is not None:
        model = rebuilt(model, with_memory(model.config, question.memory))
        recipe = recipe.model_copy(update={"blueprint": model.config})
    lessons = make_lessons(recipe, opened.tokenizer, stored(recipe, RunFolder(run_of(question.run))))
    _, objective = joint(lessons, recipe.training.seed)
    objective.bind(model)
    fill_modules(objective.modules, model_folder_of(folder_of(question.run)))
    found = Candidate(recipe, model, opened.tokenizer, dtype_of(question.dtype), lessons)
    folder = RunFolder(run_of(question.run))
    with material(recipe, question.files, opened.tokenizer, folder) as (store, items), torch.no_grad():
        compared = question.baselines and folder.train_store.is_dir()
        texts = (item.text for item in items if isinstance(item, Document))
        pairs = (item for item in items if isinstance(item, Pair))
        begin = time.perf_counter()
        held_out, beside = held_out_loss(found, store)
        seconds = time.perf_counter() - begin
        return Answer(
            held_out=held_out, seconds=seconds,
            baselines=simpler_methods(recipe, TokenStore(folder.train_store), store, texts, opened.tokenizer.vocab_size)
            if compared else (),
            scores=beside + translation_scores(found, pairs))


def adjusted(recipe: Recipe, question: Question) -> Recipe:
    """Return the recipe with what the person wants otherwise."""
    wanted = {"beams": question.beams, "limit": question.limit, "baselines": KINDS if question.baselines else None}
    wanted |= {"stride": question.stride, "batch": question.rows}
    if question.stride is not None and not all(overlaps(one) for one in singles(recipe.objective)):
        raise InputError("rows overlap only where the next token is learned in shuffled rows", where="--stride",
                         remedy="leave it out; a model with a memory takes --memory")
    changed = {name: value for name, value in wanted.items() if value is not None}
    return recipe.model_copy(update={"evaluation": recipe.evaluation.model_copy(update=changed)})


def overlaps(objective: Single) -> bool:
    """Say whether held-out rows may overlap: some of their tokens are there to be read only."""
    return isinstance(objective, Causal) and isinstance(objective.rows, ShuffledRows)


def dtype_of(asked: str) -> Dtype:
    """Return the number format of the multiplications. Raises `InputError` for an unknown name."""
    match asked:
        case "auto" | "float32" | "bfloat16":
            return choose_dtype(asked, choose_device("auto"))[0]
    raise InputError(f"unknown dtype {asked!r}", where="--dtype",
                     remedy=nearest(asked, ["auto", "float32", "bfloat16"]))


@contextmanager
def material(recipe: Recipe, files: tuple[str, ...], tokenizer: Tokenizer,
             folder: RunFolder) -> Iterator[tuple[Store, Iterable[Document | Pair]]]:
    """Give a store to score and what it was made from; one made of other files lives as long as the context."""
    if not files:
        yield open_store(recipe, folder.held_out_store), held_out_items(open_corpus(recipe))
        return
    with TemporaryDirectory() as temporary:
        match recipe.data:
            case PairData(source=source, target=target, languages=told) as data:
                read = read_pairs(files, source=source, target=target, told=told is not None)
                pairs = [way for pair in read for way in both_ways(pair, data)]
                yield write_pairs(Path(temporary) / "store", pairs, tokenizer), pairs
            case TextData(column=column, document=unit):
                documents = list(read_documents(files, column=column, unit=unit))
                yield kept(recipe, tokenizer, documents, Path(temporary) / "store"), documents
            case LanguageData():
                raise InputError("of which language are these files? The run knows several", where=files[0],
                                 remedy="leave them out: the run's own held-out text is measured")
