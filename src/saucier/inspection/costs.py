"""What a recipe costs, counted: tokens, by making some batches; FLOPs and bytes, from its numbers alone. No clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from saucier.config import Memory, Node, anatomy, memory
from saucier.inspection.workload import Workload, planned_lessons
from saucier.recipes import Recipe

STATES = {"adamw": 2, "muon": 1, "adafactor": 0}
"""32-bit values that an optimizer keeps for a parameter (Muon's for matrices; Adafactor's rows and columns are few)."""
BACKWARD = 2
"""A backward pass costs twice its forward pass."""


LOOKED_AT = 32
"""Batches that are made to count their tokens."""
IGNORED = -100
"""The label of a position that is no target, as `objectives.base` has it; that module loads torch."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """Tokens of one update: those that the first stack reads, those that the second reads, those with a loss."""

    first: float
    second: float
    targets: float


def tokens_a_step(recipe: Recipe, workload: Workload) -> Tokens:
    """Return the mean tokens of an update."""
    from saucier.objectives.build import joint

    seed = recipe.training.seed
    corruption, _ = joint(planned_lessons(recipe, workload.ids), seed)
    made = [corruption(rows, seed=seed, step=step) for step, rows in enumerate(workload.batches[:LOOKED_AT])]
    return Tokens(*(sum(counted(batch)[side] for batch in made) / len(made) for side in range(3)))


def counted(batch: Mapping[str, Any]) -> tuple[int, int, int]:
    """Count the real tokens of a batch that each stack reads, and the targets."""
    first, second = (int(mask.sum()) if (mask := batch.get(f"{side}attention_mask")) is not None
                     else ids.numel() if (ids := batch.get(f"{side}input_ids")) is not None else 0
                     for side in ("", "decoder_"))
    return first, second, int((batch["labels"] != IGNORED).sum())


def training_flops(recipe: Recipe, vocab: int, tokens: Tokens) -> float:
    """Return the FLOPs of one update: each part by the tokens that go through it, backward included."""
    parts = anatomy(recipe.model_for(vocab), recipe.training.length).children
    both = any(part.name == "encoder" for part in parts) and any(part.name == "decoder" for part in parts)
    return (1 + BACKWARD) * sum(part.flops * tokens_through(part, tokens, both) for part in parts)


def tokens_through(part: Node, tokens: Tokens, both: bool) -> float:
    """Return how many tokens of an update a part of the model works on."""
    if part.name == "head":
        return tokens.targets
    return tokens.second if both and part.name == "decoder" else tokens.first


def training_memory(recipe: Recipe, vocab: int, dtype: str) -> Memory:
    """Return the bytes for a micro-batch, counted from the config."""
    rows = min(recipe.training.micro_batch or recipe.training.batch, recipe.training.batch)
    return memory(recipe.model_for(vocab), batch=rows, length=recipe.training.length, training=True,
                  optimizer_states=STATES[recipe.training.optimizer.kind], value_bytes=4 if dtype == "float32" else 2)


def evaluations(recipe: Recipe) -> int:
    """Return how often the held-out text is scored in training."""
    training = recipe.training
    return -(-training.steps // training.evaluate_every)
