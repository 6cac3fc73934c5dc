"""How the cost of a model grows with the length of its text: seconds and memory, measured, with the fitted exponents.

Letters: L length.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from saucier import config as c
from saucier.config import parameters
from saucier.devices import choose_device
from saucier.errors import InputError
from saucier.inspection.machine import give_back, peak_resident, reset_peak, resident
from saucier.inspection.pattern import Text
from saucier.inspection.slim import lengthened
from saucier.model import Transformer, build
from saucier.training.precision import Dtype, autocast, choose_dtype

REPEATS = 3
"""A length is read so often; the quickest counts."""
LARGEST = 1_000_000_000
"""Parameters that are built for a measurement."""


@dataclass(frozen=True, slots=True)
class Point:
    """What one length costs."""

    length: int
    seconds: float
    """Of the whole model, one text."""
    attention: float
    """Of all its self-attentions, their maps included."""
    memory: int
    """Bytes, the most that was held on top of the model."""

    def as_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {"length": self.length, "seconds": self.seconds, "attention_seconds": self.attention,
                "memory_bytes": self.memory}


def measured(config: c.Transformer, lengths: Sequence[int], *, training: bool = False, limit: float = 120.0,
             heard: Callable[[Point], None] = lambda _: None) -> Iterator[Point]:
    """Yield what each length costs, shortest first; stop before one that would take the rest of `limit` seconds.

    With `training` a pass is forwards and backwards. Tables of positions are made as long as the longest text.
    Raises `InputError` for lengths and models that cannot be measured.
    """
    if min(lengths, default=0) < 1:
        raise InputError("a text has at least one token", where="--lengths", remedy="give lengths such as 512,1024")
    longest = lengthened(config, max(lengths))
    if (count := parameters(longest)) > LARGEST:
        raise InputError(f"{count:,} parameters are too many to measure here", where="model",
                         remedy="make it smaller, such as model.layers=2, or give shorter --lengths")
    device = choose_device("auto")
    model = build(longest, seed=0, device=device).train(training)
    dtype, _ = choose_dtype("auto", device)
    begin = time.perf_counter()
    for length in sorted(set(lengths)):
        found = point(model, length, dtype, training=training)
        heard(found)
        yield found
        if 4 * REPEATS * found.seconds > limit - (time.perf_counter() - begin):
            return


def wanted_lengths(text: str) -> list[int]:
    """Read lengths as a person writes them: `512,1024,2048`. Raises `InputError`."""
    try:
        return sorted({int(one.replace("_", "")) for one in text.split(",")})
    except ValueError:
        raise InputError(f"{text!r} are no lengths", where="--lengths", remedy="write 512,1024,2048") from None


def point(model: Transformer, length: int, dtype: Dtype, *, training: bool) -> Point:
    """Measure one length: memory first, then the quickest of some passes."""
    inputs = {name: value.to(next(model.parameters()).device)
              for name, value in Text(length, global_tokens=1).inputs(model.config, 1).items()}
    watch = Watch(model)
    give_back()
    before, peaks = resident(), reset_peak()
    once(model, inputs, dtype, training=training)
    memory = max(0, peak_resident() - before) if peaks else 0
    seconds, attention = math.inf, math.inf
    for _ in range(REPEATS):
        watch.seconds = 0.0
        begin = time.perf_counter()
        once(model, inputs, dtype, training=training)
        seconds, attention = min(seconds, time.perf_counter() - begin), min(attention, watch.seconds)
    watch.stop()
    return Point(length, seconds, attention, memory)


def once(model: Transformer, inputs: dict[str, Any], dtype: Dtype, *, training: bool) -> None:
    """Read the text once, without a head; in training also backwards."""
    device = next(model.parameters()).device
    with torch.set_grad_enabled(training), autocast(dtype, device):
        vectors = model(**inputs, compute_logits=False).last_hidden_state
    if training:
        vectors.float().square().mean().backward()
        model.zero_grad(set_to_none=True)
    if device.type == "cuda":
        torch.cuda.synchronize(device)


class Watch:
    """Counts the seconds inside the self-attentions of a model, forwards."""

    def __init__(self, model: Transformer) -> None:
        """Begin to watch."""
        self.seconds, self.began = 0.0, 0.0
        parts = [part for part in model.modules() if isinstance(getattr(part, "config", None), c.SelfAttention)]
        self.hooks = [hook for part in parts for hook in (part.register_forward_pre_hook(self.enter),
                                                          part.register_forward_hook(self.leave))]

    def enter(self, *_: Any) -> None:
        """An attention begins."""
        self.began = time.perf_counter()

    def leave(self, _: nn.Module, __: Any, ___: Any) -> None:
        """It ends."""
        self.seconds += time.perf_counter() - self.began

    def stop(self) -> None:
        """Watch no longer."""
        for hook in self.hooks:
            hook.remove()


def exponent(lengths: Sequence[int], costs: Sequence[float]) -> float | None:
    """Return x where the cost grows as length to the x, fitted by least squares of logarithms; None for one length."""
    if len(lengths) < 2 or min(costs) <= 0:
        return None
    return float(np.polyfit(np.log(lengths), np.log(costs), 1)[0])
