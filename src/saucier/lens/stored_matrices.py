"""What a folder with matrices in few bits stores: the number format and the bytes of each, read without torch."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from saucier.adaptation.quantization.schemes import (
    IndexedIntegers,
    Integers,
    LearnedBasis,
    NormalFloat,
    StoredFormat,
    StoredQuantization,
    Symmetric,
)
from saucier.errors import InputError
from saucier.plain import format_bytes
from saucier.table import Table

PUBLISHED = "quantization_config"
"""The key of a published config about matrices in few bits."""
BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "I64": 8, "BOOL": 1}
"""Number format, as safetensors call it -> bytes of a value."""


@dataclass(frozen=True, slots=True)
class StoredSize:
    """What one matrix takes, or all other parameters."""

    name: str
    format: str
    """In words."""
    method: str
    """How its codes were found; empty for other parameters."""
    values: int
    bytes: int


def describe_format(form: StoredFormat) -> str:
    """Say a number format in words."""
    match form:
        case Integers():
            group = "rows" if form.group is None else f"groups of {form.group}"
            zero = "" if isinstance(form.range, Symmetric) else ", zero point"
            return f"int{form.bits}, {group}{zero}, {form.scales} scales"
        case IndexedIntegers():
            zero = "" if isinstance(form.range, Symmetric) else ", zero point"
            return f"int{form.bits}, {form.groups} groups a row by an index{zero}, {form.scales} scales"
        case NormalFloat():
            return f"nf4, blocks of {form.block}"
        case LearnedBasis():
            return f"{form.bits} learned numbers a row"


def read_stored_sizes(folder: Path, document: Mapping[str, Any]) -> tuple[StoredSize, ...]:
    """Return what each matrix in few bits of a folder takes, and the rest; nothing where the config says of none.

    Raises `InputError` for a config or a file that was damaged.
    """
    if PUBLISHED in document:
        return read_published_sizes(folder, document[PUBLISHED])
    if "quantization" not in document:
        return ()
    from safetensors import SafetensorError, safe_open

    path = folder / "model.safetensors"
    try:
        stored = StoredQuantization.model_validate(document["quantization"])
        with safe_open(path, framework="np") as file:
            parts = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118  # no dict
            sizes = {name: (prod(one.get_shape()), str(one.get_dtype())) for name, one in parts.items()}
    except ValidationError as error:
        raise InputError(error.errors()[0]["msg"], where=f"{folder / 'config.json'}: quantization",
                         remedy="the file was changed; write it again") from error
    except (SafetensorError, OSError) as error:
        raise InputError(f"not a whole safetensors file ({error})", where=str(path), remedy="copy it again") from error
    inside = {name: sum(count * BYTES[dtype] for tensor, (count, dtype) in sizes.items()
                        if tensor.rpartition(".")[0] == name and not tensor.endswith((".bias", ".columns")))
              for name in stored.modules}
    found = [StoredSize(name, describe_format(one.format) + ("" if one.activations is None else
                                                             f", {one.activations.kind} int8 inputs"),
                        one.method, one.shape[0] * one.shape[1], inside[name]) for name, one in stored.modules.items()]
    rest = {tensor: one for tensor, one in sizes.items()
            if tensor.rpartition(".")[0] not in inside or tensor.endswith((".bias", ".columns"))}
    return (*found, size_rest(rest))


def size_rest(rest: Mapping[str, tuple[int, str]]) -> StoredSize:
    """Return what is not in few bits as one line: numbers of values and their formats, by name."""
    formats = " and ".join(sorted({dtype.lower() for _, dtype in rest.values()}))
    return StoredSize("norms, biases and the rest", formats, "", sum(count for count, _ in rest.values()),
                      sum(count * BYTES[dtype] for count, dtype in rest.values()))


def read_published_sizes(folder: Path, said: object) -> tuple[StoredSize, ...]:
    """Return the same of a folder of GPTQ, AWQ or compressed-tensors, by the published names; words count whole.

    `said`: what the config says of it. A line says so where it cannot be read. Raises `InputError` for a file that was
    damaged.
    """
    from safetensors import SafetensorError, safe_open

    from saucier.adaptation.quantization.published_config import read_scheme  # both read tensors, with torch
    from saucier.checkpoints.weight_files import shard_paths

    try:
        scheme = read_scheme(said, str(folder / "config.json"))
    except InputError as error:
        return (StoredSize(f"not counted: {error.what}", "", "", 0, 0),)
    shapes: dict[str, tuple[list[int], str]] = {}
    for path in shard_paths(folder):
        try:
            with safe_open(path, framework="np") as file:
                parts = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118  # no dict
                shapes |= {name: (one.get_shape(), str(one.get_dtype())) for name, one in parts.items()}
        except (SafetensorError, OSError) as error:
            raise InputError(f"not a whole safetensors file ({error})", where=str(path),
                             remedy="copy it again") from error
    words, scales, others = TENSORS[scheme.layout]
    modules = [name.removesuffix(f".{words}") for name in shapes
               if name.endswith(f".{words}") and f"{name.removesuffix(words)}{scales}" in shapes]
    bits, inside = max(one.bits for one in scheme.groupings), dict[str, StoredSize]()
    for module in modules:
        tensors = [shapes[name] for end in (words, scales, *others) if (name := f"{module}.{end}") in shapes]
        shape, dtype = shapes[f"{module}.{words}"]
        values = prod(shape) * BYTES[dtype] * 8 // bits
        groups = prod(shapes[f"{module}.{scales}"][0]) // outputs_of(scheme.layout, shape)
        said = "rows" if groups <= 1 else f"{groups} groups a row"
        inside[module] = StoredSize(module, f"int{bits}, {said}, {shapes[f'{module}.{scales}'][1].lower()} scales",
                                    scheme.layout, values, sum(prod(size) * BYTES[kind] for size, kind in tensors))
    counted = {f"{module}.{end}" for module in modules for end in (words, scales, *others)}
    return (*inside.values(), size_rest({name: (prod(size), kind) for name, (size, kind) in shapes.items()
                                         if name not in counted}))


def outputs_of(layout: str, shape: Sequence[int]) -> int:
    """Return the outputs of a map from the shape of its words."""
    match layout:
        case "gptq":
            return shape[1]
        case "awq":
            return 8 * shape[1]
        case _:
            return shape[0]


TENSORS = {"gptq": ("qweight", "scales", ("qzeros", "g_idx")), "awq": ("qweight", "scales", ("qzeros",)),
           "pack-quantized": ("weight_packed", "weight_scale", ("weight_zero_point", "weight_shape", "weight_g_idx")),
           "int-quantized": ("weight", "weight_scale", ("weight_zero_point",))}
"""Layout -> the tensor of the codes of a map, that of its scales, and what else belongs to it."""


def stored_table(sizes: Sequence[StoredSize]) -> Table:
    """Return the table that `saucier show` prints: matrices of one place and format in all blocks are one line."""
    groups: dict[tuple[str, str, str], list[StoredSize]] = {}
    for one in sizes:
        groups.setdefault((re.sub(r"\.\d+\.", ".*.", one.name), one.format, one.method), []).append(one)
    rows = []
    for (name, form, method), members in groups.items():
        values, size = sum(one.values for one in members), sum(one.bytes for one in members)
        rows.append((name + (f" × {len(members)}" if len(members) > 1 else ""), form, method, f"{values:,}",
                     format_bytes(size), f"{size / values:.3f}" if values else ""))
    values, size = sum(one.values for one in sizes), sum(one.bytes for one in sizes)
    rows.append(("together", "", "", f"{values:,}", format_bytes(size), f"{size / values:.3f}" if values else ""))
    return Table(("stored", "format", "method", "values", "bytes", "bytes a value"), rows, numbers=(3, 4, 5),
                 bold=(len(rows) - 1,), heading_style="dim", gap=3)
