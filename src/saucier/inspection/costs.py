"""What a recipe costs, from its numbers alone: tokens, FLOPs, bytes. No torch, no clock."""

from __future__ import annotations

from dataclasses import dataclass

from saucier.config import Memory, Node, anatomy, memory
from saucier.inspection.workload import Workload, tokens_in
from saucier.objectives.config import Causal, Masked, SpanCorruption
from saucier.recipes import Recipe
from saucier.text.rows import PairRows

STATES = {"adamw": 2, "muon": 1, "adafactor": 0}
"""32-bit values that an optimizer keeps for a parameter (Muon's for matrices; Adafactor's rows and columns are few)."""
BACKWARD = 2
"""A backward pass costs twice its forward pass."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """Tokens of one update: those that the first stack reads, those that the second reads, those with a loss."""

    first: float
    second: float
    targets: float


def tokens_a_step(recipe: Recipe, workload: Workload) -> Tokens:
    """Return the mean tokens of an update."""
    count = len(workload.batches)
    total = sum(tokens_in(batch) for batch in workload.batches) / count
    match recipe.objective:
        case Causal():
            total -= sum(len(batch) for batch in workload.batches) / count  # the last token of a row is only a target
            return Tokens(total, 0, total)
        case Masked(rate=rate):
            return Tokens(total, 0, rate * total)
        case SpanCorruption(rate=rate, mean_span=span):
            return Tokens(total * (1 - rate + rate / span), total * (rate + rate / span), total * (rate + rate / span))
        case _:
            pairs = [batch for batch in workload.batches if isinstance(batch, PairRows)]
            second = sum(int(batch.target_lengths.sum()) for batch in pairs) / count
            return Tokens(total - second, second, second or total)


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
