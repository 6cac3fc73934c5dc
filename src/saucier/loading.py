"""`load`: a model from a folder, or from a run folder's best checkpoint, in the number format and place that suit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import NoneType

import torch

from saucier.allocator import keep_little
from saucier.checkpoints.adapters import (
    CONFIG,
    LEARNED_INPUTS,
    OWN,
    WEIGHTS,
    is_adapter_folder,
    read_adapter,
    read_settings,
)
from saucier.checkpoints.foreign import read_foreign
from saucier.checkpoints.model_folder import MODEL_TYPE, read_json, read_model
from saucier.checkpoints.sentence import is_sentence_folder, put_head, read_modules
from saucier.checkpoints.source import Weights
from saucier.devices import choose_dtype, choose_real_device
from saucier.errors import InputError, expect, nearest
from saucier.families.layouts import LAYOUTS
from saucier.hub import folder_of
from saucier.model import Transformer
from saucier.parts.changed import Origin
from saucier.spelling import spell_from
from saucier.text.tokenizer_files import tokenizer_place

SUMS = {"lora", "qlora", "freeze", "bias"}
"""Kinds of rewrites whose result an ordinary model can hold."""


def load(path: str | Path, *, head: str = "auto", dtype: str | torch.dtype = "auto",
         device: str | torch.device = "auto", base: str | None = None) -> Transformer:
    """Load a model in evaluation mode.

    `path` is a model folder, in our layout or a published one, or a run folder (then its best checkpoint, or the last);
    where no such folder exists, `owner/name` is fetched from the hub. A folder of sentence-transformers gives the model
    with its embedding head, an adapter (LoRA) the model that it names, or `base`, with the adapter merged in.
    `dtype` "auto" (or "stored") is the format of the folder's weights, so that what is saved again is the same;
    "fastest" the one that the device multiplies fastest, for a model that is only asked. `device` "auto" is CUDA, then
    MPS, then CPU. `head` "auto" keeps what was saved; a published class name takes a folder of its family as that
    class, and so does the kind of one of our heads (`language`, `span`, ..., or `none` for the body alone).
    Raises `InputError` for a folder that cannot be read, for an unknown dtype, device or head, and for a `base` where
    there is no adapter.
    """
    expect(head, str, "head", "give auto, or the name of a head")
    expect(base, (str, NoneType), "base", "give a folder or a hub id")
    found, place = folder_of(path), choose_real_device(device)
    folder = model_folder_of(found)
    number = number_format(dtype, folder, place, base)
    model = (open_model(folder, head, number, place) if base is None else
             open_adapted_model(adapter_folder(folder), head, number, place, base)).eval()
    spell_from(model, path)
    if place.type == "cpu":
        keep_little()
    if not model.rewrites:
        model.origin = Origin.of(path, model, tokenizer=tokenizer_beside(found, base))
    return model


def number_format(dtype: str | torch.dtype, folder: Path, device: torch.device, base: str | None = None) -> torch.dtype:
    """Return the number format in which a folder's model is opened. Raises `InputError` for an unknown name."""
    expect(dtype, (str, torch.dtype), "dtype", "give auto, float32, bfloat16 or float16")
    if dtype in ("auto", "stored"):
        return stored_dtype(folder, base)
    return choose_dtype(dtype, device, ("auto", "stored", "fastest"))


def stored_dtype(path: str | Path, base: str | None = None) -> torch.dtype:
    """Return the number format that holds a folder's weights exactly (an adapter's: its base model's, or `base`'s)."""
    folder = model_folder_of(folder_of(path))
    while is_adapter_folder(folder):
        if base is None and holds_all(folder):
            return Weights(folder, stem=(WEIGHTS, WEIGHTS)).dtype()
        folder, base = model_folder_of(base_of(folder, base)), None
    return Weights(read_modules(folder)[0] if is_sentence_folder(folder) else folder).dtype()


def tokenizer_beside(folder: Path, base: str | None = None) -> Path | None:
    """Return the folder with the tokenizer of what was opened: its own, its run's or its base's; None for none."""
    return next((place for place in tokenizer_places(folder, base) if tokenizer_place(place) is not None), None)


def tokenizer_places(folder: Path, base: str | None) -> Iterator[Path]:
    """Yield where the tokenizer of an opened folder may be; an adapter's base is looked for last."""
    yield folder
    if is_sentence_folder(folder):
        yield read_modules(folder)[0]
    if folder.absolute().parent.name == "checkpoints":
        yield folder.absolute().parent.parent
    if is_adapter_folder(folder) and (base is not None or not holds_all(folder)):
        yield from tokenizer_places(base_of(folder, base), None)


def open_model(folder: Path, head: str, dtype: torch.dtype, device: torch.device) -> Transformer:
    """Read a folder by the layout that its `model_type` names; one of sentence-transformers with its head."""
    if head == "auto" and is_sentence_folder(folder):
        return open_sentence_model(folder, dtype, device)
    if is_adapter_folder(folder):
        return open_adapted_model(folder, head, dtype, device)
    model_type = read_json(folder / "config.json").get("model_type")
    published = None if head == "auto" else head
    if isinstance(model_type, str) and model_type in LAYOUTS:
        return read_foreign(folder, LAYOUTS[model_type], published=published, dtype=dtype, device=device)
    if model_type != MODEL_TYPE:
        remedy = nearest(str(model_type), [MODEL_TYPE, *LAYOUTS])
        raise InputError(f"model_type {model_type!r} is not known", where=str(folder / "config.json"), remedy=remedy)
    if published:
        raise InputError(f"unknown head {head!r}", where="head", remedy="this folder is in our own layout: use auto")
    return read_model(folder, dtype=dtype, device=device)


def open_sentence_model(folder: Path, dtype: torch.dtype, device: torch.device) -> Transformer:
    """Read the body of a sentence-transformers folder and put its head on."""
    body, head, maps = read_modules(folder)
    document = read_json(body / "config.json")
    model_type = document.get("model_type")
    layout = LAYOUTS.get(str(model_type))
    if layout is None:
        raise InputError(f"model_type {str(model_type)[:80]!r} is not known", where=str(body / "config.json"),
                         remedy=nearest(str(model_type), [*LAYOUTS]))
    said = document.get("architectures")
    bodies = [name for name in layout.classes if name.endswith("Model") and isinstance(said, list) and name in said]
    bodies += [name for name, published in layout.classes.items() if published.base == ""]
    bare = bodies[0] if bodies else None
    model = read_foreign(body, layout, published=bare, dtype=dtype, device=device)
    return put_head(model, head, maps)


def adapter_folder(folder: Path) -> Path:
    """Return the folder of an adapter. Raises `InputError` for one that is none."""
    if not is_adapter_folder(folder):
        raise InputError("holds a whole model, and no adapter that needs a base", where=str(folder),
                         remedy="leave the base out")
    return folder


def open_adapted_model(folder: Path, head: str, dtype: torch.dtype, device: torch.device,
                       base: str | None = None) -> Transformer:
    """Read the base model of an adapter with the adapter in it: merged into the weights, where weights can hold it."""
    from saucier.adapters import on_base, open_apart, opened_base

    if not merges_in_reading(folder):
        model = open_apart(folder, base, head, dtype=dtype, device=device)
        return merged_if_possible(model)
    adapter = read_adapter(folder)
    return on_base(adapter, opened_base(adapter, base), head, dtype=dtype, device=device)


def holds_all(folder: Path) -> bool:
    """Say whether an adapter of ours names no base: it holds the whole model."""
    settings = read_settings(folder)
    return settings.get("peft_type") == OWN and settings.get("base_model_name_or_path") is None


def base_of(folder: Path, base: str | None = None) -> Path:
    """Return the folder of an adapter's base model: the one that is told, or that it names."""
    from saucier.adapters import beside

    named = base or read_settings(folder).get("base_model_name_or_path")
    if not isinstance(named, str) or not named:
        raise InputError("base_model_name_or_path is missing", where=str(folder / CONFIG),
                         remedy="write the base model's folder")
    return beside(folder, named)


def merges_in_reading(folder: Path) -> bool:
    """Say whether an adapter's sums can be made while the base model is read."""
    return read_settings(folder).get("peft_type") not in (OWN, *LEARNED_INPUTS)


def merged_if_possible(model: Transformer) -> Transformer:
    """Merge a model's adapter where it is a sum of weights; any other stays beside them."""
    from saucier.adaptation.merging import merge

    kinds = {one.by.kind for one in model.rewrites}
    if kinds <= SUMS:
        if kinds & {"lora", "qlora"}:
            merge(model)
        model.rewrites.clear()
        model.requires_grad_(True)
    return model


def model_folder_of(folder: Path) -> Path:
    """Return the folder that holds the weights: itself, or a run's best or last checkpoint."""
    if (folder / "config.json").is_file() or is_sentence_folder(folder) or is_adapter_folder(folder):
        return folder
    from saucier.training.resume import usable_checkpoint

    return usable_checkpoint(folder)
