"""`saucier show --plan`: the kernel calls that a model is lowered to, or why it is not."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from saucier.errors import InputError
from saucier.plain import format_bytes
from saucier.result import Result

if TYPE_CHECKING:
    from saucier.native.plan import Plan, Step


@dataclass(frozen=True, slots=True)
class KernelPlan(Result):
    """What the native kernels run for a model."""

    model: str
    steps: tuple[str, ...] = ()
    """A line for each kernel call of a token, or of a batch of texts."""
    bytes: int = 0
    """What they read of matrices."""
    fault: str = ""
    """Why there is no plan: the model runs by its own parts."""
    encoder_fault: str = ""
    """Why the encoder of a model that writes from a source runs by its own parts."""

    @property
    def failed(self) -> bool:
        """Whether there is no plan."""
        return bool(self.fault)

    def view(self) -> str:
        """Return the plan."""
        if self.fault:
            return f"{self.model} runs by its own parts: {self.fault}"
        own = [f"encoder: runs by its own parts: {self.encoder_fault}"] if self.encoder_fault else []
        return "\n".join([f"{self.model}: {len(self.steps)} kernel calls, {format_bytes(self.bytes)} of matrices",
                          *own, *self.steps])


def describe_kernel_plan(what: Path, number_format: str | None = None) -> KernelPlan:
    """Lower a model in float32, or in another format, and return its plan. Raises `InputError` for what is no model."""
    from saucier.folders.load import load
    from saucier.generation.decoding import Native
    from saucier.generation.formats import check_format, writes_tokens
    from saucier.generation.native_encoder import find_stack, list_look_ups, name_side, use_native
    from saucier.generation.native_feed import lower_model
    from saucier.generation.native_model import convert_weights

    form: Any = number_format or "float32"
    check_format(form)
    model, engine = load(what, dtype="float32", device="cpu"), Native(format="float32" if form == "auto" else form)
    writes, encoder_fault = writes_tokens(model), ""
    first: tuple[Step, ...] = ()
    try:
        plan: Plan = lower_model(model, engine, 1) if writes else getattr(
            use_native(model, engine), name_side(model)).find_plan(1)
    except InputError as error:
        return KernelPlan(str(what), fault=error.what)
    made = convert_weights(model, engine)
    if not writes:
        first = list_look_ups(model, made)
    elif model.encoder is not None:
        try:
            first = (*list_look_ups(model, made), *find_stack(model, made).find_plan(1).steps)
        except InputError as error:
            encoder_fault = error.what
    told = (f"encoder: {step}" if writes else str(step) for step in first)
    return KernelPlan(str(what), (*told, *str(plan).splitlines()), sum(
        step.read_bytes for step in (*first, *plan.source_steps, *plan.steps)), encoder_fault=encoder_fault)
