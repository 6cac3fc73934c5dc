"""From a config to torch's optimizers: the learning-rate schedule, the role of each parameter (which weights
decay, which are orthogonalized), and one small class over one or two optimizers.

The state can be taken out and put back as named tensors, so that no pickle is needed to resume.

This is the one place that says which weights decay and which are orthogonalized.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from saucier.devices import multiplies_bfloat16
from saucier.errors import InputError
from saucier.parts.attention import CrossAttention, SelfAttention
from saucier.parts.block import SplitMaps
from saucier.parts.feed_forward import GatedFeedForward
from saucier.parts.heads import LanguageHead
from saucier.training import hyperparameters as c


def learning_rate_factor(schedule: c.ScheduleConfig, step: int, steps: int) -> float:
    """Return the factor (0 … 1) for update number `step` (from 0) of `steps`. Sources: see each schedule's config."""
    number = step + 1
    if number <= schedule.warmup:
        return number / schedule.warmup
    progress = (number - schedule.warmup) / max(1, steps - schedule.warmup)
    match schedule:
        case c.Cosine(final=final):
            return final + (1 - final) * 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))
        case c.Linear(final=final):
            return final + (1 - final) * max(0.0, 1 - progress)
        case c.Polynomial(power=power, final=final):
            return float(final + (1 - final) * max(0.0, 1 - progress) ** power)
        case c.InverseSquareRoot(warmup=warmup):
            return math.sqrt(warmup / number)
        case c.Constant(cooldown=cooldown):
            return min(1.0, (steps - step) / cooldown) if cooldown else 1.0


class ParameterRole(Enum):
    """The kinds of parameters."""

    MATRIX = "matrix"
    """A linear map inside a stack: decays; Muon orthogonalizes it."""
    OUTPUT = "output"
    """A linear map outside the stacks, such as an untied output matrix: decays."""
    OTHER = "other"
    """Tables, norms and biases: no decay."""


def find_roles(model: nn.Module) -> dict[str, ParameterRole]:
    """Return the role of every trainable parameter, by name; a tied output matrix counts as the table that it is."""
    stacks = [stack for name, stack in model.named_children() if name in ("encoder", "decoder")]
    inside = {id(module.weight) for stack in stacks for module in stack.modules() if isinstance(module, nn.Linear)}
    maps = {id(module.weight) for module in model.modules() if isinstance(module, nn.Linear | LanguageHead)}
    tables = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    roles = dict.fromkeys(maps - tables, ParameterRole.OUTPUT) | dict.fromkeys(inside, ParameterRole.MATRIX)
    return {name: roles.get(id(parameter), ParameterRole.OTHER)
            for name, parameter in model.named_parameters() if parameter.requires_grad}


BLOCK = re.compile(r"(encoder|decoder)\.blocks\.(\d+)\.")


def depth_below_head(model: nn.Module) -> Callable[[str], int]:
    """Return how many groups of layers are above a parameter, by its name: none above a head, all above embeddings.

    Each stack counts its own blocks.
    """
    counts = {stack: len(getattr(model, stack).blocks) for stack in ("encoder", "decoder")
              if getattr(model, stack, None) is not None}

    def depth(name: str) -> int:
        if name.startswith(("embed.", "decoder_embed.", "front.")):
            return max(counts.values(), default=0) + 1
        found = BLOCK.match(name)
        return counts[found[1]] - int(found[2]) if found else 0

    return depth


def trainable_parameters(model: nn.Module, modules: Mapping[str, nn.Module]) -> dict[str, nn.Parameter]:
    """Return every trainable parameter once, by name: the model's own, then those of an objective's modules.

    The latter are named `objective.MODULE.NAME`; one that is shared keeps the name that came first.
    """
    found: dict[int, tuple[str, nn.Parameter]] = {}
    for prefix, module in list_modules(model, modules):
        for name, parameter in module.named_parameters():
            if parameter.requires_grad:
                found.setdefault(id(parameter), (prefix + name, parameter))
    return dict(found.values())


def list_modules(model: nn.Module, modules: Mapping[str, nn.Module]) -> list[tuple[str, nn.Module]]:
    """Return everything that has parameters, each with what a run puts before their names."""
    return [("", model), *((f"objective.{name}.", module) for name, module in modules.items())]


def fused_rows(model: nn.Module) -> dict[int, list[int]]:
    """Return, for the id of each weight that holds several maps on top of each other, the rows of each.

    Queries, keys and values are orthogonalized separately, as separate maps would be.
    """
    found: dict[int, list[int]] = {}
    for module in model.modules():
        match module:  # a map that a rewrite changed has no matrix that learns
            case SelfAttention(qkv=nn.Linear() | SplitMaps()):
                query, key, _ = module.widths
                found[id(module.qkv.weight)] = [query, key, key]
            case CrossAttention(kv=nn.Linear()):
                found[id(module.kv.weight)] = [module.kv.out_features // 2] * 2
            case GatedFeedForward(up=nn.Linear()):
                found[id(module.up.weight)] = [module.up.out_features // 2] * 2
    return found


Named = dict[str, nn.Parameter]


@dataclass(slots=True)
class FusedPart:
    """Some rows of a parameter, as a parameter of its own that shares the memory."""

    whole: nn.Parameter
    view: nn.Parameter
    start: int


class Optimizer:
    """One or two torch optimizers that step together. The rate of each follows one schedule factor."""

    def __init__(self, parts: list[torch.optim.Optimizer], names: dict[int, str], pieces: list[FusedPart]) -> None:
        """`names`: parameter id to name, for the state; `pieces`: views that must see gradients before a step."""
        self.parts, self.names, self.pieces = parts, names, pieces
        self.highest = [[float(group["lr"]) for group in part.param_groups] for part in parts]

    def step(self, factor: float) -> None:
        """Update the weights at `factor` times the highest rates."""
        for piece in self.pieces:
            gradient = piece.whole.grad
            piece.view.grad = None if gradient is None else gradient[piece.start:piece.start + len(piece.view)]
        for part, rates in zip(self.parts, self.highest, strict=True):
            for group, rate in zip(part.param_groups, rates, strict=True):
                group["lr"] = rate * factor
            part.step()
        for piece in self.pieces:
            piece.view.grad = None

    def rate(self) -> float:
        """The current rate of the first group, for the log."""
        return float(self.parts[0].param_groups[0]["lr"])

    def state(self) -> dict[str, Tensor]:
        """Take out the state, each tensor named `parameter:field`."""
        return {f"{self.names[id(parameter)]}:{field}": value.detach().cpu().contiguous()
                for part in self.parts for parameter, fields in part.state.items() for field, value in fields.items()
                if isinstance(value, Tensor)}

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Put back what `state` took out. Raises `InputError` when it belongs to other parameters."""
        grouped: dict[str, dict[str, Tensor]] = {}
        for key, value in state.items():
            name, _, field = key.rpartition(":")
            grouped.setdefault(name, {})[field] = value
        for part in self.parts:
            for group in part.param_groups:
                for parameter in group["params"]:
                    name = self.names[id(parameter)]
                    fields = grouped.pop(name, None)
                    if fields is not None:
                        check_state(part, name, parameter, fields)
                        # step counts are on the device of the weights only in fused kernels
                        part.state[parameter] = {
                            field: value.to(parameter.device if group.get("fused") or field != "step" else "cpu",
                                            copy=True) for field, value in fields.items()}
        if grouped:
            raise InputError(f"state of unknown parameter {next(iter(grouped))}", where="optimizer.safetensors",
                             remedy="resume with the recipe that the run was begun with")


def check_state(part: torch.optim.Optimizer, name: str, parameter: Tensor, fields: Mapping[str, Tensor]) -> None:
    """Refuse a parameter's state that its optimizer cannot go on with. Raises `InputError`."""
    shape, expected = list(parameter.shape), dict[str, list[int]]()
    match part:
        case torch.optim.AdamW():
            expected = {"step": [], "exp_avg": shape, "exp_avg_sq": shape}
        case torch.optim.Adafactor() if len(shape) < 2:
            expected = {"step": [], "variance": shape}
        case torch.optim.Adafactor():
            expected = {"step": [], "row_var": [*shape[:-1], 1], "col_var": [*shape[:-2], 1, shape[-1]]}
        case _:
            expected = {"momentum_buffer": shape}
    found = {field: list(value.shape) for field, value in fields.items()}
    sound = all(value.is_floating_point() and bool(value.isfinite().all()) for value in fields.values())
    if found != expected or not sound:
        raise InputError(f"the state of {name} is no state of this optimizer", where="optimizer.safetensors",
                         remedy="remove this checkpoint, so that the run goes on from the one before")


def build_optimizer(config: c.OptimizerConfig, model: nn.Module,
                    modules: Mapping[str, nn.Module] = MappingProxyType({}),
                    rates: c.LayerRates | None = None, *,
                    module_rates: Mapping[str, float] = MappingProxyType({})) -> Optimizer:
    """Build the optimizer of a model, and of the modules of its objective; `rates` lowers those of lower blocks.

    `module_rates`: shares of the rate that modules learn at, by their names; 1 where none is given.
    Raises `InputError` for Muon on a torch that lacks it.
    """
    parameters = trainable_parameters(model, modules)
    kinds = {prefix + name: role for prefix, module in list_modules(model, modules)
             for name, role in find_roles(module).items()}
    names = {id(parameter): name for name, parameter in parameters.items()}
    depth, factor = depth_below_head(model), 1.0 if rates is None else rates.factor
    shares = {name: factor**depth(name) for name in parameters}
    for module, share in module_rates.items():
        shares |= {name: share * shares[name] for name in parameters if name.startswith(f"objective.{module}.")}
    match config:
        case c.AdamW():
            return Optimizer([build_adamw(config, parameters, kinds, shares)], names, [])
        case c.Adafactor():
            # without first moments; source: Shazeer and Stern 2018, algorithm 4
            groups = group_by_decay(parameters, kinds, shares, rate=config.learning_rate, decay=config.weight_decay)
            adafactor = torch.optim.Adafactor(groups, lr=config.learning_rate, beta2_decay=config.beta2_decay,
                                              d=config.threshold)
            return Optimizer([adafactor], names, [])
        case c.Muon():
            matrices = {name: p for name, p in parameters.items() if kinds[name] is ParameterRole.MATRIX}
            others = {name: p for name, p in parameters.items() if name not in matrices}
            rows = {key: sizes for one in (model, *modules.values()) for key, sizes in fused_rows(one).items()}
            views, pieces = split_fused(matrices, rows, names)
            of_views = [shares[names[id(view)].split("[")[0]] for view in views]
            return Optimizer([build_muon(config, views, of_views), build_adamw(config.others, others, kinds, shares)],
                             names, pieces)


Group = dict[str, Any]


def group_by_decay(parameters: Named, kinds: dict[str, ParameterRole], shares: Mapping[str, float], *, rate: float,
                   decay: float) -> list[Group]:
    """Split parameters into those that decay and those that do not, and each by its share of the rate."""
    groups: dict[tuple[bool, float], Group] = {}
    for name, parameter in parameters.items():
        decays, share = kinds[name] is not ParameterRole.OTHER, shares[name]
        group = groups.setdefault((decays, share), {"params": [], "weight_decay": decay if decays else 0.0,
                                                    "lr": rate * share})
        group["params"].append(parameter)
    return [groups[key] for key in sorted(groups, reverse=True)]


def build_adamw(config: c.AdamW, parameters: Named, kinds: dict[str, ParameterRole],
                shares: Mapping[str, float]) -> torch.optim.Optimizer:
    """AdamW with torch's fused kernel. Source: Loshchilov and Hutter 2019, algorithm 2."""
    groups = group_by_decay(parameters, kinds, shares, rate=config.learning_rate, decay=config.weight_decay)
    return torch.optim.AdamW(groups, lr=config.learning_rate, betas=(config.beta1, config.beta2), eps=config.eps,
                             fused=True)


def build_muon(config: c.Muon, views: list[nn.Parameter], shares: list[float]) -> torch.optim.Optimizer:
    """Muon with steps of AdamW's size. Source: Liu et al. 2025, §2.2, arXiv:2502.16982."""
    if not hasattr(torch.optim, "Muon"):
        raise InputError("this torch has no Muon", where="training.optimizer.kind",
                         remedy="install torch 2.9 or newer, or use adamw")
    if not views:
        raise InputError("the model has no matrices for Muon", where="training.optimizer.kind", remedy="use adamw")
    groups = [{"params": [view for view, one in zip(views, shares, strict=True) if one == share],
               "lr": config.learning_rate * share} for share in sorted(set(shares), reverse=True)]
    kind = torch.optim.Muon if config.dtype is None or multiplies_bfloat16(views[0].device) else FloatMuon
    return kind(groups, lr=config.learning_rate, momentum=config.momentum, weight_decay=config.weight_decay,
                adjust_lr_fn="match_rms_adamw")


if hasattr(torch.optim, "Muon"):
    class FloatMuon(torch.optim.Muon):
        """Muon that orthogonalizes in the format of the gradients, for devices that multiply bfloat16 no faster.

        torch's own one rounds to bfloat16 first. Such a device multiplies those numbers slowly: the update of
        `gpt-nano` took five times as long as the passes.
        """

        @torch.no_grad()
        def step(self, closure: Any = None) -> Any:
            """Update the weights. Source: Jordan et al. 2024; Liu et al. 2025, eq 4, arXiv:2502.16982."""
            loss = None if closure is None else torch.enable_grad()(closure)()
            for group in self.param_groups:
                for weight in (one for one in group["params"] if one.grad is not None):
                    state = self.state[weight]
                    if "momentum_buffer" not in state:
                        state["momentum_buffer"] = torch.zeros_like(weight.grad)
                    kept = state["momentum_buffer"].lerp_(weight.grad, 1 - group["momentum"])
                    update = orthogonalize(weight.grad.lerp(kept, group["momentum"]), group["ns_coefficients"],
                                           group["ns_steps"], group["eps"])
                    weight.mul_(1 - group["lr"] * group["weight_decay"])
                    weight.add_(update, alpha=-group["lr"] * 0.2 * max(weight.shape) ** 0.5)
            return loss


def orthogonalize(matrix: Tensor, coefficients: tuple[float, float, float], steps: int, eps: float) -> Tensor:
    """Bring all singular values near 1 by Newton and Schulz's iteration of degree five. Shapes: [O, I] -> [O, I]."""
    first, third, fifth = coefficients
    found = matrix.T if len(matrix) > matrix.shape[1] else matrix
    found = found / found.norm().clamp(min=eps)
    for _ in range(steps):
        gram = found @ found.T
        found = torch.addmm(found, torch.addmm(gram, gram, gram, beta=third, alpha=fifth), found, beta=first)
    return found.T if len(matrix) > matrix.shape[1] else found


def split_fused(matrices: Named, rows: dict[int, list[int]], names: dict[int, str]) -> tuple[list[nn.Parameter],
                                                                                             list[FusedPart]]:
    """Replace each fused matrix by views of its maps; names the views in `names`."""
    views: list[nn.Parameter] = []
    pieces: list[FusedPart] = []
    for name, parameter in matrices.items():
        if id(parameter) not in rows:
            views.append(parameter)
            continue
        start = 0
        for count in rows[id(parameter)]:
            view = nn.Parameter(parameter.detach()[start:start + count])
            names[id(view)] = f"{name}[{start}:{start + count}]"
            pieces.append(FusedPart(parameter, view, start))
            views.append(view)
            start += count
    return views, pieces
