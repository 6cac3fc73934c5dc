"""The modules of a quantized model: linear maps, tables and output layers whose matrix is held in few bits.

They widen it for each product and keep no float copy. Letters: B batch, I inputs, O outputs, G groups, T tokens.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn

from saucier.adaptation.quantization.formats import (
    CODECS,
    INTEGER_VIEWS,
    decode,
    encode,
    read_codes,
    split_groups,
)
from saucier.adaptation.quantization.schemes import (
    Activations,
    DynamicInt8,
    Integers,
    NumberFormat,
    StoredFormat,
    StoredMatrix,
    StoredPart,
)
from saucier.adaptation.target_modules import select_targets, swap_modules
from saucier.errors import InputError
from saucier.parts.heads import LanguageHead
from saucier.parts.linear import Linear, PartlyBiased, Table, linear, spread_bias
from saucier.parts.positions import LearnedPositions, check_positions

LARGEST_CODE = 127
"""Of inputs in eight bits."""
EXACT_FLOAT32 = 2**24
"""Whole numbers up to this one are exact in float32, and so are sums of them that stay below."""


class QuantizedMatrix(nn.Module):
    """A matrix [O, I] in a number format, as buffers that keep their formats wherever the model goes."""

    rewritten = True
    """It replaces a part of the model that was built."""
    part: ClassVar[StoredPart]
    """What the config of a folder calls it."""

    def __init__(self, weight: Tensor, store: StoredFormat, parts: Mapping[str, Tensor] | None = None,
                 method: str = "nearest") -> None:
        """Hold the nearest numbers, or those of `parts`, which `method` found."""
        super().__init__()
        self.shape: tuple[int, int] = (weight.shape[0], weight.shape[1])
        self.store, self.method = store, method
        self.like = weight.detach().new_empty(0)
        """Has the number format to compute in, and the device."""
        for name, part in (encode(weight, store) if parts is None else parts).items():
            self.register_buffer(name, part)

    @property
    def stored_as(self) -> dict[str, Any]:
        """What the config of a folder says of the matrix."""
        return StoredMatrix(part=self.part, shape=self.shape, format=self.store, method=self.method,
                            activations=getattr(self, "activations", None)).model_dump(mode="json")

    @property
    def dtype(self) -> torch.dtype:
        """The number format that the matrix is widened to."""
        return self.like.dtype

    def parts(self) -> dict[str, Tensor]:
        """Return the tensors of the matrix, by name."""
        return {name: self.get_buffer(name) for name in CODECS[type(self.store)].layout(self.shape, self.store)}

    def widened(self, dtype: torch.dtype) -> Tensor:
        """Return the matrix [O, I] in a number format."""
        return decode(self.parts(), self.shape, self.store).to(dtype)

    @property
    def weight(self) -> Tensor:
        """The matrix as it is used, [O, I], made again each time."""
        return self.widened(self.dtype)

    def as_ordinary(self) -> nn.Module:
        """Return an ordinary module with the rounded numbers, which rounds none of its inputs."""
        raise NotImplementedError

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> QuantizedMatrix:
        """Move the numbers, and let nothing round them: scales go as the whole numbers of their bits."""
        formats = {name: part.dtype for name, part in self._buffers.items() if part is not None}
        for name, dtype in formats.items():
            self._buffers[name] = cast(Tensor, self._buffers[name]).view(INTEGER_VIEWS.get(dtype, dtype))
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name, dtype in formats.items():
            self._buffers[name] = cast(Tensor, self._buffers[name]).view(dtype)
        self.like = fn(self.like)
        return self

    def extra_repr(self) -> str:
        """Show the size and the format."""
        return f"{self.shape[0]} × {self.shape[1]}, {self.store}"


class WideProduct(torch.autograd.Function):
    """A product with a matrix that is widened for it, forward and backward, and not kept between.

    Where inputs are rounded the gradient passes as if they were not.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, held: QuantizedLinear) -> Tensor:
        """Shapes: x [..., I] -> [..., O]."""
        ctx.held = held
        return held.multiply(x)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        """Shapes: gradient [..., O] -> [..., I]."""
        return linear(gradient, ctx.held.widened(gradient.dtype).T), None


class QuantizedLinear(QuantizedMatrix):
    """A frozen linear map whose matrix is in few bits, and whose inputs may be. Its bias stays as it was.

    Source: Dettmers et al. 2023, §3, eq 5 and 6, arXiv:2305.14314.
    """

    part: ClassVar[StoredPart] = "map"

    def __init__(self, base: nn.Linear, store: StoredFormat, parts: Mapping[str, Tensor] | None = None, *,
                 method: str = "nearest", activations: Activations | None = None) -> None:
        """Take a map's matrix; `activations` says how its inputs are rounded, which needs whole numbers as weights.

        A static range has the buffer `input_scale`, the largest input / 127.
        """
        super().__init__(base.weight, store, parts, method)
        self.out_features, self.in_features = self.shape
        self.bias = base.bias
        self.groups = (base.rows, base.biased) if isinstance(base, PartlyBiased) else None
        """Rows of each group of outputs, and which groups have a bias; None: all or none have."""
        self.activations = activations
        self.input_scale: Tensor | None
        static = activations is not None and not isinstance(activations, DynamicInt8)
        self.register_buffer("input_scale", torch.zeros((), device=base.weight.device) if static else None)

    def forward(self, x: Tensor) -> Tensor:
        """Shapes: [..., I] -> [..., O]."""
        if torch.is_autocast_enabled(x.device.type):
            x = x.to(torch.get_autocast_dtype(x.device.type))
        return cast(Tensor, WideProduct.apply(x, self))  # type: ignore[no-untyped-call]

    def multiply(self, x: Tensor) -> Tensor:
        """Return the product with the bias added. Shapes: [..., I] -> [..., O]."""
        bias = self.bias if self.bias is None or self.groups is None else spread_bias(self.bias, *self.groups)
        bias = None if bias is None else bias.to(x.dtype)
        if self.activations is None:
            return linear(x, self.widened(x.dtype), bias)
        found = self.multiply_integers(x.flatten(0, -2) if x.dim() > 1 else x[None]).to(x.dtype)
        found = found.view(*x.shape[:-1], self.out_features)
        return found if bias is None else found + bias

    def multiply_integers(self, x: Tensor) -> Tensor:
        """Return the product of rounded inputs with the weights, by whole numbers: sums are exact.

        Each group's sum is scaled and added in float32. Shapes: [T, I] -> [T, O], float32.
        """
        assert isinstance(self.store, Integers), "select_maps refuses others"
        codes, grid = read_codes(self.parts(), self.in_features, self.store)
        whole = split_groups(codes.float(), self.store) - grid.zeros[..., None]
        if self.in_features % whole.shape[2]:  # what fills up the last group is no weight
            whole[:, -1, self.in_features % whole.shape[2]:] = 0
        return multiply_whole(x.float(), whole, grid.scales, self.store, self.input_scale)

    def as_ordinary(self) -> Linear:
        """Return an ordinary map with the rounded matrix, and the same bias."""
        if self.groups is None:
            made = Linear(self.in_features, self.out_features, bias=False, device="meta")
        else:
            with torch.device("meta"):
                made = PartlyBiased(self.in_features, self.groups[0], biased=self.groups[1])
        made.weight, made.bias = nn.Parameter(self.weight, requires_grad=False), self.bias
        return made


def multiply_whole(x: Tensor, weights: Tensor, scales: Tensor, form: Integers, input_scale: Tensor | None) -> Tensor:
    """Return the product of rounded inputs with whole numbers times scales.

    Shapes: x [T, I], weights [O, G, group], scales [O, G], input_scale [] or None for one of each token -> [T, O].
    """
    inputs, used = round_inputs(x, input_scale)
    return (sum_groups(split_groups(inputs, form), weights) * scales).sum(-1) * used


def round_inputs(x: Tensor, scale: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return whole numbers from -127 to 127, and the scale of each token, or the given one of all.

    Shapes: x [T, I] -> [T, I] and [T, 1] or [], all float32.
    """
    used = x.abs().amax(-1, keepdim=True) / LARGEST_CODE if scale is None else scale
    divided = torch.where(used > 0, x / used.where(used > 0, 1), 0)
    return divided.round().clamp(-LARGEST_CODE, LARGEST_CODE), used


def sum_groups(inputs: Tensor, weights: Tensor) -> Tensor:
    """Return the sums over each group of products of whole numbers, exactly.

    In float32 while no sum can leave its whole numbers, else in float64. Shapes: inputs [T, G, group], weights
    [O, G, group] -> [T, O, G], float32.
    """
    largest = LARGEST_CODE * weights.shape[2] * float(weights.abs().max()) if weights.numel() else 0.0
    exact = torch.float32 if largest < EXACT_FLOAT32 else torch.float64
    found = torch.bmm(inputs.to(exact).transpose(0, 1), weights.to(exact).permute(1, 2, 0))
    return found.permute(1, 2, 0).float()


class QuantizedTable(QuantizedMatrix):
    """A table of vectors in few bits; only the rows that are looked up are widened."""

    part: ClassVar[StoredPart] = "table"

    @property
    def num_embeddings(self) -> int:
        """Rows."""
        return self.shape[0]

    @property
    def embedding_dim(self) -> int:
        """Width of a vector."""
        return self.shape[1]

    def forward(self, ids: Tensor) -> Tensor:
        """Shapes: [...] -> [..., I]. Raises `IndexError` for an id that has no row."""
        if ids.numel() and not 0 <= int(ids.min()) <= int(ids.max()) < self.shape[0]:
            raise IndexError(f"ids from {int(ids.min())} to {int(ids.max())}, and {self.shape[0]} rows")
        rows = CODECS[type(self.store)].take(self.parts(), ids.flatten(), self.shape, self.store)
        return rows.to(self.dtype).view(*ids.shape, self.shape[1])

    def as_ordinary(self) -> nn.Module:
        """Return an ordinary table with the rounded numbers."""
        made = Table(*self.shape, device="meta")
        made.weight = nn.Parameter(self.weight, requires_grad=False)
        return made


class QuantizedPositions(QuantizedTable):
    """A trained vector for each position, in few bits."""

    part: ClassVar[StoredPart] = "positions"

    def forward(self, ids: Tensor) -> Tensor:
        """Shapes: [B, L] -> [B, L, I]. Raises `InputError` for a position beyond the table."""
        check_positions(ids, self.shape[0], "learned positions")
        return super().forward(ids)

    def as_ordinary(self) -> LearnedPositions:
        """Return ordinary positions with the rounded numbers."""
        made = LearnedPositions.__new__(LearnedPositions)
        nn.Module.__init__(made)
        made.weight = nn.Parameter(self.weight)
        return made


class OutputTable(QuantizedTable):
    """The matrix of an output layer that has its own."""

    part: ClassVar[StoredPart] = "output"


class QuantizedLanguageHead(LanguageHead):
    """An output layer over the vocabulary whose matrix is a table in few bits: the token table itself when tied."""

    rewritten = True

    def __init__(self, base: LanguageHead, table: QuantizedTable) -> None:
        """Share all but the matrix with an output layer."""
        nn.Module.__init__(self)
        self.scale, self.transform, self.columns, self.bias = base.scale, base.transform, base.columns, base.bias
        self.table = table

    @property
    def weight(self) -> Tensor:  # type: ignore[override]  # a parameter there
        """The matrix as it is used, [V, D], made again each time."""
        return self.table.weight


def list_matrices(model: nn.Module) -> dict[str, QuantizedMatrix]:
    """Return what is held in few bits, each once, by the name of its module."""
    return {name: module for name, module in model.named_modules() if isinstance(module, QuantizedMatrix)}


def is_quantized(model: nn.Module) -> bool:
    """Say whether any matrix of a model is in few bits."""
    return any(isinstance(module, QuantizedMatrix) for module in model.modules())


def refuse_quantized(model: nn.Module, what: str) -> None:
    """Raise `InputError` for a model in few bits that cannot be what `what` says."""
    if is_quantized(model):
        raise InputError(f"a quantized model cannot be {what}", where="model",
                         remedy="use the float model, or dequantize_model(model) first")


def refuse_learning(model: nn.Module) -> None:
    """Raise `InputError` for a model in few bits that is to learn without an adapter."""
    added = {id(one) for module in model.modules() if getattr(module, "added", False) for one in module.parameters()}
    if is_quantized(model) and not any(one.requires_grad and id(one) in added for one in model.parameters()):
        raise InputError("a quantized model is to learn, and rounded numbers cannot", where="model",
                         remedy="put an adapter on it (tuning.kind=lora), or train the float model "
                                "(tuning.kind=quantization_aware learns with rounding)")


def quantize_maps(model: nn.Module, where: tuple[str, ...], store: NumberFormat) -> None:
    """Keep the matrices that are meant in few bits, the nearest. Raises `InputError` for a map of another kind."""
    names = dict.fromkeys(place.module for place in select_targets(model, where))
    modules = {name: model.get_submodule(name) for name in names}
    for name, module in modules.items():
        if type(module) not in (Linear, nn.Linear):
            raise InputError(f"{name} cannot be kept in four bits", where="tuning.quantize",
                             remedy=f"leave it out: quantize=[linear, '!{name}']")
    swap_modules(model, {id(module): QuantizedLinear(cast(nn.Linear, module), store) for module in modules.values()})


def held_bytes(model: nn.Module) -> int:
    """Return the bytes of all that a model holds: parameters and what replaces them."""
    return sum(tensor.nbytes for tensor in (*model.parameters(), *model.buffers()))


def list_maps(model: nn.Module, where: Sequence[str]) -> list[str]:
    """Return the names of the linear maps that terms mean, each whole. Raises `InputError` for parts of a matrix."""
    places = [one for one in select_targets(model, tuple(where)) if "tokens" not in one.roles]
    rows: Counter[str] = Counter()
    for one in places:
        rows[one.module] += one.rows
    for name, count in rows.items():
        if count != model.get_submodule(name).out_features:
            raise InputError(f"only a part of {name} is meant, which is one matrix", where="where",
                             remedy="name the whole matrix, or all of its parts")
    return list(rows)


def list_tables(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yield the tables of vectors of the embeddings, and output layers over the vocabulary that have their own matrix.
    """
    for name, module in model.named_modules():
        inside = name.startswith(("embed.", "decoder_embed.")) and name.count(".") == 1
        if (inside and isinstance(module, nn.Embedding | LearnedPositions)) or type(module) is LanguageHead:
            yield name, module
