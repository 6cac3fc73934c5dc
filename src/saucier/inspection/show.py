"""`saucier show`: the anatomy of a model as a tree of parts, and the memory it needs. Counts from the config; no torch.

`describe` gathers the figures, `as_json` and `render` put them out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Group, JustifyMethod
from rich.table import Table
from rich.text import Text

from saucier.config import Memory, Node, Transformer, anatomy, memory
from saucier.inspection.units import bytes_text, quantity

FORMATS = {"float32": 4, "bfloat16": 2}
"""Number formats whose memory is shown, with their bytes for one value."""
HEADINGS: tuple[tuple[str, JustifyMethod], ...] = (
    ("part", "left"), ("shape", "left"), ("parameters", "right"), ("FLOPs/token", "right"))
PURPOSES = ("weights", "gradients", "optimizer", "activations", "cache")
"""What memory is for: the fields of `config.Memory`."""


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


def cells(guides: str, node: Node) -> tuple[Text, str, str, str, Text]:
    """Return one line of the tree."""
    parameters, flops = f"{node.parameters:,}" if node.parameters else "", quantity(node.flops) if node.flops else ""
    return part_name(guides, node), node.shape, parameters, flops, part_detail(node)


def anatomy_table(description: Description) -> Table:
    """Return the tree of parts as a table; only its last column folds where the screen is narrow."""
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    lines = [cells(guides, node) for guides, node in rows(description.anatomy)]
    for place, (heading, side) in enumerate(HEADINGS):
        width = max(len(heading), *(len(line[place]) for line in lines))
        table.add_column(heading, justify=side, no_wrap=True, min_width=width)
    table.add_column("what", overflow="fold")
    for place, line in enumerate(lines):
        table.add_row(*line, style="bold" if place == 0 else None)
    return table


def memory_table(description: Description) -> Table:
    """Return the memory for training and for inference, in each number format; a purpose of none is left out."""
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 3, 0, 0))
    table.add_column("memory", no_wrap=True)
    for need in description.needs:
        table.add_column(f"{need.use}\n{need.dtype}\n{need.batch} × {need.length}", justify="right", no_wrap=True)
    for purpose in PURPOSES:
        sizes = [getattr(need.memory, purpose) for need in description.needs]
        if any(sizes):
            table.add_row(purpose, *(bytes_text(size) if size else "" for size in sizes))
    table.add_row("together", *(bytes_text(need.memory.total) for need in description.needs), style="bold")
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
        parts.append(Text("× n: so many parts like the one below; the line counts all of them, those below it one.",
                          style="dim"))
    return Group(*parts, "", memory_table(description))
