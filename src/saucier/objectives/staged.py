"""Learning in two stages: at first only some parameters learn, then all of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

from torch import nn

from saucier.errors import InputError
from saucier.objectives import config as c
from saucier.objectives.base import Batch, Loss, Objective


@dataclass(frozen=True, slots=True)
class Staged(Objective):
    """An objective whose gradients reach only some parameters until a step. Source: Lewis et al. 2020, §3.4.

    A parameter without a gradient is left alone by the optimizer, weight decay included.
    """

    inner: Objective
    stage: c.FirstStage
    until: int
    """The first stage's steps."""
    first: bool = True
    """Whether it is the first stage now."""

    @property
    def parts(self) -> tuple[str, ...]:
        """Those of the objective."""
        return self.inner.parts

    @property
    def figures(self) -> Mapping[str, str]:
        """Likewise."""
        return self.inner.figures

    @property
    def modules(self) -> Mapping[str, nn.Module]:
        """Likewise; they learn in both stages."""
        return self.inner.modules

    def at(self, step: int) -> Staged:
        """Return what is learned at a step."""
        return replace(self, inner=self.inner.at(step), first=step < self.until)

    def held_out(self) -> Objective:
        """What is measured has no stages."""
        return self.inner.held_out()

    def bind(self, model: nn.Module) -> None:
        """Look for the parameters. Raises `InputError` for a name that nothing begins with."""
        self.inner.bind(model)
        names = [name for name, _ in model.named_parameters()]
        for wanted in self.stage.learns:
            if not any(begins(name, wanted) for name in names):
                raise InputError(f"no parameter is called {wanted}", where="objective.first_stage.learns",
                                 remedy=f"there are {', '.join(sorted({name.split('.')[0] for name in names}))}")

    def settle(self, model: nn.Module, step: int) -> None:
        """As the objective does."""
        self.inner.settle(model, step)

    def count(self, batch: Batch) -> dict[str, float]:
        """As the objective does."""
        return self.inner.count(batch)

    def __call__(self, model: nn.Module, batch: Batch) -> Loss:
        """Return the loss, whose gradient reaches what learns now."""
        if not self.first:
            return self.inner(model, batch)
        with resting(model, self.stage.learns):
            return self.inner(model, batch)


def begins(name: str, wanted: str) -> bool:
    """Say whether a parameter is one, or inside of one, of this name."""
    return name == wanted or name.startswith(f"{wanted}.")


@contextmanager
def resting(model: nn.Module, learns: tuple[str, ...]) -> Iterator[None]:
    """Keep gradients from all parameters but some, for one pass."""
    still = [parameter for name, parameter in model.named_parameters()
             if parameter.requires_grad and not any(begins(name, wanted) for wanted in learns)]
    for parameter in still:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in still:
            parameter.requires_grad_(True)
