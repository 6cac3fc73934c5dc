"""A model of torch as the native kernels read it: its weights as arrays, its positions as tables, and what is refused
before any part of it is looked at.

Letters: L length, D dim, P places, H heads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from saucier import config as c
from saucier.errors import InputError
from saucier.generation.decoding import Native
from saucier.generation.packed_weights import MadeFromWeights
from saucier.model import Transformer
from saucier.native.library import count_threads
from saucier.native.matrices import Weights
from saucier.parts.masks import Span
from saucier.parts.norms import build_norm
from saucier.parts.positions import (
    SinusoidalPositions,
    compute_frequencies,
    find_t5_bucket,
    kept_slopes,
)
from saucier.parts.relative_positions import table_rows
from saucier.parts.visibility import allowed_pairs


@dataclass
class Converted:
    """What is made of a model's weights in one number format."""

    weights: Weights
    stack: Any = None
    """The `NativeStack` that reads whole rows, lowered when it is first asked for (`find_stack`)."""
    embedding: Any = None
    """What gives tokens the vectors that the stack reads, likewise (`find_embedding`)."""


MADE: MadeFromWeights[Converted] = MadeFromWeights()
"""Model -> its weights in the formats that were asked for."""


class PartTables:
    """Positions as tables, computed by the parts of the model."""

    def turns(self, positions: c.Rotary, places: int, head: int) -> NDArray[Any]:
        """Return cosines, then sines. Shapes: -> [P, W]."""
        numbers = torch.arange(places)[None]
        frequencies, sharpness = compute_frequencies(positions, numbers, head)
        angles = numbers[0, :, None].float() * frequencies
        return as_array(torch.cat([angles.cos(), angles.sin()], dim=-1) * sharpness)

    def biases(self, positions: c.Alibi | c.T5Bias, heads: int, places: int,
               table: NDArray[Any] | None) -> NDArray[Any]:
        """Return what is added to a score, by the distance to the key. Shapes: -> [H, P]."""
        distances = torch.arange(places)
        if isinstance(positions, c.Alibi):
            return as_array(-torch.tensor(kept_slopes(positions, heads))[:, None] * distances)
        assert table is not None, "a stack with T5's positions has their table"
        found = torch.from_numpy(table)[find_t5_bucket(positions, -distances)].T
        kept = found if positions.kept is None else found[list(positions.kept.numbers)]
        return as_array(kept)

    def biases_of_both_sides(self, positions: c.Alibi | c.T5Bias, heads: int, places: int,
                             table: NDArray[Any] | None) -> NDArray[Any]:
        """Return the same by the place of the key less that of the query. Shapes: -> [H, 2P - 1]."""
        distances = torch.arange(1 - places, places)
        if isinstance(positions, c.Alibi):
            return as_array(-torch.tensor(kept_slopes(positions, heads))[:, None] * distances.abs())
        assert table is not None, "a stack with T5's positions has their table"
        found = torch.from_numpy(table)[find_t5_bucket(positions, distances)].T
        return as_array(found if positions.kept is None else found[list(positions.kept.numbers)])

    def distances(self, positions: c.Disentangled, places: int, table: NDArray[Any],
                  norm: Mapping[str, NDArray[Any]]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the vectors of distances, behind their norm, and the one of each place of a query less that of a key.

        Shapes: table [R, D] -> [R, D], [2P - 1].
        """
        vectors = torch.from_numpy(table)
        if positions.norm is not None:
            module = build_norm(positions.norm, table.shape[1])
            module.load_state_dict({part: torch.from_numpy(one) for part, one in norm.items()})
            vectors = module(vectors)
        rows = table_rows(positions.distances, torch.arange(1 - places, places))
        return as_array(vectors), as_array(rows.int())

    def waves(self, positions: c.Sinusoidal, places: int, dim: int) -> NDArray[Any]:
        """Return what is added to the token vectors. Shapes: -> [P, D]."""
        return as_array(SinusoidalPositions(positions, dim)(torch.arange(places)[None])[0])

    def visible(self, visibility: c.Visibility, places: int) -> NDArray[Any]:
        """Return which keys each place sees. Shapes: -> [P, P]."""
        numbers = torch.arange(places)
        found = allowed_pairs(visibility, numbers[:, None], numbers[None], Span(places, places, 0, numbers.device))
        return as_array(found.expand(1, 1, places, places)[0, 0].to(torch.uint8))


def as_array(tensor: Tensor) -> NDArray[Any]:
    """Return a weight's memory as numpy sees it; bfloat16 as its bits."""
    tensor = tensor.detach().contiguous()
    array: NDArray[Any] = (tensor.view(torch.uint16) if tensor.dtype == torch.bfloat16 else tensor).numpy()
    return array


def convert_weights(model: Transformer, engine: Native, kept: Mapping[str, Any] = MappingProxyType({})) -> Converted:
    """Return a model's weights in a format, converted once; `kept`: what is converted already."""
    return MADE.get(model, engine.format, lambda: Converted(Weights(
        {name: as_array(one) for name, one in model.state_dict().items()}, engine.format, dict(kept))))


def kernel_threads() -> int:
    """Return how many threads the kernels use: as many as torch is set to, and no more than there are cores."""
    return min(torch.get_num_threads(), count_threads())


def check_lowered(model: Transformer) -> None:
    """Refuse a model elsewhere than on a CPU, in other numbers, or with a prefix. Raises `InputError`."""
    weights = list(model.parameters())
    if model.device.type != "cpu" or any(one.dtype not in (torch.float32, torch.bfloat16) for one in weights):
        raise InputError(f"the model is in {model.dtype} on {model.device.type}", where="engine",
                         remedy="load it in float32 or bfloat16 on the CPU; or use engine=None")
    if model.front is not None:
        raise InputError("the native kernels have no prefix or prompt before the text", where="engine",
                         remedy="use engine=None")
