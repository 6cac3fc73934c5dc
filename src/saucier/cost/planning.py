"""`saucier plan`: what a recipe will cost before it is cooked. The report holds the record against what was measured.

`make_plan` is called with a recipe alone, or by the cook, which knows the real batches. No torch in this process.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import ValidationError
from rich.text import Text

from saucier.config import parameters
from saucier.config.base import Config
from saucier.config.registry import list_local_kinds
from saucier.cost.calibration import Calibration, calibrate
from saucier.cost.workload import (
    Workload,
    make_workload,
    tokens_per_step,
    training_flops,
    training_memory,
)
from saucier.errors import InputError
from saucier.files import read_object, write_text
from saucier.plain import format_bytes, format_duration, format_quantity
from saucier.recipes import Recipe
from saucier.result import Result
from saucier.table import Table

PLAN_FILE = "plan.json"
SCALED = {"whole": "", "layers": "measured with one and two layers, and scaled up",
          "products": "too large to try here: from the speed of one product of matrices, memory as counted",
          None: "nothing was measured: no time, and memory only as counted"}
"""What a plan says of how it was measured."""
USUAL_SPEED = 20e9
"""Operations a second that a small machine does: how long a training takes, before anything was measured."""
UNKNOWN = "float32"
"""The number format that is assumed without a calibration."""


class Plan(Config, Result):
    """The cost of a run, as it was planned."""

    recipe: str
    """Its name."""
    parameters: int
    """Tied ones counted once."""
    steps: int
    """Updates of the weights."""
    tokens: int
    """Tokens read in training, source and target together."""
    targets: int
    """Tokens that the model is asked to predict in training."""
    flops: float
    """Floating-point operations of training, forward and backward; those of evaluation are not among them."""
    dtype: str
    """Number format of the multiplications."""
    memory: dict[str, int]
    """Bytes by purpose, counted from the config: weights, gradients, optimizer, activations."""
    peak_memory: int | None = None
    """Bytes of the whole process at its largest, from the calibration."""
    seconds: float | None = None
    """Training with its evaluations, from the calibration."""
    step_seconds: float | None = None
    """One update."""
    evaluation_seconds: float = 0.0
    """All evaluations together."""
    machine: str = ""
    """One line about the machine that was measured."""
    notes: tuple[str, ...] = ()
    """What was assumed."""

    @property
    def tokens_per_second(self) -> float | None:
        """Predicted tokens a second that the model reads, evaluations included, as the training log counts them."""
        return self.tokens / self.seconds if self.seconds else None

    def view(self) -> Table:
        """Return what `saucier plan` prints."""
        return render_plan(self)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return self.model_dump(mode="json") | {"tokens_per_second": self.tokens_per_second}

    def write(self, folder: Path) -> None:
        """Write `plan.json` into a run folder, atomically."""
        write_text(folder / PLAN_FILE, self.model_dump_json(indent=2) + "\n")


def read_plan(folder: Path) -> Plan | None:
    """Read `plan.json` of a run folder; None where the run was not planned. Raises `InputError` for a broken file."""
    path = folder / PLAN_FILE
    if not path.is_file():
        return None
    try:
        return Plan.model_validate(read_object(path))
    except ValidationError as error:
        what = f"not a plan: {str(error).splitlines()[0]}"
        raise InputError(what, where=str(path), remedy="remove it; it is not needed") from error


def make_plan(recipe: Recipe, *, workload: Workload | None = None, held_out_tokens: int | None = None,
              vocab: int | None = None, program: int | None = None, seconds: float | None = 5.0) -> Plan:
    """Plan a recipe. `seconds` is the time for a calibration; None: only count.

    What the cook knows it may say: its batches, held-out tokens, vocabulary, and `program`, the bytes that its process
    holds before there is a model.

    Raises `WorkError` when the calibration fails.
    """
    vocab = vocab or recipe.vocab
    work = workload or make_workload(recipe, vocab)
    local = list_local_kinds(recipe.as_dict())
    measured = None if seconds is None or local else calibrate(recipe, work, seconds=seconds)
    dtype = measured.dtype if measured else recipe.training.dtype.replace("auto", UNKNOWN)
    tokens, steps = tokens_per_step(recipe, work), recipe.training.steps
    memory = training_memory(recipe, vocab, dtype)
    plan = Plan(recipe=recipe.name, parameters=parameters(recipe.model_for(vocab)), steps=steps,
                tokens=round(steps * (tokens.first + tokens.second)), targets=round(steps * tokens.targets),
                flops=steps * training_flops(recipe, vocab, tokens),
                dtype=dtype, memory={name: getattr(memory, name) for name in ("weights", "gradients", "optimizer",
                                                                             "activations")},
                notes=(*plan_notes(recipe, work, held_out_tokens, measured), *(
                    f"{kind} is known to this program alone, and not to the process that measures" for kind in local)))
    return plan if measured is None else add_times(
        plan, recipe, work, measured=measured, held_out=held_out_tokens or 0, program=program)


def measuring_seconds(flops: float) -> float:
    """Return how long to measure before a training of so many operations: a tenth of it, but one to five seconds."""
    return min(5.0, max(1.0, 0.1 * flops / USUAL_SPEED))


def add_times(plan: Plan, recipe: Recipe, work: Workload, *, measured: Calibration, held_out: int,
              program: int | None) -> Plan:
    """Add to a plan what the calibration says."""
    training, step = recipe.training, measured.step_seconds(recipe, work) + work.seconds
    evaluations = -(-training.steps // training.evaluate_every) + (training.average > 1)  # the mean of checkpoints too
    evaluation = evaluations * held_out * measured.evaluation_seconds
    return plan.model_copy(update={
        "step_seconds": step, "evaluation_seconds": evaluation, "seconds": plan.steps * step + evaluation,
        "peak_memory": measured.growth + (measured.base if program is None else program), "machine": measured.machine})


def plan_notes(recipe: Recipe, work: Workload, held_out_tokens: int | None, measured: Calibration | None) -> tuple[str,
                                                                                                                   ...]:
    """Say what was assumed."""
    notes = ("" if work.real else "counted from the recipe alone: rows are full, and `cook` plans again with the text",
             "" if held_out_tokens else "the time of evaluations is left out, as the held-out text is not known yet",
             SCALED[measured.how if measured else None])
    return tuple(filter(None, notes))


def plan_lines(plan: Plan) -> list[tuple[str, str, str]]:
    """Return (what, how much, remark) of everything in a plan."""
    each, ratio = plan.tokens // plan.steps, plan.tokens / plan.parameters
    counted = ", ".join(f"{name} {format_bytes(size)}" for name, size in plan.memory.items())
    return [("parameters", f"{plan.parameters:,}", ""),
            ("tokens", format_quantity(plan.tokens),
             f"{plan.steps:,} steps of {each:,}; {ratio:.1f} for each parameter"),
            ("work", f"{format_quantity(plan.flops)}FLOPs", "forward and backward"),
            ("memory", format_bytes(sum(plan.memory.values())), counted), *measured_lines(plan)]


def measured_lines(plan: Plan) -> list[tuple[str, str, str]]:
    """Return the lines that a calibration adds."""
    if plan.peak_memory is None or plan.seconds is None or plan.step_seconds is None:
        return []
    work = f"{format_quantity(plan.flops / plan.steps / plan.step_seconds)}FLOP/s in {plan.dtype}"
    speed = f"{format_quantity(plan.tokens / plan.steps / plan.step_seconds)} tokens/s, {work}"
    return [("peak memory", format_bytes(plan.peak_memory), "the whole process"),
            ("time", format_duration(plan.seconds), f"{speed}; evaluations {format_duration(plan.evaluation_seconds)}")]


def render_plan(plan: Plan) -> Table:
    """Return what `saucier plan` prints."""
    rows = [(what, amount, Text(remark, style="dim")) for what, amount, remark in plan_lines(plan)]
    return Table(("", "", ""), rows, numbers=(1,), folded=(2,), colours={0: "cyan", 1: "bold"}, gap=3,
                 title=Text(f"the cost of {plan.recipe}", style="bold green"),
                 caption="\n".join((plan.machine, *plan.notes)).strip())
