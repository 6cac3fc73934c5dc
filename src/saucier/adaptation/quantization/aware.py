"""Training that knows of int8 (Q8BERT): maps and tables round what they hold and read, and learn as if they did not.

Letters: O outputs, I inputs, D width.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saucier.adaptation.quantization.formats import find_grid
from saucier.adaptation.quantization.maps import (
    LARGEST_CODE,
    list_maps,
    list_tables,
    multiply_whole,
    round_inputs,
)
from saucier.adaptation.quantization.schemes import Integers, QuantizationAware, StaticInt8, StoredMatrix
from saucier.adaptation.quantization.storage import put_matrix, replace_modules
from saucier.adaptation.target_modules import swap_modules
from saucier.errors import InputError
from saucier.model import Transformer
from saucier.parts.heads import LanguageHead
from saucier.parts.linear import Linear, PartlyBiased, Table, linear, spread_bias
from saucier.parts.positions import LearnedPositions, check_positions

LARGEST, PENDING, STEPS = range(3)
"""Places in `InputRange.state`."""
NONE_PENDING = -1.0
METHOD = "quantization_aware"
"""How the codes were found, as a folder says it."""


class StraightThrough(torch.autograd.Function):
    """Other numbers in the place of some, with their gradient. Source: Zafrir et al. 2019, §2.2, eq 4."""

    @staticmethod
    def forward(ctx: Any, exact: Tensor, rounded: Tensor) -> Tensor:
        """Shapes: any, twice -> the same."""
        return rounded.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        """Shapes: gradient of the result -> the same."""
        return gradient, None


def through(exact: Tensor, rounded: Tensor) -> Tensor:
    """Return the rounded numbers, with the gradient of the exact ones."""
    return cast(Tensor, StraightThrough.apply(exact, rounded))  # type: ignore[no-untyped-call]


def round_rows(weight: Tensor, form: Integers) -> Tensor:
    """Return what each row becomes in few bits, with the gradient of the row. Shapes: [..., I] -> the same, float32."""
    with torch.no_grad():
        rows = weight.detach().float().flatten(0, -2)[:, None]
        grid = find_grid(rows, form)
        rounded = grid.values(grid.round(rows)).view(weight.shape)
    return through(weight.float(), rounded)


class InputRange(nn.Module):
    """The largest input of a map as a running mean over the steps of training.

    It changes between passes alone (`update_ranges`), so that what is computed again for a gradient is computed with
    the same range. Each process of a distributed run has the range of its own rows; that of the first one is saved.
    Source: Zafrir et al. 2019, §2.1 (exponential moving average).
    """

    added = True
    """Its parameter is no part of the model that was built."""

    def __init__(self, by: QuantizationAware) -> None:
        """Begin without a range: the first pass is rounded by its own largest input."""
        super().__init__()
        self.decay, self.freeze = by.decay, by.freeze
        self.state = nn.Parameter(torch.tensor([0.0, NONE_PENDING, 0.0]), requires_grad=False)
        """[3], float32: the running mean, the largest input since the last step, and how many steps there were."""

    def _apply(self, fn: Any, recurse: bool = True) -> InputRange:
        """Move the numbers, and keep them float32."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.state.data = self.state.data.float()
        return self

    @property
    def known(self) -> bool:
        """Whether a step of training has had an input; until then inputs are rounded in training alone."""
        return bool(self.state[STEPS] > 0)

    def scale(self, x: Tensor) -> Tensor:
        """Note the largest input, and return the scale of inputs. Shapes: any -> []."""
        largest = x.detach().abs().amax().float() if x.numel() else x.new_zeros((), dtype=torch.float32)
        learns = self.training and torch.is_grad_enabled()
        with torch.no_grad():
            if learns:
                self.state[PENDING] = torch.maximum(self.state[PENDING], largest)
            known = self.state[STEPS] > 0
            return torch.where(known, self.state[LARGEST], largest) / LARGEST_CODE

    def update(self) -> None:
        """Take the largest input since the last step into the mean, until ranges are frozen."""
        largest, pending, steps = self.state.tolist()
        if pending < 0 or (self.freeze is not None and steps >= self.freeze):
            return
        mean = pending if not steps else self.decay * largest + (1 - self.decay) * pending
        self.state.data = self.state.new_tensor([mean, NONE_PENDING, steps + 1])


def update_ranges(model: nn.Module, given: object) -> None:
    """Before a pass, take what the last one in training read into the ranges."""
    for module in model.modules():
        if isinstance(module, InputRange):
            module.update()


class AwareLinear(Linear):
    """A linear map that rounds its matrix and its inputs, in float32; its parameters are those of the map before it."""

    def __init__(self, base: nn.Linear, by: QuantizationAware) -> None:
        """Take a map's parameters."""
        super().__init__(base.in_features, base.out_features, bias=False, device="meta")
        self.weight, self.bias = base.weight, base.bias
        self.original, self.form = [base], Integers(bits=by.bits)
        """The map before, in a list so that it is no part of the model; and the number format of the matrix."""
        self.groups = (base.rows, base.biased) if isinstance(base, PartlyBiased) else None
        self.inputs = InputRange(by).to(base.weight.device)

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  # the name in nn.Linear
        """Shapes: [..., I] -> [..., O]. In training a product of rounded numbers, else one of whole ones: exact."""
        bias = self.bias if self.bias is None or self.groups is None else spread_bias(self.bias, *self.groups)
        if not self.training and not self.inputs.known:
            return linear(input, round_rows(self.weight, self.form).to(input.dtype),
                          None if bias is None else bias.to(input.dtype))
        scale = self.inputs.scale(input)
        if not self.training and not torch.is_grad_enabled():
            with torch.autocast(input.device.type, enabled=False):
                rows = input.flatten(0, -2) if input.dim() > 1 else input[None]
                grid = find_grid(self.weight.float()[:, None], self.form)
                found = multiply_whole(rows.float(), grid.round(self.weight.float()[:, None]), grid.scales, self.form,
                                       scale).to(input.dtype).view(*input.shape[:-1], self.out_features)
            return found if bias is None else found + bias.to(found.dtype)
        with torch.autocast(input.device.type, enabled=False):
            wide = input.float()
            with torch.no_grad():
                codes, _ = round_inputs(wide, scale)
            read, weight = through(wide, codes * scale), round_rows(self.weight, self.form)
        return F.linear(read.to(input.dtype), weight.to(input.dtype), None if bias is None else bias.to(input.dtype))


class AwareTable(Table):
    """A table whose rows are rounded as they are looked up."""

    def __init__(self, base: nn.Embedding) -> None:
        """Take a table's parameter."""
        super().__init__(base.num_embeddings, base.embedding_dim, device="meta")
        self.weight, self.original = base.weight, [base]

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  # the name in nn.Embedding
        """Shapes: [...] -> [..., D]."""
        return round_rows(super().forward(input), Integers()).to(self.weight.dtype)


class AwarePositions(LearnedPositions):
    """A table of positions whose rows are rounded as they are looked up."""

    def __init__(self, base: LearnedPositions) -> None:
        """Take a table's parameter."""
        nn.Module.__init__(self)
        self.weight, self.original = base.weight, [base]

    def forward(self, positions: Tensor) -> Tensor:
        """Shapes: [B, L] -> [B, L, D]. Raises `InputError` for a position beyond the table."""
        check_positions(positions, len(self.weight), "learned positions")
        return round_rows(F.embedding(positions, self.weight), Integers()).to(self.weight.dtype)


class AwareLanguageHead(LanguageHead):
    """An output layer over the vocabulary that rounds its matrix."""

    def __init__(self, base: LanguageHead) -> None:
        """Take the parts of an output layer."""
        nn.Module.__init__(self)
        self.scale, self.transform, self.columns, self.bias = base.scale, base.transform, base.columns, base.bias
        self.weight, self.original = base.weight, [base]

    @property
    def matrix(self) -> Tensor:
        """The whole output matrix as it is used [V, D]."""
        rounded = round_rows(self.weight, Integers()).to(self.weight.dtype)
        return rounded if self.columns is None else torch.cat([rounded, self.columns], dim=-1)


Aware = AwareLinear | AwareTable | AwarePositions | AwareLanguageHead


def add_rounding(model: Transformer, by: QuantizationAware, generator: torch.Generator) -> None:
    """Let maps and tables round. Raises `InputError` for a model that does so already, and for what cannot be rounded.
    """
    if any(isinstance(module, Aware) for module in model.modules()):
        raise InputError("the model rounds already", where="tuning", remedy="take it off first")
    maps = {name: model.get_submodule(name) for name in list_maps(model, by.where)}
    for name, module in maps.items():
        if type(module) not in (Linear, nn.Linear, PartlyBiased):
            raise InputError(f"{name} is {type(module).__name__}, no plain map", where="tuning.where",
                             remedy=f"leave it out: where=['*', '!{name}']")
    heads = [one for one in model.modules() if type(one) is LanguageHead]
    tables = [module for _, module in list_tables(model) if type(module) is not LanguageHead]
    made: dict[int, nn.Module] = {id(one): AwareLinear(cast(nn.Linear, one), by) for one in maps.values()}
    made |= {id(one): AwareLanguageHead(one) for one in heads}
    made |= {id(one): AwarePositions(one) if isinstance(one, LearnedPositions) else AwareTable(cast(nn.Embedding, one))
             for one in tables}
    swap_modules(model, made)
    model.register_forward_pre_hook(update_ranges)


def remove_rounding(model: nn.Module) -> None:
    """Put maps and tables back as they were, with what they have learned."""
    swap_modules(model, {id(module): module.original[0] for module in model.modules() if isinstance(module, Aware)})
    for number, hook in list(model._forward_pre_hooks.items()):
        if hook is update_ranges:
            del model._forward_pre_hooks[number]


def fix_rounding(model: Transformer) -> Transformer:
    """Make the model that rounds the quantized one that it has learned to be, in place: the same numbers.

    Inputs keep their ranges for good; those of a map that no training step has reached are not rounded.
    """
    update_ranges(model, None)
    found = {name: module for name, module in model.named_modules() if isinstance(module, Aware)}
    ranges: dict[str, Tensor] = {}
    for name, module in found.items():
        if isinstance(module, AwareLinear) and module.inputs.known:
            ranges[name] = module.inputs.state[LARGEST].detach().clone() / LARGEST_CODE
    model.restore_stored()
    remove_rounding(model)
    language, table = model.config.output_layer, (model.decoder_embed or model.embed).tokens
    tied = language is not None and language.tied
    made: dict[str, nn.Module] = {}
    for name, module in found.items():
        base = model.get_submodule(name)
        shape = (module.weight.shape[0], module.weight.shape[1])
        if isinstance(module, AwareLinear):
            stored = StoredMatrix(part="map", shape=shape, format=module.form, method=METHOD,
                                  activations=StaticInt8() if name in ranges else None)
        elif isinstance(module, AwareLanguageHead):
            if tied and isinstance(table, nn.Embedding):
                continue
            stored = StoredMatrix(part="output", shape=shape, format=Integers(), method=METHOD)
        else:
            stored = StoredMatrix(part="positions" if isinstance(module, AwarePositions) else "table", shape=shape,
                                  format=Integers(), method=METHOD)
        made[name] = put_matrix(base, stored)
    with torch.no_grad():
        replace_modules(model, made)
    for name, scale in ranges.items():
        model.get_submodule(name).input_scale = scale
    kept = tuple(one for one in model.provenance.rewrites if not isinstance(one.by, QuantizationAware))
    model.provenance = replace(model.provenance, rewrites=kept)
    return model
