"""`saucier show`: the anatomy of a model as a tree of parts and the memory it needs, or that of an adapter. No
torch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Group
from rich.text import Text

from saucier.checkpoints.hub import ADAPTER_CONFIG, find_finetuned_model
from saucier.config import Node, Transformer, anatomy, learned_length
from saucier.cost.memory import MemoryEstimate, estimate_memory
from saucier.cost.workload import STATES
from saucier.errors import InputError
from saucier.files import is_file, path_exists, read_object
from saucier.lens.stored_matrices import StoredSize, read_stored_sizes, stored_table
from saucier.lens.subject import find_subject
from saucier.plain import format_bytes, format_quantity
from saucier.result import Result
from saucier.table import Table

FORMATS = {"float32": 4, "bfloat16": 2}
"""Number formats whose memory is shown, with their bytes for one value."""
PURPOSES = ("weights", "gradients", "optimizer", "activations", "cache")
"""What memory is for: the fields of `config.Memory`."""


@dataclass(frozen=True, slots=True)
class MemoryNeed:
    """The memory for one use of a model: `batch` sequences of `length` tokens in a number format."""

    use: str
    dtype: str
    batch: int
    length: int
    memory: MemoryEstimate


@dataclass(frozen=True, slots=True)
class Description(Result):
    """All that `saucier show` prints. `length` is the sequence length that FLOPs are counted at."""

    name: str
    about: str
    anatomy: Node
    length: int
    needs: tuple[MemoryNeed, ...]
    stored: tuple[StoredSize, ...] = ()
    """What each matrix in few bits takes, and the rest; empty for a model that has none."""

    def view(self) -> Group:
        """Return what `saucier show` prints."""
        return render_description(self)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, each sum of memory included."""
        plain = asdict(self)
        for need, row in zip(self.needs, plain["needs"], strict=True):
            row["memory"]["total"] = need.memory.total
        return plain


DEFAULT_LENGTH, DEFAULT_BATCH = 512, 8
"""Tokens in a row and rows in training of a saved model, which has no recipe."""


def describe(what: str | Path, overrides: Sequence[str] = (), *, length: int | None = None, batch: int | None = None
             ) -> Description | AdapterDescription:
    """Describe a recipe by name or file, a run, a saved model, or an adapter; a recipe says `length` and `batch`.

    Raises `InputError` for what is none of them.
    """
    folder = find_finetuned_model(Path(what))
    if is_adapter(folder):
        return describe_adapter(folder)
    found = find_subject(str(what), overrides)
    training = found.recipe.training if found.recipe else None
    most = learned_length(found.model)
    if length is not None and most is not None and length > most:
        raise InputError(f"{length:,} tokens, and the model has {most:,} positions", where="--length",
                         remedy=f"give at most {most}, or a model with more positions")
    rows = min(training.micro_batch or training.batch, training.batch) if training else DEFAULT_BATCH
    usual = training.length if training else min(DEFAULT_LENGTH, most or DEFAULT_LENGTH)
    described = describe_model(
        found.name, found.model, length=length or usual,
        batch=batch or rows, about=found.recipe.about if found.recipe else "",
        states=STATES[training.optimizer.kind if training else "adamw"])
    config = folder / "config.json"
    return replace(described, stored=read_stored_sizes(folder, read_object(config))) if is_file(config) else described


def describe_model(
    name: str, config: Transformer, *, length: int, batch: int = 1, about: str = "", states: int = 2,
) -> Description:
    """Count a model: `batch` rows of `length` tokens in training, one row in generation (or one pass of an encoder).

    `states` is the number of 32-bit values that the optimizer keeps for a parameter.
    """
    uses = (("training", batch, True), ("generation" if config.decoder else "inference", 1, False))
    needs = tuple(MemoryNeed(use, dtype, rows, length,
                             estimate_memory(config, batch=rows, length=length, training=training,
                                             optimizer_states=states, value_bytes=size))
                  for use, rows, training in uses for dtype, size in FORMATS.items())
    return Description(name, about, anatomy(config, length), length, needs)


def anatomy_rows(node: Node, guides: str = "", tail: str = "") -> Iterator[tuple[str, Node]]:
    """Yield every part below `node`, itself first, with the lines of the tree that lead to it."""
    yield guides + tail, node
    below = guides + {"": "", "├─ ": "│  ", "└─ ": "   "}[tail]
    for index, child in enumerate(node.children):
        yield from anatomy_rows(child, below, "└─ " if index == len(node.children) - 1 else "├─ ")


def anatomy_cells(guides: str, node: Node) -> tuple[Text, str, str, str, Text]:
    """Return one line of the tree; `× 12` where twelve equal parts are folded into one."""
    name = Text(guides, style="dim").append(node.name, style="bold" if node.children else "default")
    if node.times > 1:
        name.append(f" × {node.times}", style="bold yellow")
    kind = "" if node.kind in (node.name, "repeat", "stack", "block", "linear") else node.kind.replace("_", " ")
    detail = Text(", ".join(part for part in (kind, node.detail) if part), style="cyan")
    return (name, node.shape, f"{node.parameters:,}" if node.parameters else "",
            format_quantity(node.flops) if node.flops else "", detail)


def memory_table(description: Description) -> Table:
    """Return the memory for training and for inference, in each number format; a purpose of none is left out."""
    sizes = {name: [getattr(need.memory, name) for need in description.needs] for name in (*PURPOSES, "total")}
    rows = [("together" if name == "total" else name, *(format_bytes(size) if size else "" for size in found))
            for name, found in sizes.items() if any(found)]
    headings = [f"{need.use}\n{need.dtype}\n{need.batch} × {need.length}" for need in description.needs]
    return Table(("memory", *headings), rows, numbers=range(1, len(headings) + 1), bold=(len(rows) - 1,),
                 heading_style="dim", gap=3)


def headline(description: Description) -> Text:
    """Return one line: name, size, cost of a token."""
    node = description.anatomy
    text = Text(description.name, style="bold green")
    cost = f"{format_quantity(node.flops)}FLOPs a token forward, three times that in training"
    text.append(f"  {node.parameters:,} parameters, {cost}")
    return text.append(f" (at {description.length} tokens)", style="dim")


def render_description(description: Description) -> Group:
    """Return what `saucier show` prints."""
    parts: list[Text | Table | str] = [headline(description)]
    if description.about:
        parts.append(Text(description.about, style="dim"))
    rows = [anatomy_cells(guides, node) for guides, node in anatomy_rows(description.anatomy)]
    parts += ["", Table(("part", "shape", "parameters", "FLOPs/token", "what"), rows, numbers=(2, 3), folded=(4,),
                        bold=(0,), heading_style="dim", whole=True)]
    if any(node.times > 1 for _, node in anatomy_rows(description.anatomy)):
        parts.append(Text("× n: so many parts like the one below; the line counts all of them, those below it one.",
                          style="dim"))
    stored = ("", stored_table(description.stored)) if description.stored else ()
    return Group(*parts, *stored, "", memory_table(description))


CONFIG, WEIGHTS, PICKLED, OWN = ADAPTER_CONFIG, "adapter_model.safetensors", "adapter_model.bin", "SAUCIER"


@dataclass(frozen=True, slots=True)
class AdapterDescription(Result):
    """What an adapter is."""

    folder: str
    kind: str
    layout: str
    base: str
    parameters: int
    """Values that it holds."""
    base_parameters: int | None
    """Those of the base model; None where that is not on this machine."""
    bytes: int
    settings: dict[str, Any]
    """What distinguishes one adapter of a kind from another."""

    @property
    def share(self) -> float | None:
        """Values of the adapter for each of the base."""
        return self.parameters / self.base_parameters if self.base_parameters else None

    def view(self) -> str:
        """Return what `saucier show` prints of an adapter."""
        return "\n".join(adapter_lines(self))

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self) | {"share": self.share}


def is_adapter(path: Path) -> bool:
    """Say whether a folder holds an adapter and no model; unlike `checkpoints.adapter_folder`, without torch."""
    return (path / CONFIG).is_file() and not (path / "config.json").is_file()


def describe_adapter(path: Path) -> AdapterDescription:
    """Read an adapter's folder. Raises `InputError` for one that cannot be read."""
    document = read_object(path / CONFIG)
    base = str(document.get("base_model_name_or_path"))
    own = document.get("peft_type") == OWN
    rewrites = document.get("rewrites") or []
    if not isinstance(rewrites, list) or not all(isinstance(one, dict) for one in rewrites):
        raise InputError("rewrites is no list of what was changed", where=str(path / CONFIG),
                         remedy="the file was changed; write it again")
    kind = " + ".join(str(one.get("kind")) for one in rewrites) if own else str(document.get("peft_type"))
    chosen = ("r", "lora_alpha", "target_modules", "modules_to_save", "num_virtual_tokens")
    settings = {f"{place}": one for place, one in enumerate(rewrites)} if own else {
        name: document[name] for name in chosen if document.get(name)}
    parameters, size = count_weight_values(path)
    return AdapterDescription(str(path), kind, "our own form, which PEFT does not read" if own else "PEFT", base,
                              parameters, count_base_parameters(path, base), size, settings)


def count_weight_values(folder: Path) -> tuple[int, int]:
    """Count the values of an adapter's weights, by the header where they are safetensors, and the bytes of the file.

    Raises `InputError` for weights that are missing or broken.
    """
    from math import prod

    if not (folder / WEIGHTS).is_file() and (folder / PICKLED).is_file():
        from saucier.checkpoints.weight_files import PickledShard

        shard = PickledShard(folder / PICKLED)
        return sum(tensor.numel() for tensor in shard.tensors.values()), shard.path.stat().st_size
    from safetensors import SafetensorError, safe_open

    file = folder / WEIGHTS
    if not file.is_file():
        raise InputError("no such file", where=str(file), remedy="fetch the whole folder")
    try:
        with safe_open(file, framework="np") as opened:
            count = sum(prod(opened.get_slice(name).get_shape()) for name in opened.keys())  # noqa: SIM118  # no dict
    except (SafetensorError, OSError) as error:
        raise InputError(f"not a whole safetensors file ({error})", where=str(file), remedy="copy it again") from error
    return count, file.stat().st_size


def count_base_parameters(path: Path, base: str) -> int | None:
    """Count the parameters of the base model, where it is on this machine."""
    from saucier.config import parameters
    from saucier.lens.subject import find_subject

    found = next((place for place in (path / base, Path(base)) if path_exists(place / "config.json")), None)
    return None if found is None else parameters(find_subject(str(found)).model)


def adapter_lines(shown: AdapterDescription) -> list[str]:
    """Return what a person reads."""
    share = "" if shown.share is None else f", {shown.share:.2%} of the base's {shown.base_parameters:,}"
    return [f"{shown.folder}: an adapter, {shown.kind}, in the layout of {shown.layout}" if shown.layout == "PEFT"
            else f"{shown.folder}: an adapter, {shown.kind}, in {shown.layout}",
            f"{shown.parameters:,} parameters{share}; {format_bytes(shown.bytes)}", f"base model: {shown.base}",
            *(f"{name}: {value}" for name, value in shown.settings.items())]
