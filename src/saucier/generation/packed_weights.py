"""Weights as decoding reads them fastest: a twin of the model with its matrices packed, made again when they change.

PyTorch's matrix-vector product in bfloat16 reaches about half of what oneDNN's reaches on weights that are laid out for
it (seen on two cores with AVX-512: 8–13 against 15–29 GB/s a core; benchmarks/decoding.py).
Letters: B batch, L length, D dim, V vocab.
"""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable
from typing import Generic, TypeVar

import torch
from torch import Tensor, nn

from saucier.model import Transformer
from saucier.parts.heads import LanguageHead
from saucier.parts.pooling import Reading

LARGEST = 4 * 2**30
"""Models of up to so many bytes are packed: the packed matrices are a second copy, kept as long as the model."""
SAMPLED = 64
"""Values of each parameter that the fingerprint reads."""

Fingerprint = tuple[object, ...]
Made = TypeVar("Made")


def fingerprint_weights(model: nn.Module) -> Fingerprint:
    """Return what changes when weights change: where they lie, how often they were written, and a sample of their
    values.

    The sample is for writes through `parameter.data`, which leave no other trace.
    """
    found: list[object] = []
    sums = []
    for parameter in model.parameters():
        found += [parameter.data_ptr(), 0 if parameter.is_inference() else parameter._version]
        sums.append(parameter.detach().flatten()[::max(1, parameter.numel() // SAMPLED)].sum(dtype=torch.float64))
    return *found, *torch.stack(sums).tolist()


class MadeFromWeights(Generic[Made]):
    """What was made from a model's weights, for each model, as long as the model lives and its weights stay."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self.kept: weakref.WeakKeyDictionary[Transformer,
                                             tuple[Fingerprint, dict[object, Made]]] = weakref.WeakKeyDictionary()

    def get(self, model: Transformer, key: object, make: Callable[[], Made]) -> Made:
        """Return what `make` gave for this model, weights and key."""
        now = fingerprint_weights(model)
        if model not in self.kept or self.kept[model][0] != now:
            self.kept[model] = now, {}
        made = self.kept[model][1]
        if key not in made:
            made[key] = make()
        return made[key]


class PackedLinear(nn.Module):
    """A linear map with its matrix in oneDNN's own layout. Equal to `nn.Linear` up to the order of the sums."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        """Copy the matrix [out, in] into the packed layout."""
        super().__init__()
        self.packed = torch.ops.mkldnn._reorder_linear_weight(weight.detach())
        self.bias = None if bias is None else bias.detach()

    def forward(self, x: Tensor) -> Tensor:
        """Shapes: [..., in] -> [..., out]."""
        mapped: Tensor = torch.ops.mkldnn._linear_pointwise(x, self.packed, self.bias, "none", [], "")
        return mapped


class PackedHead(nn.Module):
    """A language head around a packed output matrix."""

    def __init__(self, head: LanguageHead) -> None:
        """Share everything with the head but the matrix."""
        super().__init__()
        self.prepare = head.prepare
        self.output = PackedLinear(head.matrix, head.bias)

    def forward(self, hidden: Tensor) -> Tensor:
        """Shapes: [..., D] -> [..., V]."""
        return self.output(self.prepare(hidden))  # type: ignore[no-any-return]

    def answer(self, reading: Reading) -> dict[str, Tensor]:
        """Token logits [B, L, V], as the head gives them."""
        return {"logits": self(reading.hidden)}


def copy_packed(module: nn.Module) -> nn.Module:
    """Return a copy that shares all parameters and has every linear map packed."""
    match module:
        case nn.Linear():
            return PackedLinear(module.weight, module.bias)
        case LanguageHead():
            return PackedHead(module)
        case _:
            twin = copy.copy(module)
            twin._modules = {name: child and copy_packed(child) for name, child in module._modules.items()}
            return twin


def is_packable(model: Transformer) -> bool:
    """Say whether packing pays: bfloat16 on a CPU that multiplies it, and not too large."""
    weights = list(model.parameters())
    return (all(weight.dtype == torch.bfloat16 and weight.device.type == "cpu" for weight in weights)
            and torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported()
            and sum(weight.nbytes for weight in weights) <= LARGEST)


TWINS: MadeFromWeights[Transformer] = MadeFromWeights()
"""Model -> its packed twin."""


def use_packed_weights(model: Transformer) -> Transformer:
    """Return the model to decode with: its packed twin where that is faster, otherwise itself."""
    if not is_packable(model):
        return model
    return TWINS.get(model, "packed",
                     lambda: copy_packed(model))  # type: ignore[arg-type,return-value]  # of the same class
