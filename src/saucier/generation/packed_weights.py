"""Models as inference reads them: views in evaluation mode, and weights packed as decoding reads them fastest.

PyTorch's matrix-vector product in bfloat16 reaches about half of what oneDNN's reaches on weights that are laid out for
it (seen on two cores with AVX-512: 8–13 against 15–29 GB/s a core; benchmarks/decoding.py).
Letters: B batch, L length, D dim, V vocab.
"""

from __future__ import annotations

import copy
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import torch
from torch import Tensor, nn

from saucier.model import Transformer
from saucier.parts.heads import LanguageHead
from saucier.parts.pooling import Reading

LARGEST = 4 * 2**30
"""Models of up to this number of bytes are packed: the packed matrices are a second copy, kept as long as the model."""
SAMPLED = 64
"""Values of each parameter that the fingerprint reads."""

Fingerprint = tuple[object, ...]
Made = TypeVar("Made")
Model = TypeVar("Model", bound=nn.Module)


def fingerprint_weights(model: nn.Module) -> Fingerprint:
    """Return what changes when weights change: their addresses, the count of writes, and a sample of their values.

    The sample is for writes through `parameter.data`, which leave no other trace.
    """
    held = [*model.parameters(), *model.buffers()]
    writes = [(one.data_ptr(), 0 if one.is_inference() else one._version) for one in held]
    sums = [one.detach().flatten()[::max(1, one.numel() // SAMPLED)].sum(dtype=torch.float64)
            for one in held]
    return *writes, *torch.stack(sums).tolist()


@dataclass(frozen=True)
class MadeFromWeights(Generic[Made]):
    """What was made from a model's weights, for each model, as long as the model lives and its weights stay."""

    kept: weakref.WeakKeyDictionary[Transformer, tuple[Fingerprint, dict[object, Made]]] = field(
        default_factory=weakref.WeakKeyDictionary)
    reading: threading.Lock = field(default_factory=threading.Lock)
    making: threading.Lock = field(default_factory=threading.Lock)

    def get(self, model: Transformer, key: object, make: Callable[[], Made]) -> Made:
        """Return what `make` gave for this model, weights and key; threads that ask for the same make it once."""
        now = fingerprint_weights(model)
        with self.reading:
            if model not in self.kept or self.kept[model][0] != now:
                self.kept[model] = now, {}
            made = self.kept[model][1]
        if key not in made:
            with self.making:  # a second lock, so that whoever finds what he needs does not wait for a compiler
                if key not in made:
                    made[key] = make()
        return made[key]


def inference_view(model: Model) -> Model:
    """Return the model as inference reads it: in evaluation mode, and without what `compile()` hooked into it.

    That is the model itself where it is so already, otherwise a copy of its modules that shares every parameter. The
    model stays as it is, so that other threads may read or train it meanwhile.
    """
    ready = not any(one.training or one._compiled_call_impl is not None for one in model.modules())
    return model if ready else copy_modules(model)


def copy_modules(module: Model, change: Callable[[nn.Module], nn.Module | None] = lambda _: None,
                 made: dict[nn.Module, nn.Module] | None = None) -> Model:
    """Return a copy of a tree of modules in evaluation mode that shares all parameters; no compiled code is copied.

    `change` may give another module in place of one; None: a copy. `made` holds what was copied already: a module that
    is in several places stays one.
    """
    made = {} if made is None else made
    if module not in made:
        made[module] = twin = change(module) or copy.copy(module)  # `copy` leaves the compiled call out
        for name in ("_parameters", "_buffers"):  # tables of their own: tracing puts other tensors into them
            setattr(twin, name, dict(getattr(twin, name)))
        twin._modules = {name: child and copy_modules(child, change, made) for name, child in twin._modules.items()}
        twin.training = False
    return made[module]  # type: ignore[return-value]  # of the same class, or in place of it


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


def pack_module(module: nn.Module) -> nn.Module | None:
    """Return the packed form of a linear map or language head; None of other modules."""
    match module:
        case nn.Linear():
            return PackedLinear(module.weight, module.bias)
        case LanguageHead() if type(module) is LanguageHead:
            return PackedHead(copy_modules(module))
    return None


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
    return TWINS.get(model, "packed", lambda: copy_modules(model, pack_module))
