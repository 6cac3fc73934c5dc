"""Where the long tasks are kept, and what they share: an optimizer, and models of another shape."""

from __future__ import annotations

from pathlib import Path

from saucier.adaptation.surgery.operations import OperationOptions

RUNS = Path("runs/long_tasks")


def converted(run: Path, folder: Path, options: OperationOptions) -> Path:
    """Give a model another shape, unless that is done: `saucier convert RUN FOLDER` with what is asked."""
    from saucier.jobs.convert import convert

    if not folder.is_dir():
        convert(str(run), folder, options=options)
    return folder


def muon(rate: float, others: float) -> list[str]:
    """Return the words of an optimizer: a rate for the matrices, and one for all else."""
    return ["training.optimizer.kind=muon", "training.optimizer.weight_decay=0",
            f"training.optimizer.learning_rate={rate:g}", "training.optimizer.others.weight_decay=0",
            f"training.optimizer.others.learning_rate={others:g}"]
