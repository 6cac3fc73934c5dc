"""An objective around another one that puts gates before heads, neurons and ranks, and takes out what is closed.

Letters: B rows, L length, H gates of a sublayer or map, E values behind one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from math import log
from typing import Any

import torch
from torch import Tensor, nn

from saucier.adaptation.pruning.prune import heads_together, select_places
from saucier.adaptation.pruning.scores import count_units, find_width
from saucier.adaptation.quantization.maps import refuse_quantized
from saucier.adaptation.surgery.factors import factorize_in_place, find_ranks, list_maps
from saucier.adaptation.surgery.operate import operate
from saucier.adaptation.surgery.operations import Heads, Neurons, Operation, Ranks
from saucier.adaptation.surgery.units import Attention, list_places
from saucier.config.counting.model import parameters
from saucier.errors import InputError
from saucier.model import Transformer
from saucier.objectives.base import Batch, Loss, LossPart, Objective, WrappedObjective
from saucier.objectives.config import pruning as c
from saucier.parts.linear import reading_weight

SHARPNESS, LOW, HIGH = 2 / 3, -0.1, 1.1
"""β, γ and ζ of the hard concrete distribution. Source: Louizos et al. 2018, §4, arXiv:1712.01312."""
OPEN = 2.5
"""What log α begins with: the gate is 1 in evaluation, and open in 98 of 100 passes."""
MODULE, PART = "gates", "gates"


@dataclass(frozen=True, slots=True)
class GatedPlace:
    """A sublayer whose heads or neurons, or a map whose ranks, are behind gates."""

    path: str
    kind: str
    """`heads`, `neurons` or `ranks`."""
    last: str
    """The name of the map that reads what the gates let through."""
    gates: int
    units: int
    """Heads, neurons or ranks behind one gate."""
    width: int
    """Values of the last map's input behind one gate."""
    cost: float
    """Parameters behind one gate."""
    whole: float
    """Parameters of what is gated before anything is taken out: of a map, those of one matrix."""


class GateState(nn.Module):
    """The gates of a model, and the multipliers of their size. What learns is divided by how much faster it learns."""

    def __init__(self, places: list[GatedPlace], faster: float, like: Tensor) -> None:
        """Begin with open gates, and multipliers of zero."""
        super().__init__()
        self.places, self.faster = places, faster
        self.raw = nn.ParameterList(nn.Parameter(torch.full((one.gates,), OPEN / faster, dtype=like.dtype,
                                                            device=like.device)) for one in places)
        self.multipliers = nn.Parameter(torch.zeros(2, dtype=like.dtype, device=like.device))

    def log_alpha(self, number: int) -> Tensor:
        """Return log α of a sublayer's gates. Shapes: -> [H]."""
        found: Tensor = self.raw[number] * self.faster
        return found

    def probability(self, number: int) -> Tensor:
        """Return how likely each gate is open (C eq 52). Source: Louizos et al. 2018, eq 12. Shapes: -> [H]."""
        return torch.sigmoid(self.log_alpha(number) - SHARPNESS * log(-LOW / HIGH))

    def draw(self, number: int) -> Tensor:
        """Draw the gates of a pass. Source: Louizos et al. 2018, eq 10-11, arXiv:1712.01312. Shapes: -> [H]."""
        alpha = self.log_alpha(number)
        uniform = torch.rand_like(alpha).clamp(1e-6, 1 - 1e-6)
        soft = torch.sigmoid((uniform.logit() + alpha) / SHARPNESS)
        return (soft * (HIGH - LOW) + LOW).clamp(0.0, 1.0)

    def settled(self, number: int) -> Tensor:
        """Return the gates in evaluation: as many as are expected to be closed are 0, the likeliest of them.

        Source: Louizos et al. 2018, eq 13; Wang et al. 2020, code release, for the number. An open gate that eq 13
        would close has the sigmoid's value, before it is stretched. Shapes: -> [H].
        """
        alpha = self.log_alpha(number).detach()
        soft = torch.sigmoid(alpha)
        found = torch.maximum(soft, soft * (HIGH - LOW) + LOW).clamp(max=1.0)
        closed = round(float((1.0 - self.probability(number).detach()).sum()))
        found[alpha.argsort(stable=True)[:closed]] = 0.0
        return found

    def size(self) -> Tensor:
        """Return the expected share of the parameters behind gates that is there. Shapes: -> [].

        A map has at most those of one matrix; its ranks are drawn to a target all the same (straight through).
        """
        sums = []
        for number, one in enumerate(self.places):
            open_ones = self.probability(number).sum() * one.cost
            sums.append(open_ones + (open_ones.clamp(max=one.whole) - open_ones).detach())
        return torch.stack(sums).sum() / sum(one.whole for one in self.places)


def find_gated(model: Transformer, by: c.UnitGates) -> list[GatedPlace]:
    """Return what gets gates. Raises `InputError` where there is nothing, or layers share weights."""
    if "ranks" in by.units:
        if len(by.units) > 1:
            raise InputError("the ranks of maps that lose heads or neurons too have no size of their own",
                             where="pruning.units", remedy="use [ranks] alone, and prune heads or neurons before it")
        if by.where != ("*",):
            raise InputError("ranks are those of all maps", where="pruning.where", remedy="leave it out")
        return find_gated_ranks(model)
    found = []
    for what in by.units:
        for path, place in select_places(model.config, by.where, what).items():
            inner: Any = model.get_submodule(f"{path}.inner")
            maps = [inner.out, *((inner.qkv,) if hasattr(inner, "qkv") else (inner.q, inner.kv))] \
                if isinstance(place.inner, Attention) else [inner.down, inner.up]
            values = sum(one.numel() for each in maps for one in each.parameters()) - (
                0 if maps[0].bias is None else maps[0].bias.numel())
            units = heads_together(place.inner)
            gates = count_units(place) // units
            last = f"{path}.inner.{'out' if isinstance(place.inner, Attention) else 'down'}"
            found.append(GatedPlace(path, what, last, gates, units, find_width(place) * units, values / gates, values))
    return found


def find_gated_ranks(model: Transformer) -> list[GatedPlace]:
    """Make every map of the stacks a product, and return them all. Raises `InputError` where one cannot be."""
    factorize_in_place(model)
    found = []
    for path, place in list_places(model.config).items():
        sizes = list_maps(place)
        for name, rank in find_ranks(place.inner).items():
            inputs, outputs = sizes[name]
            one = f"{path}.inner.{name}"
            found.append(GatedPlace(one, "ranks", f"{one}.second", rank, 1, 1, inputs + outputs, inputs * outputs))
    if not found:
        raise InputError("the model has no attention and no feed-forward", where="pruning.units", remedy="leave it out")
    return found


@dataclass(frozen=True, slots=True)
class GatedObjective(WrappedObjective):
    """Learns what the inner objective learns, through gates, and which of these can be closed."""

    by: c.UnitGates
    steps: int
    own: dict[str, nn.Module] = field(default_factory=dict, compare=False)
    """The gates, from `bind` on."""
    hooks: list[torch.utils.hooks.RemovableHandle] = field(default_factory=list, compare=False)
    step: int = 0

    @property
    def parts(self) -> tuple[str, ...]:
        """Those of the inner one, and what closes gates."""
        return (*self.inner.parts, PART)

    @property
    def figures(self) -> Mapping[str, str]:
        """Those of the inner one, and how much is expected to be there."""
        return {**self.inner.figures, "open": "share of the parameters behind gates that is expected to stay"}

    @property
    def modules(self) -> Mapping[str, nn.Module]:
        """Those of the inner one, and the gates."""
        return {**self.inner.modules, **self.own}

    @property
    def state(self) -> GateState:
        """The gates, which `bind` has made."""
        found = self.own[MODULE]
        assert isinstance(found, GateState), "bind() makes them"
        return found

    def bind(self, model: nn.Module) -> None:
        """Put gates before heads, neurons or ranks. Raises `InputError` for a model whose layers share weights."""
        WrappedObjective.bind(self, model)
        assert isinstance(model, Transformer), "a model that learns"
        refuse_adapter(model)
        state = GateState(find_gated(model, self.by), self.by.faster, model.embed.tokens.weight)
        self.own[MODULE] = state
        for number, one in enumerate(state.places):
            hook = gate_hook(state, number, one.width)
            self.hooks.append(model.get_submodule(one.last).register_forward_pre_hook(hook))

    def at(self, step: int) -> Objective:
        """Return what is learned at a step: the target is that of the step."""
        return replace(self, inner=self.inner.at(step), step=step)

    def held_out(self) -> Objective:
        """Return what is measured: the inner one, of a model whose gates are settled in evaluation."""
        return self.inner.held_out()

    def __call__(self, model: nn.Module, batch: Batch) -> Loss:
        """The inner loss, and that of the gates."""
        loss = self.inner(model, batch)
        rows, size = self.count(batch)[PART], self.state.size()
        loss.parts[PART] = LossPart(self.penalty(size) * rows, rows)
        loss.figures["open"] = LossPart(size.detach() * rows, rows)
        return loss

    def penalty(self, size: Tensor) -> Tensor:
        """Return what is added to the loss for the gates that are expected to be open. Shapes: [] -> []."""
        added: Tensor
        match self.by.aim:
            case c.OpenPenalty(weight=weight):
                shares = [self.state.probability(number) for number in range(len(self.state.places))]
                added = weight * torch.cat(shares).mean()
            case c.TargetSize(share=share, rise=rise):
                done = min(1.0, (self.step + 1) / max(1.0, rise * self.steps))
                apart = size - (1.0 - share * done)
                own = self.state.multipliers * self.state.faster
                first, second = 2.0 * own.detach() - own  # the same values, which learn to make the loss larger
                added = first * apart + second * apart.square()
        return added

    def count(self, batch: Batch) -> dict[str, float]:
        """Number of targets of the inner one; of the gates as many as rows."""
        return {**self.inner.count(batch), PART: float(len(next(iter(batch.values()))))}

    def finished(self, model: Transformer) -> Transformer:
        """Return the model without what is closed, and without gates: the same numbers as in evaluation.

        A gate that is neither 0 nor 1 is multiplied into the map behind it. One head or neuron of a sublayer, or rank
        of a map, stays.
        """
        model = self.inner.finished(model)
        while self.hooks:
            self.hooks.pop().remove()
        kept: dict[str, dict[str, tuple[int, ...]]] = {}
        with torch.no_grad():
            for number, one in enumerate(self.state.places):
                gates = self.state.settled(number)
                reading_weight(model.get_submodule(one.last)).mul_(gates.repeat_interleave(one.width))
                stay = gates.nonzero().flatten().tolist() or [int(self.state.log_alpha(number).argmax())]
                numbers = tuple(gate * one.units + unit for gate in stay for unit in range(one.units))
                kept.setdefault(one.kind, {})[one.path] = numbers
        made, _ = operate(model, by=[KEEPERS[kind](kept=numbers) for kind, numbers in kept.items()])
        return made


def share_gone(before: Transformer, after: Transformer, by: c.UnitGates) -> float:
    """Return the part of the parameters behind gates that one model has no more: those of maps as one matrix each."""
    whole = sum(one.whole for one in find_gated(deepcopy(before), by))
    return (parameters(before.config) - parameters(after.config)) / whole


KEEPERS: Mapping[str, Callable[..., Operation]] = {"heads": Heads, "neurons": Neurons, "ranks": Ranks}
"""What is behind gates -> the operation that takes out the others."""


def refuse_adapter(model: nn.Module) -> None:
    """Raise `InputError` for a model in few bits, or that was rewritten: its own weights do not learn."""
    refuse_quantized(model, "pruned")
    if isinstance(model, Transformer) and model.provenance.rewrites:
        raise InputError("weights beside an adapter do not learn, and are not pruned", where="pruning",
                         remedy="leave the tuning out, or prune the merged model")


def gate_hook(state: GateState, number: int, width: int) -> Callable[[nn.Module, Any], tuple[Any, ...]]:
    """Return what multiplies the input of a map by its gates. Shapes: [B, L, H·E] -> the same."""
    def multiply(module: nn.Module, given: tuple[Any, ...]) -> tuple[Any, ...]:
        gates = state.draw(number) if module.training else state.settled(number)
        return (given[0] * gates.to(given[0].dtype).repeat_interleave(width), *given[1:])

    return multiply
