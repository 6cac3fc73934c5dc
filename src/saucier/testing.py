"""For tests of one's own parts: `check_laws` holds a part, or a whole model, to what must hold of every model."""

from __future__ import annotations

from dataclasses import dataclass

from saucier.config import Config, check
from saucier.diagnosis.doctor import Finding
from saucier.diagnosis.part_laws import examine_config, list_models
from saucier.errors import InputError
from saucier.result import Result
from saucier.table import Table


@dataclass(frozen=True, slots=True)
class Examined:
    """What was found of one model that holds the part."""

    model: str
    findings: tuple[Finding, ...]

    @property
    def held(self) -> tuple[str, ...]:
        """The laws that apply, and hold."""
        return tuple(one.name for one in self.findings if one.verdict == "holds")


@dataclass(frozen=True, slots=True)
class HeldLaws(Result):
    """The laws that a part was held to, model by model; none of them fails."""

    models: tuple[Examined, ...]

    def view(self) -> Table:
        """Show how many laws hold of each model, and those that do not apply."""
        rows = [(one.model, str(len(one.held)), ", ".join(law.name for law in one.findings if law.verdict != "holds"))
                for one in self.models]
        return Table(("model", "laws that hold", "do not apply"), rows, numbers=(1,), folded=(0, 2))


def check_laws(part: Config, *, seed: int = 0) -> HeldLaws:
    """Hold a part to every law: padding, batching, packing, caching, leaks, counting, learning, saving.

    `part` is a whole `Transformer`, or a kernel, positions, a sublayer or a head, which is put into small decoders and
    encoders, wherever its own `check` lets it. `seed` draws the weights. Returns what was held of each model.

    Raises `AssertionError` with the law's name and the numbers for the first law that fails; `InputError` for a part
    that no model takes.
    """
    found, refusals = [], []
    for name, make in list_models(part).items():
        try:
            check(config := make())
        except InputError as error:
            refusals.append(error)
            continue
        findings = tuple(examine_config(config, seed))
        for one in findings:
            if one.verdict == "fails":
                raise AssertionError(describe_failure(name, one))
        found.append(Examined(name, findings))
    if not found:
        raise refusals[-1] if refusals else InputError(
            f"{type(part).__name__} is no part of a model", where="check_laws",
            remedy="give a model, a kernel, positions, a sublayer or a head")
    return HeldLaws(tuple(found))


def describe_failure(model: str, one: Finding) -> str:
    """Say which law fails, of which model, and by how much."""
    gap = "" if one.difference is None else f": largest difference {one.difference:.2e}, {one.tolerance:.0e} allowed"
    return f"{model}: the law {one.name!r} fails{gap}{f': {one.why}' if one.why else ''}"
