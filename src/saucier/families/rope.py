"""How published configs spell rotary positions, one field of many forms or one for each kind of layer: read and written
as values of ours.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from saucier import config as c
from saucier.checkpoints.fields import Document, Key, list_attentions, look_up
from saucier.errors import InputError

ROTARY = "rope_parameters"
TRAINED_LENGTH, LENGTH = "original_max_position_embeddings", "max_position_embeddings"
OLDER = dict.fromkeys(("rope_scaling", "rope_theta", "partial_rotary_factor", "rotary_pct", "rotary_emb_base"), ROTARY)
"""Older flat fields, which say parts of the newer one."""
STRETCHED = ("llama3", "yarn", "longrope")
"""Kinds that say the trained length themselves; where they do not, it is the length of the config."""


def normalize_rotary(document: Document) -> Document:
    """Bring the older flat fields to the newer nested one, and the lengths that its kinds need into it."""
    said = document.get("rope_scaling") or document.get(ROTARY) or {}
    if not isinstance(said, Mapping):
        raise InputError(f"the rotary positions are {str(said)[:40]!r}", where="rope_scaling",
                         remedy="write an object, or null")
    nested = dict(said)
    nested["rope_type"] = nested.pop("type", None) or nested.get("rope_type") or "default"
    share = "partial_rotary_factor" if "partial_rotary_factor" in document else "rotary_pct"
    for name, older in (("rope_theta", "rope_theta"), ("rope_theta", "rotary_emb_base"),
                        ("partial_rotary_factor", share)):
        if document.get(older) is not None:
            nested.setdefault(name, document[older])
    rest = {name: value for name, value in document.items() if name not in (*OLDER, ROTARY)}
    length = document.get(LENGTH)
    if nested["rope_type"] in STRETCHED:
        nested[TRAINED_LENGTH] = rest.pop(TRAINED_LENGTH, None) or nested.get(TRAINED_LENGTH) or length
    if nested["rope_type"] in ("dynamic", "longrope"):
        nested[LENGTH] = length
    return {**rest, ROTARY: nested}


def rotary_key(path: str, *, base: float = 10000.0, share: float = 1.0, length: int) -> tuple[Key, Key]:
    """Return the keys of the rotary positions at `path` and of the length, with the family's defaults.

    Raises `InputError`, when read, for kinds and settings that are not known.
    """
    def theirs(rotary: c.Config) -> dict[str, Any] | None:
        if not isinstance(rotary, c.Rotary):
            return None
        nested = write_rotary(rotary)
        return nested if rotary.share == 1 == share else {**nested, "partial_rotary_factor": rotary.share}

    def trained(tree: c.Transformer) -> int | None:
        match look_up(tree, path):
            case c.Rotary(scaling=c.DynamicScaling(length=trained_length)):
                return trained_length
            case _:
                return None

    return (Key(ROTARY, (path,), default={"rope_type": "default"}, theirs=theirs,
                ours=partial(read_rotary, base=base, share=share, length=length)),
            Key(LENGTH, (), default=length, found=trained))


SCALINGS: Mapping[str, tuple[Callable[..., c.Scaling], Mapping[str, str]]] = {
    "default": (c.NoScaling, {}),
    "linear": (c.LinearScaling, {"factor": "factor"}),
    "dynamic": (c.DynamicScaling, {"factor": "factor", "length": LENGTH}),
    "llama3": (c.Llama3Scaling, {"factor": "factor", "low": "low_freq_factor", "high": "high_freq_factor",
                                 "length": TRAINED_LENGTH}),
    "yarn": (c.Yarn, {"factor": "factor", "fast": "beta_fast", "slow": "beta_slow", "rounded": "truncate",
                      "length": TRAINED_LENGTH, "attention": "attention_factor"}),
    "longrope": (c.LongRope, {"short": "short_factor", "long": "long_factor", "length": TRAINED_LENGTH,
                              "attention": "attention_factor"}),
}
"""Published kind of scaling -> ours, and its fields by ours."""
DERIVING = {"yarn": {"mscale", "mscale_all_dim"}, "longrope": {"factor", LENGTH}}
"""Published fields from which others are computed that a config leaves out."""


def read_rotary(nested: dict[str, Any], *, base: float, share: float = 1.0, length: int = 0) -> c.Rotary:
    """Return the rotary positions of a published field. Raises `InputError` for what is not known."""
    said = {name: value for name, value in nested.items() if value is not None}
    given = {"rope_theta": base, "partial_rotary_factor": share, TRAINED_LENGTH: length, LENGTH: length, **said}
    kind = said["rope_type"]
    if share == 1 and given["partial_rotary_factor"] != 1:
        raise InputError(f"partial_rotary_factor {given['partial_rotary_factor']!r} cannot be expressed", where=ROTARY,
                         remedy="only 1.0 can: this family turns whole heads")
    if not isinstance(kind, str) or kind not in SCALINGS:
        raise InputError(f"scaling {kind!r} is not known", where=ROTARY, remedy=f"known: {', '.join(SCALINGS)}")
    scaling, fields = SCALINGS[kind]
    given |= derive_fields(kind, given)
    rotary = c.Rotary(base=given["rope_theta"], share=given["partial_rotary_factor"],
                      scaling=scaling(**{ours: given[theirs] for ours, theirs in fields.items()}))
    if odd := said.keys() - {"rope_type", "rope_theta", "partial_rotary_factor", *fields.values(),
                             *DERIVING.get(kind, ())}:
        raise InputError(f"{kind} scaling with {', '.join(sorted(odd))}", where=ROTARY,
                         remedy="it may change the numbers, so it is not ignored; remove it if it does not")
    return rotary


def derive_fields(kind: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a scaling that a config may leave out, computed from others."""
    match kind:
        case "yarn":
            return {"beta_fast": given.get("beta_fast") or 32, "beta_slow": given.get("beta_slow") or 1,
                    "truncate": given.get("truncate", True), "attention_factor": sharpness(given)}
        case "longrope":
            factor = given.get("factor") or given[LENGTH] / given[TRAINED_LENGTH]
            sharper = math.sqrt(1 + math.log(factor) / math.log(given[TRAINED_LENGTH])) if factor > 1 else 1.0
            return {"attention_factor": given.get("attention_factor", sharper)}
        case _:
            return {}


def sharpness(given: Mapping[str, Any]) -> float | None:
    """Return YaRN's factor on queries and keys, where a config departs from the paper's."""
    said, first, second = (given.get(name) for name in ("attention_factor", "mscale", "mscale_all_dim"))
    if said is not None or not (first and second):
        return None if said is None else float(said)
    factor = math.log(given["factor"])
    return float((0.1 * first * factor + 1) / (0.1 * second * factor + 1))


def write_rotary(rotary: c.Rotary) -> dict[str, Any]:
    """The inverse, without the share of a head and the length that a config says elsewhere."""
    kind, fields = next((kind, fields) for kind, (ours, fields) in SCALINGS.items() if ours is type(rotary.scaling))
    said = {theirs: getattr(rotary.scaling, ours) for ours, theirs in fields.items() if theirs != LENGTH}
    return {"rope_type": kind, "rope_theta": rotary.base,
            **{name: list(value) if isinstance(value, tuple) else value for name, value in said.items()
               if value is not None}}


FULL, SLIDING = "full_attention", "sliding_attention"
BASES = {FULL: 160000.0, SLIDING: 10000.0}


def list_layer_types(tree: c.Transformer) -> list[str]:
    """The published names of the layers' kinds."""
    return [SLIDING if isinstance(inner.visibility, c.Window) else FULL for inner in list_attentions(tree)]


def read_layer_rotary(nested: dict[str, dict[str, Any]]) -> dict[str, c.Rotary]:
    """Return the rotations of each kind of layer. Raises `InputError` for a scaling that is not expressed here."""
    for kind, said in nested.items():
        if kind in BASES and (said or {}).get("rope_type", "default") not in ("default", "linear"):
            raise InputError(f"rope_parameters {said} cannot be expressed", where=f"rope_parameters.{kind}",
                             remedy="rope_type default can, and linear with a factor")
    return {kind: read_rotary({"rope_type": "default", **(nested.get(kind) or {})}, base=base)
            for kind, base in BASES.items()}


def write_layer_rotary(tree: c.Transformer) -> dict[str, dict[str, Any]]:
    """The inverse; a kind of layer that the tree has not gets its defaults."""
    found = {kind: inner.positions for kind, inner in zip(list_layer_types(tree), list_attentions(tree), strict=True)}
    rotary = {kind: found.get(kind) for kind in BASES}
    return {kind: write_rotary(value if isinstance(value, c.Rotary) else c.Rotary(base=BASES[kind]))
            for kind, value in rotary.items()}


OLDER_BASES = dict.fromkeys(("global_rope_theta", "local_rope_theta"), "rope_parameters")


def normalize_layer_rotary(document: Document) -> Document:
    """Bring the older flat bases to the newer nested field."""
    nested = {kind: dict(value or {}) for kind, value in (document.get("rope_parameters") or {}).items()}
    for older, kind in zip(OLDER_BASES, (FULL, SLIDING), strict=True):
        if document.get(older) is not None:
            nested.setdefault(kind, {}).setdefault("rope_theta", document[older])
    rest = {name: value for name, value in document.items()
            if name not in (*OLDER_BASES, "rope_parameters")}
    return {**rest, **({"rope_parameters": nested} if nested else {})}
