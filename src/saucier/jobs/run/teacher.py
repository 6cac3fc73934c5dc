"""A teacher as jobs hold it: loaded once, told apart by the digest of its weights, and described with what is learned.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from saucier.checkpoints.hub import is_hub_id
from saucier.config import parameters
from saucier.errors import InputError
from saucier.files import is_folder
from saucier.folders.load import load
from saucier.model import Transformer
from saucier.objectives.config.distillation import Distillation, HardTargets
from saucier.objectives.distillation import Distilled
from saucier.parts.provenance import digest_values

DIGEST = "teacher"
"""What the teacher's digest is called among those of the data."""


@dataclass(frozen=True, slots=True)
class Teacher:
    """A model that is learned from."""

    place: str
    """Its folder, its run, or its hub id."""
    model: Transformer
    digest: str
    """SHA-256 of its weights."""


def name_teacher(config: Distillation) -> str:
    """Return the folder of a teacher. Raises `InputError` where none is named, or there is no such folder."""
    if config.teacher is None:
        raise InputError("no teacher is named", where="distillation.teacher",
                         remedy="give a folder or a run, distillation.teacher=FOLDER")
    if not is_folder(config.teacher) and not is_hub_id(config.teacher):
        raise InputError("no such folder", where=f"distillation.teacher: {config.teacher}",
                         remedy="give the folder of a model or of a run")
    return config.teacher


def open_teacher(config: Distillation) -> Teacher:
    """Load a teacher. Raises `InputError` for a folder that holds no model."""
    place = name_teacher(config)
    model = load(place, dtype="float32", device="cpu")
    return Teacher(place, model, digest_values(model))


def refuse_compiling(distilled: Distilled, *, compiles: bool) -> None:
    """Raise `InputError` where compiled code would hide what a loss looks at."""
    if compiles and (found := [one.name for one in distilled.losses if one.reads_attention]):
        raise InputError(f"{found[0]} looks into attentions, which compiled code hides", where="training.compile",
                         remedy="use false, or losses of hidden states and targets")


def describe_distillation(distilled: Distilled, teacher: Teacher) -> Iterator[str]:
    """Yield lines that say what is learned from whom."""
    config = distilled.config
    yield f"learns from {teacher.place}: {parameters(teacher.model.config):,} parameters, weights {teacher.digest[:12]}"
    shown = [f"{one.weight:g} × {name}" for name, one in config.named() if isinstance(one, HardTargets)]
    for one in distilled.losses:
        pairs = ", ".join(f"{own} ← {other}" for own, other in one.pairs if own)
        maps = f", through a learned map {one.widths[0]} × {one.widths[1]}" if one.widths else ""
        shown.append(f"{one.weight:g} × {one.name}{f' (layers {pairs}{maps})' if pairs else maps}")
    yield f"losses ({config.schedule.kind}): {'; '.join(shown)}"
