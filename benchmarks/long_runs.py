"""Where the long tasks are kept, and the optimizer that they share."""

from __future__ import annotations

from pathlib import Path

RUNS = Path("runs/long_tasks")


def muon(rate: float, others: float) -> list[str]:
    """Return the words of an optimizer: a rate for the matrices, and one for all else."""
    return ["training.optimizer.kind=muon", "training.optimizer.weight_decay=0",
            f"training.optimizer.learning_rate={rate:g}", "training.optimizer.others.weight_decay=0",
            f"training.optimizer.others.learning_rate={others:g}"]
