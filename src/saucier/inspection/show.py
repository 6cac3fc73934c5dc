"""`saucier show`: the anatomy of a model as a tree of parts, and the memory it needs. Counts from the config; no torch.

`describe` gathers the figures, `as_json` and `render` put them out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from saucier.config import Memory, Node, Transformer, anatomy, memory
from saucier.inspection.units import bytes_text, quantity

FORMATS = {"float32": 4, "bfloat16": 2}
"""Number formats whose memory is shown, with their bytes for one value."""


@dataclass(frozen=True, slots=True)
class Need:
    """The memory for one use of a model: `batch` sequences of `length` tokens in a number format."""

    use: str
    dtype: str
    batch: int
    length: int
    memory: Memory


@dataclass(frozen=True, slots=True)
class Description:
    """All that `saucier show` prints. `length` is the sequence length that FLOPs are counted at."""

    name: str
    about: str
    anatomy: Node
    length: int
    needs: tuple[Need, ...]


def describe(
    name: str, config: Transformer, *, length: int, batch: int = 1, about: str = "", states: int = 2,
) -> Description:
    """Count a model: `batch` rows of `length` tokens in training, one row in generation (or one pass of an encoder).

    `states` is the number of 32-bit values that the optimizer keeps for a parameter.
    """
    use = "generation" if config.decoder else "inference"
    training = [
        Need("training", dtype, batch, length,
             memory(config, batch=batch, length=length, training=True, optimizer_states=states, value_bytes=size))
        for dtype, size in FORMATS.items()]
    inference = [Need(use, dtype, 1, length, memory(config, batch=1, length=length, training=False, value_bytes=size))
                 for dtype, size in FORMATS.items()]
    return Description(name, about, anatomy(config, length), length, (*training, *inference))


def as_json(description: Description) -> dict[str, Any]:
    """Return the description as plain values, for `--json`."""
    plain = asdict(description)
    for need, row in zip(description.needs, plain["needs"], strict=True):
        row["memory"]["total"] = need.memory.total
    return plain


def rows(node: Node, guides: str = "", tail: str = "") -> Iterator[tuple[str, Node]]:
    """Yield every part below `node`, itself first, with the lines of the tree that lead to it."""
    yield guides + tail, node
    below = guides + {"": "", "├─ ": "│  ", "└─ ": "   "}[tail]
    for index, child in enumerate(node.children):
        yield from rows(child, below, "└─ " if index == len(node.children) - 1 else "├─ ")


def part_name(guides: str, node: Node) -> Text:
    """Return the first column: guides, name, and `× 12` where twelve equal parts are folded into one."""
    text = Text(guides, style="dim")
    text.append(node.name, style="bold" if node.children else "default")
    return text.append(f" × {node.times}", style="bold yellow") if node.times > 1 else text


def part_detail(node: Node) -> Text:
    """Return what kind of part it is, where its name does not say so, and its particulars."""
    kind = "" if node.kind in (node.name, "repeat", "stack", "block", "linear") else node.kind.replace("_", " ")
    return Text(", ".join(part for part in (kind, node.detail) if part), style="cyan")


def anatomy_table(description: Description) -> Table:
    """Return the tree of parts as a table; a part that holds nothing has empty cells."""
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for heading in ("part", "shape"):
        table.add_column(heading, no_wrap=True)
    table.add_column("parameters", justify="right", no_wrap=True)
    table.add_column("FLOPs/token", justify="right", no_wrap=True)
    table.add_column("what", no_wrap=True, overflow="fold")
    for guides, node in rows(description.anatomy):
        figures = f"{node.parameters:,}" if node.parameters else "", quantity(node.flops) if node.flops else ""
        style = "bold" if node.children and not guides else None
        table.add_row(part_name(guides, node), node.shape, *figures, part_detail(node), style=style)
    return table


def memory_table(description: Description) -> Table:
    """Return the memory for training and for inference, in each number format; an empty column is left out."""
    purposes = [name for name in ("weights", "gradients", "optimizer", "activations", "cache")
                if any(getattr(need.memory, name) for need in description.needs)]
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for heading in ("memory", "rows × tokens"):
        table.add_column(heading, no_wrap=True)
    for heading in (*purposes, "total"):
        table.add_column(heading, justify="right", no_wrap=True)
    for need in description.needs:
        sizes = [getattr(need.memory, name) for name in purposes]
        cells = [bytes_text(size) if size else "" for size in sizes]
        table.add_row(Text(f"{need.use}, {need.dtype}"), f"{need.batch} × {need.length}", *cells,
                      Text(bytes_text(need.memory.total), style="bold"))
    return table


def headline(description: Description) -> Text:
    """Return one line: name, size, cost of a token."""
    node = description.anatomy
    text = Text(description.name, style="bold green")
    cost = f"{quantity(node.flops)}FLOPs a token forward, three times that in training"
    text.append(f"  {node.parameters:,} parameters, {cost}")
    return text.append(f" (at {description.length} tokens)", style="dim")


def render(description: Description) -> Group:
    """Return what `saucier show` prints."""
    parts: list[Text | Table | str] = [headline(description)]
    if description.about:
        parts.append(Text(description.about, style="dim"))
    parts += ["", anatomy_table(description)]
    if any(node.times > 1 for _, node in rows(description.anatomy)):
        parts.append(Text("× n: n parts like the one drawn below it, with weights of their own unless it says `share`; "
                          "the line counts all of them, the lines below it one.", style="dim"))
    return Group(*parts, "", memory_table(description))
