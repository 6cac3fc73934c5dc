"""What a recipe costs, counted: tokens, by making some batches; FLOPs and bytes, from its numbers alone. No clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from saucier.config import Memory, Node, Transformer, anatomy, memory
from saucier.inspection.workload import Workload, planned_lessons
from saucier.objectives.batch_sizes import tokens_read
from saucier.objectives.config import Masked, Mixture, ObjectiveConfig, Replaced, TwoStages
from saucier.objectives.generator import generator_of
from saucier.recipes import Recipe

STATES = {"adamw": 2, "muon": 1, "adafactor": 0}
"""32-bit values that an optimizer keeps for a parameter (Muon's for matrices; Adafactor's rows and columns are few)."""
BACKWARD = 2
"""A backward pass costs twice its forward pass."""


LOOKED_AT = 32
"""Batches that are made to count their tokens."""
ROWS = 64
"""Rows of a batch that are made for it, the others taken to be alike: published batches have thousands."""
IGNORED = -100
"""The label of a position that is no target, as `objectives.base` has it; that module loads torch."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """Tokens of one update."""

    first: float
    """Those that the first stack reads; rows of a second stream among them."""
    second: float
    """Those that the second stack reads."""
    targets: float
    """Those that the main loss is about."""
    labels: float
    """Those that have a label; more or fewer than `targets` where a label is not what the main loss is about."""


def tokens_a_step(recipe: Recipe, workload: Workload) -> Tokens:
    """Return the mean tokens of an update."""
    from saucier.objectives.build import joint

    seed = recipe.training.seed
    corruption, objective = joint(planned_lessons(recipe, workload.ids), seed)
    mixed, found = isinstance(recipe.objective, Mixture), []
    for step, rows in enumerate(workload.batches[:LOOKED_AT]):
        some = rows.select(slice(0, ROWS))
        batch = corruption(some, seed=seed, step=step)
        learned = objective.at(step) if mixed else objective
        counts = *read(batch), learned.count(batch)[learned.parts[0]], int((batch["labels"] != IGNORED).sum())
        found.append([count * len(rows) / len(some) for count in counts])
    return Tokens(*(sum(counts) / len(found) for counts in zip(*found, strict=True)))


def read(batch: Mapping[str, Any]) -> tuple[int, int]:
    """Count the real tokens of a batch that each stack reads; those that are only remembered have no backward pass."""
    first, second = tokens_read(batch)
    if (asking := batch.get("target_mapping")) is not None:
        first += asking.shape[0] * asking.shape[1]
    if (earlier := batch.get("earlier")) is not None:
        first += round(earlier.numel() / (1 + BACKWARD))
    return first, second


def training_flops(recipe: Recipe, vocab: int, tokens: Tokens) -> float:
    """Return the FLOPs of one update, backward included: of the model, and of what learns beside it."""
    body, length = recipe.model_for(vocab), recipe.training.length
    own = passes_flops(body, length, tokens) + tokens.targets * boundary_flops(recipe.objective, body)
    if not isinstance(objective := recipe.objective, Replaced):
        return (1 + BACKWARD) * own
    told = tokens.labels * (1 + 1 / (1 + BACKWARD))  # the head runs once more to draw tokens, without a backward pass
    generator = passes_flops(generator_of(body, objective), length, replace(tokens, targets=told))
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


def passes_flops(model: Transformer, length: int, tokens: Tokens) -> float:
    """Return the FLOPs of the forward passes of an update: each part by the tokens that go through it."""
    parts = anatomy(model, length).children
    both = any(part.name == "encoder" for part in parts) and any(part.name == "decoder" for part in parts)
    return sum(part.flops * tokens_through(part, tokens, both) for part in parts)


def tokens_through(part: Node, tokens: Tokens, both: bool) -> float:
    """Return how many tokens of an update a part of the model works on."""
    if part.name == "head":
        return tokens.targets
    return tokens.second if both and part.name == "decoder" else tokens.first


def training_memory(recipe: Recipe, vocab: int, dtype: str) -> Memory:
    """Return the bytes for a micro-batch, counted from the config; a generator's tables as if it had its own."""
    rows = min(recipe.training.micro_batch or recipe.training.batch, recipe.training.batch)
    models = [body := recipe.model_for(vocab)]
    if isinstance(recipe.objective, Replaced):
        models.append(generator_of(body, recipe.objective))
    needed = [memory(model, batch=rows, length=recipe.training.length, training=True,
                     optimizer_states=STATES[recipe.training.optimizer.kind],
                     value_bytes=4 if dtype == "float32" else 2, activations=recipe.training.activations)
              for model in models]
    return Memory(**{one.name: sum(getattr(each, one.name) for each in needed) for one in fields(Memory)})


def evaluations(recipe: Recipe) -> int:
    """Return how often the held-out text is scored in training; the mean of checkpoints is scored too."""
    training = recipe.training
    return -(-training.steps // training.evaluate_every) + (training.average > 1)
