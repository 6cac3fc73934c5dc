"""`save`: a model as a folder, in a published layout where one can express it, in our own otherwise."""

from __future__ import annotations

import warnings
from pathlib import Path

from saucier.checkpoints.foreign import body_of, write_foreign
from saucier.checkpoints.keys import Layout
from saucier.checkpoints.model_folder import MODEL_TYPE, check_free, save_model
from saucier.errors import InputError, expect, nearest
from saucier.families.layouts import LAYOUTS
from saucier.files import refuse_unwritable
from saucier.model import Transformer
from saucier.text.tokenizer_files import TARGET, TOKENIZER, copy_tokenizer

WHOLE = ("freeze",)
"""Rewrites that leave an ordinary model."""
LAYOUT_NAMES = ("auto", "own", "published")


def save(model: Transformer, folder: str | Path, *, layout: str = "auto") -> str:
    """Write a model atomically, with the tokenizer of the folder that it was loaded from; return the layout written.

    An earlier save in the folder is replaced, and nothing else; the rest is as in `save_bare`. A model whose shape was
    changed after loading brings no tokenizer: it may say otherwise. Raises as `save_bare` does.
    """
    expect(folder, (str, Path), "folder", "give a folder")
    place = model.origin.tokenizer if model.origin is not None else None
    return save_with(model, Path(folder), layout, None if place is None else Path(place))


def save_bare(model: Transformer, folder: str | Path, *, layout: str = "auto") -> str:
    """Write a model atomically, without a tokenizer, and return the `model_type` of the layout that was written.

    `layout`: "auto" is a published one where one can express the model, else our own ("saucier"), with a warning if the
    model had come from a published folder; "published" and "own" insist; a `model_type` insists on that one.
    Of a rewritten model what it has beside its base is written, an adapter; the layout is then "peft" or "own".
    Raises `InputError` for a layout that cannot express the model, and for a folder that holds something else.
    """
    expect(folder, (str, Path), "folder", "give a folder")
    return save_with(model, Path(folder), layout, None)


def save_with(model: Transformer, target: Path, layout: str, tokenizer: Path | None) -> str:
    """Write a model, and copy the tokenizer of a folder, as `save` and `save_bare` say."""
    expect(layout, str, "layout", f"give {', '.join(LAYOUT_NAMES)}, or a model_type")
    refuse_unwritable(target, folder=True)
    if any(one.by.kind not in WHOLE for one in model.rewrites):
        return adapter_alone(model, target, layout)
    if layout not in (*LAYOUT_NAMES, *LAYOUTS):
        raise InputError(f"unknown layout {layout!r}", where="layout",
                         remedy=nearest(layout, [*LAYOUT_NAMES, *LAYOUTS]))
    check_free(target, () if tokenizer is None else same_files(tokenizer, target))
    refusals: dict[str, InputError] = {}

    def beside(temporary: Path) -> None:
        if tokenizer is not None and tokenizer.is_dir():
            copy_tokenizer(tokenizer, temporary)

    for candidate in () if layout == "own" else candidates(model, layout):
        try:
            expresses(candidate, model)
        except InputError as error:
            refusals[candidate.model_type] = error
            continue
        write_foreign(model, candidate, target, beside)
        return candidate.model_type
    if layout not in ("auto", "own"):
        raise refusals[layout] if layout in refusals else nowhere(model, refusals)
    came_from = str(model.published.get("model_type"))
    if layout == "auto" and came_from in refusals:
        warnings.warn(f"written in our own layout: {refusals[came_from].what}", stacklevel=2)
    save_model(model, target, beside)
    return MODEL_TYPE


def same_files(source: Path, target: Path) -> set[str]:
    """Name the files of a tokenizer that a folder has already, byte for byte, so that nothing is lost with them."""
    names = {name for name in TOKENIZER if (source / name).is_file() and (target / name).is_file()
             and (source / name).read_bytes() == (target / name).read_bytes()}
    other = target / TARGET
    whole = other.is_dir() and {path.name for path in other.iterdir()} == same_files(source / TARGET, other)
    return names | ({TARGET} if whole else set())


def adapter_alone(model: Transformer, target: Path, layout: str) -> str:
    """Write what a rewritten model has beside its base. Raises `InputError` for a layout that holds whole models."""
    from saucier.adapters import save_adapter

    meant = {"auto": "auto", "own": "own", "published": "peft"}
    if layout not in meant:
        raise InputError(f"an adapter has no place in the layout {layout}", where="layout",
                         remedy="merge it first (saucier merge), or use auto")
    return save_adapter(model, target, layout=meant[layout])


def candidates(model: Transformer, layout: str) -> list[Layout]:
    """Return the layouts to try, the one that the model came from first."""
    if layout in LAYOUTS:
        return [LAYOUTS[layout]]
    came_from = model.published.get("model_type")
    return sorted(LAYOUTS.values(), key=lambda one: one.model_type != came_from)


def expresses(layout: Layout, model: Transformer) -> None:
    """Raise `InputError` where a layout cannot express a model."""
    try:
        said = model.published if model.published.get("model_type") == layout.model_type else {}
        layout.document(body_of(model.config), said)
    except InputError as error:
        start = f"this model cannot be written as {layout.model_type}"
        what = error.what if error.what.startswith(start) else f"{start}: {error.what}"
        raise InputError(what, where="model", remedy="save it in our own layout") from error


def nowhere(model: Transformer, refusals: dict[str, InputError]) -> InputError:
    """Build the error for a model that no published layout can express."""
    came_from = str(model.published.get("model_type"))
    what = refusals[came_from].what if came_from in refusals else "no published layout can express this model"
    return InputError(what, where="layout", remedy="save it in our own layout (own)")
