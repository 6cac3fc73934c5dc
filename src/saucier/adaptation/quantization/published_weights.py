"""Published folders in few bits (GPTQ, AWQ, compressed-tensors): their matrices as maps of ours with the same numbers,
and maps of ours as a folder of compressed-tensors.

Nothing is rounded again. Letters: O outputs, I inputs, G groups of a row.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn

from saucier.adaptation.quantization.maps import QuantizedLinear, QuantizedMatrix, list_matrices
from saucier.adaptation.quantization.published_codes import (
    DAMAGED,
    Codes,
    Read,
    describe_packed,
    is_centred,
    read_awq,
    read_gptq,
    read_gptq_zeros,
    read_int8,
    read_order,
    read_packed,
    unpack_words,
    write_packed,
)
from saucier.adaptation.quantization.published_config import FIRST, SECOND, read_scheme
from saucier.adaptation.quantization.schemes import Integers, StoredMatrix
from saucier.adaptation.quantization.storage import check_matrices, put_matrix, replace_modules
from saucier.checkpoints.published_names import BASE, PublishedNames, find_stored_names
from saucier.checkpoints.weight_files import Weights, check_shape
from saucier.checkpoints.weight_names import Concat, HeadByHead, Operation, Same, Transpose
from saucier.errors import InputError
from saucier.model import Transformer
from saucier.parts.heads import LanguageHead
from saucier.parts.linear import Linear, PartlyBiased

ENDS = {"gptq": ("qweight", "qzeros", "scales", "g_idx"), "awq": ("qweight", "qzeros", "scales"),
        "pack-quantized": ("weight_packed", "weight_scale", "weight_shape", "weight_zero_point", "weight_g_idx"),
        "int-quantized": ("weight_scale", "weight", "weight_zero_point")}
"""Layout -> ends of the names of a matrix's tensors; the first is there in no other kind of module."""
WRITTEN_BITS = (4, 8)
"""Bits that all versions of compressed-tensors pack alike, and that servers read."""
CLEAR = 0.25
"""How near to 0 or 1 the mean of codes less zero points must be, to say which format of GPTQ they are in."""
ENOUGH = 2**22
"""Codes that are looked at for it."""
FLOAT_REMEDY = "use the folder in float, and quantize it here"


class QuantizedWeights:
    """The tensors of a published folder in few bits, with its matrices under the names of the float ones.

    A matrix that was taken into the model is no longer among the names.
    """

    def __init__(self, base: Weights, said: Any) -> None:
        """Find the matrices; `said` is what the config says of them.

        Raises `InputError` for a config that cannot be read, and where there is no matrix.
        """
        self.base, self.where = base, str(base.folder)
        self.scheme = read_scheme(said, f"{base.folder / 'config.json'}")
        ends = ENDS[self.scheme.layout]
        self.modules = {name.removesuffix(f".{ends[0]}"): None for name in base if name.endswith(f".{ends[0]}")}
        owned = {f"{module}.{end}" for module in self.modules for end in ends}
        self.plain = [name for name in base if name not in owned]
        self.taken: set[str] = set()
        if not self.modules:
            raise InputError(f"the config says {self.scheme.layout}, and the files have no {ends[0]}", where=self.where,
                             remedy=DAMAGED)
        self.shift = self.find_shift() if self.scheme.layout == "gptq" else 0
        if self.scheme.rounds_inputs:
            warnings.warn(f"{self.where}: the config rounds the inputs of maps too; here they stay as they are",
                          stacklevel=2)

    @property
    def size(self) -> int:
        """Bytes of the files, were their matrices in two bytes a number."""
        bits = min(one.bits for one in self.scheme.groupings)
        words = sum(self.base.read_any(f"{module}.{end}").nbytes for module in self.modules
                    for end in ("qweight", "weight_packed", "weight") if f"{module}.{end}" in self.base)
        return self.base.size + words * 16 // bits

    @property
    def method(self) -> str:
        """How the codes were found, and for GPTQ in which of its formats they are."""
        return (FIRST if self.shift else SECOND) if self.scheme.layout == "gptq" else self.scheme.layout

    def holds(self, name: str) -> bool:
        """Say whether a weight is in few bits."""
        return name.endswith(".weight") and name.removesuffix(".weight") in self.modules

    def __contains__(self, name: object) -> bool:
        """Say whether there is a tensor of this name, or a matrix."""
        return isinstance(name, str) and (self.holds(name) or name in self.base)

    def __iter__(self) -> Iterator[str]:
        """Name the tensors, and the matrices that are not in the model yet."""
        yield from (name for name in self.plain if name not in self.taken)
        yield from (name for module in self.modules if (name := f"{module}.weight") not in self.taken)

    def __getitem__(self, name: str) -> Tensor:
        """Return a tensor, or the numbers of a matrix. Raises `KeyError` and `InputError`."""
        return self.read_codes(name).values() if self.holds(name) else self.base[name]

    def write(self, name: str, target: Tensor) -> None:
        """Write a tensor into memory of its shape. Raises as `[]`, and `ValueError` for another shape."""
        if self.holds(name):
            target.copy_(check_shape(self[name], target))
        else:
            self.base.write(name, target)

    def reader(self, module: str) -> Read:
        """Return what reads the tensors of a matrix."""
        def read(end: str) -> Tensor:
            if f"{module}.{end}" not in self.base:
                raise InputError(f"{module}.{end} is missing", where=self.where, remedy=DAMAGED)
            return self.base.read_any(f"{module}.{end}")

        return read

    def read_codes(self, name: str) -> Codes:
        """Return a matrix. Raises `InputError` for tensors that do not fit together."""
        module = name.removesuffix(".weight")
        read, groupings = self.reader(module), self.scheme.groupings
        try:
            match self.scheme.layout:
                case "gptq":
                    return read_gptq(read, groupings[0], self.shift)
                case "awq":
                    return read_awq(read, groupings[0])
                case "pack-quantized":
                    return read_packed(read, groupings)
                case _:
                    return read_int8(read, groupings)
        except ValueError as error:
            raise InputError(f"{module}: {error}", where=self.where, remedy=DAMAGED) from error

    def find_shift(self) -> int:
        """Return what is to be added to the zero points of GPTQ: 1 in its first format, 0 in the second.

        The values decide. Where all are one number, it must be the middle, or one less. Else the codes lie around their
        zero points, so that the mean of the difference says it. Raises `InputError` where it does not, or where the
        first format would have a zero point beyond the bits.
        """
        bits, middle = self.scheme.groupings[0].bits, 2 ** (self.scheme.groupings[0].bits - 1)
        lowest, highest = self.zero_range(bits)
        if lowest == highest and middle - lowest in (0, 1):
            found = middle - lowest
        elif self.scheme.symmetric:
            raise InputError(f"sym is true, and qzeros has values from {lowest} to {highest}", where=self.where,
                             remedy=DAMAGED)
        else:
            found = self.shift_of_means(bits, highest)
        if bits == 8 and lowest != highest and self.scheme.said_format == (SECOND if found else FIRST):
            raise self.unclear("8 bits are too fine to say that checkpoint_format is wrong")
        if self.scheme.said_format == (SECOND if found else FIRST):
            warnings.warn(f"{self.where}: checkpoint_format says {self.scheme.said_format}, and the zero points are "
                          f"those of {FIRST if found else SECOND}; they are read so", stacklevel=3)
        return int(found)

    def zero_range(self, bits: int) -> tuple[int, int]:
        """Return the lowest and the highest zero point of GPTQ, as they are stored."""
        ranges = []
        for module in self.modules:
            try:
                ranges.append(read_gptq_zeros(self.reader(module), bits).aminmax())
            except ValueError as error:
                raise InputError(f"{module}: {error}", where=self.where, remedy=DAMAGED) from error
        return min(int(low) for low, _ in ranges), max(int(high) for _, high in ranges)

    def shift_of_means(self, bits: int, highest: int) -> int:
        """Return the shift by which codes lie around their zero points. Raises `InputError` where it is not clear."""
        total = count = 0
        for module in self.modules:
            read, grouping = self.reader(module), self.scheme.groupings[0]
            words, zeros = read("qweight"), read_gptq_zeros(read, bits)
            inputs = words.shape[0] * 32 // bits
            shape = (grouping.groups(inputs), words.shape[-1])
            if words.dim() != 2 or words.dtype != torch.int32 or tuple(zeros.shape) != shape:
                raise InputError(f"{module}: qweight {list(words.shape)} and qzeros {list(zeros.shape)} do not fit "
                                 "together", where=self.where, remedy=DAMAGED)
            order = read_order(read, "g_idx", inputs, grouping)
            groups = torch.arange(inputs) // (grouping.group or inputs) if order is None else order.long()
            sizes = groups.bincount(minlength=len(zeros))
            total += int(unpack_words(words.T, inputs, bits).sum()) - int((zeros.sum(1) * sizes).sum())
            count += inputs * words.shape[1]
            if count >= ENOUGH:
                break
        mean = total / count
        found = 1 if abs(mean - 1) < CLEAR else 0 if abs(mean) < CLEAR else None
        beyond = highest == 2**bits - 1
        if found == 1 and beyond:
            raise self.unclear(f"the first format would have a zero point of {2**bits}")
        if found is None and beyond:
            return 0
        if found is None:
            raise self.unclear(f"codes are {mean:.2f} above what is stored on average, where 1 or 0 would say it")
        return found

    def unclear(self, why: str) -> InputError:
        """Return the error for zero points whose format cannot be told."""
        return InputError(f"qzeros may hold zero points or zero points - 1: {why}", where=self.where,
                          remedy=FLOAT_REMEDY)


def install_published(source: QuantizedWeights, model: Transformer, names: PublishedNames) -> None:
    """Put the matrices of a folder into a model of shapes, the rest of which is filled later.

    Raises `InputError` for a matrix that is no map here, does not fit, or is in few bits only in part.
    """
    found: dict[str, nn.Module] = {}
    for name, module in list(model.named_modules()):
        if type(module) not in (Linear, PartlyBiased, nn.Linear, LanguageHead) or "weight" not in module._parameters:
            continue
        given, operation = find_matrix(source, names, f"{name}.weight")
        if not given:
            continue
        weight = cast(nn.Parameter, module.weight)
        codes = join_rows(source, given, operation)
        if codes.codes.shape != weight.shape:
            raise InputError(f"{', '.join(given)} gives {list(codes.codes.shape)} instead of {list(weight.shape)}",
                             where=source.where, remedy=DAMAGED)
        refuse_bias(source, given, cast(Tensor | None, module.bias))
        form, parts = codes.store()
        found[name] = put_matrix(module, StoredMatrix(
            part="output" if isinstance(module, LanguageHead) else "map", shape=(weight.shape[0], weight.shape[1]),
            format=form, method=source.method), parts)
        source.taken.update(given)
    replace_modules(model, found)
    for name, _ in model.named_parameters():
        if given := find_matrix(source, names, name)[0]:
            raise InputError(f"{given[0]} is in few bits, and {name} can only be held in float here",
                             where=source.where, remedy=FLOAT_REMEDY)
    check_matrices(model, source.where)


def find_matrix(source: QuantizedWeights, names: PublishedNames, ours: str) -> tuple[list[str], Operation]:
    """Return the published names of a weight that is in few bits, none where it is not, and what puts them together.

    Raises `InputError` where only some of them are.
    """
    rule = names.rules.match(ours)
    if rule is None:
        return [], Same()
    given = [name for name in find_stored_names(names, rule, source) if name is not None]
    held = [name for name in given if source.holds(name)]
    if held and len(held) != len(rule.foreign):
        other = next((name for name in given if name not in held), rule.foreign[-1].replace(BASE, names.layout.base))
        raise InputError(f"{held[0]} is in few bits and {other} is not, and here they are one map", where=source.where,
                         remedy=FLOAT_REMEDY)
    return held, rule.operation


def join_rows(source: QuantizedWeights, given: Sequence[str], operation: Operation) -> Codes:
    """Return our matrix for published ones, whose rows an operation puts in order. Raises `InputError` where they
    cannot be one.
    """
    found = [source.read_codes(name) for name in given]
    first = found[0]
    kinds = [(one.bits, one.group, one.scales.dtype, None if one.index is None else one.index.tolist())
             for one in found]
    if different := next((name for name, one in zip(given, kinds, strict=True) if one != kinds[0]), None):
        raise InputError(f"{given[0]} and {different} differ in bits, groups, their order or scales, and here they "
                         "are one map", where=source.where, remedy=FLOAT_REMEDY)
    try:
        match operation:
            case Same():
                return first
            case Transpose() if source.scheme.layout == "gptq":  # which stores turned maps as all others
                return first
            case Concat() | HeadByHead():
                return Codes(operation.ours([one.codes.contiguous() for one in found]),
                             operation.ours([one.scales.contiguous() for one in found]),
                             operation.ours([one.zeros.contiguous() for one in found]), first.bits, first.group,
                             first.index)
    except (ValueError, RuntimeError) as error:
        raise InputError(f"{', '.join(given)}: {error}", where=source.where, remedy=DAMAGED) from error
    raise InputError(f"{given[0]} is in another order here ({type(operation).__name__}), which few bits cannot follow",
                     where=source.where, remedy=FLOAT_REMEDY)


def refuse_bias(source: QuantizedWeights, given: Sequence[str], bias: Tensor | None) -> None:
    """Take the biases of zeros that some writers give to maps without one. Raises `InputError` for any other."""
    if bias is not None:
        return
    for name in (f"{one.removesuffix('weight')}bias" for one in given):
        if name in source.base:
            if bool(source.base[name].any()):
                raise InputError(f"{name} is not zero, and the config says that this map has no bias",
                                 where=source.where, remedy=DAMAGED)
            source.taken.add(name)


def express_packed(model: Transformer, names: PublishedNames) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the matrices of a model as tensors of compressed-tensors (pack-quantized), and what its config says.

    Raises `InputError` for what this layout cannot hold, by name.
    """
    held = {name: matrix for name, matrix in list_matrices(model).items() if is_writable(name, matrix, names)}
    parts = {name: {part: one.cpu() for part, one in matrix.parts().items()} for name, matrix in held.items()}
    symmetric = all(is_centred(parts[name], cast(Integers, matrix.store)) for name, matrix in held.items())
    tensors: dict[str, Tensor] = {}
    groups: list[tuple[dict[str, Any], list[str]]] = []
    for name, matrix in held.items():
        rule, form = names.rules.match(f"{name}.weight"), cast(Integers, matrix.store)
        assert rule is not None, "is_writable refuses it"
        written = write_packed(parts[name], matrix.shape, form, partial(split_rows, rule.operation), symmetric)
        modules = [one.replace(BASE, names.layout.base_of(names.published)).removesuffix(".weight")
                   for one in rule.foreign]
        tensors |= {f"{module}.{end}": part for module, some in zip(modules, written, strict=True)
                    for end, part in some.items()}
        said = describe_packed(matrix.shape, form, symmetric)
        members = next((some for one, some in groups if one == said), None)
        if members is None:
            groups.append((said, members := []))
        members += modules
    return tensors, {"quant_method": "compressed-tensors", "format": "pack-quantized", "quantization_status":
                     "compressed", "ignore": [], "config_groups": {
                         f"group_{index}": {"targets": members, "weights": said, "input_activations": None,
                                            "output_activations": None, "format": "pack-quantized"}
                         for index, (said, members) in enumerate(groups)}}


def split_rows(operation: Operation, rows: Tensor) -> list[Tensor]:
    """Return the rows of published maps from those of ours."""
    return operation.theirs(rows.contiguous())


def is_writable(name: str, matrix: QuantizedMatrix, names: PublishedNames) -> bool:
    """Return True. Raises `InputError` for a matrix that compressed-tensors cannot hold."""
    rule = names.rules.match(f"{name}.weight")
    form = matrix.store
    if not isinstance(matrix, QuantizedLinear):
        what, remedy = "is a table in few bits", "quantize with embeddings: null"
    elif not isinstance(form, Integers) or form.bits not in WRITTEN_BITS:
        what = f"is in {f'{form.bits} bits' if isinstance(form, Integers) else form.kind}"
        remedy = "use kind: integer with 4 or 8 bits"
    elif matrix.activations is not None:
        what, remedy = "rounds its inputs", "quantize without activations"
    elif form.group and form.group < matrix.in_features and matrix.in_features % form.group:
        what = f"has {matrix.in_features} inputs in groups of {form.group}"
        remedy = "use a group that divides them"
    elif rule is None or not isinstance(rule.operation, Same | Concat | HeadByHead):
        what, remedy = f"has no map of its own in the layout of {names.layout.model_type}", "use our own layout (own)"
    else:
        return True
    raise InputError(f"{name} {what}, which a published layout (compressed-tensors) cannot hold", where="layout",
                     remedy=f"{remedy}; our own layout (own) holds it, dequantize_model(model) gives floats")
