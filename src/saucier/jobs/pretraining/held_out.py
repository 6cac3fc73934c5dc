"""Measuring a model on held-out text: loss and bits per byte next to simpler methods, BLEU and chrF, and what they
mean; at the end of a run, or again, on its own held-out text or on any other files.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from saucier.adaptation.starting_weights import rebuild_model
from saucier.checkpoints.hub import resolve_folder
from saucier.config.model import set_memory_length
from saucier.devices import AutocastDtype, autocast, choose_autocast_dtype, choose_device
from saucier.errors import InputError, suggest_name
from saucier.folders.kinds import find_model_folder
from saucier.generation.decoding import Beams, Decoding, Greedy, MaskPredict
from saucier.jobs.pretraining.batching import RowCutter, build_evaluator, build_run_objectives, make_evaluator
from saucier.jobs.pretraining.data import (
    COLLOCATIONS_FILE,
    Store,
    iterate_held_out,
    open_corpus,
    open_store,
    read_collocations,
    write_token_store,
)
from saucier.jobs.run.language_pairs import group_by_direction, read_direction
from saucier.jobs.writing.writer import Writer
from saucier.model import Transformer
from saucier.objectives.base import IGNORED, Batch
from saucier.objectives.build import BuiltObjective, join_objectives
from saucier.objectives.config import (
    Causal,
    ConditionalMasked,
    ObjectiveConfig,
    SequenceToSequence,
    ShuffledRows,
    find_pmi_masking,
    list_single_objectives,
)
from saucier.opened import OpenModel, RunFolder, open_model, run_folder_of
from saucier.recipes import Recipe
from saucier.recipes import recipe as read_recipe
from saucier.recipes.source import read_override
from saucier.report.results import HeldOut, Score
from saucier.tasks.language_baselines import Baseline, measure_baselines
from saucier.tasks.metrics import bits_per_byte, bleu, chrf, perplexity
from saucier.tasks.metrics.metric import Sums, interval, ratio
from saucier.tasks.scores import Score as Measured
from saucier.tasks.written.task import map_in_batches
from saucier.text.config import LanguageData, PairData, TextData
from saucier.text.reading.corpus import add_reverse_pair
from saucier.text.reading.documents import Document, Pair, read_documents, read_pairs
from saucier.text.rows.store import PairStore, TokenStore, write_pairs
from saucier.text.tokenizer.tokenizer import Tokenizer
from saucier.training.evaluation import NLL, Evaluator, average_scores, sum_scores
from saucier.training.processes import Processes
from saucier.training.resume import load_modules
from saucier.training.update import Evaluate


def describe_measurements(held_out: HeldOut, baselines: Sequence[Baseline] = (),
                          scores: Sequence[Score] = ()) -> Iterator[str]:
    """Yield what was measured."""
    if held_out.bits_per_byte is not None:
        own, others = held_out.bits_per_byte, ", ".join(f"{one.name} {one.bits_per_byte:.3f}" for one in baselines)
        yield f"{own:.3f} bits per byte" + (f"   ({others})" if others else "")
        if baselines:
            better = " and ".join(one.name for one in baselines if one.bits_per_byte <= own)
            yield f"not yet better than {better}" if better else "better than all of them"
    accuracy = "" if held_out.accuracy is None else f", {held_out.accuracy:.1%} of the tokens right"
    yield (f"loss {held_out.loss:.4f} nats, perplexity {perplexity(held_out.loss, 1):,.2f}{accuracy} "
           f"({held_out.tokens:,} tokens)")
    if held_out.by_frequency is not None:
        frequent = held_out.by_frequency
        known = f"{frequent - held_out.loss:.4f} better" if held_out.loss < frequent else "not better yet"
        yield f"each target by its frequency alone: {frequent:.4f} nats; the model is {known}"
    for score in scores:
        yield f"{score.name} {score.value:.2f}" + (f"   ({score.note})" if score.note else "")


FEWEST_BLOCKS = 10
"""Batches from which an interval says something."""
MOST_TARGETS = 200_000
"""Training targets of each objective that are counted at most."""
UNSEEN_COUNT = 0.5
"""Added to every count, so that a token which was never a target is not impossible."""


def loss_by_frequency(recipe: Recipe, tokenizer: Tokenizer, stores: tuple[Store, Store],
                      objectives: Sequence[BuiltObjective]) -> float | None:
    """Return nats a held-out target, under the shares of the targets in the training text.

    `stores`: the training text and the held-out one. None where the recipe wants no such comparison, where an n-gram
    model makes a better one (causal), and where the first target is no token (replaced tokens).
    """
    of_tokens = all(one.objective.parts[0] == "tokens" and not isinstance(one.config, Causal) for one in objectives)
    if not of_tokens or "unigram" not in recipe.evaluation.baselines:
        return None
    train, held_out = stores
    nats, targets = 0.0, 0
    for built in objectives:
        batches = RowCutter(recipe, tokenizer, built).cut_training(train)
        epoch = (built.corruption(batches[step], seed=recipe.training.seed, step=step)
                 for step in range(batches.steps_per_epoch))
        surprise = -np.log(target_frequencies(epoch, tokenizer.target.vocab_size))
        evaluator = build_evaluator(RowCutter(recipe, tokenizer, built), held_out, whole=True, processes=Processes())
        for ids in target_ids(evaluator.batches()):
            nats, targets = nats + float(surprise[ids].sum()), targets + len(ids)
    return nats / max(1, targets)


def target_frequencies(batches: Iterable[Batch], vocab: int) -> NDArray[np.float64]:
    """Return how often each id is a target, of the first batches. Shapes: -> [vocab]."""
    counts, seen = np.full(vocab, UNSEEN_COUNT), 0
    for ids in target_ids(batches):
        counts += np.bincount(ids, minlength=vocab)
        seen += len(ids)
        if seen >= MOST_TARGETS:
            break
    shared: NDArray[np.float64] = counts / counts.sum()
    return shared


def target_ids(batches: Iterable[Batch]) -> Iterator[NDArray[np.int64]]:
    """Yield the target ids of each batch."""
    for batch in batches:
        labels: Tensor = batch["labels"]
        yield labels[labels != IGNORED].numpy()


def load_objectives(opened: OpenModel) -> OpenModel:
    """Return a model of a run with what it has learned; modules of the objectives' own have their trained weights."""
    recipe = opened.own_recipe
    counted = None if find_pmi_masking(recipe.objective) is None else \
        read_collocations(run_folder_of(opened.path) / COLLOCATIONS_FILE)
    objectives = build_run_objectives(recipe, opened.tokenizer, counted)
    _, objective = join_objectives(objectives, recipe.training.seed)
    objective.bind(opened.model)
    load_modules(objective.modules, find_model_folder(resolve_folder(opened.path)))
    return replace(opened, objectives=objectives)


def held_out_loss(found: OpenModel, store: Store) -> tuple[HeldOut, tuple[Score, ...]]:
    """Score all held-out targets once; return also what was learned in addition to the tokens."""
    held_out, scores, _ = measure_held_out(found, store)
    return held_out, scores


Blocks = tuple[tuple[float, float], ...]
"""Nats and targets of each batch."""


def measure_held_out(found: OpenModel, store: Store) -> tuple[HeldOut, tuple[Score, ...], Blocks]:
    """Return the same, with the loss batch by batch; of a mixture of objectives no batches."""
    evaluate = make_evaluator(found.own_recipe, found.tokenizer, store, found.objectives, whole=True,
                              processes=Processes())
    with autocast(found.dtype, found.device):
        scores, blocks = measure_blocks(evaluate, found.model)
    size = store.target.bytes if isinstance(store, PairStore) else store.bytes
    tokens = int(scores["targets"])
    bits = bits_per_byte(scores["nats"], size) if scores_whole_texts(found.own_recipe.objective) else None
    held_out = HeldOut(loss=scores["nats"] / max(1, tokens), tokens=tokens, bytes=size, accuracy=scores["accuracy"],
                       bits_per_byte=bits)
    figures = {name: words for built in found.objectives for name, words in built.objective.figures.items()}
    figures |= {name: name.replace("_", " ") for name in scores if name.endswith("_loss")}
    more = tuple(Score(name=words, value=scores[name]) for name, words in figures.items() if name in scores)
    return held_out, more, blocks


def measure_blocks(evaluate: Evaluate, model: Transformer) -> tuple[dict[str, float], Blocks]:
    """Return the figures of an evaluation, and what each of its batches adds to them; the sums are the same bits."""
    if not isinstance(evaluate, Evaluator):
        return evaluate(model), ()
    objective, processes = evaluate.objective, evaluate.processes
    parts = [sum_scores(model, objective, [batch], processes) for batch in evaluate.batches()]
    sums = sum_scores(model, objective, [], processes)
    for part in parts:
        sums = {name: (total + part[name][0], count + part[name][1]) for name, (total, count) in sums.items()}
    main = NLL if sums[NLL][1] else objective.parts[0]
    return average_scores(objective, sums), tuple(one[main] for one in parts)


def scores_whole_texts(objective: ObjectiveConfig) -> bool:
    """Whether an objective gives a whole text its likelihood."""
    return isinstance(objective, Causal) and objective.reads_all


def baseline_scores(recipe: Recipe, train: Store, held_out: Store, texts: Iterator[str], vocab: int) -> tuple[Baseline,
                                                                                                              ...]:
    """Score what a language model has to beat; nothing for other objectives."""
    if not scores_whole_texts(recipe.objective) or not isinstance(train, TokenStore) or not isinstance(held_out,
                                                                                                       TokenStore):
        return ()
    return measure_baselines(train, held_out, texts, vocab=vocab, kinds=recipe.evaluation.baselines)


def translation_scores(found: OpenModel, pairs: Iterator[Pair]) -> tuple[Score, ...]:
    """Translate held-out sources and score them, in every way that the recipe lists. Nothing for other objectives.

    Where the languages are known, each direction is scored by itself, with its target language; their mean comes first.
    """
    if not isinstance(found.own_recipe.objective, SequenceToSequence | ConditionalMasked):
        return ()
    chosen = group_by_direction(pairs, found.own_recipe.evaluation.limit)
    scores = [score for decoding in list_decodings(found.own_recipe) for way in chosen
              for score in score_direction(found, chosen[way], decoding)]
    if len(chosen) < 2:
        return tuple(scores)
    kinds = {name: [one.value for one in scores if one.name.startswith(f"{name} ")] for name in ("BLEU", "chrF")}
    return (*(Score(name=name, value=sum(values) / len(values), note=f"mean of {len(values)} directions")
              for name, values in kinds.items()), *scores)


def score_direction(found: OpenModel, pairs: Sequence[Pair], decoding: Decoding) -> list[Score]:
    """Translate the sources of pairs of one direction, and score what is written."""
    references, way = [pair.target for pair in pairs], pairs[0].direction
    written = translate_texts(found, [pair.source for pair in pairs], decoding, pairs[0].languages)
    how, suffix = f"beam {found.own_recipe.evaluation.beams}", ""
    if isinstance(decoding, MaskPredict):
        how = f"{decoding.length_candidates} lengths"
        suffix = f", {decoding.iterations} iteration{'s' * (decoding.iterations > 1)}"
    return [Score(name=name + (f" {way}" if way else "") + suffix, value=score.score,
                  note=f"{len(pairs):,} held-out pairs, {how}; {score.signature}")
            for name, score in (("BLEU", bleu(written, references)), ("chrF", chrf(written, references)))]


def list_decodings(recipe: Recipe) -> tuple[Decoding, ...]:
    """Return the ways in which translations are scored; samples are written in the last of them."""
    evaluation = recipe.evaluation
    if isinstance(recipe.objective, ConditionalMasked):
        return tuple(MaskPredict(iterations=count, length_candidates=evaluation.length_candidates)
                     for count in evaluation.iterations)
    return (Greedy() if evaluation.beams == 1 else
            Beams(beams=evaluation.beams, length_penalty=evaluation.length_penalty),)


def translate_texts(found: OpenModel, sources: Sequence[str], decoding: Decoding | None = None,
                    languages: tuple[str, str] | None = None) -> list[str]:
    """Translate texts, sorted by length so that little is padded; they come back in their order.

    Raises `InputError` for languages that the tokenizer has not.
    """
    recipe, way = found.own_recipe, None if languages is None else read_direction(found, *languages)
    writer, options = Writer(found, recipe.training.length, way), (decoding or list_decodings(recipe)[-1]).options()
    return map_in_batches(sources, recipe.evaluation.batch, lambda some, _: writer.translate(some, options))


@dataclass(frozen=True, slots=True)
class RunEvaluation:
    """What was measured of a run."""

    held_out: HeldOut
    baselines: tuple[Baseline, ...]
    scores: tuple[Score, ...]
    seconds: float
    """What the held-out loss took."""
    blocks: Blocks = ()

    @property
    def tokens_per_second(self) -> float:
        """Targets scored in a second."""
        return self.held_out.tokens / self.seconds

    @property
    def figures(self) -> tuple[Measured, ...]:
        """The figures by name, over all targets, with intervals where there are enough batches."""
        known = {"perplexity": perplexity(self.held_out.loss, 1), "bits per byte": self.held_out.bits_per_byte,
                 "loss": self.held_out.loss, "accuracy": self.held_out.accuracy}
        ends = self.intervals
        return (*(Measured(name, value, *ends.get(name, (math.nan, math.nan)), self.held_out.tokens, "tokens")
                  for name, value in known.items() if value is not None),
                *(Measured(one.name, one.value, math.nan, math.nan, self.held_out.tokens, one.note)
                  for one in self.scores))

    @property
    def intervals(self) -> dict[str, tuple[float, float]]:
        """The 95 % intervals of what follows from the loss, by a bootstrap over batches; none for a few batches."""
        if len(self.blocks) < FEWEST_BLOCKS:
            return {}
        low, high = interval(Sums(np.array(self.blocks), ratio))
        size = self.held_out.tokens / self.held_out.bytes / math.log(2) if self.held_out.bytes else 0.0
        bits = {"bits per byte": (low * size, high * size)} if self.held_out.bits_per_byte is not None else {}
        return {"loss": (low, high), "perplexity": (perplexity(low, 1), perplexity(high, 1)), **bits}

    def lines(self) -> Iterator[str]:
        """Yield it for a person."""
        yield from describe_measurements(self.held_out, self.baselines, self.scores)
        if ends := self.intervals:
            yield f"95 % intervals over {len(self.blocks):,} batches: " + ", ".join(
                f"{name} {low:,.3f} … {high:,.3f}" for name, (low, high) in ends.items())

    def as_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {"held_out": self.held_out.model_dump(mode="json"),
                "baselines": [one.model_dump(mode="json") for one in self.baselines],
                "scores": [one.model_dump(mode="json") for one in self.scores],
                "intervals": {name: list(ends) for name, ends in self.intervals.items()},
                "tokens_per_second": round(self.tokens_per_second, 1)}


def evaluate_again(run: Path, files: tuple[str, ...] = (), *, changes: Mapping[str, Any] | None = None,
                   dtype: str = "auto", memory: int | None = None, base: str | None = None,
                   words: Sequence[str] = ()) -> RunEvaluation:
    """Measure on files, or on the run's own held-out text.

    `changes`: what is otherwise in the recipe's section `evaluation`, None for what is not; with `baselines` simpler
    methods are measured too. `memory`: tokens that a model with a memory remembers; None: as many as in training.
    `base`: of an adapter, instead of the one that it names. `words`: how the files are read, `data.column=review`.
    Raises `InputError` for a folder that is no run, and for files that cannot be read.
    """
    opened, folder = open_model(run, dtype="float32", base=base), RunFolder(run_folder_of(run))
    if words:
        opened = replace(opened, recipe=change_reading(folder, words))
    changes = {name: value for name, value in (changes or {}).items() if value is not None}
    recipe, model = override_evaluation(opened.own_recipe, changes), opened.model
    if memory is not None:
        model = rebuild_model(model, set_memory_length(model.config, memory))
        recipe = recipe.model_copy(update={"blueprint": model.config})
    found = load_objectives(replace(opened, model=model, recipe=recipe, dtype=read_dtype(dtype)))
    with open_evaluation_data(recipe, files, opened.tokenizer, folder) as (store, items), torch.no_grad():
        texts = (item.text for item in items if isinstance(item, Document))
        pairs = (item for item in items if isinstance(item, Pair))
        begin = time.perf_counter()
        held_out, others, blocks = measure_held_out(found, store)
        seconds = time.perf_counter() - begin
        return RunEvaluation(
            held_out=held_out, seconds=seconds, blocks=blocks,
            baselines=baseline_scores(recipe, TokenStore(folder.train_store), store, texts, opened.tokenizer.vocab_size)
            if "baselines" in changes and folder.train_store.is_dir() else (),
            scores=others + translation_scores(found, pairs))


def change_reading(folder: RunFolder, words: Sequence[str]) -> Recipe:
    """Return a run's recipe whose files are read otherwise. Raises `InputError` for words about anything else."""
    for word in words:
        key, _ = read_override(word)
        if key.split(".")[0] not in ("data", "evaluation"):
            raise InputError(f"{key}: a trained model stays as it is", where="command line",
                             remedy="say how its files are read, such as data.column=review")
    return read_recipe(folder.path / "recipe.yaml", words)


def override_evaluation(recipe: Recipe, changes: Mapping[str, Any]) -> Recipe:
    """Return the recipe with another section `evaluation`. Raises `InputError` for rows that cannot overlap."""
    if "stride" in changes and not all(isinstance(one, Causal) and isinstance(one.rows, ShuffledRows)
                                       for one in list_single_objectives(recipe.objective)):
        raise InputError("rows overlap only where the next token is learned in shuffled rows", where="--stride",
                         remedy="leave it out; a model with a memory takes --memory")
    return recipe.model_copy(update={"evaluation": recipe.evaluation.model_copy(update=changes)})


def read_dtype(name: str) -> AutocastDtype:
    """Return the number format of the multiplications. Raises `InputError` for an unknown name."""
    match name:
        case "auto" | "float32" | "bfloat16":
            return choose_autocast_dtype(name, choose_device("auto"))[0]
    raise InputError(f"unknown dtype {name!r}", where="--dtype",
                     remedy=suggest_name(name, ["auto", "float32", "bfloat16"]))


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
                read = read_pairs(files, source=source, target=target, with_languages=languages is not None,
                                  options=data.read_options)
                pairs = [way for pair in read for way in add_reverse_pair(pair, data)]
                yield write_pairs(Path(temporary) / "store", pairs, tokenizer), pairs
            case TextData(column=column, document=unit) as data:
                documents = list(read_documents(files, column=column, unit=unit, options=data.read_options))
                yield write_token_store(recipe, tokenizer, documents, Path(temporary) / "store"), documents
            case LanguageData():
                raise InputError("of which language are these files? The run knows several", where=files[0],
                                 remedy="leave them out: the run's own held-out text is measured")
