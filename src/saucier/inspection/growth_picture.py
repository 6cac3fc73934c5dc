"""The cost of growing lengths as a table, and as curves in a picture file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from saucier.inspection.growth import Point, exponent
from saucier.inspection.heat_map import figure_file


def exponents(points: Sequence[Point]) -> dict[str, float | None]:
    """Return with which power of the length each cost grows."""
    lengths = [one.length for one in points]
    return {"seconds": exponent(lengths, [one.seconds for one in points]),
            "attention_seconds": exponent(lengths, [one.attention for one in points]),
            "memory_bytes": exponent(lengths, [float(one.memory) for one in points])}


def as_json(points: Sequence[Point]) -> dict[str, Any]:
    """Return plain values."""
    return {"points": [one.as_json() for one in points], "exponents": exponents(points)}


def table(points: Sequence[Point]) -> Table:
    """Return a line for each length, and the exponents below."""
    found = Table(box=None, pad_edge=False)
    for name in ("tokens", "model, ms", "attention, ms", "tokens/s", "memory, MB"):
        found.add_column(name, justify="right")
    for one in points:
        found.add_row(f"{one.length:,}", f"{1e3 * one.seconds:,.1f}", f"{1e3 * one.attention:,.1f}",
                      f"{one.length / one.seconds:,.0f}", f"{one.memory / 1e6:,.0f}" if one.memory else "")
    powers = exponents(points)
    found.add_row("grows as", *(f"L^{power:.2f}" if power is not None else ""
                                for power in (powers["seconds"], powers["attention_seconds"])), "",
                  "" if powers["memory_bytes"] is None else f"L^{powers['memory_bytes']:.2f}")
    return found


def save_growth(points: Sequence[Point], name: str, path: Path) -> None:
    """Draw seconds and memory over length, both on logarithmic scales.

    Errors: `InputError` for another suffix than those of pictures, or without matplotlib.
    """
    lengths, powers = [one.length for one in points], exponents(points)
    drawn = (("seconds", {"model": ("seconds", [one.seconds for one in points]),
                          "self-attentions": ("attention_seconds", [one.attention for one in points])}),
             ("MB on top of the model", {"memory": ("memory_bytes", [one.memory / 1e6 for one in points])}))
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
