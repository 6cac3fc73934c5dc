"""An objective around another one that sets weights of the model to zero after updates, and keeps them there.

The model's own weights are the pruned ones at any time, so that it is measured and saved as it is. What that needs
besides (masks, scores, the values that masked weights would have) is a module of the objective, saved with checkpoints.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from saucier.adaptation.pruning.sparsity import find_zeros, keep_least, list_meant
from saucier.errors import InputError
from saucier.objectives.base import Batch, Loss, Objective, WrappedObjective
from saucier.objectives.config import pruning as c
from saucier.objectives.gates import GatedObjective, refuse_adapter

MODULE = "pruning"


class PruningState(nn.Module):
    """What pruning keeps of each matrix, in the order of the names."""

    def __init__(self, weights: Mapping[str, nn.Parameter], masks: Mapping[str, Tensor], *, moves: bool) -> None:
        """Begin with these masks; `moves`: with scores of zero and the values of masked weights too."""
        super().__init__()
        self.names = [*weights]
        self.masks = nn.ParameterList(nn.Parameter(masks[name].to(weights[name].dtype), requires_grad=False)
                                      for name in self.names)
        """1 = a weight that is there, 0 = one that is zero."""
        self.scores = nn.ParameterList(nn.Parameter(torch.zeros_like(weights[name])) for name in self.names if moves)
        self.hidden = nn.ParameterList(nn.Parameter(torch.zeros_like(weights[name]), requires_grad=False)
                                       for name in self.names if moves)
        """The values of weights that are masked, and 0 for the others."""


@dataclass(frozen=True, slots=True)
class WeightPruningObjective(WrappedObjective):
    """Learns what the inner objective learns, with some weights zero."""

    by: c.WeightPruning
    steps: int
    own: dict[str, nn.Module] = field(default_factory=dict, compare=False)
    """The state, from `bind` on."""
    hooks: list[torch.utils.hooks.RemovableHandle] = field(default_factory=list, compare=False)

    @property
    def modules(self) -> Mapping[str, nn.Module]:
        """Those of the inner one, and the state."""
        return {**self.inner.modules, **self.own}

    @property
    def state(self) -> PruningState:
        """The state, which `bind` has made."""
        found = self.own[MODULE]
        assert isinstance(found, PruningState), "bind() makes one"
        return found

    def bind(self, model: nn.Module) -> None:
        """Find the weights. Raises `InputError` where zeros are to be kept and there are none."""
        WrappedObjective.bind(self, model)
        refuse_adapter(model)
        known = dict(model.named_parameters())
        masks = find_zeros(model) if isinstance(self.by, c.KeptZeros) else {
            name: torch.ones_like(known[name]) for name in list_meant(model, self.by.where)}
        if not masks:
            raise InputError("no weight of the model's stacks is zero", where="pruning.kind",
                             remedy="prune it first, or use gradual_magnitude or movement")
        weights = {name: known[name] for name in masks}
        self.own[MODULE] = PruningState(weights, masks, moves=isinstance(self.by, c.MovementPruning))

    def at(self, step: int) -> Objective:
        """Return what is learned at a step."""
        inner = self.inner.at(step)
        return self if inner is self.inner else WeightPruningObjective(inner, self.by, self.steps, self.own, self.hooks)

    def held_out(self) -> Objective:
        """Return what is measured: the inner one, of a model whose weights are zero already."""
        return self.inner.held_out()

    def __call__(self, model: nn.Module, batch: Batch) -> Loss:
        """The inner loss; in movement pruning the gradient of a weight is one of its mask, too."""
        if isinstance(self.by, c.MovementPruning) and not self.hooks and torch.is_grad_enabled():
            known = dict(model.named_parameters())
            for place, name in enumerate(self.state.names):
                self.hooks.append(known[name].register_hook(self.share_gradient(known[name], place)))
        return self.inner(model, batch)

    def share_gradient(self, weight: Tensor, place: int) -> Callable[[Tensor], Tensor]:
        """Return what gives a score its gradient, ∂L/∂W' · W, and lets that of a masked weight be zero."""
        mask, score, hidden = self.state.masks[place], self.state.scores[place], self.state.hidden[place]

        def share(gradient: Tensor) -> Tensor:
            own = gradient * (weight.detach() + hidden)
            score.grad = own if score.grad is None else score.grad + own
            masked: Tensor = gradient * mask
            return masked

        return share

    def finish_update(self, model: nn.Module, step: int) -> None:
        """Find which weights are zero now, and set them to it."""
        WrappedObjective.finish_update(self, model, step)
        while self.hooks:
            self.hooks.pop().remove()
        known, state = dict(model.named_parameters()), self.state
        with torch.no_grad():
            weights = {name: known[name].detach() for name in state.names}
            if isinstance(self.by, c.MovementPruning):
                self.move(weights, step)
            elif isinstance(self.by, c.GradualMagnitude) and self.prunes(step):
                self.put_masks({name: weights[name].abs() * state.masks[place]
                                for place, name in enumerate(state.names)}, step)
            for place, name in enumerate(state.names):
                known[name].mul_(state.masks[place])

    def prunes(self, step: int) -> bool:
        """Say whether other weights become zero after a step (from 0)."""
        return not isinstance(self.by, c.KeptZeros) and (step % self.by.every == 0 or step + 1 == self.steps)

    def put_masks(self, order: Mapping[str, Tensor], step: int) -> None:
        """Mask the share of the weights that is due, those of the least `order`."""
        assert isinstance(self.by, c.Ramp), "zeros that are kept are not looked for"
        kept = keep_least(order, self.by.at(step, self.steps), self.by.scope)
        for place, name in enumerate(self.state.names):
            self.state.masks[place].copy_(kept[name])

    def move(self, weights: Mapping[str, Tensor], step: int) -> None:
        """Give weights that come back their values, and keep those of weights that go."""
        state = self.state
        whole = {name: torch.where(state.masks[place] > 0, weights[name], state.hidden[place] + weights[name])
                 for place, name in enumerate(state.names)}
        if self.prunes(step):
            self.put_masks(dict(zip(state.names, (one.detach() for one in state.scores), strict=True)), step)
        for place, name in enumerate(state.names):
            weights[name].copy_(whole[name])
            state.hidden[place].copy_(whole[name] * (1.0 - state.masks[place]))


def keep_pruned(objective: Objective, by: c.TrainedPruning | None, steps: int) -> Objective:
    """Return an objective that prunes a model as it learns; the same where nothing is to be pruned."""
    match by:
        case None:
            return objective
        case c.UnitGates():
            return GatedObjective(objective, by, steps)
        case _:
            return WeightPruningObjective(objective, by, steps)
