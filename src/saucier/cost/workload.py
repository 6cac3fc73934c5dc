"""What a step of training works on, real rows or made-up ones, and what it costs: tokens, FLOPs and bytes. No clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from saucier.config import Transformer, anatomy
from saucier.cost.memory import MemoryEstimate, estimate_memory
from saucier.errors import InputError
from saucier.objectives.config import Masked, Mixture, ObjectiveConfig, Replaced, TwoStages, list_single_objectives
from saucier.objectives.config.replaced_tokens import derive_generator
from saucier.recipes import Recipe
from saucier.text.config import PairData
from saucier.text.languages import set_language
from saucier.text.rows.batch import PairRows, Rows
from saucier.text.rows.running import number_documents

if TYPE_CHECKING:
    from saucier.objectives.build import BuiltObjective

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

    def save(self, path: Path) -> None:
        """Write the batches as plain arrays, named `0.tokens` and so on."""
        arrays = {f"{index}.{field.name}": value for index, rows in enumerate(self.batches) for field in fields(rows)
                  if (value := getattr(rows, field.name)) is not None}
        np.savez(path, **arrays)


def count_batch_tokens(rows: Rows | PairRows) -> int:
    """Count the real tokens of a batch, source and target together."""
    if isinstance(rows, Rows):
        return int(rows.mask.sum())
    return int(rows.source_lengths.sum() + rows.target_lengths.sum())


def count_trial_batches(recipe: Recipe) -> int:
    """Return how many batches of a recipe are worth trying."""
    return max(FEWEST, min(MOST, TOKENS // (recipe.training.batch * recipe.training.length)))


def make_workload(recipe: Recipe, vocab: int) -> Workload:
    """Make up batches for a recipe whose text has not been read: full rows; pairs of a length up to the longest.

    Raises `InputError` for batches that would not fit into the memory of a plan.
    """
    tokens = recipe.training.batch * recipe.training.length
    if tokens > LARGEST:
        raise InputError(f"training.batch: an update of {str(tokens)[:30]} tokens is too large to be planned",
                         where="training", remedy=f"plan with {LARGEST:,} at most: the time grows with them")
    random = np.random.default_rng(recipe.training.seed)
    ids = special_ids(recipe, vocab)
    count = range(count_trial_batches(recipe))
    if isinstance(recipe.data, PairData):
        return Workload(tuple(make_pair_rows(recipe, vocab, random) for _ in count), ids)
    length = row_tokens(recipe)
    return Workload(tuple(make_text_rows(recipe, vocab, length, random) for _ in count), ids)


def special_ids(recipe: Recipe, vocab: int) -> dict[str, Any]:
    """Return the special ids as a tokenizer would number them: in the order of their fields, sentinels last."""
    special = recipe.tokenizer.special
    present = [name for name in NAMES if getattr(special, name) is not None]
    numbers = {name: index for index, name in enumerate(present)}
    sentinels = tuple(range(vocab - 1, vocab - 1 - special.sentinels, -1))
    main = {name: numbers.get(name) for name in ("pad", "bos", "eos", "mask")}
    extra = {name: len(present) + number for number, name in enumerate(special.extra)}
    named = range(len(present) + len(extra))
    return {"vocab": vocab, **main, "special": (*named, *sentinels), "sentinels": sentinels, "extra": extra,
            "word_marks": (WORDS * (1 + vocab // len(WORDS)))[:vocab]}


def row_tokens(recipe: Recipe) -> int:
    """Return how many tokens a row is cut from."""
    length = recipe.training.length
    corruptions = [one.corruption for one in build_planned_objectives(recipe, special_ids(recipe, recipe.vocab))]
    return max(one.row_length(length) + one.overlap for one in corruptions)


def build_planned_objectives(recipe: Recipe, ids: Mapping[str, Any]) -> tuple[BuiltObjective, ...]:
    """Build the objective of a recipe for a plan; its own modules are not made before they are bound to a model."""
    from saucier.objectives.base import ObjectiveInputs, TokenIds
    from saucier.objectives.build import build_objectives

    training, known = recipe.training, TokenIds(**ids)
    return build_objectives(recipe.objective,
                            ObjectiveInputs(known, recipe.model_for(known.vocab), training.steps, training.length,
                                            training.seed))


def make_text_rows(recipe: Recipe, vocab: int, length: int, random: np.random.Generator) -> Rows:
    """Make up a batch of running text: full rows of some documents, or of two sentences for BERT."""
    shape = (recipe.training.batch, length)
    tokens = random.integers(vocab // 2, size=shape) + vocab // 4
    requests = [one.rows_read for one in list_single_objectives(recipe.objective)]
    sentences = any(one.has_two_pieces for one in requests)
    sentence_starts = random.random(shape) < 1 / SENTENCE if any(one.needs_sentences for one in requests) else None
    starts = np.zeros(shape, dtype=bool) if sentences else random.random(shape) < 1 / DOCUMENT
    halves = np.arange(shape[1]) >= shape[1] // 2
    segments = np.broadcast_to(halves if sentences else np.zeros(shape[1]), shape).astype(np.int64)
    numbers = np.arange(shape[0])
    none = np.zeros_like(numbers)
    documents = starts.cumsum(axis=1)
    _, positions = number_documents(documents)
    rows = Rows(tokens, documents, positions, segments, none, numbers % 2, numbers, numbers,
                sentence_starts)
    return set_language(rows, 0 if any(one.needs_language_ids(recipe.model)
                                       for one in list_single_objectives(recipe.objective)) else None)


def make_pair_rows(recipe: Recipe, vocab: int, random: np.random.Generator) -> PairRows:
    """Make up a batch of pairs of about one length, between a quarter of the longest and the longest."""
    rows, longest = recipe.training.batch, recipe.training.length
    centre = random.integers(max(2, longest // 4), longest, endpoint=True)
    near = random.integers(centre - 1, centre + 1, size=(2, rows), endpoint=True)
    source, target = np.clip(near, 2, longest)
    numbers = np.arange(rows)
    sides = ((source, vocab), (target, recipe.target_vocab or vocab))
    tokens = [random.integers(size // 2, size=(rows, int(lengths.max()))) + size // 4 for lengths, size in sides]
    return PairRows(tokens[0], tokens[1], source, target, numbers, numbers)


def load_workload(path: Path) -> tuple[Rows | PairRows, ...]:
    """Read back what `save` wrote."""
    with np.load(path, allow_pickle=False) as stored:
        grouped: dict[int, dict[str, Any]] = {}
        for key in stored.files:
            index, _, name = key.partition(".")
            grouped.setdefault(int(index), {})[name] = stored[key]
    return tuple(Rows(**one) if "tokens" in one else PairRows(**one) for _, one in sorted(grouped.items()))


STATES = {"adamw": 2, "muon": 1, "adafactor": 0}
"""32-bit values that an optimizer keeps for a parameter (Muon's for matrices; Adafactor's rows and columns are few)."""
BACKWARD = 2
"""A backward pass costs twice its forward pass."""

SAMPLED_BATCHES = 32
"""Batches that are made to count their tokens."""
ROWS = 64
"""Rows of a batch that are made for it, the others taken to be alike: published batches have thousands."""
IGNORED = -100
"""The label of a position that is no target, as `objectives.base` has it; that module loads torch."""


@dataclass(frozen=True, slots=True)
class StepTokens:
    """Tokens of one update."""

    first: float
    """Those that the first stack reads; rows of a second stream among them."""
    second: float
    """Those that the second stack reads."""
    targets: float
    """Those that the main loss is about."""
    labels: float
    """Those that have a label; more or fewer than `targets` where a label is not what the main loss is about."""


def tokens_per_step(recipe: Recipe, workload: Workload) -> StepTokens:
    """Return the mean tokens of an update."""
    from saucier.objectives.build import join_objectives

    seed = recipe.training.seed
    corruption, objective = join_objectives(build_planned_objectives(recipe, workload.ids), seed)
    mixed, found = isinstance(recipe.objective, Mixture), []
    for step, rows in enumerate(workload.batches[:SAMPLED_BATCHES]):
        some = rows.select(slice(0, ROWS))
        batch = corruption(some, seed=seed, step=step)
        learned = objective.at(step) if mixed else objective
        targets = learned.count(batch)[learned.parts[0]]
        labels = int((batch["labels"] != IGNORED).sum()) if "labels" in batch else targets
        counts = *count_tokens_by_stack(batch), targets, labels
        found.append([count * len(rows) / len(some) for count in counts])
    return StepTokens(*(sum(counts) / len(found) for counts in zip(*found, strict=True)))


def count_tokens_by_stack(batch: Mapping[str, Any]) -> tuple[int, int]:
    """Count the real tokens of a batch that each stack reads; those that are only remembered have no backward pass."""
    from saucier.objectives.base import count_tokens_read  # loads torch

    first, second = count_tokens_read(batch)
    if (asking := batch.get("target_mapping")) is not None:
        first += asking.shape[0] * asking.shape[1]
    if (earlier := batch.get("earlier")) is not None:
        first += round(earlier.numel() / (1 + BACKWARD))
    return first, second


def training_flops(recipe: Recipe, vocab: int, tokens: StepTokens) -> float:
    """Return the FLOPs of one update, backward included: of the model, and of the generator that learns with it."""
    body, length = recipe.model_for(vocab), recipe.training.length
    own = passes_flops(body, length, tokens) + tokens.targets * boundary_flops(recipe.objective, body)
    if not isinstance(objective := recipe.objective, Replaced):
        return (1 + BACKWARD) * own
    read = tokens.labels * (1 + 1 / (1 + BACKWARD))  # the head runs once more to draw tokens, without a backward pass
    generator = passes_flops(derive_generator(body, objective), length, replace(tokens, targets=read))
    alone = objective.stages.first if isinstance(objective.stages, TwoStages) else None
    if alone is None:
        return (1 + BACKWARD) * (own + generator)
    return (1 - alone) * ((1 + BACKWARD) * own + generator) + alone * (1 + BACKWARD) * generator


def boundary_flops(objective: ObjectiveConfig, model: Transformer) -> float:
    """Return the FLOPs of a forward pass of the span-boundary objective, for each hidden token."""
    boundary = objective.boundary if isinstance(objective, Masked) else None
    if boundary is None or model.language_head is None:
        return 0.0
    transform, dim = model.language_head.transform, model.width
    width = (transform.width if transform else None) or dim
    return 2.0 * ((2 * dim + boundary.position_width) * dim + dim * width + width * model.output_embed.vocab)


def passes_flops(model: Transformer, length: int, tokens: StepTokens) -> float:
    """Return the FLOPs of the forward passes of an update: each part by the tokens that go through it."""
    parts = anatomy(model, length).children
    both = any(part.name == "encoder" for part in parts) and any(part.name == "decoder" for part in parts)
    counts = {"head": tokens.targets, **({"decoder": tokens.second} if both else {})}
    return sum(part.flops * counts.get(part.name, tokens.first) for part in parts)


def model_memory(model: Transformer, recipe: Recipe, rows: int, dtype: str) -> MemoryEstimate:
    """Return the bytes for training one model on `rows` rows, counted from the config."""
    training = recipe.training
    return estimate_memory(model, batch=rows, length=training.length, training=True,
                           optimizer_states=STATES[training.optimizer.kind],
                           value_bytes=4 if dtype == "float32" else 2, activations=training.activations)


def training_memory(recipe: Recipe, vocab: int, dtype: str) -> MemoryEstimate:
    """Return the bytes for a micro-batch, counted from the config; a generator's tables as if it had its own."""
    rows = min(recipe.training.micro_batch or recipe.training.batch, recipe.training.batch)
    models = [body := recipe.model_for(vocab)]
    if isinstance(recipe.objective, Replaced):
        models.append(derive_generator(body, recipe.objective))
    needed = [model_memory(model, recipe, rows, dtype) for model in models]
    return MemoryEstimate(**{one.name: sum(getattr(each, one.name) for each in needed)
                             for one in fields(MemoryEstimate)})
