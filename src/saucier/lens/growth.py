"""How the cost of a model grows with the length of its text: measured, fitted, and drawn. Letters: L length."""

from __future__ import annotations

import math
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from saucier import config as c
from saucier.config import parameters
from saucier.devices import AutocastDtype, autocast, choose_autocast_dtype, choose_device
from saucier.errors import InputError
from saucier.lens.attention_patterns import PatternText, lengthen_positions
from saucier.lens.heat_map import figure_file
from saucier.machine import peak_resident_memory, reset_peak_memory, resident_memory, trim_memory
from saucier.model import Transformer, build
from saucier.result import Result
from saucier.table import Table

REPEATS = 3
"""A length is read so often; the quickest counts."""
LARGEST = 1_000_000_000
"""Parameters that are built for a measurement."""


@dataclass(frozen=True, slots=True)
class GrowthPoint:
    """What one length costs."""

    length: int
    seconds: float
    """Of the whole model, one text."""
    attention_seconds: float
    """Of all its self-attentions, their maps included."""
    memory_bytes: int
    """The most that was held on top of the model."""


@dataclass(frozen=True, slots=True)
class Growth(Result):
    """What growing texts cost."""

    points: tuple[GrowthPoint, ...]

    @property
    def exponents(self) -> dict[str, float | None]:
        """The x of each cost that grows as length to the x."""
        return fit_exponents(self.points)

    def view(self) -> Table:
        """Return a line for each length, and the exponents below."""
        return growth_table(self.points)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {"points": [asdict(one) for one in self.points], "exponents": self.exponents}


def follow_growth(config: c.Transformer, name: str, lengths: Sequence[int], *, training: bool = False,
                  out: Path | None = None) -> Growth:
    """Measure growing lengths, say how it goes on standard error, and draw them into a file with `out`."""
    points = []
    for one in measure_growth(config, lengths, training=training):
        print(f"{one.length:,} tokens: {one.seconds:.3f} s", file=sys.stderr)
        points.append(one)
    if out is not None:
        save_growth(points, name, out)
    if len(points) < len(lengths):
        warnings.warn(f"longer than {points[-1].length:,} tokens would have taken too long", stacklevel=2)
    return Growth(tuple(points))


def measure_growth(config: c.Transformer, lengths: Sequence[int], *, training: bool = False,
                   limit: float = 120.0) -> Iterator[GrowthPoint]:
    """Yield what each length costs, shortest first; stop before one that would take the rest of `limit` seconds.

    With `training` a pass is forwards and backwards. Tables of positions are made as long as the longest text.
    Raises `InputError` for lengths and models that cannot be measured.
    """
    if min(lengths, default=0) < 1:
        raise InputError("a text has at least one token", where="--lengths", remedy="give lengths such as 512,1024")
    longest = lengthen_positions(config, max(lengths))
    if (count := parameters(longest)) > LARGEST:
        raise InputError(f"{count:,} parameters are too many to measure here", where="model",
                         remedy="make it smaller, such as model.layers=2, or give shorter --lengths")
    device = choose_device("auto")
    model = build(longest, seed=0, device=device).train(training)
    dtype, _ = choose_autocast_dtype("auto", device)
    begin = time.perf_counter()
    for length in sorted(set(lengths)):
        yield (found := measure_length(model, length, dtype, training=training))
        if 4 * REPEATS * found.seconds > limit - (time.perf_counter() - begin):
            return


def read_lengths(text: str) -> list[int]:
    """Read lengths as a person writes them: `512,1024,2048`. Raises `InputError`."""
    try:
        return sorted({int(one.replace("_", "")) for one in text.split(",")})
    except ValueError:
        raise InputError(f"{text!r} are no lengths", where="--lengths", remedy="write 512,1024,2048") from None


def measure_length(model: Transformer, length: int, dtype: AutocastDtype, *, training: bool) -> GrowthPoint:
    """Measure one length: memory first, then the quickest of some passes."""
    inputs = {name: value.to(next(model.parameters()).device)
              for name, value in PatternText(length, global_tokens=1).inputs(model.config, 1).items()}
    watch = AttentionClock(model)
    trim_memory()
    before, peaks = resident_memory(), reset_peak_memory()
    run_once(model, inputs, dtype, training=training)
    memory = max(0, peak_resident_memory() - before) if peaks else 0
    seconds, attention = math.inf, math.inf
    for _ in range(REPEATS):
        watch.seconds = 0.0
        begin = time.perf_counter()
        run_once(model, inputs, dtype, training=training)
        seconds, attention = min(seconds, time.perf_counter() - begin), min(attention, watch.seconds)
    watch.stop()
    return GrowthPoint(length, seconds, attention, memory)


def run_once(model: Transformer, inputs: dict[str, Any], dtype: AutocastDtype, *, training: bool) -> None:
    """Read the text once, without a head; in training also backwards."""
    device = next(model.parameters()).device
    with torch.set_grad_enabled(training), autocast(dtype, device):
        vectors = model(**inputs, compute_logits=False).last_hidden_state
    if training:
        vectors.float().square().mean().backward()
        model.zero_grad(set_to_none=True)
    if device.type == "cuda":
        torch.cuda.synchronize(device)


class AttentionClock:
    """Counts the seconds inside the self-attentions of a model, forwards; `stop` ends it."""

    def __init__(self, model: Transformer) -> None:
        self.seconds, self.start = 0.0, 0.0
        parts = [part for part in model.modules() if isinstance(getattr(part, "config", None), c.SelfAttention)]
        self.hooks = [hook for part in parts for hook in (part.register_forward_pre_hook(self.enter),
                                                          part.register_forward_hook(self.leave))]

    def enter(self, *_: Any) -> None:
        """Note when an attention begins."""
        self.start = time.perf_counter()

    def leave(self, *_: Any) -> None:
        """Add what it took."""
        self.seconds += time.perf_counter() - self.start

    def stop(self) -> None:
        """Count no longer."""
        for hook in self.hooks:
            hook.remove()


def fit_exponents(points: Sequence[GrowthPoint]) -> dict[str, float | None]:
    """Return for each cost the x where it grows as length to the x, by least squares of logarithms; None of one length.
    """
    lengths = np.log([one.length for one in points])
    costs = {name: [float(getattr(one, name)) for one in points]
             for name in ("seconds", "attention_seconds", "memory_bytes")}
    return {name: float(np.polyfit(lengths, np.log(values), 1)[0]) if len(points) > 1 and min(values) > 0 else None
            for name, values in costs.items()}


def growth_table(points: Sequence[GrowthPoint]) -> Table:
    """Return a line for each length, and the exponents below."""
    rows = [(f"{one.length:,}", f"{1e3 * one.seconds:,.1f}", f"{1e3 * one.attention_seconds:,.1f}",
             f"{one.length / one.seconds:,.0f}", f"{one.memory_bytes / 1e6:,.0f}" if one.memory_bytes else "")
            for one in points]
    powers = {name: "" if power is None else f"L^{power:.2f}" for name, power in fit_exponents(points).items()}
    rows.append(("grows as", powers["seconds"], powers["attention_seconds"], "", powers["memory_bytes"]))
    return Table(("tokens", "model, ms", "attention, ms", "tokens/s", "memory, MB"), rows, numbers=range(5),
                 folded=range(5), cut_words=True)


def save_growth(points: Sequence[GrowthPoint], name: str, path: Path) -> None:
    """Draw seconds and memory over length, both on logarithmic scales.

    Errors: `InputError` for another suffix than those of pictures, or without matplotlib.
    """
    lengths, powers = [one.length for one in points], fit_exponents(points)
    drawn = (("seconds", {"model": ("seconds", [one.seconds for one in points]),
                          "self-attentions": ("attention_seconds", [one.attention_seconds for one in points])}),
             ("MB on top of the model", {"memory": ("memory_bytes", [one.memory_bytes / 1e6 for one in points])}))
    with figure_file(path, (9.0, 3.6)) as figure:
        figure.suptitle(name)
        for axes, (unit, curves) in zip(figure.subplots(1, 2), drawn, strict=True):
            for label, (key, values) in curves.items():
                power = powers[key]
                axes.loglog(lengths, values, marker="o",
                            label=label if power is None else f"{label}, grows as $L^{{{power:.2f}}}$")
            axes.set_xlabel("tokens")
            axes.set_ylabel(unit)
            axes.set_xticks(lengths, [f"{one:,}" for one in lengths])
            axes.minorticks_off()
            axes.grid(alpha=0.3)
            axes.legend(fontsize=7)
        figure.tight_layout()
