"""`quantize_model`: a model whose maps and tables hold numbers of few bits, in place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import cast

import torch
from torch import Tensor, nn

from saucier.adaptation.quantization.awq import round_scaled
from saucier.adaptation.quantization.calibration import Batch, check_batches, measure_ranges
from saucier.adaptation.quantization.gptq import round_compensated
from saucier.adaptation.quantization.maps import (
    held_bytes,
    is_quantized,
    list_maps,
    list_tables,
)
from saucier.adaptation.quantization.schemes import (
    Awq,
    Gptq,
    Integers,
    Nearest,
    NumberFormat,
    Quantization,
    StaticInt8,
    StoredMatrix,
    StoredPart,
)
from saucier.adaptation.quantization.storage import put_matrix, replace_modules
from saucier.errors import InputError
from saucier.model import Transformer
from saucier.parts.adaptive import AdaptiveHead, ClusterTables
from saucier.parts.heads import LanguageHead
from saucier.parts.linear import Linear, PartlyBiased
from saucier.parts.positions import LearnedPositions
from saucier.parts.provenance import Applied

PLAIN = (Linear, nn.Linear, PartlyBiased)
"""Maps that can be held in few bits."""


def quantize_model(model: Transformer, by: Quantization, *, batches: Sequence[Batch] = ()) -> Transformer:
    """Round a model's matrices to numbers of few bits, in place, and return it in evaluation mode.

    `batches`: inputs of the model, of calibration text, which `gptq`, `awq` and static activations need
    (`calibration.cut_rows` makes them). Numbers that were rounded in loading are the stored ones first. The rewrite is
    noted in the model's provenance; what is in few bits does not learn any more.
    Raises `InputError`, before anything is changed, for a model that is quantized already or has other rewrites, for
    maps that are not there or cannot be held so, and for missing or empty calibration text.
    """
    for _ in quantize_and_report(model, by, batches=batches):
        pass
    return model


def quantize_and_report(model: Transformer, by: Quantization, *, batches: Sequence[Batch] = ()) -> Iterator[str]:
    """Do the same, and say what was done."""
    if is_quantized(model) or model.provenance.rewrites:
        raise InputError("the model is quantized already" if is_quantized(model) else
                         f"the model has a rewrite ({min(model.provenance.rewrite_kinds)})", where="model",
                         remedy="load the float model, or merge the adapter first")
    formats, tables = select_maps(model, by), select_tables(model, by)
    needs_text = not isinstance(by.method, Nearest) or isinstance(by.activations, StaticInt8)
    if needs_text:
        check_batches(model, batches)
    model.restore_stored()
    model.eval()
    before = held_bytes(model)
    with torch.no_grad():
        yield from round_maps(model, by, formats, batches)
        replace_modules(model, tables_in_few_bits(model, by, tables))
        if isinstance(by.activations, StaticInt8):
            measure_ranges(model, batches)
    model.provenance = replace(model.provenance, rewrites=(Applied(by, frozenset()),))
    yield f"quantized: {len(formats)} maps ({by.method.kind}), {len(tables)} tables"
    yield f"the model takes {held_bytes(model) / 1e6:,.1f} MB instead of {before / 1e6:,.1f}"


def round_maps(model: Transformer, by: Quantization, formats: Mapping[str, NumberFormat],
               batches: Sequence[Batch]) -> Iterator[str]:
    """Round the linear maps by the method, and put them in place."""
    def put(name: str, parts: Mapping[str, Tensor] | None = None) -> None:
        base = cast(nn.Linear, model.get_submodule(name))
        stored = StoredMatrix(part="map", shape=(base.weight.shape[0], base.weight.shape[1]), format=formats[name],
                              activations=by.activations, method=by.method.kind)
        replace_modules(model, {name: put_matrix(base, stored, None if parts is None else dict(parts))})

    match by.method:
        case Nearest():
            for name in formats:
                put(name)
        case Gptq():
            integers = {name: one for name, one in formats.items() if isinstance(one, Integers)}
            yield from round_compensated(model, by.method, integers, batches, put)
        case Awq():
            integers = {name: one for name, one in formats.items() if isinstance(one, Integers)}
            yield from round_scaled(model, by.method, integers, batches, put)


def tables_in_few_bits(model: Transformer, by: Quantization, tables: Sequence[str]) -> dict[str, nn.Module]:
    """Return the modules in few bits for tables, by the names of these."""
    assert by.embeddings is not None or not tables, "select_tables finds none then"
    found: dict[str, nn.Module] = {}
    for name in tables:
        base = model.get_submodule(name)
        part: StoredPart = ("output" if isinstance(base, LanguageHead) else
                "positions" if isinstance(base, LearnedPositions) else "table")
        shape = cast(nn.Parameter, base.weight).shape
        found[name] = put_matrix(base, StoredMatrix(part=part, shape=(shape[0], shape[1]),
                                                    format=by.embeddings))
    return found


def select_maps(model: Transformer, by: Quantization) -> dict[str, NumberFormat]:
    """Return the linear maps that are meant, by name, each with its number format.

    Raises `InputError` for maps that are no plain ones, for a format that the method or the activations cannot have.
    """
    formats = dict.fromkeys(list_maps(model, by.where), by.format)
    for one in by.overrides:
        named = list_maps(model, one.where)
        if outside := [name for name in named if name not in formats]:
            raise InputError(f"{outside[0]} is not among the maps that are quantized", where="overrides",
                             remedy="name it in `where` too")
        formats |= dict.fromkeys(named, one.format)
    needs_integers = not isinstance(by.method, Nearest) or by.activations is not None
    for name, form in formats.items():
        module = model.get_submodule(name)
        if type(module) not in PLAIN:
            raise InputError(f"{name} is {type(module).__name__}, no plain map", where="where",
                             remedy=f"leave it out: where=['*', '!{name}']")
        if needs_integers and not isinstance(form, Integers):
            what = by.method.kind if not isinstance(by.method, Nearest) else "activations"
            raise InputError(f"{what} needs whole numbers as weights, and {name} is to be {form.kind}", where="format",
                             remedy="use kind: integer, or the nearest numbers and no activations")
    refuse_shared(model, list(formats))
    return formats


def select_tables(model: Transformer, by: Quantization) -> list[str]:
    """Return the names of the tables that are meant. Raises `InputError` for tables that cannot be held in few bits."""
    if by.embeddings is None:
        return []
    if isinstance(model.embed.tokens, ClusterTables) or any(isinstance(one, AdaptiveHead) for one in model.modules()):
        raise InputError("the token table is in clusters, or shared with an adaptive output layer", where="embeddings",
                         remedy="leave the tables as they are: embeddings: null")
    language = model.config.output_layer
    tied = language is not None and language.tied
    return [name for name, module in list_tables(model) if not (tied and isinstance(module, LanguageHead))]


def refuse_shared(model: Transformer, names: Sequence[str]) -> None:
    """Raise `InputError` for a map whose matrix another module reads as its own."""
    owners: dict[int, list[str]] = {}
    for name, module in model.named_modules():
        for parameter in module._parameters.values():
            if parameter is not None:
                owners.setdefault(id(parameter), []).append(name)
    reads_maps = [one for one in model.modules() if isinstance(one, AdaptiveHead) and one.config.tied_maps]
    for name in names:
        module = model.get_submodule(name)
        shared = [one for one in owners[id(module.weight)] if one != name]
        if shared or (reads_maps and name.startswith(("embed.", "decoder_embed."))):
            raise InputError(f"{shared[0] if shared else 'the output layer'} has the matrix of {name} too",
                             where="where", remedy=f"leave it out: where=['*', '!{name}']")
