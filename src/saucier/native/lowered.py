"""A decoder as the kernels read it, found again without its weight files and without torch: what a load in a number
format came to, remembered for each model folder next to the packed matrices.

A record holds as long as the folder, its files, and the code that says what a config means are as they were; what is no
whole record of ours is as if it were not there.
Letters: E head width, H heads, P places, D dim.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast, get_args

import numpy as np

from saucier import config as c
from saucier.files import parse_json, write_json
from saucier.native.decoders import lower
from saucier.native.lowering import Tables
from saucier.native.matrices import Array, Format, Weights
from saucier.native.packed import Made, name_choice, packed_folder, read_choice, read_packed
from saucier.native.plan import Plan
from saucier.plain import VERSION

MOST_PLACES = 2048
"""Places that tables of positions are kept for; for longer texts they are computed."""
MEANING = ("config", "families", "checkpoints", "native")
"""Folders of the package that say what the files of a model folder mean."""
SETTINGS = ("config.json", "generation_config.json")


class PackedNames(Mapping[str, Array]):
    """Names of weights that are all packed already, so that nobody asks for their numbers."""

    def __init__(self, names: list[str]) -> None:
        """Take all names of a model."""
        self.names = dict.fromkeys(names)

    def __contains__(self, name: object) -> bool:
        """Say whether the model has a weight of this name."""
        return name in self.names

    def __getitem__(self, name: str) -> Array:
        """Raise `KeyError`."""
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        """Name them."""
        return iter(self.names)

    def __len__(self) -> int:
        """Count them."""
        return len(self.names)


@dataclass(frozen=True, slots=True)
class KeptTables:
    """Tables that are kept for many places with what is packed; a longer one is computed each time."""

    made: Made
    """By the positions, and what else they are made of."""
    compute: Callable[[], Tables]
    """Gives what computes tables, by the parts of torch."""
    places: int
    """For how many places they are kept."""

    def take(self, key: tuple[object, ...], places: int, kept: int, compute: Callable[[Tables, int], Array]) -> Array:
        """Return a table of at least so many places, one that is kept where it is long enough."""
        name = f"table {key!r}"
        if places > kept:
            return compute(self.compute(), places)
        if name not in self.made:
            self.made[name] = compute(self.compute(), kept)
        found: Array = self.made[name]
        return found

    def turns(self, positions: c.Rotary, places: int, head: int) -> Array:
        """As `Tables`; kept as far as frequencies do not depend on the length of a text. Shapes: -> [P, W]."""
        kept = self.places
        if isinstance(positions.scaling, c.DynamicScaling | c.LongRope):
            kept = min(kept, positions.scaling.length)
        return self.take(("turns", positions.model_dump_json(), head), places, kept,
                         lambda tables, most: tables.turns(positions, most, head))[:places]

    def biases(self, positions: c.Alibi | c.T5Bias, heads: int, places: int, table: Array | None) -> Array:
        """As `Tables`. Shapes: -> [H, P]."""
        return np.ascontiguousarray(self.take(
            ("biases", positions.model_dump_json(), heads), places, self.places,
            lambda tables, most: tables.biases(positions, heads, most, table))[:, :places])

    def biases_of_both_sides(self, positions: c.Alibi | c.T5Bias, heads: int, places: int,
                             table: Array | None) -> Array:
        """As `Tables`; no decoder asks for them, so none is kept. Shapes: -> [H, 2P - 1]."""
        return self.compute().biases_of_both_sides(positions, heads, places, table)

    def distances(self, positions: c.Disentangled, places: int, table: Array,
                  norm: Mapping[str, Array]) -> tuple[Array, Array]:
        """As `Tables`; no decoder asks for them either. Shapes: table [R, D] -> [R, D], [2P - 1]."""
        return self.compute().distances(positions, places, table, norm)

    def waves(self, positions: c.Sinusoidal, places: int, dim: int) -> Array:
        """As `Tables`. Shapes: -> [P, D]."""
        return self.take(("waves", positions.model_dump_json(), dim), places, self.places,
                         lambda tables, most: tables.waves(positions, most, dim))[:places]

    def visible(self, visibility: c.Visibility, places: int) -> Array:
        """As `Tables`. Shapes: -> [P, P]."""
        return np.ascontiguousarray(self.take(
            ("visible", visibility.model_dump_json()), places, self.places,
            lambda tables, most: tables.visible(visibility, most))[:places, :places])


@dataclass(frozen=True, slots=True)
class LoweredModel:
    """A decoder that kernels read: what is needed of a model to write."""

    config: c.Transformer
    weights: Weights
    tables: Tables
    generation: Mapping[str, Any]
    """Defaults of `saucier.generate`, as in generation_config.json."""

    def plan(self, places: int) -> Plan:
        """Return the plan for rows of up to so many tokens. Raises `InputError` for more than the model has places."""
        return lower(self.config, self.weights, self.tables, places)


@dataclass(frozen=True, slots=True)
class Packed:
    """Where a model's matrices are, and the digest of its weight files."""

    path: Path
    digest: str


def remember_lowered(folder: Path, files: Collection[Path], lowered: LoweredModel, packed: Packed) -> None:
    """Note what the load of a folder with these weight files came to."""
    known = [folder, *(path for name in SETTINGS if (path := folder / name).is_file()), *files]
    record, target = {
        "files": list_states(known), "code": digest_code(), "packed": packed.path.name,
        "digest": packed.digest,
        "weights": list(lowered.weights.arrays), "generation": dict(lowered.generation),
        "config": lowered.config.model_dump(mode="json")}, name_record(folder, lowered.weights.form)
    if read_record(target) != record:
        write_json(target, record)


def find_lowered(folder: Path, form: str, compute: Callable[[], Tables]) -> LoweredModel | None:
    """Return what a folder's model is in a format; None where that is not known, or not any more.

    `compute` gives what computes tables of positions for longer texts than they are kept for.
    """
    if form not in get_args(Format):
        return None
    form = cast(Format, form)
    try:
        record = read_record(name_record(folder, form))
        if record["code"] != digest_code() or record["files"] != list_states([Path(one[0]) for one in record["files"]]):
            return None
        made = read_packed(packed_folder() / Path(record["packed"]).name)
        config = c.Transformer.model_validate(record["config"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    weights = Weights(PackedNames(record["weights"]), form, made)
    tables = KeptTables(made, compute, count_kept_places(config))
    return LoweredModel(config, weights, tables, record["generation"]) if made else None


def find_chosen(folder: Path, compute: Callable[[], Tables], threads: int) -> LoweredModel | None:
    """Return what a folder's model is in the format that `saucier bench` chose for it; None where that is not known."""
    for form in get_args(Format):
        found = find_lowered(folder, form, compute)
        if found is not None:
            digest = str(read_record(name_record(folder, form)).get("digest"))
            if read_choice(name_choice(digest, found.config.model_dump_json(), threads)) == form:
                return found
    return None


def read_record(path: Path) -> dict[str, Any]:
    """Return a record; an empty one where there is none, or none of ours."""
    try:
        record = parse_json(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


def name_record(folder: Path, form: Format) -> Path:
    """Return where the record of a folder in a format is."""
    found = hashlib.sha256(repr((str(folder.absolute()), form)).encode())
    return packed_folder() / f"folder-{found.hexdigest()[:24]}.json"


def list_states(paths: Iterable[Path]) -> list[list[Any]]:
    """Return path, bytes and time of the last change of each. Raises `OSError` where one is gone."""
    return [[str(path.absolute()), (found := path.stat()).st_size, found.st_mtime_ns] for path in paths]


def digest_code() -> str:
    """Return what changes with the code that says what a folder means."""
    package = Path(__file__).parents[1]
    found = [list_states(sorted((package / name).rglob("*.py"))) for name in MEANING]
    return hashlib.sha256(repr((VERSION, found)).encode()).hexdigest()


def count_kept_places(config: c.Transformer) -> int:
    """Return for how many places tables of positions are kept: all that a model has, but not too many."""
    assert config.decoder is not None, "lower() refuses others"
    limits = (c.longest_input(config.output_embed.positions), *c.list_length_limits(config.decoder))
    return min([MOST_PLACES, *(one for one in limits if one is not None)])
