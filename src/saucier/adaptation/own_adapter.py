"""A tuned model without its base, in our own form: what was changed, the values that learned, and where the base is.

It is in `adapter_config.json` too, under a `peft_type` that PEFT does not know, so that nobody takes it for one of
PEFT's. Training saves in it, since it keeps every value under its own name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from pydantic import TypeAdapter, ValidationError
from torch import Tensor

from saucier import config as c
from saucier.adaptation.rewrite import apply_rewrite, list_added, list_trainable
from saucier.adaptation.starting_weights import describe_body, drop_decoder, transfer_weights
from saucier.adaptation.tuning import Tuning
from saucier.checkpoints.adapter_folder import CONFIG, OWN, WEIGHTS, base_error
from saucier.checkpoints.layout import model_error
from saucier.checkpoints.own_folder import fill_weights
from saucier.checkpoints.weight_files import SafeShard, write_tensors
from saucier.errors import InputError
from saucier.model import Transformer, allocate_model
from saucier.parts.provenance import Origin, digest_weights, mark_parameters
from saucier.plain import first_difference

FORMAT = 1
"""Raised when the form changes in a way that older readers cannot read."""
SHOWN = 60
"""Letters of a value that an error shows."""
WIDTHS = ("rank", "length", "hidden", "width")
"""How wide a rewrite is, as its settings call it."""


def learned_values(model: Transformer) -> dict[str, Tensor]:
    """Return what the base does not hold: all that learns, was added, or differs; everything without a base."""
    parameters = dict(model.named_parameters())
    return {name: parameters[name].detach().cpu().contiguous() for name in learned_names(model)}


def learned_names(model: Transformer) -> list[str]:
    """Return the names of what the base does not hold: all that learns, was added, or is unlike; all without a base."""
    whole = model.provenance.origin is None
    chosen = set(list_trainable(model)) | list_added(model) | model.provenance.unlike
    return [name for name, _ in model.named_parameters() if whole or name in chosen]


def write_own_adapter(model: Transformer, folder: Path, *, base: str | None = None,
                      weights: Mapping[str, Tensor] | None = None) -> None:
    """Write our form into a folder, for callers who make the folder atomic themselves.

    `base`: None for where the model came from. `weights` replaces the learned values, under the same names.
    """
    folder.mkdir(parents=True, exist_ok=True)
    known = model.provenance
    document = {"peft_type": OWN, "format": FORMAT, "note": "Saucier's own form: PEFT has none for this",
                "base_model_name_or_path": base or known.path,
                "base_digest": known.origin.digest if known.origin is not None else None,
                "unlike_base": sorted(known.unlike),
                "rewrites": [one.by.model_dump(mode="json") for one in known.rewrites],
                "model": model.config.model_dump(mode="json"), "published": known.document,
                "generation": known.generation}
    (folder / CONFIG).write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    write_tensors(learned_values(model) if weights is None else weights, folder / WEIGHTS)


def fill_learned(model: Transformer, folder: Path) -> None:
    """Put the learned values of a folder in our form back into a model that was rewritten in the same way."""
    fill_weights(model, folder / WEIGHTS, learned_names(model))


def read_own_adapter(document: Mapping[str, Any], base: Transformer | None, path: Path, *, origin: str = "",
                     dtype: torch.dtype = torch.float32, device: torch.device | None = None) -> Transformer:
    """Return a base model with the rewrites and the values of an adapter in our own form.

    `origin`: where the base is, a folder or a hub id. Raises `InputError` for another base than the one that the
    adapter was learned on, and for values that do not fit.
    """
    tree, rewrites = parse_document(document, path.parent)
    made_for = str(document.get("base_model_name_or_path"))
    said = {name: document.get(name) or {} for name in ("published", "generation")}
    listed = document.get("unlike_base") or []
    if not all(isinstance(one, dict) for one in said.values()) or not isinstance(listed, list) or not all(
            isinstance(one, str) for one in listed):
        raise InputError("published or generation is no table, or unlike_base no list of names",
                         where=str(path.parent / CONFIG), remedy="the file was changed; write it again")
    unlike = frozenset(listed)
    if base is None:
        model = allocate_model(tree, dtype=dtype, device=device or "cpu")
    else:
        drop_decoder(base, tree)
        if differs := first_difference(describe_body(tree), describe_body(base.config)):
            key, expected, given = differs
            fault = f"{key} is {str(given)[:SHOWN]} instead of {str(expected)[:SHOWN]}"
            raise base_error(fault, path.parent, made_for, origin)
        model = base if base.config == tree else move_to_config(tree, base)
        found = digest_weights(model, unlike)
        if found != document.get("base_digest"):
            raise base_error("it has other weights", path.parent, made_for, origin)
        known = Origin(origin, found, unlike, mark_parameters(model, unlike))
        model.provenance = replace(model.provenance, origin=known)
    SafeShard(path)  # refuses a file that is not there or damaged, before anything is made for it
    for by in rewrites:
        check_widths(by, path)
        apply_rewrite(model, by=by)
    model.provenance = replace(model.provenance, document=said["published"], generation=said["generation"])
    fill_learned(model, path.parent)
    return model


def check_widths(by: Tuning, path: Path) -> None:
    """Raise `InputError` for a rewrite that is wider than the file of its weights is long: it was never learned."""
    size = path.stat().st_size
    for name in WIDTHS:
        if (width := getattr(by, name, None) or 0) > size:
            raise InputError(f"{name} {width} is more than the weights beside it can hold, {size} bytes",
                             where=str(path.parent / CONFIG), remedy="the file was changed; write it again")


def move_to_config(tree: c.Transformer, base: Transformer) -> Transformer:
    """Return a model of another head, or of more tokens, with the weights of a base as far as it has them."""
    model = allocate_model(tree, dtype=base.dtype, device=base.device)
    transfer_weights(model, base)
    return model


def parse_document(document: Mapping[str, Any], folder: Path) -> tuple[c.Transformer, list[Tuning]]:
    """Return the tree and the rewrites of a document. Raises `InputError` for a changed or newer one."""
    where = str(folder / CONFIG)
    if document.get("format") != FORMAT:
        raise InputError(f"format {document.get('format')!r} is not {FORMAT}", where=where,
                         remedy="use the version of Saucier that wrote it")
    try:
        return (c.Transformer.model_validate(document.get("model")),
                TypeAdapter(list[Tuning]).validate_python(document.get("rewrites")))
    except ValidationError as error:
        raise model_error(error, where, "the file was changed; write it again") from error
