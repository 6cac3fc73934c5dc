"""Modules in few bits put into a model: over the parts that they replace, and from what a folder says of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import torch
from pydantic import ValidationError
from torch import nn

from saucier.adaptation.quantization.formats import CODECS, Parts
from saucier.adaptation.quantization.maps import (
    OutputTable,
    QuantizedLanguageHead,
    QuantizedLinear,
    QuantizedPositions,
    QuantizedTable,
    list_matrices,
)
from saucier.adaptation.quantization.schemes import Integers, StoredMatrix, StoredQuantization
from saucier.adaptation.target_modules import swap_modules
from saucier.errors import InputError
from saucier.model import Transformer
from saucier.parts.heads import LanguageHead
from saucier.parts.positions import LearnedPositions

CHANGED = "the file was changed; write it again"
PARTS: Mapping[str, type[nn.Module]] = {
    "map": nn.Linear, "table": nn.Embedding, "positions": LearnedPositions, "output": LanguageHead}
"""What a stored matrix is of -> the module that holds such a one."""


def put_matrix(base: nn.Module, stored: StoredMatrix, parts: Parts | None = None) -> nn.Module:
    """Return the module in few bits for a part of a model; `parts`: its tensors, else the nearest numbers."""
    weight = cast(nn.Parameter, base.weight)
    match stored.part:
        case "map":
            return QuantizedLinear(cast(nn.Linear, base), stored.format, parts, method=stored.method,
                                   activations=stored.activations)
        case "output":
            return QuantizedLanguageHead(cast(LanguageHead, base),
                                         OutputTable(weight, stored.format, parts, stored.method))
    kind = QuantizedTable if stored.part == "table" else QuantizedPositions
    return kind(weight, stored.format, parts, stored.method)


def replace_modules(model: Transformer, found: Mapping[str, nn.Module]) -> None:
    """Put modules in few bits in place of those of these names; an output layer that is tied to a table follows it."""
    for name, module in found.items():
        swap_modules(model, {id(model.get_submodule(name)): module})
    language, table = model.config.output_layer, (model.decoder_embed or model.embed).tokens
    if language is not None and language.tied and isinstance(table, QuantizedTable):
        for base in [one for one in model.modules() if type(one) is LanguageHead]:
            swap_modules(model, {id(base): QuantizedLanguageHead(base, table)})


def install_matrices(model: Transformer, document: Any, where: str) -> None:
    """Put modules in few bits into a model of shapes, as a folder's config says; their tensors hold nothing yet.

    Raises `InputError` for a config that was changed or does not fit the model.
    """
    try:
        stored = StoredQuantization.model_validate(document)
    except ValidationError as error:
        first = error.errors()[0]
        at = ".".join(str(part) for part in first["loc"])
        raise InputError(f"{at}: {first['msg']}", where=where, remedy=CHANGED) from error
    known = dict(model.named_modules())
    found: dict[str, nn.Module] = {}
    for name, one in stored.modules.items():
        short = name.removesuffix(".table") if one.part == "output" else name
        base = known.get(short)
        if base is None or not isinstance(base, PARTS[one.part]):
            raise InputError(f"the model has no {one.part} {name[:80]!r}", where=where, remedy=CHANGED)
        weight = cast(nn.Parameter, base.weight)
        if tuple(weight.shape) != one.shape:
            raise InputError(f"{name} is {list(one.shape)}, and the model has {list(weight.shape)}", where=where,
                             remedy=CHANGED)
        if one.activations is not None and not isinstance(one.format, Integers):
            raise InputError(f"{name} rounds its inputs, and its weights are {one.format.kind}", where=where,
                             remedy=CHANGED)
        with torch.device("meta"):
            found[short] = put_matrix(base, one, {name: torch.empty(size, dtype=dtype) for name, (size, dtype)
                                                  in CODECS[type(one.format)].layout(one.shape, one.format).items()})
    replace_modules(model, found)


def check_matrices(model: nn.Module, where: str) -> None:
    """Raise `InputError` for matrices in few bits that hold what their format cannot hold."""
    for name, matrix in list_matrices(model).items():
        fault = CODECS[type(matrix.store)].fault(matrix.parts(), matrix.shape, matrix.store)
        scale = getattr(matrix, "input_scale", None)
        if not fault and scale is not None and not (bool(scale.isfinite()) and float(scale) >= 0):
            fault = "input_scale is negative or not finite"
        if fault:
            raise InputError(f"{name}: {fault}", where=where, remedy="the file was changed; copy it again")


def dequantize_model(model: Transformer) -> Transformer:
    """Give a model ordinary weights again, in place: the rounded numbers, in the format that it computes in.

    Inputs of maps are not rounded any more. Nothing is as it was before the rounding.
    """
    table = (model.decoder_embed or model.embed).tokens
    for quantized in [one for one in model.modules() if isinstance(one, QuantizedLanguageHead)]:
        swap_modules(model, {id(quantized): widen_head(quantized, table)})
    swap_modules(model, {id(one): one.as_ordinary() for one in list_matrices(model).values()})
    for head in [one for one in model.modules() if type(one) is LanguageHead]:
        language = model.config.output_layer
        if language is not None and language.tied:
            head.weight = cast(nn.Parameter, (model.decoder_embed or model.embed).tokens.weight)
    model.requires_grad_(True)
    kept = tuple(one for one in model.provenance.rewrites if one.by.kind != "quantization")
    model.provenance = replace(model.provenance, rewrites=kept)
    return model


def widen_head(head: QuantizedLanguageHead, table: nn.Module) -> LanguageHead:
    """Return an ordinary output layer; one that shares a table gets the table's parameter later."""
    made = LanguageHead.__new__(LanguageHead)
    nn.Module.__init__(made)
    made.scale, made.transform, made.columns, made.bias = head.scale, head.transform, head.columns, head.bias
    made.weight = nn.Parameter(head.weight if head.table is not table else head.weight.new_empty(0))
    return made
