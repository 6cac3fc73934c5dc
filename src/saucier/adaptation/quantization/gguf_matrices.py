"""Matrices of GGUF files that stay in few bits: blocks of 32 in eight or four bits, which our storage holds exactly.

All others are widened to float when they are read. Letters: O outputs, I inputs, G groups of a row.
"""

from __future__ import annotations

import warnings
from collections import Counter
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn

from saucier.adaptation.quantization.published_codes import Codes
from saucier.adaptation.quantization.schemes import StoredMatrix, StoredPart
from saucier.adaptation.quantization.storage import check_matrices, put_matrix, replace_modules
from saucier.checkpoints.gguf_blocks import read_codes
from saucier.checkpoints.gguf_weights import GgufWeights
from saucier.checkpoints.published_names import PublishedNames, find_stored_names
from saucier.model import Transformer
from saucier.parts.heads import LanguageHead
from saucier.parts.linear import Linear, PartlyBiased, Table

GROUP = 32
BITS = {"Q8_0": 8, "Q4_0": 4}
"""Number formats whose blocks are kept -> their bits."""
HELD: dict[type[nn.Module], StoredPart] = {Linear: "map", PartlyBiased: "map", nn.Linear: "map", Table: "table",
                                           nn.Embedding: "table", LanguageHead: "output"}
"""Module -> what a matrix in few bits is of."""


def install_blocks(source: GgufWeights, model: Transformer, names: PublishedNames) -> None:
    """Put the matrices of a file that can be kept in few bits into a model of shapes; the rest is filled later.

    A warning counts the tensors in few bits that are widened.
    """
    found: dict[str, nn.Module] = {}
    for name, module in list(model.named_modules()):
        part = HELD.get(type(module))
        if part is None or "weight" not in module._parameters:
            continue
        codes = read_matrix(source, names, f"{name}.weight")
        weight = cast(nn.Parameter, module.weight)
        if codes is None or codes.codes.shape != weight.shape:
            continue
        form, parts = codes.store()
        found[name] = put_matrix(module, StoredMatrix(part=part, shape=(weight.shape[0], weight.shape[1]), format=form,
                                                      method="gguf"), parts)
        source.taken.update(list_names(source, names, f"{name}.weight"))
    replace_modules(model, found)
    check_matrices(model, source.where)
    kept = {source.places[name][0].ours for name in source.taken}
    widened = Counter(one.blocks.name for one in source.file.tensors.values()
                      if one.blocks.count > 1 and one.name not in kept)
    if widened:
        said = ", ".join(f"{count:,} in {kind}" for kind, count in widened.items())
        warnings.warn(f"{source.where}: widened to float, since we hold no such numbers: {said} tensors", stacklevel=2)


def list_names(source: GgufWeights, names: PublishedNames, ours: str) -> list[str]:
    """Return the published names that make a weight; none where one of them is missing."""
    rule = names.rules.match(ours)
    if rule is None:
        return []
    given = [name for name in find_stored_names(names, rule, source) if name is not None]
    return given if len(given) == len(rule.foreign) else []


def read_matrix(source: GgufWeights, names: PublishedNames, ours: str) -> Codes | None:
    """Return a weight [O, I] in few bits; None where the file has it, or a part of it, in another format."""
    rule, given = names.rules.match(ours), list_names(source, names, ours)
    kinds = {source.file.tensors[source.places[name][0].ours].blocks.name for name in given}
    if rule is None or not given or len(kinds) != 1 or (kind := next(iter(kinds))) not in BITS:
        return None
    found = [read_parts(source, name) for name in given]
    try:
        codes, scales, zeros = (rule.operation.ours([one[place] for one in found]).contiguous() for place in range(3))
    except (ValueError, RuntimeError):  # rows that do not fit: whoever fills the weights says which
        return None
    if codes.dim() != 2 or codes.shape[1] % GROUP or scales.shape != (len(codes), codes.shape[1] // GROUP):
        return None
    return Codes(codes.int(), scales, zeros.int(), BITS[kind], GROUP)


def read_parts(source: GgufWeights, name: str) -> tuple[Tensor, Tensor, Tensor]:
    """Return codes, scales and zero points of a published name."""
    stored = source.places[name][0].ours
    place = source.file.tensors[stored]
    parts = read_codes(place.kind, source.file.read_blocks(stored))
    assert parts is not None, "its format is known"
    groups = (*place.shape[:-1], place.shape[-1] // GROUP)
    shapes = (place.shape, groups, groups)
    codes, scales, zeros = (source.take(name, torch.from_numpy(np.ascontiguousarray(one)).reshape(shape))
                            for one, shape in zip(parts, shapes, strict=True))
    return codes, scales, zeros
