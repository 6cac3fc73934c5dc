"""Measuring a model on held-out text: loss, bits per byte beside simpler methods, BLEU and chrF for translations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from saucier.generation.strategies import MaskPredict
from saucier.inspection.results import Baseline, HeldOut, Score
from saucier.model import Transformer
from saucier.objectives.build import Lesson
from saucier.objectives.config import Causal, ConditionalMasked, ObjectiveConfig, SequenceToSequence
from saucier.recipes import Recipe
from saucier.runs.batches import in_batches
from saucier.runs.direction import direction
from saucier.runs.pantry import Store
from saucier.runs.study import make_evaluator
from saucier.runs.told import by_direction
from saucier.runs.writing import Writer
from saucier.tasks.baselines.language import baselines
from saucier.tasks.metrics import bits_per_byte, bleu, chrf
from saucier.text.read import Pair
from saucier.text.store import PairStore, TokenStore
from saucier.text.tokenizer import Tokenizer
from saucier.training.precision import Dtype, autocast
from saucier.training.processes import Processes


@dataclass(frozen=True, slots=True)
class Candidate:
    """A model to be measured, and all that belongs to it."""

    recipe: Recipe
    model: Transformer
    tokenizer: Tokenizer
    dtype: Dtype
    lessons: tuple[Lesson, ...]
    """What it has learned, with the objective's own modules as they were trained."""


def held_out_loss(found: Candidate, store: Store) -> tuple[HeldOut, tuple[Score, ...]]:
    """Score all held-out targets once; return also what was learned beside the tokens."""
    evaluate = make_evaluator(found.recipe, found.tokenizer, store, found.lessons, whole=True, processes=Processes())
    with autocast(found.dtype, next(found.model.parameters()).device):
        scores = evaluate(found.model)
    size = store.target.bytes if isinstance(store, PairStore) else store.bytes
    likelihood = foretells_all(found.recipe.objective)
    tokens = int(scores["targets"])
    held_out = HeldOut(loss=scores["nats"] / max(1, tokens), tokens=tokens, bytes=size, accuracy=scores["accuracy"],
                       bits_per_byte=bits_per_byte(scores["nats"], size) if likelihood else None)
    figures = {name: words for lesson in found.lessons for name, words in lesson.objective.figures.items()}
    figures |= {name: name.replace("_", " ") for name in scores if name.endswith("_loss")}
    return held_out, tuple(Score(name=words, value=scores[name]) for name, words in figures.items() if name in scores)


def foretells_all(objective: ObjectiveConfig) -> bool:
    """Whether an objective gives a whole text its likelihood."""
    return isinstance(objective, Causal) and objective.reads_all


def simpler_methods(recipe: Recipe, train: Store, held_out: Store, texts: Iterator[str], vocab: int) -> tuple[Baseline,
                                                                                                              ...]:
    """Score what a language model has to beat; nothing for other objectives."""
    if not foretells_all(recipe.objective) or not isinstance(train, TokenStore) or not isinstance(held_out, TokenStore):
        return ()
    return baselines(train, held_out, texts, vocab=vocab, kinds=recipe.evaluation.baselines)


def translation_scores(found: Candidate, pairs: Iterator[Pair]) -> tuple[Score, ...]:
    """Translate held-out sources and score them, in every way that the recipe asks for. Nothing for other objectives.

    Where languages are told, each direction is scored by itself, with its target language; their mean stands first.
    """
    if not isinstance(found.recipe.objective, SequenceToSequence | ConditionalMasked):
        return ()
    chosen = by_direction(pairs, found.recipe.evaluation.limit)
    scores = [score for decoding in decodings(found.recipe) for way in chosen
              for score in scored(found, chosen[way], decoding)]
    return tuple([*means(scores), *scores] if len(chosen) > 1 else scores)


def scored(found: Candidate, pairs: Sequence[Pair], decoding: Decoding) -> tuple[Score, Score]:
    """Translate the sources of pairs of one direction, and score what is written."""
    references, way = [pair.target for pair in pairs], pairs[0].way
    written = translate(found, [pair.source for pair in pairs], decoding, pairs[0].languages)
    about = f"{len(pairs):,} held-out pairs, {decoding.words}; "
    first, second = (Score(name=name + (f" {way}" if way else "") + decoding.suffix, value=score.score,
                           note=about + score.signature)
                     for name, score in (("BLEU", bleu(written, references)), ("chrF", chrf(written, references))))
    return first, second


def means(scores: Sequence[Score]) -> tuple[Score, ...]:
    """Return the mean of each score over the directions."""
    kinds = {name: [one.value for one in scores if one.name.startswith(f"{name} ")] for name in ("BLEU", "chrF")}
    return tuple(Score(name=name, value=sum(values) / len(values), note=f"mean of {len(values)} directions")
                 for name, values in kinds.items())


@dataclass(frozen=True, slots=True)
class Decoding:
    """A way to translate."""

    options: Mapping[str, Any]
    """Those of generation."""
    words: str
    """What a report says of it."""
    suffix: str = ""
    """What tells its scores from those of others."""


def decodings(recipe: Recipe) -> tuple[Decoding, ...]:
    """Return the ways in which translations are scored; samples are written in the last of them."""
    evaluation = recipe.evaluation
    if isinstance(recipe.objective, ConditionalMasked):
        return tuple(iterated(count, evaluation.length_candidates) for count in evaluation.iterations)
    beams = evaluation.beams
    return (Decoding({"num_beams": beams, "length_penalty": evaluation.length_penalty, "early_stopping": beams > 1},
                     f"beam {beams}"),)


def iterated(count: int, lengths: int) -> Decoding:
    """Return Mask-Predict with so many iterations."""
    strategy = MaskPredict(iterations=count, length_candidates=lengths)
    return Decoding({"strategy": strategy}, f"{lengths} lengths", f", {count} iteration{'s' * (count > 1)}")


def translate(found: Candidate, sources: Sequence[str], decoding: Decoding | None = None,
              languages: tuple[str, str] | None = None) -> list[str]:
    """Translate texts, sorted by length so that little is padded; they come back in their order.

    Raises `InputError` for languages that the tokenizer has not.
    """
    evaluation, decoding = found.recipe.evaluation, decoding or decodings(found.recipe)[-1]
    way = None if languages is None else direction(found, *languages)
    writer = Writer(found.model, found.tokenizer, longest=found.recipe.training.length,
                    learned=found.recipe.objective, direction=way)
    return in_batches(sources, evaluation.batch, lambda some: writer.translate(some, decoding.options))
