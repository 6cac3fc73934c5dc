"""`save`: a model as a folder, in a published layout where one can express it, in our own otherwise; `save_adapter`: a
tuned model's adapter alone, in PEFT's layout or in our own form.
"""

from __future__ import annotations

import warnings
from functools import partial
from pathlib import Path

from saucier.adaptation.own_adapter import write_own_adapter
from saucier.adaptation.peft_writing import make_peft_files
from saucier.adaptation.prefix import drop_prefix_network
from saucier.checkpoints.adapter_folder import (
    CONFIG,
    WEIGHTS,
)
from saucier.checkpoints.layout import MODEL_TYPE
from saucier.checkpoints.own_folder import WRITTEN, check_target_folder, write_model
from saucier.checkpoints.published_folder import (
    PublishedNames,
    express_model,
    write_published,
)
from saucier.errors import InputError, expect, suggest_name
from saucier.families import LAYOUTS
from saucier.files import refuse_unwritable, write_atomically
from saucier.model import Transformer
from saucier.text.tokenizer.folder import TARGET, TOKENIZER_FILES, copy_tokenizer

WHOLE_REWRITES = {"freeze"}
"""Rewrites that leave an ordinary model."""
LAYOUT_NAMES = ("auto", "own", "published")


def save(model: Transformer, folder: str | Path, *, layout: str = "auto") -> str:
    """Write a model atomically, with the tokenizer of the folder that it was loaded from; return the layout written.

    An earlier save in the folder is replaced, and nothing else; the rest is as in `save_bare`. A model whose shape was
    changed after loading brings no tokenizer: it may say otherwise. Raises as `save_bare` does.
    """
    expect(folder, (str, Path), "folder", "give a folder")
    origin = model.provenance.origin
    return save_with(model, Path(folder), layout, Path(origin.tokenizer) if origin and origin.tokenizer else None)


def save_bare(model: Transformer, folder: str | Path, *, layout: str = "auto") -> str:
    """Write a model atomically, without a tokenizer, and return the `model_type` of the layout that was written.

    `layout`: "auto" is a published one where one can express the model, else our own ("saucier"), with a warning if the
    model had come from a published folder; "published" and "own" insist; a `model_type` insists on that one.
    Of a rewritten model what it has in addition to its base is written, an adapter; the layout is then "peft" or "own".
    Raises `InputError` for a layout that cannot express the model, and for a folder that holds something else.
    """
    expect(folder, (str, Path), "folder", "give a folder")
    return save_with(model, Path(folder), layout, None)


def save_with(model: Transformer, target: Path, layout: str, tokenizer: Path | None) -> str:
    """Write a model, and copy the tokenizer of a folder, as `save` and `save_bare` say."""
    expect(layout, str, "layout", f"give {', '.join(LAYOUT_NAMES)}, or a model_type")
    refuse_unwritable(target, folder=True)
    if model.provenance.rewrite_kinds - WHOLE_REWRITES:
        return save_adapter_alone(model, target, layout)
    if layout not in (*LAYOUT_NAMES, *LAYOUTS):
        raise InputError(f"unknown layout {layout!r}", where="layout",
                         remedy=suggest_name(layout, [*LAYOUT_NAMES, *LAYOUTS]))
    check_target_folder(target, WRITTEN if tokenizer is None else WRITTEN | list_same_files(tokenizer, target))
    came_from = model.provenance.model_type
    refusals: dict[str, InputError] = {}
    candidates = [one for one in LAYOUTS.values() if layout not in LAYOUTS or one is LAYOUTS[layout]]
    for candidate in () if layout == "own" else sorted(candidates, key=lambda one: one.model_type != came_from):
        try:
            write_files = partial(write_published, model, *express_model(model, candidate))
            written = candidate.model_type
            break
        except InputError as error:
            refusals[candidate.model_type] = error
    else:
        if layout not in ("auto", "own"):
            raise refusals.get(layout) or InputError(
                refusals[came_from].what if came_from in refusals else "no published layout can express this model",
                where="layout", remedy="save it in our own layout (own)")
        if layout == "auto" and came_from in refusals:
            warnings.warn(f"written in our own layout: {refusals[came_from].what}", stacklevel=2)
        write_files, written = partial(write_model, model), MODEL_TYPE

    def write(temporary: Path) -> None:
        write_files(temporary)
        if tokenizer is not None and tokenizer.is_dir():
            copy_tokenizer(tokenizer, temporary)

    write_atomically(target, write)
    return written


def list_same_files(source: Path, target: Path) -> set[str]:
    """Name the files of a tokenizer that a folder has already, byte for byte, so that nothing is lost with them."""
    names = {name for name in TOKENIZER_FILES if (source / name).is_file() and (target / name).is_file()
             and (source / name).read_bytes() == (target / name).read_bytes()}
    other = target / TARGET
    whole = other.is_dir() and {path.name for path in other.iterdir()} == list_same_files(source / TARGET, other)
    return names | ({TARGET} if whole else set())


def save_adapter_alone(model: Transformer, target: Path, layout: str) -> str:
    """Write what is in a rewritten model and not in its base. Raises `InputError` for a layout of whole models."""
    meant = {"auto": "auto", "own": "own", "published": "peft"}
    if layout not in meant:
        raise InputError(f"an adapter has no place in the layout {layout}", where="layout",
                         remedy="merge it first (saucier merge), or use auto")
    return save_adapter(model, target, layout=meant[layout])


ADAPTER_LAYOUTS = ("auto", "peft", "own")


def save_adapter(model: Transformer, folder: str | Path, *, base: str | None = None, layout: str = "auto") -> str:
    """Write a tuned model's adapter atomically and return the layout: "peft" or "own".

    `base`: what to name as the base model; None: where the model came from. `layout`: "auto" is PEFT's where that can
    express the adapter. A network that makes a prefix in training is dropped, in the model too; its values stay.
    Raises `InputError` for a model that was not rewritten or has no base, for a layout that cannot
    express its adapter, and for a folder that holds something else.
    """
    target = Path(folder)
    base, rewrites = base or model.provenance.path, model.provenance.rewrites
    if layout not in ADAPTER_LAYOUTS:
        raise InputError(f"unknown layout {layout!r}", where="layout", remedy=suggest_name(layout, [*ADAPTER_LAYOUTS]))
    if not rewrites or base is None:
        raise InputError("there is no adapter in this model" if not rewrites else "no base model is known",
                         where="model", remedy="rewrite a loaded model first" if base is not None
                         else "say which it is with base=...")
    check_target_folder(target, (CONFIG, WEIGHTS))
    drop_prefix_network(model)
    files = None
    if layout != "own":
        try:
            files = make_peft_files(model, find_published_names(model), base)
        except InputError:
            if layout == "peft":
                raise
    write_atomically(target, partial(write_own_adapter, model, base=base) if files is None else files.write)
    return "own" if files is None else "peft"


def find_published_names(model: Transformer) -> PublishedNames:
    """Return the published names of a model's weights. Raises `InputError` where no layout can express it."""
    layout = LAYOUTS.get(model.provenance.model_type)
    if layout is None:
        raise InputError("the base model is in our own layout, which PEFT does not read", where="model",
                         remedy="save the adapter in our own form (own)")
    return express_model(model, layout)[0]
