"""What a step of training works on: rows of ids, real ones or ones made up with the shapes that a recipe expects.
Axes: B rows, L positions, S source, T target positions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from saucier.errors import InputError
from saucier.objectives.config import singles
from saucier.objectives.fit import tells_languages
from saucier.objectives.material import materials
from saucier.recipes import Recipe
from saucier.text.config import PairData
from saucier.text.language_rows import told
from saucier.text.material import TwoPieces, wants_sentences
from saucier.text.rows import Ints, PairRows, Rows

if TYPE_CHECKING:
    from saucier.objectives.build import Lesson

FEWEST, MOST, TOKENS = 4, 128, 400_000
"""Batches that are tried: enough to know their mean length and to meet all shapes, few enough to hold at once."""
LARGEST = 2**22
"""Tokens of one update that are made up; the largest that was published has 3.2 million (Brown et al. 2020)."""
DOCUMENT = 150
"""Mean tokens of a made-up document; those of Python's documentation are about as long."""
SENTENCE = 25
"""Mean tokens of a made-up sentence."""
WORDS = "1110"
"""Made-up marks of words (see `text.word_marks`): every fourth token goes on with a word."""
NAMES = ("pad", "unk", "bos", "eos", "cls", "sep", "mask")


@dataclass(frozen=True, slots=True)
class Workload:
    """Some batches of a run, and what their ids mean. `real`: they come from the data, not from a guess."""

    batches: tuple[Rows | PairRows, ...]
    ids: dict[str, Any]
    """The fields of `objectives.base.TokenIds`."""
    real: bool = False
    seconds: float = 0.0
    """What it took to read a batch from the data."""


def tokens_in(rows: Rows | PairRows) -> int:
    """Count the real tokens of a batch, source and target together."""
    if isinstance(rows, Rows):
        return int(rows.mask.sum())
    return int(rows.source_lengths.sum() + rows.target_lengths.sum())


def enough(recipe: Recipe) -> int:
    """Return how many batches of a recipe are worth trying."""
    return max(FEWEST, min(MOST, TOKENS // (recipe.training.batch * recipe.training.length)))


def made_up(recipe: Recipe, vocab: int) -> Workload:
    """Make up batches for a recipe whose text has not been read: full rows; pairs of a length up to the longest.

    Raises `InputError` for batches that would not fit into the memory of a plan.
    """
    tokens = recipe.training.batch * recipe.training.length
    if tokens > LARGEST:
        raise InputError(f"training.batch: an update of {str(tokens)[:30]} tokens is too large to be planned",
                         where="training", remedy=f"plan with {LARGEST:,} at most: the time grows with them")
    random = np.random.default_rng(recipe.training.seed)
    ids = special_ids(recipe, vocab)
    pairs = isinstance(recipe.data, PairData)
    make = partial(pair_rows, recipe, vocab) if pairs else partial(text_rows, recipe, vocab, row_tokens(recipe))
    return Workload(tuple(make(random) for _ in range(enough(recipe))), ids)


def special_ids(recipe: Recipe, vocab: int) -> dict[str, Any]:
    """Return the special ids as a tokenizer would number them: in the order of their fields, sentinels last."""
    special = recipe.tokenizer.special
    present = [name for name in NAMES if getattr(special, name) is not None]
    numbers = {name: index for index, name in enumerate(present)}
    sentinels = tuple(range(vocab - 1, vocab - 1 - special.sentinels, -1))
    wanted = {name: numbers.get(name) for name in ("pad", "bos", "eos", "mask")}
    extra = {name: len(present) + number for number, name in enumerate(special.extra)}
    named = range(len(present) + len(extra))
    return {"vocab": vocab, **wanted, "special": (*named, *sentinels), "sentinels": sentinels, "extra": extra,
            "word_marks": (WORDS * (1 + vocab // len(WORDS)))[:vocab]}


def row_tokens(recipe: Recipe) -> int:
    """Return how many tokens a row is cut from."""
    length = recipe.training.length
    corruptions = [lesson.corruption for lesson in planned_lessons(recipe, special_ids(recipe, recipe.vocab))]
    return max(one.row_length(length) + one.overlap for one in corruptions)


def planned_lessons(recipe: Recipe, ids: Mapping[str, Any]) -> tuple[Lesson, ...]:
    """Build the objective of a recipe for a plan; its own modules are not made before they are bound to a model."""
    from saucier.objectives.base import Given, TokenIds
    from saucier.objectives.build import lessons

    training, known = recipe.training, TokenIds(**ids)
    return lessons(recipe.objective, Given(known, recipe.model_for(known.vocab), training.steps, training.length,
                                           training.seed))


def text_rows(recipe: Recipe, vocab: int, length: int, random: np.random.Generator) -> Rows:
    """Make up a batch of running text: full rows of some documents, or of two sentences for BERT."""
    shape = (recipe.training.batch, length)
    tokens = random.integers(vocab // 2, size=shape) + vocab // 4
    sentences = any(isinstance(one, TwoPieces) for one in materials(recipe.objective))
    begun = random.random(shape) < 1 / SENTENCE if any(map(wants_sentences, materials(recipe.objective))) else None
    starts = np.zeros(shape, dtype=bool) if sentences else random.random(shape) < 1 / DOCUMENT
    documents = starts.cumsum(axis=1)
    halves = np.arange(shape[1]) >= shape[1] // 2
    segments = np.broadcast_to(halves if sentences else np.zeros(shape[1]), shape).astype(np.int64)
    numbers = np.arange(shape[0])
    none = np.zeros_like(numbers)
    rows = Rows(tokens, documents, positions_in(starts), segments, none, numbers % 2, numbers, numbers, begun)
    return told(rows, 0 if any(tells_languages(one, recipe.model) for one in singles(recipe.objective)) else None)


def positions_in(starts: np.ndarray[Any, np.dtype[np.bool_]]) -> Ints:
    """Count positions from 0 at every document start. Shapes: [B, L] -> [B, L]."""
    places = np.broadcast_to(np.arange(starts.shape[1]), starts.shape)
    found: Ints = places - np.maximum.accumulate(np.where(starts, places, 0), axis=1)
    return found


def pair_rows(recipe: Recipe, vocab: int, random: np.random.Generator) -> PairRows:
    """Make up a batch of pairs of about one length, between a quarter of the longest and the longest."""
    rows, longest = recipe.training.batch, recipe.training.length
    centre = random.integers(max(2, longest // 4), longest, endpoint=True)
    near = random.integers(centre - 1, centre + 1, size=(2, rows), endpoint=True)
    source, target = np.clip(near, 2, longest)
    numbers = np.arange(rows)
    sides = ((source, vocab), (target, recipe.target_vocab or vocab))
    tokens = [random.integers(size // 2, size=(rows, int(lengths.max()))) + size // 4 for lengths, size in sides]
    return PairRows(tokens[0], tokens[1], source, target, numbers, numbers)


def save(workload: Workload, path: Path) -> None:
    """Write the batches as plain arrays, named `0.tokens` and so on."""
    arrays = {f"{index}.{field.name}": value for index, rows in enumerate(workload.batches) for field in fields(rows)
              if (value := getattr(rows, field.name)) is not None}
    np.savez(path, **arrays)


def load(path: Path) -> tuple[Rows | PairRows, ...]:
    """Read back what `save` wrote."""
    with np.load(path, allow_pickle=False) as stored:
        grouped: dict[int, dict[str, Any]] = {}
        for key in stored.files:
            index, _, name = key.partition(".")
            grouped.setdefault(int(index), {})[name] = stored[key]
    return tuple(Rows(**one) if "tokens" in one else PairRows(**one) for _, one in sorted(grouped.items()))
