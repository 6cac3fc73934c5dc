"""Adapters as folders: `open_adapter` puts one on its base model, `save_adapter` writes a tuned model's alone.

Read and written are PEFT's layout, and our own form for what PEFT has none for. The adapter of an opened model stands
apart from the base: it can be trained further, merged, or taken off.
"""

from __future__ import annotations

from pathlib import Path
from types import NoneType

import torch

from saucier.adaptation.front import settle
from saucier.adaptation.own_form import read_own, write_own
from saucier.adaptation.peft_fronts import put_front
from saucier.adaptation.peft_reading import put_on
from saucier.adaptation.peft_writing import as_peft
from saucier.checkpoints.adapters import (
    CONFIG,
    LEARNED_INPUTS,
    OWN,
    WEIGHTS,
    Adapted,
    Adapter,
    another_base,
    read_adapter,
    read_settings,
)
from saucier.checkpoints.foreign import Names, Opened, assembled, body_of
from saucier.checkpoints.keys import Layout
from saucier.checkpoints.model_folder import MODEL_TYPE, read_json
from saucier.checkpoints.source import Weights
from saucier.errors import InputError, expect, nearest
from saucier.families.layouts import LAYOUTS
from saucier.files import is_there, write_atomically
from saucier.hub import folder_of
from saucier.model import Transformer
from saucier.parts.changed import Origin, marks

LAYOUT_NAMES = ("auto", "peft", "own")
FILES = {CONFIG, WEIGHTS}
"""Files of an adapter, which another save may replace."""


def save_adapter(model: Transformer, folder: str | Path, *, base: str | None = None, layout: str = "auto") -> str:
    """Write a tuned model's adapter atomically and return the layout: "peft" or "own".

    `base`: what to name as the base model; None: where the model came from. `layout`: "auto" is PEFT's where that can
    express the adapter. A network that makes a prefix in training is dropped, in the model too; its values stay.
    Raises `InputError` for a model that was not rewritten or has no base, for a layout that cannot
    express its adapter, and for a folder that holds something else.
    """
    target = Path(folder)
    base = base or (model.origin.path if model.origin is not None else None)
    if layout not in LAYOUT_NAMES:
        raise InputError(f"unknown layout {layout!r}", where="layout", remedy=nearest(layout, [*LAYOUT_NAMES]))
    if not model.rewrites or base is None:
        raise InputError("there is no adapter in this model" if not model.rewrites else "no base model is known",
                         where="model", remedy="rewrite a loaded model first" if base is not None
                         else "say which it is with base=...")
    check_free(target)
    settle(model)
    name, written = "own", None
    if layout != "own":
        try:
            name, written = "peft", as_peft(model, names_of(model), base)
        except InputError:
            if layout == "peft":
                raise
    found = written
    write_atomically(target, lambda place: write_own(model, place, base=base) if found is None else found.write(place))
    return name


def check_free(target: Path) -> None:
    """Refuse a folder that holds something else than an adapter. Raises `InputError`."""
    others = sorted({path.name for path in target.iterdir()} - FILES) if target.is_dir() else [
        target.name] if target.exists() else []
    if others:
        raise InputError(f"the folder holds something else ({others[0]})", where=str(target),
                         remedy="give a new folder")


def names_of(model: Transformer) -> Names:
    """Return the published names of a model's weights. Raises `InputError` where no layout can express it."""
    layout = LAYOUTS.get(str(model.published.get("model_type")))
    if layout is None:
        raise InputError("the base model is in our own layout, which PEFT does not read", where="model",
                         remedy="save the adapter in our own form (own)")
    document = layout.document(body_of(model.config), model.published)
    return Names(layout.spelled(layout, document), body_of(model.config), document["architectures"][0])


def open_adapter(folder: str | Path, *, base: str | None = None, head: str = "auto",
                 dtype: str | torch.dtype = "auto", device: str | torch.device = "auto") -> Transformer:
    """Load an adapter on its base model, the two apart, in evaluation mode.

    `base` overrules the base that the adapter names; the rest is as in `saucier.load`, which gives the two merged.
    Raises `InputError` for an adapter that cannot be read, and for a base that it does not belong to.
    """
    from saucier.devices import choose_real_device
    from saucier.loading import number_format

    expect(head, str, "head", "give auto, or the name of a head")
    expect(base, (str, NoneType), "base", "give a folder or a hub id")
    place, found = choose_real_device(device), folder_of(folder)
    return open_apart(found, base, head, dtype=number_format(dtype, found, place, base), device=place).eval()


def open_apart(folder: Path, base: str | None, head: str, *, dtype: torch.dtype, device: torch.device) -> Transformer:
    """Load an adapter of any layout on its base model."""
    document = read_settings(folder)
    if document.get("peft_type") != OWN:
        return open_peft(read_adapter(folder), base, head, dtype=dtype, device=device)
    named = base or document.get("base_model_name_or_path")
    if named is None:
        return read_own(document, None, folder / WEIGHTS, dtype=dtype, device=device)
    from saucier.loading import load

    place = beside(folder, str(named))
    moved = base is not None and (Path(base).is_dir() or (folder / base).is_dir())
    origin = str(place.absolute()) if moved else str(named)  # a hub id stays one: its place is a cache
    return read_own(document, load(place, dtype=dtype, device=device), folder / WEIGHTS, origin=origin)


def open_peft(adapter: Adapter, base: str | None, head: str, *, dtype: torch.dtype,
              device: torch.device) -> Transformer:
    """Load an adapter in PEFT's layout on its base model."""
    opened, layout, source = opened_base(adapter, base)
    modules = source.take_pairs()
    model = on_base(adapter, (opened, layout, source), head, dtype=dtype, device=device)
    names = Names(layout.spelled(layout, opened.document), model.config, model.published["architectures"][0])
    unlike = frozenset(own for own, _ in model.named_parameters() if replaced(own, names, source))
    model.origin = Origin.of(opened.folder, model, unlike)
    if adapter.options.get("peft_type") in LEARNED_INPUTS:
        return put_front(model, adapter)
    return put_on(model, adapter, modules, names)


def on_base(adapter: Adapter, found: tuple[Opened, Layout, Adapted], head: str, *, dtype: torch.dtype,
            device: torch.device) -> Transformer:
    """Build an adapter's base model with what the adapter holds whole, and its sums that were not taken out.

    Raises `InputError` for another base than the one that the adapter was learned on, where the adapter tells.
    """
    opened, layout, source = found
    name = adapter.published(layout) if head == "auto" else head
    model = assembled(opened, layout, published=name, dtype=dtype, device=device)
    names = Names(layout.spelled(layout, opened.document), model.config, model.published["architectures"][0])
    here, changed = marks(model), {*source.instead, *source.changes}
    for parameter, mark in adapter.marks.items():
        match = names.rules.match(parameter)
        own = match is not None and any(names.present(one, source) in changed for one in match.theirs)
        if not own and here.get(parameter, mark) != mark:
            raise source.another_base(f"{parameter} has other values")
    return model


def replaced(name: str, names: Names, source: Adapted) -> bool:
    """Say whether a parameter is not the base's, but one that the adapter holds whole."""
    match = names.rules.match(name)
    return match is not None and any(names.present(one, source) in source.instead for one in match.theirs)


def opened_base(adapter: Adapter, base: str | None = None) -> tuple[Opened, Layout, Adapted]:
    """Open the base model of an adapter in PEFT's layout. Raises `InputError` for one that is in no published layout.
    """
    from saucier.loading import model_folder_of

    folder = model_folder_of(beside(adapter.folder, base or adapter.base))
    document = read_json(folder / "config.json")
    layout = LAYOUTS.get(str(document.get("model_type")))
    if document.get("model_type") == MODEL_TYPE:
        raise another_base("it is in our own layout, and an adapter of PEFT names the weights of a published one",
                           adapter.folder, adapter.base, folder)
    if layout is None:
        raise InputError(f"the base model's model_type {str(document.get('model_type'))[:80]!r} is not known",
                         where=str(folder / "config.json"),
                         remedy=nearest(str(document.get("model_type")), [*LAYOUTS]))
    source = Adapted(Weights(folder), adapter, layout.bases)
    return Opened(folder, document | source.labels(document), source), layout, source


def beside(folder: Path, base: str) -> Path:
    """Find the base model that an adapter names: a path, beside the adapter or not, or a hub id."""
    near = folder / base
    try:
        found = folder_of(near if is_there(near) and near.is_dir() else base)
    except InputError as error:
        raise InputError(f"its base model is not there: {error}", where=str(folder),
                         remedy="put it back, name it with --base, or write it as base_model_name_or_path") from error
    if (found / CONFIG).is_file() and not (found / "config.json").is_file():
        raise InputError("the base model is itself an adapter", where=str(folder),
                         remedy="merge that one first, and name the result as base_model_name_or_path")
    return found

