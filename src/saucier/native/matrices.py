"""Weights as the kernels read them: in which format a matrix is stored, and rounded to another one.

Arrays are numpy's; bfloat16, which numpy has not, is held as its bits in uint16.
Letters: O rows, I inputs, G groups of a row.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from ctypes import c_void_p
from ctypes import pointer as pointer_to
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import DTypeLike, NDArray

from saucier.errors import InputError
from saucier.native.library import (
    PANEL_ROWS,
    ROOM_TOKENS,
    SPARE_INPUTS,
    SUMMED_INPUTS,
    CMatrix,
    CPanels,
    CWideProduct,
    count_threads,
    load_library,
)

Array = NDArray[Any]
Format = Literal["float32", "bfloat16", "int8", "int4"]
"""In which numbers a matrix is read."""
CODES = {"float32": 0, "bfloat16": 1, "float16": 2, "int8": 3, "int4": 4}
"""Format -> its number in `saucier.h`."""
DTYPES = {np.dtype(np.float32): "float32", np.dtype(np.uint16): "bfloat16", np.dtype(np.float16): "float16"}
GROUP = 32
"""Inputs that share a scale in int4, where a matrix is rounded here; in int8 a whole row does."""
LINE = 64
"""Bytes of a line of the caches, and of the widest load."""
ROWS_AT_ONCE = 256
"""Rows that are rounded together, so that what is computed on the way stays in the cache."""


@dataclass(frozen=True)
class Matrix:
    """A matrix [O, I] row by row, as a table is read; it holds on to what its pointers point to."""

    format: Format
    codes: Array
    """[O, I] of its format, or codes: [O, I] bytes of int8, [O, ⌈I/2⌉] of int4."""
    inputs: int
    scales: Array | None = None
    """[O, G] float32 or float16."""
    group: int = 0
    step: float | None = None
    """What a code of its inputs stands for; None: each block of a token has a step of its own."""
    shifts: Array | None = None
    """[O, G] float32: by how much the weights of a group are larger than their codes say; None: by nothing."""
    order: Array | None = None
    """[I] int32: the input that each column is for; None: they are in order. Tables, whose rows are read, have none."""
    struct: CMatrix = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Point to the arrays."""
        scales = self.scales
        object.__setattr__(self, "struct", CMatrix(
            pointer(self.codes), pointer(scales), len(self.codes), self.inputs, self.group or self.inputs,
            CODES[self.format], 0 if scales is None else CODES[DTYPES[scales.dtype]], pointer(self.shifts)))

    @property
    def bytes(self) -> int:
        """What reading it once reads."""
        return count_bytes(self.codes, self.scales, self.shifts)

    @property
    def rows(self) -> int:
        """Numbers that it gives."""
        return len(self.codes)

    def values(self) -> NDArray[np.float64]:
        """Return the numbers that it stands for. Shapes: -> [O, I]."""
        if self.scales is None:
            return widen(self.codes).astype(np.float64)
        bits = 8 if self.format == "int8" else 4
        codes = unpack_codes(self.codes, self.inputs, bits).astype(np.float64) - 2**(bits - 1)
        found: NDArray[np.float64] = codes * np.repeat(self.scales.astype(np.float64), self.group, 1)[:, :self.inputs]
        if self.shifts is not None:
            found += np.repeat(self.shifts, self.group, 1)[:, :self.inputs]
        return found if self.order is None else found[:, np.argsort(self.order)]


@dataclass(frozen=True)
class Panels:
    """A matrix in panels of 16 rows; it holds on to what its pointers point to."""

    format: Format
    codes: Array
    """[P, I, 16] of float32, [P, ⌈I/2⌉, 16, 2] of bfloat16; codes of int8 [P, ⌈I/4⌉, 16, 4]; of int4, two a byte,
    [P, 4 ⌈I/32⌉, 16, 4]."""
    rows: int
    inputs: int
    scales: Array | None = None
    """[P, G, 16] float32 or float16."""
    group: int = 0
    step: float | None = None
    """As `Matrix.step`."""
    shifts: Array | None = None
    """[P, G, 16], as `Matrix.shifts`."""
    order: Array | None = None
    """As `Matrix.order`."""
    struct: CPanels = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Point to the arrays."""
        object.__setattr__(self, "struct", CPanels(
            pointer(self.codes), pointer(self.scales), self.rows, self.inputs, self.group or self.inputs,
            CODES[self.format], 0 if self.scales is None else CODES[DTYPES[self.scales.dtype]],
            -1 if self.step is None else self.step, pointer(self.shifts), pointer(self.order)))

    @property
    def bytes(self) -> int:
        """What reading it once reads."""
        return count_bytes(self.codes, self.scales, self.shifts)

    def take_rows(self, rows: Array) -> Panels:
        """Return the panels of some rows."""
        panels, places = np.divmod(rows, PANEL_ROWS)
        words = self.codes if self.codes.ndim == 3 else self.codes.view(np.uint32)[..., 0]
        laid = panel_rows(words[panels, :, places])
        codes = laid.view(self.codes.dtype).reshape(*laid.shape, *self.codes.shape[3:])
        scales, shifts = (None if one is None else panel_rows(one[panels, :, places])
                          for one in (self.scales, self.shifts))
        return replace(self, codes=codes, rows=len(rows), scales=scales, shifts=shifts)


def lay_out_panels(matrix: Matrix) -> Panels:
    """Return a matrix in panels of 16 rows. Shapes: [O, I] -> [P, I, 16], P = ⌈O/16⌉."""
    rows, inputs, scales = len(matrix.codes), matrix.inputs, matrix.scales
    if matrix.format == "float32":
        return Panels(matrix.format, panel_rows(matrix.codes), rows, inputs)
    if scales is None:
        laid = panel_rows(np.pad(matrix.codes, ((0, 0), (0, inputs % 2))).view(np.uint32))
        return Panels(matrix.format, laid.view(np.uint16).reshape(*laid.shape, 2), rows, inputs)
    if matrix.format == "int4":
        codes = np.pad(unpack_codes(matrix.codes, inputs, 4), ((0, 0), (0, -inputs % SUMMED_INPUTS)))
        units = codes.reshape(rows, -1, 2, SUMMED_INPUTS // 2)
        joined: Array = (units[:, :, 0] | units[:, :, 1] << 4).reshape(rows, -1).view(np.uint32)
    else:
        joined = np.pad(matrix.codes, ((0, 0), (0, -inputs % 4))).view(np.uint32)
    laid = panel_rows(joined)
    return Panels(matrix.format, laid.view(np.uint8).reshape(*laid.shape, -1), rows, inputs, panel_rows(scales),
                  matrix.group, matrix.step, None if matrix.shifts is None else panel_rows(matrix.shifts), matrix.order)


def count_bytes(*arrays: Array | None) -> int:
    """Return the bytes of arrays, of those that there are."""
    return sum(one.nbytes for one in arrays if one is not None)


def panel_rows(array: Array) -> Array:
    """Cut into panels of 16 rows and put a panel's rows side by side. Shapes: [O, N] -> [P, N, 16]."""
    found = aligned_zeros((-(-len(array) // PANEL_ROWS), array.shape[1], PANEL_ROWS), array.dtype)
    whole = len(array) // PANEL_ROWS
    found[:whole] = array[:whole * PANEL_ROWS].reshape(whole, PANEL_ROWS, array.shape[1]).swapaxes(1, 2)
    if left := len(array) % PANEL_ROWS:
        found[whole, :, :left] = array[-left:].T
    return found


def aligned_zeros(shape: tuple[int, ...], dtype: DTypeLike) -> Array:
    """Return zeros that begin with a line of the caches: where they do not, every load of a whole line reads two."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    room = np.zeros(size + LINE, np.uint8)
    start = -room.ctypes.data % LINE
    return room[start:start + size].view(dtype).reshape(shape)


def pointer(array: Array | None) -> c_void_p | None:
    """Return the address of an array that lies in memory without gaps."""
    assert array is None or array.flags.c_contiguous, "the kernels know no strides"
    return None if array is None else c_void_p(array.ctypes.data)


def widen(array: Array) -> NDArray[np.float32]:
    """Return floating-point numbers in float32; uint16 holds the bits of bfloat16."""
    if array.dtype == np.uint16:
        return (array.astype(np.uint32) << 16).view(np.float32)
    return np.ascontiguousarray(array, dtype=np.float32)


def narrow(array: NDArray[np.float32]) -> NDArray[np.uint16]:
    """Round to the nearest bfloat16, to the even one of two that are as near; returns their bits."""
    bits = np.ascontiguousarray(array).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def store_matrix(array: Array, form: Format) -> Matrix:
    """Return a matrix [O, I] in a format; as it is where it is stored so. Shapes: array float32, or bfloat16's bits."""
    rows, inputs = array.shape
    if DTYPES.get(array.dtype) == form:
        return Matrix(form, np.ascontiguousarray(array), inputs)
    pieces = [widen(array[start:start + ROWS_AT_ONCE]) for start in range(0, rows, ROWS_AT_ONCE)]
    match form:
        case "float32":
            return Matrix(form, np.concatenate(pieces), inputs)
        case "bfloat16":
            return Matrix(form, np.concatenate([narrow(piece) for piece in pieces]), inputs)
        case "int8":
            group, largest, scales_in = inputs, 127, "float32"
        case "int4":
            group, largest, scales_in = min(GROUP, inputs), 7, "float16"
    rounded = [round_groups(piece, group, largest, np.dtype(scales_in)) for piece in pieces]
    codes, scales = (np.concatenate(parts) for parts in zip(*rounded, strict=True))
    return Matrix(form, codes, inputs, scales, group)


def round_groups(piece: NDArray[np.float32], group: int, largest: int,
                 dtype: np.dtype[Any]) -> tuple[NDArray[np.uint8], Array]:
    """Round to the nearest steps of a symmetric range in each group of inputs. Shapes: [O, I] -> codes, scales [O, G].

    The storage, and the steps, are those of `saucier.adaptation.quantization.formats`.
    """
    rows, inputs = piece.shape
    grouped = np.pad(piece, ((0, 0), (0, -inputs % group))).reshape(rows, -1, group)
    scales = (np.abs(grouped).max(-1) / largest).astype(dtype)
    steps = scales.astype(np.float32)[..., None]
    codes = np.divide(grouped, steps, out=np.zeros_like(grouped), where=steps > 0)
    codes = np.clip(np.rint(codes), -largest, largest).reshape(rows, -1)[:, :inputs] + (largest + 1)
    stored = codes.astype(np.uint8)
    if largest == 127:
        return stored, scales
    return pack_codes(stored, 4), scales


def read_matrix(weights: Mapping[str, Array], name: str, inputs: int, form: Format) -> Matrix:
    """Return a map's matrix from a model's weights, in `form` or, where it is stored in few bits, as it is stored.

    Raises `InputError` for numbers that the kernels do not read.
    """
    if f"{name}.codes" not in weights:
        return store_matrix(weights[f"{name}.weight"], form)
    codes, scales = weights[f"{name}.codes"], weights.get(f"{name}.scales")
    bits = codes.shape[-1] * 8 // inputs if codes.ndim == 2 else 0
    if bits not in (4, 8) or scales is None or scales.ndim != 2:
        raise InputError(f"the numbers of {name} are not integers of 4 or 8 bits, which the native kernels read",
                         where="engine", remedy="use engine=None")
    groups = scales.shape[1]
    group, index = -(-inputs // groups), weights.get(f"{name}.index")
    uneven = index is not None and (np.bincount(index, minlength=groups) != group).any()
    if (groups > 1 and (inputs % groups or group % 32)) or uneven:
        raise InputError(f"{name} has {groups} groups for {inputs} inputs, and the native kernels read groups of a "
                         "multiple of 32, all of one size", where="engine", remedy="use engine=None")
    scales, step = scales if scales.dtype == np.float16 else widen(scales), weights.get(f"{name}.input_scale")
    shifts, zeros, order = None, weights.get(f"{name}.zeros"), None
    if index is not None:
        order = np.argsort(index, kind="stable").astype(np.int32)
        codes = pack_codes(np.ascontiguousarray(unpack_codes(codes, inputs, bits)[:, order]), bits)
    if zeros is not None:
        codes, scales, shifts = centre(codes, scales, unpack_codes(zeros, groups, bits).astype(np.int16), bits)
    return Matrix("int4" if bits == 4 else "int8", codes, inputs, scales, group, None if step is None else float(step),
                  shifts, order)


def is_in_few_bits(names: Iterable[str]) -> bool:
    """Say whether a model with weights of these names has some in codes, which its own parts widen for each product."""
    return any(name.endswith(".codes") for name in names)


def unpack_codes(packed: Array, count: int, bits: int) -> Array:
    """Take codes of 8 bits, or of 4, two a byte, the earlier one in the low half. Shapes: [O, bytes] -> [O, count]."""
    found = packed if bits == 8 else np.stack([packed & 15, packed >> 4], -1).reshape(len(packed), -1)
    return found[:, :count]


def pack_codes(codes: Array, bits: int) -> Array:
    """Put them back. Shapes: [O, I] -> [O, bytes]."""
    if bits == 8:
        return codes
    padded = np.pad(codes, ((0, 0), (0, codes.shape[1] % 2)))
    found: Array = padded[:, ::2] | padded[:, 1::2] << 4
    return found


def centre(codes: Array, scales: Array, zeros: NDArray[np.int16], bits: int) -> tuple[Array, Array, Array | None]:
    """Return codes, scales and shifts [O, G] of the numbers `scale * (code - zero)`, which the kernels read as
    `scale * (code - middle) + shift`; no shifts where there is another way.

    A zero point just below the middle is one in the middle with codes and scale turned round: 4 bits of GGUF, whose
    scales may be negative, are stored so. Shapes: codes [O, bytes], scales and zeros [O, G].
    """
    middle = 2**(bits - 1)
    turned = zeros == middle - 1
    if (turned | (zeros == middle)).all():
        bytes_of_group = -(-codes.shape[1] // turned.shape[1])
        flips = np.repeat(turned.astype(np.uint8) * np.uint8(255), bytes_of_group, 1)[:, :codes.shape[1]]
        return codes ^ flips, np.where(turned, -scales, scales), None
    return codes, scales, widen(scales) * (middle - zeros).astype(np.float32)


@dataclass
class Weights:
    """A model's weights as the kernels read them, each made once."""

    arrays: Mapping[str, Array]
    """Name -> float32, or the bits of bfloat16; of matrices in few bits `codes` and `scales`."""
    form: Format
    """The format that matrices are read in."""
    made: dict[str, Any] = field(default_factory=dict)

    def panels(self, name: str, inputs: int, form: Format | None = None) -> Panels:
        """Return the matrix of a map in panels; `form`: None: the format that matrices are read in."""
        key = f"{name} panels" if form is None else f"{name} panels of {form}"
        if key not in self.made:
            self.made[key] = lay_out_panels(read_matrix(self.arrays, name, inputs, form or self.form))
        found: Panels = self.made[key]
        return found

    @property
    def is_rounded(self) -> bool:
        """Whether some of these matrices are of other numbers than float32."""
        return self.form != "float32" or is_in_few_bits(self.arrays)

    def stored_format(self, name: str) -> Format:
        """Return the format of a matrix as it is stored; float32 of one in few bits."""
        stored = self.arrays.get(f"{name}.weight")
        return "float32" if stored is None or stored.dtype == np.float32 else "bfloat16"

    def table(self, name: str, width: int) -> Matrix:
        """Return a table of vectors as it is stored: only few rows of it are read."""
        key = f"{name} table"
        if key not in self.made:
            self.made[key] = read_matrix(self.arrays, name, width, self.stored_format(name))
        found: Matrix = self.made[key]
        return found

    def vector(self, name: str) -> Array | None:
        """Return a gain or a bias in float32; None where there is none."""
        if name not in self.arrays:
            return None
        if name not in self.made:
            self.made[name] = widen(self.arrays[name])
        found: Array = self.made[name]
        return found


def make_tiles(tokens: int, inputs: int) -> tuple[Array, Array]:
    """Return room for what products make of so many tokens, and for its scales; see `WideProduct` in `saucier.h`."""
    whole = -(-tokens // ROOM_TOKENS) * ROOM_TOKENS
    return (aligned_zeros((whole * (inputs + SPARE_INPUTS),), np.float32),
            np.empty(whole * -(-inputs // SUMMED_INPUTS), np.float32))


def multiply_vector(matrix: Panels, vector: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the product of a matrix of whole numbers and a vector, which is rounded.

    Shapes: matrix [O, I], vector [I] -> [O]. Errors: `InputError` for another width; `WorkError` without a compiler.
    """
    if vector.shape != (matrix.inputs,):
        raise InputError(f"has the shape {list(vector.shape)}", where="vector", remedy=f"give {matrix.inputs} numbers")
    found: NDArray[np.float32] = multiply_vectors(matrix, vector[None], None, threads=count_threads())[0]
    return found


def multiply_vectors(matrix: Panels, vectors: NDArray[np.float32], bias: Array | None, *, activation: int = 0,
                     threads: int) -> Array:
    """Return the products of a matrix and vectors; `activation`: as numbered in `saucier.h`.

    Shapes: matrix [O, I], vectors [T, I], bias [O] -> [T, O].
    """
    library, values = load_library(), np.ascontiguousarray(vectors, np.float32)
    found = np.empty((len(values), matrix.rows), np.float32)
    tiles, scales = make_tiles(len(values), matrix.inputs)
    product = CWideProduct(pointer_to(matrix.struct), pointer(values), matrix.inputs, len(values), pointer(tiles),
                           pointer(scales), pointer(bias), pointer(found), matrix.rows, activation, 0, None)
    library.saucier_multiply(library.saucier_best_path(), pointer_to(product), threads)
    return found
