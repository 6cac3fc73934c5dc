"""Computing a part of a forward pass once more, for the backward pass: the same draws, choices and number format.

Letters: B batch, L length, D dim.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint, get_device_states, set_device_states

from saucier.parts.context import Context


@dataclass(frozen=True, slots=True)
class Generators:
    """The states of torch's global generators: the CPU's, and that of a device."""

    cpu: Tensor
    kind: str
    devices: list[int]
    states: list[Tensor]

    @classmethod
    def now(cls, x: Tensor) -> Generators:
        """Return the states as they are, for what is computed where `x` is."""
        devices, states = ([], []) if x.device.type == "cpu" else get_device_states(x)
        return cls(torch.get_rng_state(), x.device.type, devices, states)

    @contextmanager
    def again(self) -> Iterator[None]:
        """Draw from these states on; afterwards the generators stand where they stood."""
        elsewhere = self.kind != "cpu"
        with torch.random.fork_rng(self.devices, device_type=self.kind if elsewhere else "cuda"):
            torch.set_rng_state(self.cpu)
            if elsewhere:
                set_device_states(self.devices, self.states, device_type=self.kind)
            yield


@dataclass(frozen=True, slots=True)
class NumberFormat:
    """Whether autocast is on, and to what."""

    device: str
    enabled: bool
    dtype: torch.dtype

    @classmethod
    def now(cls, x: Tensor) -> NumberFormat:
        """Return what holds for products where `x` is."""
        device = x.device.type
        return cls(device, torch.is_autocast_enabled(device), torch.get_autocast_dtype(device))

    def again(self) -> torch.autocast:
        """Return the context in which the same holds.

        Copies of weights are not kept from one product to the next: those made without a gradient would be found by
        products that need one.
        """
        return torch.autocast(self.device, dtype=self.dtype, enabled=self.enabled, cache_enabled=False)


def forgetful(block: nn.Module, x: Tensor, context: Context) -> Tensor:
    """Apply a block of which only the input is kept for the backward pass. Shapes: x [B, L, D] -> [B, L, D]."""
    found = context.copied()
    turns = iter([context])  # the pass itself, which counts and records; every turn after it is by itself

    def turn(read: Tensor) -> Tensor:
        given: Tensor = block(read, next(turns, None) or found.copied())
        return given

    return checkpoint(turn, x, use_reentrant=False)  # type: ignore[no-any-return]
