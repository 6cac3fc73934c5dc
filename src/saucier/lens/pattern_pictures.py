"""Patterns of attention drawn: on a terminal, and into a picture."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from saucier import config as c
from saucier.lens.attention_patterns import (
    Pattern,
    PatternText,
    find_patterns,
    first_pruned_length,
    select_patterns,
)
from saucier.lens.heat_map import figure_file
from saucier.result import Result


@dataclass(frozen=True, slots=True)
class Patterns(Result):
    """The patterns of a model, as they are asked for."""

    name: str
    length: int
    patterns: tuple[Pattern, ...]
    file: Path | None = None
    """Where they were drawn."""

    def view(self) -> str:
        """Return the drawn patterns; of those that were drawn into a file, where."""
        if self.file is not None:
            return f"{self.file}: {len(self.patterns)} patterns of {self.length} tokens"
        return "\n".join(pattern_lines(self.patterns))

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {"name": self.name, "length": self.length, "patterns": self.to_json()}

    def to_json(self) -> list[dict[str, Any]]:
        """Return the patterns alone."""
        return [one.as_json() for one in self.patterns]


def draw_patterns(config: c.Transformer, name: str, text: PatternText, *, layer: int | None = None,
                  head: int | None = None, training: bool = False, out: Path | None = None) -> Patterns:
    """Return the patterns of a model, of a layer or head alone; drawn into a file with `out`.

    Warns where the text is too short for what the model leaves out. Raises `InputError` as `find_patterns`.
    """
    whole = find_patterns(config, text, training=training)
    found, beyond = select_patterns(whole, layer, head), first_pruned_length(config, whole)
    if beyond is not None and beyond >= text.length:
        warnings.warn(f"the pattern begins beyond {beyond:,} tokens: give a longer --length", stacklevel=2)
    if out is not None:
        save_patterns(found, name, out)
    return Patterns(name, text.length, tuple(found), out)


HALVES = {(False, False): " ", (True, False): "▀", (False, True): "▄", (True, True): "█"}
ACROSS = 4
"""Squares side by side in a picture."""
SIDE = 2.6
"""Inches of a square."""


def pattern_lines(found: Sequence[Pattern]) -> Iterator[str]:
    """Yield the lines that draw patterns on a terminal: a row is a query, a column a key, a mark that it is seen."""
    for one in found:
        yield f"{pattern_title(one)}: {one.share:.1%} of all pairs"
        rows = [*one.seen.tolist(), [False] * one.seen.shape[1]]
        for upper, lower in zip(rows[0:-1:2], rows[1::2], strict=False):
            yield "  " + "".join(HALVES[pair] for pair in zip(upper, lower, strict=True)).rstrip()
        yield ""


def pattern_title(one: Pattern) -> str:
    """Say which heads have a pattern."""
    heads = "" if len(one.heads) == one.of else f", {format_ranges('head', one.heads)}"
    return f"{one.side}, {format_ranges('layer', one.layers)}{heads}"


def format_ranges(what: str, numbers: Sequence[int]) -> str:
    """Write numbers shortly: `layers 0-3`, `layers 0, 2, 4`, `head 5`."""
    if len(numbers) == 1:
        return f"{what} {numbers[0]}"
    steps = {after - before for before, after in itertools.pairwise(numbers)}
    if steps == {1}:
        return f"{what}s {numbers[0]}-{numbers[-1]}"
    if len(numbers) > 4 and len(steps) == 1:
        return f"{what}s {numbers[0]}, {numbers[1]}, … {numbers[-1]}"
    return f"{what}s {', '.join(map(str, numbers))}"


def save_patterns(found: Sequence[Pattern], name: str, path: Path) -> None:
    """Draw patterns into an SVG, PNG or PDF file. Errors: `InputError` for another suffix, or without matplotlib."""
    down = -(-len(found) // ACROSS)
    across = min(len(found), ACROSS)
    with figure_file(path, (SIDE * across, (SIDE + 0.5) * down + 0.5)) as figure:
        figure.suptitle(f"{name}: {found[0].seen.shape[0]} tokens; a row is a query, a column a key")
        for axes, one in zip(figure.subplots(down, across, squeeze=False).flat, found, strict=False):
            axes.imshow(one.seen, cmap="Greys", vmin=0, vmax=1.4, interpolation="none", aspect="equal")
            axes.set_title(f"{pattern_title(one)}\n{one.share:.1%}", fontsize=8)
        for axes in figure.axes:
            axes.tick_params(labelsize=6, length=2)
        for axes in figure.axes[len(found):]:
            axes.set_axis_off()
        figure.tight_layout()
