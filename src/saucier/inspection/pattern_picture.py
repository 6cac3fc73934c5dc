"""Patterns of attention drawn: for a terminal, two queries a line, and into a picture file, one square each."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

from saucier.inspection.heat_map import figure_file
from saucier.inspection.pattern import Pattern

HALVES = {(False, False): " ", (True, False): "▀", (False, True): "▄", (True, True): "█"}
ACROSS = 4
"""Squares side by side in a picture."""
SIDE = 2.6
"""Inches of a square."""


def lines(found: Sequence[Pattern]) -> Iterator[str]:
    """Yield the lines that draw patterns on a terminal: a row is a query, a column a key, a mark that it is seen."""
    for one in found:
        yield f"{title(one)}: {one.share:.1%} of all pairs"
        rows = [*one.seen.tolist(), [False] * one.seen.shape[1]]
        for upper, lower in zip(rows[0:-1:2], rows[1::2], strict=False):
            yield "  " + "".join(HALVES[pair] for pair in zip(upper, lower, strict=True)).rstrip()
        yield ""


def title(one: Pattern) -> str:
    """Say which heads have a pattern."""
    heads = "" if len(one.heads) == one.of else f", {ranges('head', one.heads)}"
    return f"{one.side}, {ranges('layer', one.layers)}{heads}"


def ranges(what: str, numbers: Sequence[int]) -> str:
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
            axes.set_title(f"{title(one)}\n{one.share:.1%}", fontsize=8)
        for axes in figure.axes:
            axes.tick_params(labelsize=6, length=2)
        for axes in figure.axes[len(found):]:
            axes.set_axis_off()
        figure.tight_layout()
