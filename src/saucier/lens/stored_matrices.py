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
    formats = " and ".join(sorted({dtype.lower() for _, dtype in rest.values()}))
    return (*found, StoredSize("norms, biases and the rest", formats, "", sum(count for count, _ in rest.values()),
                               sum(count * BYTES[dtype] for count, dtype in rest.values())))


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
    rows.append(("together", "", "", f"{values:,}", format_bytes(size), f"{size / values:.3f}"))
    return Table(("stored", "format", "method", "values", "bytes", "bytes a value"), rows, numbers=(3, 4, 5),
                 bold=(len(rows) - 1,), heading_style="dim", gap=3)
