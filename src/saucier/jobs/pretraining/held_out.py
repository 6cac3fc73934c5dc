"""Measuring a model on held-out text: loss and bits per byte next to simpler methods, BLEU and chrF, and what they
mean.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from saucier.devices import autocast
from saucier.generation.options import MaskPredict
from saucier.jobs.pretraining.batching import RowSettings, make_evaluator, training_batches
from saucier.jobs.pretraining.data import Store
from saucier.jobs.run.language_pairs import group_by_direction, read_direction
from saucier.jobs.writing.batches import map_in_batches
from saucier.jobs.writing.writer import Writer
from saucier.objectives.base import IGNORED, Batch
from saucier.objectives.build import BuiltObjective
from saucier.objectives.config import Causal, ConditionalMasked, ObjectiveConfig, SequenceToSequence
from saucier.opened import OpenModel
from saucier.recipes import Recipe
from saucier.report.results import HeldOut, Score
from saucier.tasks.language_baselines import Baseline, measure_baselines
from saucier.tasks.metrics import bits_per_byte, bleu, chrf, perplexity
from saucier.text.reading.documents import Pair
from saucier.text.rows.store import PairStore, TokenStore
from saucier.text.tokenizer.tokenizer import Tokenizer
from saucier.training.evaluation import Evaluator, MixedEvaluator
from saucier.training.processes import Processes


def describe_measurements(held_out: HeldOut, baselines: Sequence[Baseline] = (),
                          scores: Sequence[Score] = ()) -> Iterator[str]:
    """Yield what was measured."""
    if held_out.bits_per_byte is not None:
        yield from describe_bits_per_byte(held_out.bits_per_byte, baselines)
    accuracy = "" if held_out.accuracy is None else f", {held_out.accuracy:.1%} of the tokens right"
    perplexed = perplexity(held_out.loss, 1)
    yield f"loss {held_out.loss:.4f} nats, perplexity {perplexed:,.2f}{accuracy} ({held_out.tokens:,} tokens)"
    if held_out.by_frequency is not None:
        frequent, own = held_out.by_frequency, held_out.loss
        known = f"{frequent - own:.4f} better" if own < frequent else "not better yet"
        yield f"each target by its frequency alone: {frequent:.4f} nats; the model is {known}"
    for score in scores:
        yield f"{score.name} {score.value:.2f}" + (f"   ({score.note})" if score.note else "")


def describe_bits_per_byte(own: float, baselines: Sequence[Baseline]) -> Iterator[str]:
    """Yield bits per byte next to simpler methods."""
    others = ", ".join(f"{baseline.name} {baseline.bits_per_byte:.3f}" for baseline in baselines)
    yield f"{own:.3f} bits per byte" + (f"   ({others})" if others else "")
    if baselines:
        better = [baseline.name for baseline in baselines if baseline.bits_per_byte <= own]
        yield f"not yet better than {' and '.join(better)}" if better else "better than all of them"


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
    row_settings, nats, targets = RowSettings(recipe, tokenizer), 0.0, 0
    for built in objectives:
        batches = training_batches(row_settings, train, built)
        epoch = (built.corruption(batches[step], seed=recipe.training.seed, step=step)
                 for step in range(batches.steps_per_epoch))
        surprise = -np.log(target_frequencies(epoch, tokenizer.target.vocab_size))
        evaluator = make_evaluator(recipe, tokenizer, held_out, (built,), whole=True, processes=Processes())
        assert isinstance(evaluator, Evaluator | MixedEvaluator), "what measures one built"
        for ids in target_ids(batch for part in leaf_evaluators(evaluator) for batch in part.batches()):
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
    """Yield the ids that each batch asks for."""
    for batch in batches:
        labels: Tensor = batch["labels"]
        yield labels[labels != IGNORED].numpy()


def leaf_evaluators(evaluator: Evaluator | MixedEvaluator) -> Iterator[Evaluator]:
    """Yield what measures each part."""
    if isinstance(evaluator, Evaluator):
        yield evaluator
    else:
        for part in evaluator.parts:
            yield from leaf_evaluators(part)


def held_out_loss(found: OpenModel, store: Store) -> tuple[HeldOut, tuple[Score, ...]]:
    """Score all held-out targets once; return also what was learned in addition to the tokens."""
    evaluate = make_evaluator(found.own_recipe, found.tokenizer, store, found.objectives, whole=True,
                              processes=Processes())
    with autocast(found.dtype, found.device):
        scores = evaluate(found.model)
    size = store.target.bytes if isinstance(store, PairStore) else store.bytes
    likelihood = scores_whole_texts(found.own_recipe.objective)
    tokens = int(scores["targets"])
    held_out = HeldOut(loss=scores["nats"] / max(1, tokens), tokens=tokens, bytes=size, accuracy=scores["accuracy"],
                       bits_per_byte=bits_per_byte(scores["nats"], size) if likelihood else None)
    figures = {name: words for built in found.objectives for name, words in built.objective.figures.items()}
    figures |= {name: name.replace("_", " ") for name in scores if name.endswith("_loss")}
    return held_out, tuple(Score(name=words, value=scores[name]) for name, words in figures.items() if name in scores)


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
    """Translate held-out sources and score them, in every way that the recipe asks for. Nothing for other objectives.

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


def score_direction(found: OpenModel, pairs: Sequence[Pair], decoding: Decoding) -> tuple[Score, Score]:
    """Translate the sources of pairs of one direction, and score what is written."""
    references, way = [pair.target for pair in pairs], pairs[0].way
    written = translate_texts(found, [pair.source for pair in pairs], decoding, pairs[0].languages)
    about = f"{len(pairs):,} held-out pairs, {decoding.words}; "
    first, second = (Score(name=name + (f" {way}" if way else "") + decoding.suffix, value=score.score,
                           note=about + score.signature)
                     for name, score in (("BLEU", bleu(written, references)), ("chrF", chrf(written, references))))
    return first, second


@dataclass(frozen=True, slots=True)
class Decoding:
    """A way to translate."""

    options: Mapping[str, Any]
    """Those of generation."""
    words: str
    """What a report says of it."""
    suffix: str = ""
    """What tells its scores from those of others."""


def list_decodings(recipe: Recipe) -> tuple[Decoding, ...]:
    """Return the ways in which translations are scored; samples are written in the last of them."""
    evaluation = recipe.evaluation
    if isinstance(recipe.objective, ConditionalMasked):
        lengths = evaluation.length_candidates
        return tuple(Decoding({"strategy": MaskPredict(iterations=count, length_candidates=lengths)},
                              f"{lengths} lengths", f", {count} iteration{'s' * (count > 1)}")
                     for count in evaluation.iterations)
    beams = evaluation.beams
    return (Decoding({"num_beams": beams, "length_penalty": evaluation.length_penalty, "early_stopping": beams > 1},
                     f"beam {beams}"),)


def translate_texts(found: OpenModel, sources: Sequence[str], decoding: Decoding | None = None,
                    languages: tuple[str, str] | None = None) -> list[str]:
    """Translate texts, sorted by length so that little is padded; they come back in their order.

    Raises `InputError` for languages that the tokenizer has not.
    """
    recipe, way = found.own_recipe, None if languages is None else read_direction(found, *languages)
    writer, options = Writer(found, recipe.training.length, way), (decoding or list_decodings(recipe)[-1]).options
    return map_in_batches(sources, recipe.evaluation.batch, lambda some: writer.translate(some, options))
