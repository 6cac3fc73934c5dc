"""Bytes of a model, by purpose, estimated from its config: in training by our own loop, and in generation.

Training keeps 32-bit master weights, and activations in the chosen number format.
"""

from __future__ import annotations

from dataclasses import dataclass

from saucier.config import (
    Activations,
    Block,
    CrossAttention,
    CustomSublayer,
    Experts,
    FeedForward,
    GatedFeedForward,
    Recurrent,
    SelfAttention,
    Stack,
    Transformer,
    cache_bytes,
    parameters,
)

KEEP_ACTIVATIONS = Activations(kind="keep")


@dataclass(frozen=True, slots=True)
class MemoryEstimate:
    """Bytes by purpose."""

    weights: int
    gradients: int = 0
    optimizer: int = 0
    activations: int = 0
    cache: int = 0

    @property
    def total(self) -> int:
        """All of it."""
        return self.weights + self.gradients + self.optimizer + self.activations + self.cache


def stack_activations(stack: Stack, dim: int, activations: Activations = KEEP_ACTIVATIONS) -> int:
    """Return how many values of a token a stack keeps for the backward pass, at most at one time."""
    every = [block_activations(block, dim) for block in stack.blocks()]
    if stack.residual.kind == "reversible":
        return 2 * dim + max(every)
    if activations.kind == "recompute":
        return len(every) * dim + max(every)
    return sum(every)


def block_activations(block: Block, wide: int) -> int:
    """Return the same for a block that reads vectors of width `wide`."""
    dim = block.width(wide)
    total = 0 if block.bottleneck is None else 2 * wide + 2 * dim
    for residual in block.sublayers:
        total += 2 * dim  # the norm's input, and its output which the next map reads
        for one in (residual.inner, getattr(residual.inner, "projection", None)):
            if (ranks := getattr(one, "ranks", None)) is not None:  # what is between two matrices of a map
                total += sum(rank or 0 for _, rank in ranks)
        match residual.inner:
            case SelfAttention(projection=projection) | CrossAttention(projection=projection):
                query, key, _ = projection.widths(dim)
                total += 2 * query + 2 * key
            case FeedForward(hidden=hidden):
                total += 2 * hidden
            case GatedFeedForward(hidden=hidden):
                total += 3 * hidden
            case Recurrent() as part:  # the sums of the gates, what became of them, and the states
                total += len(part.ways) * part.layers * (2 * part.gates(dim) + 3 * part.cells(dim))
            case Experts(inner=expert, router=router):
                total += router.top * (2 * dim + (2 if isinstance(expert, FeedForward) else 3) * expert.hidden)
            case CustomSublayer() as part:
                total += part.kept_values(dim)
    return total


def estimate_memory(
    config: Transformer, *, batch: int, length: int, training: bool, optimizer_states: int = 2, value_bytes: int = 4,
    activations: Activations = KEEP_ACTIVATIONS,
) -> MemoryEstimate:
    """Estimate the bytes needed for `batch` sequences of `length` tokens, in training or in generation.

    `optimizer_states` is the number of 32-bit values that the optimizer keeps for a parameter (AdamW 2, Muon 1).
    """
    count = parameters(config)
    if not training:
        cache = cache_bytes(config, batch=batch, length=length, source_length=length if config.encoder else 0,
                            bytes_per_value=value_bytes)
        return MemoryEstimate(weights=count * value_bytes, cache=cache)
    values = sum(stack_activations(stack, config.dim, activations) for stack in config.stacks)
    low_precision = value_bytes * count if value_bytes < 4 else 0  # a copy in addition to the master weights
    return MemoryEstimate(weights=4 * count + low_precision, gradients=4 * count,
                          optimizer=4 * optimizer_states * count, activations=values * value_bytes * batch * length)
