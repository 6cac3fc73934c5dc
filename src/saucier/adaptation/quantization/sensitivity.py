"""Q-BERT: how much a loss bends with each block's weights, by power iteration, and more bits where it bends more.

Letters: N blocks, D draws of text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from statistics import fmean, pstdev

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from saucier.adaptation.quantization.calibration import Batch
from saucier.adaptation.quantization.maps import list_maps, refuse_quantized
from saucier.adaptation.quantization.schemes import Integers, Override
from saucier.errors import InputError
from saucier.model import Transformer

LossOf = Callable[[Transformer, Batch], Tensor]
"""Gives the loss of a model on a batch, a number with a gradient."""


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """How a loss bends with the weights of one block."""

    block: str
    """Dotted name."""
    eigenvalues: tuple[float, ...]
    """The largest in size, on each draw of text."""

    @property
    def score(self) -> float:
        """Size of the mean plus the deviation. Source: Shen et al. 2019, §3.1, eq 2, arXiv:1909.05840."""
        return abs(fmean(self.eigenvalues)) + pstdev(self.eigenvalues)


def measure_sensitivity(model: Transformer, batches: Sequence[Batch], loss: LossOf, *, rounds: int = 50,
                        tolerance: float = 1e-3, seed: int = 0) -> list[Sensitivity]:
    """Return the top eigenvalue of the Hessian of each block's linear maps, on each batch by itself.

    In the order of the blocks, on a copy of the model in float64: our float32 products have no second derivative, and
    the iteration is more exact. Raises `InputError` for a quantized model, no batches, and a loss without a gradient.
    """
    refuse_quantized(model, "measured so: its weights have no gradient")
    if not len(batches):
        raise InputError("there is no calibration text", where="batches", remedy="give batches of the model's inputs")
    model.restore_stored()
    wide, found = deepcopy(model).double().eval().requires_grad_(True), []
    for block, names in list_block_maps(wide).items():
        weights = [wide.get_parameter(f"{name}.weight") for name in names]
        values = tuple(find_top_eigenvalue(partial(loss, wide, batch), weights, rounds=rounds,
                                           tolerance=tolerance, seed=seed) for batch in batches)
        found.append(Sensitivity(block, values))
    return found


def list_block_maps(model: Transformer) -> dict[str, list[str]]:
    """Return the linear maps of each block of the stacks, by the block's name; blocks that share maps come once."""
    found: dict[str, list[str]] = {}
    for name in list_maps(model, ("linear",)):
        stack, middle, number, *rest = name.split(".")
        if middle == "blocks" and rest:
            found.setdefault(f"{stack}.{middle}.{number}", []).append(name)
    return found


def find_top_eigenvalue(loss: Callable[[], Tensor], weights: Sequence[Tensor], *, rounds: int, tolerance: float,
                        seed: int) -> float:
    """Return the eigenvalue of largest size of the Hessian of a loss with regard to some weights, by power iteration.

    A product with the Hessian is the gradient of the gradient's product with a vector (C eq 60). Attention takes the
    way by plain products, since fused ones have no second derivative. It ends where the eigenvalue changes by less than
    `tolerance` of itself. Source: Shen et al. 2019, §3.1, algorithm 1 of the appendix.
    """
    random = torch.Generator(device=weights[0].device).manual_seed(seed)
    vector = normalized([torch.randn(one.shape, generator=random, dtype=one.dtype, device=one.device)
                         for one in weights])
    with torch.enable_grad(), sdpa_kernel(SDPBackend.MATH):
        gradient = torch.autograd.grad(loss(), weights, create_graph=True)
        value = 0.0
        for _ in range(rounds):
            product = torch.autograd.grad(gradient, weights, vector, retain_graph=True)
            now = sum(float((one * other).sum(dtype=torch.float64)) for one, other in zip(product, vector, strict=True))
            done = abs(now - value) <= tolerance * abs(now)
            value = now
            if done or not any(bool(one.any()) for one in product):
                break
            vector = normalized(product)
    return value


def normalized(parts: Sequence[Tensor]) -> list[Tensor]:
    """Return tensors that together are a vector of length 1."""
    length = sum(float(one.square().sum(dtype=torch.float64)) for one in parts) ** 0.5
    return [one / length for one in parts]


def assign_bits(found: Sequence[Sensitivity], model: Transformer, *, mean_bits: float,
                choices: Sequence[int] = (2, 3, 4, 8), form: Integers | None = None) -> tuple[Override, ...]:
    """Return the number formats of the blocks: as many bits a weight as `mean_bits` on average, at most.

    All begin with the fewest of `choices`; then, the most sensitive first, each goes to the next more bits while the
    mean allows it, round after round. `form`: all else of the formats, such as groups. Raises `InputError` for a mean
    that the fewest bits exceed. Shen et al. choose by hand along the same order (§4.1, table 7).
    """
    form, steps = form or Integers(), sorted(choices)
    if not steps or mean_bits < steps[0]:
        raise InputError(f"{mean_bits} bits on average, and the fewest are {steps[0] if steps else 'none'}",
                         where="mean_bits", remedy="give more, or a smaller choice")
    names = list_block_maps(model)
    sizes = {one.block: sum(model.get_parameter(f"{name}.weight").numel() for name in names[one.block])
             for one in found}
    bits, room = dict.fromkeys(sizes, steps[0]), mean_bits * sum(sizes.values())
    for fewer, more in pairwise(steps):
        for one in sorted(found, key=lambda each: -each.score):
            cost = sum(bits[block] * size for block, size in sizes.items()) + (more - fewer) * sizes[one.block]
            if bits[one.block] == fewer and cost <= room:
                bits[one.block] = more
    return tuple(Override(where=tuple(names[block]), format=form.model_copy(update={"bits": count}))
                 for block, count in bits.items())
