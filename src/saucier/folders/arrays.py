"""A decoder in a published layout opened from its files without torch, its weights read when the plan asks for them.

Only what is plain: a decoder alone whose every number is in safetensors as float32 or float16. Anything else, and
whatever is wrong, is left to `load`, which reads it or says what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast, get_args

import numpy as np
from safetensors import SafetensorError, safe_open

from saucier.checkpoints.layout import MODEL_TYPE, QUANTIZATION, saved_class
from saucier.checkpoints.published_names import (
    PublishedNames,
    find_stored_names,
    read_generation_defaults,
    resolve_names,
)
from saucier.checkpoints.sentence_modules import is_sentence_folder
from saucier.checkpoints.weight_files import current_name, shard_paths
from saucier.checkpoints.weight_names import Rule
from saucier.config.counting.model import parameters
from saucier.errors import InputError
from saucier.families import find_layout
from saucier.files import read_json
from saucier.generation.plan_feed import limit_threads
from saucier.native.lowered import (
    KeptTables,
    LoweredModel,
    Packed,
    count_kept_places,
    list_states,
    remember_lowered,
)
from saucier.native.lowering import Tables
from saucier.native.matrices import Array, Format, Weights
from saucier.native.packed import (
    OWN_PARTS,
    digest_files,
    keep_packed,
    name_choice,
    name_packed,
    read_choice,
    read_packed,
)

FLOATS = ("F16", "F32")
COLUMNS_AT_ONCE = 64


class NotPlainError(Exception):
    """What only `load` can read, or what is wrong with a folder, which `load` says."""


class ArrayFiles:
    """The safetensors files of a folder, as numpy reads them."""

    def __init__(self, folder: Path) -> None:
        """Open them. Raises `InputError` where they are missing, and `NotPlainError` for other files."""
        self.paths = shard_paths(folder)
        self.places: dict[str, tuple[Any, str]] = {}
        for path in self.paths:
            if path.suffix != ".safetensors":
                raise NotPlainError
            file: Any = safe_open(path, framework="numpy")
            for stored in file.keys():  # noqa: SIM118  # not a dict: the file has no iterator
                if current_name(stored) in self.places or file.get_slice(stored).get_dtype() not in FLOATS:
                    raise NotPlainError
                self.places[current_name(stored)] = file, stored

    @property
    def size(self) -> int:
        """Bytes of all files together."""
        return sum(path.stat().st_size for path in self.paths)

    def __contains__(self, name: object) -> bool:
        """Say whether there is an array of this name."""
        return name in self.places

    def __iter__(self) -> Iterator[str]:
        """Name the arrays."""
        return iter(self.places)

    def __getitem__(self, name: str) -> Array:
        """Return an array in float32. Raises `KeyError` for an unknown name."""
        file, stored = self.places[name]
        found: Array = file.get_tensor(stored).astype(np.float32, copy=False)
        return found


class PublishedArrays(Mapping[str, Array]):
    """Weights under our names, made of what the files hold each time that they are asked for."""

    def __init__(self, names: PublishedNames, files: Any) -> None:
        """Take the names of a decoder's weights, and its files: a source of arrays in place of tensors."""
        self.names, self.files = names, files
        self.table: Array | None = None
        """A token table that is the output matrix too: it is read once."""
        self.read: dict[str, int] = {}
        """How many numbers those have that were asked for."""
        self.used: set[str] = set()
        """Their names in the files."""
        head = names.tree.output_layer
        place = "head" if head is names.tree.head else "head.language"
        self.tied = {f"{place}.weight": "embed.tokens.weight"} if head is not None and head.tied else {}

    def find(self, name: str) -> tuple[Rule, list[str]] | None:
        """Return the rule of a weight and what the files hold of it; None where they hold nothing."""
        rule = self.names.rules.match(self.tied.get(name, name))
        found = [] if rule is None else [one for one in find_stored_names(self.names, rule, self.files) if one]
        if rule is not None and rule.absent is not None and not found:
            raise NotPlainError
        return (rule, found) if rule is not None and found else None

    def __contains__(self, name: object) -> bool:
        """Say whether the files hold a weight."""
        return isinstance(name, str) and self.find(name) is not None

    def __getitem__(self, name: str) -> Array:
        """Return a weight. Raises `KeyError` for one that the files do not hold."""
        if name in self.tied and self.table is not None:
            return self.table
        if (found := self.find(name)) is None:
            raise KeyError(name)
        made = lay_out_rows(found[0].operation.ours([self.files[one] for one in found[1]]))
        self.used.update(found[1])
        self.read[self.tied.get(name, name)] = made.size
        if name in self.tied.values():
            self.table = made
        return made

    def __iter__(self) -> Iterator[str]:
        """Name those that were asked for."""
        return iter([*self.read, *self.tied])

    def __len__(self) -> int:
        """Count them."""
        return len(self.read) + len(self.tied)

    def check_whole(self) -> None:
        """Raise `NotPlainError` where the plan did not read every parameter, or the files hold unknown ones."""
        unknown = any(name not in self.used and not self.names.spare(name) for name in self.files)
        if unknown or sum(self.read.values()) != parameters(self.names.tree):
            raise NotPlainError


def lay_out_rows(array: Any) -> Array:
    """Return an array without gaps; of a turned matrix a few columns at a time, which the cache holds."""
    if array.ndim != 2 or array.flags.c_contiguous:
        return np.ascontiguousarray(array)
    found = np.empty(array.shape, array.dtype)
    for start in range(0, array.shape[1], COLUMNS_AT_ONCE):
        found[:, start:start + COLUMNS_AT_ONCE] = array[:, start:start + COLUMNS_AT_ONCE]
    return found


def open_published_arrays(folder: Path, form: str, compute: Callable[[], Tables]) -> LoweredModel | None:
    """Open a folder and keep what its plan reads for the next start; None for what only `load` reads.

    `compute` gives what computes tables of positions.
    """
    if form not in ("auto", *get_args(Format)):
        return None
    try:
        return lower_folder(folder, form, compute)
    except (NotPlainError, InputError, SafetensorError, OSError, LookupError, ValueError):
        return None


def lower_folder(folder: Path, form: str, compute: Callable[[], Tables]) -> LoweredModel:
    """Read and lower a folder; `auto` is what `saucier bench` chose, or float32, in which nothing is lost.

    Raises `NotPlainError`, and what damaged files raise.
    """
    document, where = read_json(folder / "config.json"), str(folder / "config.json")
    if is_sentence_folder(folder) or document.get("model_type") == MODEL_TYPE or QUANTIZATION in document:
        raise NotPlainError
    layout, files = find_layout(document, folder / "config.json"), ArrayFiles(folder)
    names = resolve_names(layout, document, saved_class(document, layout, where), cast(Any, files), where)
    tree, arrays = names.tree, PublishedArrays(names, files)
    if tree.encoder is not None or not tree.writes or names.rules.tables or names.rules.carried:
        raise NotPlainError
    states = [(name, size, changed) for name, size, changed in list_states(files.paths)]
    if form == "auto":
        form = read_choice(name_choice(digest_files(states), tree.model_dump_json(), limit_threads())) or "float32"
    if form == OWN_PARTS:
        raise NotPlainError
    form = cast(Format, form)
    with ThreadPoolExecutor(1) as pool:
        digest = None if form == "float32" else pool.submit(digest_files, states)
        weights = Weights(arrays, form)
        tables = KeptTables(weights.made, compute, 0 if digest is None else count_kept_places(tree))
        lowered = LoweredModel(tree, weights, tables, read_generation_defaults(folder, document))
        lowered.plan(1)
        arrays.check_whole()
    if digest is not None:
        path = name_packed(digest.result(), tree.model_dump_json(), form)
        keep_packed(path, form, weights.made, {})
        weights.made.update(read_packed(path))
        remember_lowered(folder, files.paths, lowered, Packed(path, digest.result()))
    return lowered
