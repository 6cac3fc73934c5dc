"""How published configs spell rotary positions, one field of many forms or one for each kind of layer: read and written
as values of ours.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

from saucier import config as c
from saucier.checkpoints.fields import Document, Key, list_attentions, look_up
from saucier.errors import InputError

ROTARY = "rope_parameters"
TRAINED_LENGTH = "original_max_position_embeddings"
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
    length = document.get("max_position_embeddings")
    if nested["rope_type"] in STRETCHED:
        nested[TRAINED_LENGTH] = rest.pop(TRAINED_LENGTH, None) or nested.get(TRAINED_LENGTH) or length
    if nested["rope_type"] in ("dynamic", "longrope"):
        nested["max_position_embeddings"] = length
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
            Key("max_position_embeddings", (), default=length, found=trained))


def read_rotary(nested: dict[str, Any], *, base: float, share: float = 1.0, length: int = 0) -> c.Rotary:
    """Return the rotary positions of a published field. Raises `InputError` for what is not known."""
    given = {"rope_theta": base, "partial_rotary_factor": share,
             **{name: value for name, value in nested.items() if value is not None}}
    kind = given.pop("rope_type")
    if share == 1 and given["partial_rotary_factor"] != 1:
        raise InputError(f"partial_rotary_factor {given['partial_rotary_factor']!r} cannot be expressed", where=ROTARY,
                         remedy="only 1.0 can: this family turns whole heads")
    rotary = c.Rotary(base=given.pop("rope_theta"), share=given.pop("partial_rotary_factor"),
                      scaling=scaling(kind, given, length))
    if given:
        raise InputError(f"{kind} scaling with {', '.join(sorted(given))}", where=ROTARY,
                         remedy="it may change the numbers, so it is not ignored; remove it if it does not")
    return rotary


def write_rotary(rotary: c.Rotary) -> dict[str, Any]:
    """The inverse, without the share of a head."""
    return {"rope_type": KINDS[type(rotary.scaling)], "rope_theta": rotary.base, **settings(rotary.scaling)}


KINDS: dict[type[c.Config], str] = {c.NoScaling: "default", c.LinearScaling: "linear", c.DynamicScaling: "dynamic",
                                    c.Llama3Scaling: "llama3", c.Yarn: "yarn", c.LongRope: "longrope"}
"""Our kinds of scaling -> published names."""


def scaling(kind: str, given: dict[str, Any], length: int) -> c.Scaling:
    """Return the scaling of a published kind, and take what it says out of `given`."""
    match kind:
        case "default":
            return c.NoScaling()
        case "linear":
            return c.LinearScaling(factor=given.pop("factor"))
        case "dynamic":
            return c.DynamicScaling(factor=given.pop("factor"), length=given.pop("max_position_embeddings", length))
        case "llama3":
            return c.Llama3Scaling(factor=given.pop("factor"), low=given.pop("low_freq_factor"),
                                   high=given.pop("high_freq_factor"), length=given.pop(TRAINED_LENGTH, length))
        case "yarn":
            return c.Yarn(factor=(factor := given.pop("factor")), length=given.pop(TRAINED_LENGTH, length),
                          fast=given.pop("beta_fast", None) or 32, slow=given.pop("beta_slow", None) or 1,
                          rounded=given.pop("truncate", True), attention=sharpness(given, factor))
        case "longrope":
            trained = given.pop(TRAINED_LENGTH, length)
            factor = given.pop("factor", None) or given.get("max_position_embeddings", length) / trained
            given.pop("max_position_embeddings", None)
            by_length = math.sqrt(1 + math.log(factor) / math.log(trained)) if factor > 1 else 1.0
            return c.LongRope(short=given.pop("short_factor"), long=given.pop("long_factor"), length=trained,
                              attention=given.pop("attention_factor", by_length))
        case _:
            raise InputError(f"scaling {kind!r} is not known", where=ROTARY,
                             remedy=f"known: {', '.join(KINDS.values())}")


def sharpness(given: dict[str, Any], factor: float) -> float | None:
    """Return YaRN's factor on queries and keys, where a config departs from the paper's."""
    said, first, second = (given.pop(name, None) for name in ("attention_factor", "mscale", "mscale_all_dim"))
    if said is not None or not (first and second):
        return None if said is None else float(said)
    return float((0.1 * first * math.log(factor) + 1) / (0.1 * second * math.log(factor) + 1))


def settings(kind: c.Scaling) -> dict[str, Any]:
    """Return what a published config says of a scaling in addition to its name."""
    match kind:
        case c.NoScaling():
            return {}
        case c.LinearScaling(factor=factor) | c.DynamicScaling(factor=factor):
            return {"factor": factor}
        case c.Llama3Scaling():
            return {"factor": kind.factor, "low_freq_factor": kind.low, "high_freq_factor": kind.high,
                    TRAINED_LENGTH: kind.length}
        case c.Yarn():
            said = {} if kind.attention is None else {"attention_factor": kind.attention}
            return {"factor": kind.factor, "beta_fast": kind.fast, "beta_slow": kind.slow, "truncate": kind.rounded,
                    TRAINED_LENGTH: kind.length, **said}
        case c.LongRope():
            return {"short_factor": list(kind.short), "long_factor": list(kind.long), TRAINED_LENGTH: kind.length,
                    "attention_factor": kind.attention}


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
