"""What `quantization_config` in the config of a published folder says, as far as it is needed to read its matrices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from saucier.adaptation.quantization.published_codes import Grouping
from saucier.checkpoints.layout import QUANTIZATION
from saucier.errors import InputError, suggest_name

BITS = {"gptq": (2, 3, 4, 8), "awq": (4,), "pack-quantized": (2, 4, 8), "int-quantized": (8,)}
"""Layout -> bits that can be read; pack-quantized packed others in two ways, which its folders do not tell apart."""
FIRST, SECOND = "gptq", "gptq_v2"
"""Formats of GPTQ: zero points are stored - 1, or as they are."""


@dataclass(frozen=True, slots=True)
class Scheme:
    """How a published folder stores matrices in few bits."""

    layout: str
    """A key of `BITS`."""
    groupings: tuple[Grouping, ...]
    """What the config says of its groups of maps; of GPTQ and AWQ there is one."""
    symmetric: bool = False
    """Whether the config says that every zero point is the middle."""
    said_format: str | None = None
    """Which format of GPTQ the config says; it is not to be relied on."""
    rounds_inputs: bool = False
    """Whether the inputs of maps were meant to be rounded."""


def read_scheme(said: Any, where: str) -> Scheme:
    """Read the config's key. Raises `InputError` for what cannot be read, by its name."""
    where = f"{where}: {QUANTIZATION}"
    if not isinstance(said, Mapping):
        raise InputError("is no table", where=where, remedy="copy the config again")
    method = str(said.get("quant_method"))[:40]
    readers = {"gptq": read_gptq_scheme, "awq": read_awq_scheme, "compressed-tensors": read_compressed_scheme}
    if method not in readers:
        raise InputError(f"quant_method {method!r} cannot be read", where=where,
                         remedy=suggest_name(method, [*readers]) + "; or use the folder in float")
    return readers[method](said, where)


def read_gptq_scheme(said: Mapping[str, Any], where: str) -> Scheme:
    """Read what GPTQ says."""
    allow(said, where, {"checkpoint_format": (None, FIRST, SECOND), "pack_dtype": (None, "int32"),
                        "dynamic": (None, {})})
    return Scheme("gptq", (read_grouping(said, "bits", where, BITS["gptq"]),), said.get("sym") is True,
                  said.get("checkpoint_format"))


def read_awq_scheme(said: Mapping[str, Any], where: str) -> Scheme:
    """Read what AWQ says."""
    version = said.get("version")
    given = {**said, "version": version.lower() if isinstance(version, str) else version}
    allow(given, where, {"version": (None, "gemm"), "zero_point": (None, True)})
    return Scheme("awq", (read_grouping(said, "bits", where, BITS["awq"]),))


def read_compressed_scheme(said: Mapping[str, Any], where: str) -> Scheme:
    """Read what compressed-tensors says. Which group a map belongs to follows from the sizes of its tensors."""
    allow(said, where, {"transform_config": (None, {}), "sparsity_config": (None, {}), "quantization_status":
                        (None, "compressed", "frozen")})
    groups = said.get("config_groups")
    if not isinstance(groups, Mapping) or not groups or not all(isinstance(one, Mapping) for one in groups.values()):
        raise InputError("config_groups is missing or no table of tables", where=where, remedy="copy the config again")
    layouts, found, rounds = set(), [], False
    for name, group in groups.items():
        place = f"{where}.config_groups.{str(name)[:40]}"
        weights, layout = group.get("weights"), group.get("format") or said.get("format")
        if not isinstance(weights, Mapping):
            raise InputError("weights is no table", where=place, remedy="copy the config again")
        allow({"format": layout}, place, {"format": ("pack-quantized", "int-quantized")})
        allow(weights, f"{place}.weights", {"type": (None, "int"), "dynamic": (None, False), "block_structure": (None,),
                                            "strategy": (None, "group", "channel", "tensor")})
        layouts.add(str(layout))
        found.append(read_grouping(weights, "num_bits", place, BITS[str(layout)]))
        rounds = rounds or group.get("input_activations") is not None
    if len(layouts) > 1:
        raise InputError(f"{' and '.join(sorted(layouts))} are mixed", where=where, remedy="use the folder in float")
    return Scheme(layouts.pop(), tuple(found), rounds_inputs=rounds)


def allow(said: Mapping[str, Any], where: str, values: Mapping[str, tuple[Any, ...]]) -> None:
    """Raise `InputError` for a field with a value that cannot be read."""
    for name, known in values.items():
        if (value := said.get(name)) not in known:
            named = ", ".join(str(one) for one in known if one)
            raise InputError(f"{name} {str(value)[:40]!r} cannot be read", where=where,
                             remedy=f"known: {named}" if named else "use the folder in float")


def read_grouping(said: Mapping[str, Any], key: str, where: str, known: tuple[int, ...]) -> Grouping:
    """Read bits and the size of groups; -1 and none mean a whole row. Raises `InputError` for other numbers."""
    bits, group = said.get(key), said.get("group_size")
    if not isinstance(bits, int) or isinstance(bits, bool) or bits not in known:
        raise InputError(f"{key} {str(bits)[:40]} cannot be read", where=where,
                         remedy=f"known here: {', '.join(map(str, known))}")
    if group is None or (group == -1 and not isinstance(group, float)):
        return Grouping(bits, None)
    if not isinstance(group, int) or isinstance(group, bool) or not 0 < group <= 2**20:
        raise InputError(f"group_size is {str(group)[:40]}", where=where, remedy="a whole number, or -1 for a row")
    return Grouping(bits, group)
