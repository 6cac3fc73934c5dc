"""`save`: a model as a folder, in a published layout where one can express it, in our own otherwise; `save_adapter`: a
tuned model's adapter alone, in PEFT's layout or in our own form.
"""

from __future__ import annotations

import dataclasses
import shutil
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from math import prod
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from saucier.adaptation.own_adapter import learned_values, write_own_adapter
from saucier.adaptation.peft_writing import make_peft_files
from saucier.adaptation.prefix import drop_prefix_network
from saucier.adaptation.quantization.maps import is_quantized, list_matrices
from saucier.adaptation.quantization.published_weights import express_packed
from saucier.adaptation.quantization.schemes import NormalFloat
from saucier.checkpoints.adapter_folder import CONFIG, WEIGHTS
from saucier.checkpoints.layout import MODEL_TYPE, QUANTIZATION
from saucier.checkpoints.own_folder import write_model
from saucier.checkpoints.published_folder import express_model, write_published
from saucier.checkpoints.published_names import PublishedNames
from saucier.checkpoints.sentence_modules import is_sentence_folder, read_max_length
from saucier.devices import choose_dtype
from saucier.errors import InputError, expect, suggest_name
from saucier.families import LAYOUTS
from saucier.files import is_taken, list_entries, read_json, refuse_unwritable, write_atomically
from saucier.folders.kinds import identify_folder, list_weight_files, place_tokenizer
from saucier.folders.load import remember_stored
from saucier.folders.sentence_classifier import modules_head, write_as_modules
from saucier.folders.stored import collect_numbers
from saucier.model import Transformer
from saucier.parts.provenance import FolderState, Saved
from saucier.plain import HANDED_IN

MODEL_FILE = "config.json"
WHOLE_REWRITES = {"freeze", "quantization"}
"""Rewrites that leave a whole model, which is stored without any other."""
LAYOUT_NAMES = ("auto", "own", "published")
AddFiles = Callable[[Path, bool], None]
"""Adds files to a folder that is being written; the second says whether the weights are those of the model's source."""
SETTINGS = ("task.json", "config_sentence_transformers.json")
"""Files that come along with a model that is of the same shape and has the same head as in the folder that it is from.
"""


def save(model: Transformer, folder: str | Path, *, layout: str = "auto", dtype: str | torch.dtype = "stored",
         replace: bool = False) -> Saved:
    """Write a model atomically, with the tokenizer and the settings of the folder that it was loaded from.

    The folder is a new one, or the one that this model was loaded from or saved to last, as long as nobody changed it
    and nothing in it is lost; with `replace` any other model's folder too. The rest is as in `save_bare`. A model whose
    shape was changed after loading brings no tokenizer: it may say otherwise. Raises as `save_bare` does.
    """
    check_folder(folder)
    return save_with(model, folder, layout, dtype, partial(add_settings, model, Path(folder)), replace=replace)


def check_folder(folder: object) -> None:
    """Raise `InputError` for a folder that is no path."""
    expect(folder, (str, PathLike), "folder", "give the path of a new folder")


def save_bare(model: Transformer, folder: str | Path, *, layout: str = "auto",
              dtype: str | torch.dtype = "stored") -> Saved:
    """Write a model atomically, without a tokenizer, and return the `model_type` of the layout, with what was stored.

    `layout`: "auto" is a published one where one can express the model, else our own ("saucier"), with a warning if the
    model had come from a published folder; "published" and "own" insist; a `model_type` insists on that one.
    `dtype` "stored": numbers that did not change since loading are written as they are stored, in their format; what
    was learned from them in the wider of both formats. Any other writes all in that format.
    A quantized model is in our own layout, or, where asked for a published one, a folder of compressed-tensors; `dtype`
    is for what of it is not in few bits.
    Of a rewritten model what it has in addition to its base is written, an adapter; the layout is then "peft" or "own".
    Raises `InputError` for a layout that cannot express the model, for a folder that holds something else, and where
    loading rounded the numbers and the folder that has the exact ones was changed or removed.
    """
    return save_with(model, folder, layout, dtype, lambda made, intact: None)


def save_with(model: Transformer, folder: str | Path, layout: str, dtype: str | torch.dtype,
              add_files: AddFiles, *, replace: bool = False) -> Saved:
    """Write a model, and further files next to it, as `save` and `save_bare` say."""
    check_folder(folder)
    if model.format is not None:
        raise InputError(f"was loaded in {model.format}, for inference alone", where="model",
                         remedy="load it without a format to save it; `saucier compress` stores models in few bits")
    expect(layout, str, "layout", f"give {', '.join(LAYOUT_NAMES)}, or a model_type")
    expect(replace, bool, "replace", "give True or False")
    target, rounded = Path(folder), None if dtype == "stored" else choose_dtype(dtype, model.device, ("stored",))
    if model.provenance.rewrite_kinds - WHOLE_REWRITES:
        return save_adapter_alone(model, target, layout, add_files, replace=replace)
    refuse_others_folder(model, target, replace=replace)
    write_files, written = choose_layout(model, layout)
    numbers = collect_numbers(model, rounded)

    def write(temporary: Path) -> None:
        write_files(temporary, weights=numbers.tensors)
        add_files(temporary, numbers.unchanged == len(numbers.tensors))
        refuse_loss(target, temporary)

    write_atomically(target, write)
    remember_save(model, target)
    return describe_save(target, written, numbers.tensors, numbers.unchanged, count_rounded(model))


def choose_layout(model: Transformer, layout: str) -> tuple[Callable[..., None], str]:
    """Return what writes a model in a layout, and its `model_type`; `layout` as in `save_bare`."""
    if layout not in (*LAYOUT_NAMES, *LAYOUTS):
        raise InputError(f"unknown layout {layout!r}", where="layout",
                         remedy=suggest_name(layout, [*LAYOUT_NAMES, *LAYOUTS]))
    if is_quantized(model) and layout in ("auto", "own"):
        return partial(write_model, model), MODEL_TYPE
    came_from = model.provenance.model_type
    refusals: dict[str, InputError] = {}
    candidates = [one for one in LAYOUTS.values() if layout not in LAYOUTS or one is LAYOUTS[layout]]
    for candidate in () if layout == "own" else sorted(candidates, key=lambda one: one.model_type != came_from):
        try:
            names, document = express_model(model, candidate)
        except InputError as error:
            refusals[candidate.model_type] = error
            continue
        return make_writer(model, names, document), candidate.model_type
    said = model.provenance.document
    whole = layout == "own" or is_quantized(model)
    if not whole and (head := modules_head(model, said, find_text_length(model))) is not None:
        return partial(write_as_modules, model, head), str(said["model_type"])
    if layout not in ("auto", "own"):
        raise refusals.get(layout) or InputError(
            refusals[came_from].what if came_from in refusals else "no published layout can express this model",
            where="layout", remedy="save it in our own layout (own)")
    if layout == "auto" and came_from in refusals:
        warnings.warn(f"written in our own layout: {refusals[came_from].what}", stacklevel=4)
    return partial(write_model, model), MODEL_TYPE


def make_writer(model: Transformer, names: PublishedNames, document: dict[str, Any]) -> Callable[..., None]:
    """Return what writes a model in a published layout; one in few bits as a folder of compressed-tensors.

    Raises `InputError` for a matrix in few bits that such a folder cannot hold.
    """
    if not is_quantized(model):
        return partial(write_published, model, names, document)
    packed, said = express_packed(model, names)

    def write(folder: Path, weights: Mapping[str, Tensor]) -> None:
        held = tuple(f"{name}.{part}" for name, one in list_matrices(model).items() for part in one.parts())
        plain = {name: tensor for name, tensor in weights.items() if name not in held}
        write_published(model, names, {**document, QUANTIZATION: said}, folder, plain, packed)

    return write


def find_text_length(model: Transformer) -> int | None:
    """Return the most tokens of a text, where the folder that a model is from has modules that say it."""
    stored = model.provenance.stored
    place = None if stored is None else Path(stored.state.path)
    return read_max_length(place) if place is not None and is_sentence_folder(place) else None


def add_settings(model: Transformer, target: Path, made: Path, intact: bool) -> None:
    """Add the tokenizer and the settings of the folder that a model was loaded from, and a model card.

    `target`: the folder that `made` will replace; `intact`: whether the weights are those of the folder.
    """
    known, stored, sources = model.provenance, model.provenance.stored, [target]
    if not known.rewrite_kinds - WHOLE_REWRITES:
        if known.origin is not None and known.origin.tokenizer is not None and Path(known.origin.tokenizer).exists():
            place_tokenizer(Path(known.origin.tokenizer), made)
        if stored is not None and stored.head == "auto" and stored.config.head == model.config.head:
            sources.append(Path(stored.state.path))
            copy_files(sources[-1], made, SETTINGS)
    HANDED_IN["write card"](made, model.config, base=known.path, sources=sources, intact=intact)


def copy_files(source: Path, target: Path, names: Iterable[str]) -> None:
    """Copy those of some files that a folder has."""
    for name in names:
        if (source / name).is_file():
            shutil.copyfile(source / name, target / name)


def refuse_others_folder(model: Transformer, target: Path, *, replace: bool = False) -> None:
    """Raise `InputError` for a folder that a model must not be written into: one that holds anything.

    Not refused is the folder that this model was loaded from or saved to last, as long as its model is the same; with
    `replace` that of any model.
    """
    refuse_unwritable(target, folder=True)
    known, place = model.provenance, str(target.absolute())
    states = [known.saved] if known.saved is not None else []
    if known.stored is not None and known.stored.head == "auto":
        states.append(known.stored.state)
    own = any(state.path == place and state.is_current for state in states)
    if own or not is_taken(target):
        return
    model_file = next((name for name in (MODEL_FILE, CONFIG) if (target / name).is_file()), None)
    if model_file is None:
        names = [path.name for path in list_entries(target)]
        raise InputError(f"the folder holds something else ({min(names)})", where=str(target),
                         remedy="give a new folder")
    if not replace:
        raise InputError(f"the folder holds another model ({model_file})", where=str(target),
                         remedy="give a new folder, or replace=True")


def refuse_loss(target: Path, made: Path) -> None:
    """Raise `InputError` for a file of a folder that nothing would replace."""
    if not target.is_dir():
        return
    there = {str(path.relative_to(target)) for path in target.rglob("*") if path.is_file()}
    weights = {str(path.relative_to(target)) for path in find_weights(target)}
    if lost := there - weights - {str(path.relative_to(made)) for path in made.rglob("*") if path.is_file()}:
        raise InputError(f"the folder holds something else ({min(lost)})", where=str(target),
                         remedy="give a new folder")


def find_weights(folder: Path) -> list[Path]:
    """Return the files of weights in a folder, with the index of shards; none where it is not to be read."""
    try:
        found = [path for path in list_weight_files(identify_folder(folder)) if path.is_relative_to(folder)]
    except InputError:
        return []
    return [*found, *folder.glob("*.index.json")]


def remember_save(model: Transformer, target: Path) -> None:
    """Note where a model was saved; where that is the folder that it came from, what is stored there now counts."""
    kind = identify_folder(target)
    state = FolderState.of(kind.path, [kind.path / MODEL_FILE, *list_weight_files(kind)])
    stored = model.provenance.stored
    if stored is not None and stored.state.path == state.path:
        remember_stored(model, kind, read_json(target / MODEL_FILE), loaded=stored.loaded)
    model.provenance = dataclasses.replace(model.provenance, saved=state)


def count_rounded(model: Transformer) -> int:
    """Return how many more values a model has than numbers that are stored: those in few bits, without their parts."""
    matrices = list_matrices(model).values()
    return sum(prod(one.shape) - sum(part.numel() for part in one.buffers()) for one in matrices)


def describe_save(target: Path, layout: str, tensors: Mapping[str, Tensor], unchanged: int | None, more: int = 0
                  ) -> Saved:
    """Return what was stored; `more`: values beyond the numbers of the tensors."""
    formats: Counter[str] = Counter()
    for tensor in tensors.values():
        formats[str(tensor.dtype).removeprefix("torch.")] += tensor.nbytes
    files = [path for path in sorted(target.rglob("*")) if path.is_file()]
    return Saved(layout, folder=target, parameters=more + sum(tensor.numel() for tensor in tensors.values()),
                 formats=dict(formats), size=sum(path.stat().st_size for path in files), tensors=len(tensors),
                 unchanged=unchanged, files=tuple(str(path.relative_to(target)) for path in files))


def save_adapter_alone(model: Transformer, target: Path, layout: str, add_files: AddFiles, *, replace: bool) -> Saved:
    """Write what is in a rewritten model and not in its base. Raises `InputError` for a layout of whole models."""
    meant = {"auto": "auto", "own": "own", "published": "peft"}
    if layout not in meant:
        raise InputError(f"an adapter has no place in the layout {layout}", where="layout",
                         remedy="merge it first (saucier merge), or use auto")
    return write_adapter(model, target, None, meant[layout], add_files, replace=replace)


ADAPTER_LAYOUTS = ("auto", "peft", "own")


def save_adapter(model: Transformer, folder: str | Path, *, base: str | None = None, layout: str = "auto",
                 replace: bool = False) -> Saved:
    """Write a tuned model's adapter atomically and return the layout, "peft" or "own", with what was stored.

    `base`: what to name as the base model; None: where the model came from. `layout`: "auto" is PEFT's where that can
    express the adapter. `replace`: as in `save`. A network that makes a prefix in training is dropped, in the model
    too; its values stay.
    Raises `InputError` for a model that was not rewritten or has no base, for a layout that cannot
    express its adapter, and for a folder that holds something else.
    """
    check_folder(folder)
    return write_adapter(model, Path(folder), base, layout, lambda made, intact: None, replace=replace)


def write_adapter(model: Transformer, target: Path, base: str | None, layout: str, add_files: AddFiles, *,
                  replace: bool) -> Saved:
    """Write an adapter as `save_adapter` says, and further files next to it."""
    base, rewrites = base or model.provenance.path, model.provenance.rewrites
    if "quantization" in model.provenance.rewrite_kinds:
        raise InputError("the model under the adapter was quantized after loading, so no folder holds it",
                         where="model", remedy="save the quantized model first, load it, and put the adapter on that")
    if layout not in ADAPTER_LAYOUTS:
        raise InputError(f"unknown layout {layout!r}", where="layout", remedy=suggest_name(layout, [*ADAPTER_LAYOUTS]))
    if not rewrites or base is None:
        raise InputError("there is no adapter in this model" if not rewrites else "no base model is known",
                         where="model", remedy="rewrite a loaded model first" if base is not None
                         else "say which it is with base=...")
    refuse_others_folder(model, target, replace=replace)
    drop_prefix_network(model)
    files = None
    if layout != "own":
        try:
            files = make_peft_files(model, find_published_names(model), base)
        except InputError:
            if layout == "peft":
                raise
    write_files = partial(write_own_adapter, model, base=base) if files is None else files.write

    def write(temporary: Path) -> None:
        write_files(temporary)
        add_files(temporary, False)
        refuse_loss(target, temporary)

    write_atomically(target, write)
    state = FolderState.of(target, [target / CONFIG, target / WEIGHTS])
    model.provenance = dataclasses.replace(model.provenance, saved=state)
    return describe_save(target, "own" if files is None else "peft",
                         learned_values(model) if files is None else files.tensors, None)


def find_published_names(model: Transformer) -> PublishedNames:
    """Return the published names of a model's weights. Raises `InputError` where no layout can express it."""
    layout = LAYOUTS.get(model.provenance.model_type)
    # QLoRA's own four bits are NF4, which no published folder has: its base is in float
    if layout is None or any(not isinstance(one.store, NormalFloat) for one in list_matrices(model).values()):
        what = "in our own layout" if layout is None else "in few bits"
        raise InputError(f"the base model is {what}, on which adapters of PEFT are not opened here", where="model",
                         remedy="save the adapter in our own form (own)")
    return express_model(model, layout)[0]
