"""GPTQ: what rounding a column of a matrix loses is made up for by the columns after it.

Letters: O outputs, I inputs, T tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import cast

import torch
from torch import Tensor

from saucier.adaptation.quantization.calibration import Batch, EnoughRead, find_order, run_batch, watch_inputs
from saucier.adaptation.quantization.formats import Grid, Parts, find_grid, group_size, split_groups, store_codes
from saucier.adaptation.quantization.schemes import Gptq, Integers
from saucier.model import Transformer


def round_compensated(model: Transformer, by: Gptq, formats: Mapping[str, Integers], batches: Sequence[Batch],
                      put: Callable[[str, Parts], None]) -> Iterator[str]:
    """Round maps one after the other, in the order in which the model calls them, on what those before give.

    `put` takes the tensors of a map. Yields nothing; a generator as the other methods are.
    """
    calls = find_order(model, formats, batches)
    for name, times in calls.items():
        base = model.get_submodule(name)
        hessian = measure_hessian(model, name, times, batches)
        put(name, compensate(torch.as_tensor(base.weight).double(), hessian, by, formats[name]))
    yield from ()


def measure_hessian(model: Transformer, name: str, times: Sequence[int], batches: Sequence[Batch]) -> Tensor:
    """Return the sum over tokens of the products of a map's inputs. Shapes: -> [I, I], float64.

    A pass ends where the map was called as often as before, where that is the same in every batch.
    """
    base = model.get_submodule(name)
    total, left = torch.zeros(base.in_features, base.in_features, dtype=torch.float64), 0  # type: ignore[call-overload]

    def see(_: str, read: Tensor) -> None:
        nonlocal total, left
        wide = read.double().cpu()
        total.addmm_(wide.T, wide)
        left -= 1
        if not left and len(set(times)) == 1:
            raise EnoughRead

    with watch_inputs({name: base}, see):
        for batch, count in zip(batches, times, strict=True):
            left = count
            run_batch(model, batch)
    return cast(Tensor, total.to(model.device))


def compensate(weight: Tensor, hessian: Tensor, by: Gptq, form: Integers) -> Parts:
    """Return the tensors of a matrix, rounded column by column. Shapes: weight [O, I], hessian [I, I], float64.

    An input that is always zero gets the weight zero, and every group's scale is found when its first column comes up.
    Source: Frantar et al. 2022, algorithm 1, arXiv:2210.17323.
    """
    weight, hessian = weight.clone(), hessian.clone()
    inputs, size = weight.shape[1], group_size(weight.shape[1], form)
    dead = hessian.diagonal() == 0
    hessian.diagonal()[dead] = 1
    weight[:, dead] = 0
    order = hessian.diagonal().argsort(descending=True, stable=True) if by.order == "largest_first" \
        else torch.arange(inputs, device=weight.device)
    whole = find_grid(split_groups(weight, form), form)  # known beforehand where columns change places
    grid = Grid(whole.scales.clone(), whole.zeros.clone(), whole.lowest, whole.highest)
    weight, hessian = weight[:, order], hessian[order][:, order]
    upper = invert(hessian, by.damping)
    codes = torch.empty_like(weight)
    for start in range(0, inputs, by.block):
        end = min(start + by.block, inputs)
        lost = torch.zeros_like(weight[:, start:end])
        for column in range(start, end):
            group = int(order[column]) // size
            if by.order == "inputs" and column % size == 0:
                scale_group(grid, group, weight[:, column:column + size], weight, lost, upper, (start, end, column),
                             form)
            one = Grid(grid.scales[:, group], grid.zeros[:, group], grid.lowest, grid.highest)
            codes[:, column] = one.round(weight[:, column])
            error = (weight[:, column] - one.values(codes[:, column])) / upper[column, column]
            weight[:, column:end] -= error[:, None] * upper[column, column:end]
            lost[:, column - start] = error
        weight[:, end:] -= lost @ upper[start:end, end:]
    return store_codes(codes[:, order.argsort()], grid, form)


def scale_group(grid: Grid, group: int, columns: Tensor, weight: Tensor, lost: Tensor, upper: Tensor,
                place: tuple[int, int, int], form: Integers) -> None:
    """Find the scale of a group from its columns as they are now, with the updates that were put off.

    Shapes: columns [O, group], lost [O, block], upper [I, I].
    """
    start, end, column = place
    now = columns.clone()
    if column + columns.shape[1] > end:  # the rest of the group lies in blocks that were not updated yet
        late = max(end - column, 0)
        now[:, late:] -= lost @ upper[start:end, column + late:column + columns.shape[1]]
    found = find_grid(now[:, None], form)
    grid.scales[:, group], grid.zeros[:, group] = found.scales[:, 0], found.zeros[:, 0]


def invert(hessian: Tensor, damping: float) -> Tensor:
    """Return the upper Cholesky factor of the inverse of a damped Hessian. Shapes: [I, I] -> [I, I].

    Source: Frantar et al. 2022, §3.3, step 3.
    """
    damped = hessian + damping * hessian.diagonal().mean() * torch.eye(len(hessian), dtype=hessian.dtype,
                                                                       device=hessian.device)
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(damped))
    return cast(Tensor, torch.linalg.cholesky(inverse, upper=True))


def output_error(weight: Tensor, rounded: Tensor, hessian: Tensor) -> Tensor:
    """Return the squared error of a map's outputs on the text that a Hessian is of. Shapes: [O, I], [I, I] -> []."""
    gap = (weight - rounded).double()
    return torch.einsum("oi,ij,oj->", gap, hessian.double(), gap)


