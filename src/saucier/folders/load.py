"""`load`: a model from a folder, or from a run folder's best checkpoint; `open_adapter`: an adapter on its base model,
the two separate. Each in the number format and on the device that suit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import NoneType
from typing import Any

import torch

from saucier.adaptation.lora import merge_pairs
from saucier.adaptation.own_adapter import read_own_adapter
from saucier.adaptation.peft_reading import attach_lora, attach_prefix
from saucier.adaptation.quantization.aware import fix_rounding
from saucier.adaptation.quantization.gguf_matrices import install_blocks
from saucier.adaptation.quantization.published_weights import QuantizedWeights, install_published
from saucier.adaptation.quantization.storage import check_matrices, install_matrices
from saucier.checkpoints.adapter_folder import (
    LEARNED_INPUTS,
    WEIGHTS,
    Adapter,
    MergedWeights,
    base_error,
    read_adapter,
)
from saucier.checkpoints.gguf_weights import GgufWeights
from saucier.checkpoints.hub import resolve_folder
from saucier.checkpoints.layout import NO_HEAD
from saucier.checkpoints.own_folder import read_own_model
from saucier.checkpoints.published_folder import PublishedFolder, build_published
from saucier.checkpoints.sentence_folder import put_head
from saucier.checkpoints.sentence_modules import is_classifier_folder
from saucier.checkpoints.weight_files import SAFE, Weights
from saucier.config.questions import reads_padding
from saucier.devices import choose_dtype, choose_real_device, keep_small_blocks
from saucier.errors import InputError, expect, suggest_name
from saucier.folders.kinds import (
    AdapterFolder,
    FolderKind,
    GgufModel,
    OwnFolder,
    SentenceFolder,
    find_model_folder,
    find_tokenizer,
    identify_adapter,
    identify_folder,
    list_weight_files,
    stored_dtype,
)
from saucier.folders.sentence_classifier import to_classifier
from saucier.machine import available_memory
from saucier.model import Transformer
from saucier.parts.embedding import CharacterTokens
from saucier.parts.provenance import FolderState, Origin, StoredWeights, mark_parameters
from saucier.plain import HANDED_IN, format_bytes
from saucier.text.tokenizer.model_inputs import spell_tokens
from saucier.text.tokenizer.tokenizer import Tokenizer, load_tokenizer


def set_token_spellings(model: Transformer, tokenizer: Tokenizer) -> None:
    """Give a model the spellings of a tokenizer's tokens; nothing is done where it does not read characters."""
    tokens = model.embed.tokens
    if isinstance(tokens, CharacterTokens):
        tokens.spell(torch.from_numpy(spell_tokens(tokenizer, range(tokens.num_embeddings), tokens.config.longest)))


def load_token_spellings(model: Transformer, folder: Path | str) -> None:
    """The same with the tokenizer of a folder, for a model that reads characters. Raises `InputError` for none."""
    try:
        set_token_spellings(model, load_tokenizer(folder))
    except InputError as error:
        raise InputError("this model reads characters, and no tokenizer spells its tokens", where=str(folder),
                         remedy="put the model's tokenizer into its folder") from error


MERGEABLE = {"lora", "qlora", "freeze", "bias", "quantization_aware"}
"""Kinds of rewrites whose result an ordinary model can hold."""


def load(path: str | Path, head: str = "auto", dtype: str | torch.dtype = "auto",
         device: str | torch.device = "auto", *, base: str | None = None, task: str | None = None,
         labels: Sequence[str] = (), format: str | None = None) -> Transformer:  # noqa: A002  # its public name
    """Load a model in evaluation mode.

    `path` is a model folder, in our layout or a published one, or a run folder (then its best checkpoint, or the last);
    where no such folder exists, `owner/name` is fetched from the hub. A folder of sentence-transformers gives the model
    with its embedding head, an adapter (LoRA) the model that it names, or `base`, with the adapter merged in. A GGUF
    file of llama.cpp gives its model; of its numbers in few bits those that can stay so do.
    `dtype` is what to compute in: "auto" (or "fastest") the format that the device multiplies fastest, "stored" that of
    the folder's weights. What is saved, changed or trained begins with the stored numbers either way. `device` "auto"
    is CUDA, then MPS, then CPU. `head` "auto" keeps what was saved; a published class name takes a folder of its family
    as that class, and so does the kind of one of our heads (`language`, `span`, ..., or `none` for the body alone).
    `task` puts a new head on the body, as `saucier finetune` begins (`classification`, `tagging`, ...); `labels` are
    the names of its outputs, in order. A head that knows the same labels is kept. Such a model is to be trained: it has
    the stored format, float32 at least, where `dtype` is "auto".
    `format` reads the matrices by kernels in C, in float32, bfloat16, int8 or int4: such a model is for inference on a
    CPU alone. "auto" takes what `saucier bench` chose for it on this machine; see docs/fast.md. None: as without them.
    Raises `InputError` for a folder that cannot be read, for an unknown dtype, device, head or task, for wrong labels,
    for a `base` where there is no adapter, and for a format that the model cannot take, naming the part.
    """
    check_options(head, base)
    if format is not None:
        return load_in_format(path, format, head, dtype, device, base=base, task=task)
    if task is not None or not isinstance(labels, tuple | list) or labels:
        return load_for_task(path, head, dtype, device, base=base, put_head=HANDED_IN["task head"](task, labels))
    kind, place = identify_folder(resolve_folder(path), base, modules=head == "auto"), choose_real_device(device)
    number_format = choose_number_format(dtype, kind, place)
    learned = isinstance(kind, AdapterFolder) and kind.learned_rounding  # codes are found from what was learned
    model = merge_if_possible(open_folder(kind, head, torch.float32 if learned else number_format, place))
    model = model.to(number_format) if learned else model
    remember_stored(model, kind, model.provenance.document, head=head, base=base, loaded=number_format)
    if model.config.embed.characters is not None:
        load_token_spellings(model, path)
    if place.type == "cpu":
        keep_small_blocks()
    if not model.provenance.rewrites:
        model.provenance = replace(model.provenance, origin=Origin.of(path, model, tokenizer=find_tokenizer(kind)))
    return model.eval()


def load_in_format(path: str | Path, form: str, head: str, dtype: str | torch.dtype, device: str | torch.device, *,
                   base: str | None, task: str | None) -> Transformer:
    """Load a model for inference with its matrices in a number format, as `load` says.

    Where `auto` leaves it to the model's own parts, these compute in `dtype`.
    """
    from saucier.generation.formats import check_format, use_format

    check_format(form)
    for found, where, what in ((task is not None, "task", "a model with a new head is to be trained"),
                               (str(device) not in ("auto", "cpu"), "device", f"{device} has no formats of ours"),
                               (form != "auto" and dtype not in ("auto", "stored", "float32", torch.float32), "dtype",
                                f"the matrices are in {form}")):
        if found:
            raise InputError(what, where=where, remedy="leave it or the format out")
    model = load(path, head, "float32", "cpu", base=base)
    stored = model.provenance.stored
    view = use_format(model, form, widest=torch.float32 if stored is None else stored.widest)
    return load(path, head, dtype, device, base=base) if view is None and dtype != "float32" else view or model


def load_for_task(path: str | Path, head: str, dtype: str | torch.dtype, device: str | torch.device, *,
                  base: str | None, put_head: Callable[[Transformer, str | Path], Transformer]) -> Transformer:
    """Load a model and put the head of a task on it, as `load` says."""
    if head != "auto":
        raise InputError("a task has a head of its own", where="head", remedy="leave it out, or leave out the task")
    place = choose_real_device(device)
    wanted = None if dtype in ("auto", "stored") else choose_number_format(dtype, None, place)
    model = put_head(load(path, dtype="stored", device="cpu", base=base), path)
    return model.to(device=place, dtype=wanted or torch.promote_types(model.dtype, torch.float32)).eval()


def check_options(head: str, base: str | None) -> None:
    """Raise `InputError` for a head or a base of another type."""
    expect(head, str, "head", "give auto, or the name of a head")
    expect(base, (str, NoneType), "base", "give a folder or a hub id")


def choose_number_format(dtype: str | torch.dtype, kind: FolderKind | None, device: torch.device) -> torch.dtype:
    """Return the number format in which a folder's model is opened. Raises `InputError` for an unknown name."""
    expect(dtype, (str, torch.dtype), "dtype", "give auto, float32, bfloat16 or float16")
    if dtype == "stored" and kind is not None:
        return stored_dtype(kind)
    return choose_dtype("fastest" if dtype == "auto" else dtype, device, ("auto", "stored", "fastest"))


def remember_stored(model: Transformer, kind: FolderKind, document: Mapping[str, Any], *, loaded: torch.dtype,
                    head: str = "auto", base: str | None = None, separate: bool = False) -> None:
    """Note in a model's provenance where its weights are stored.

    `document`: the published config that names their class; `loaded`: the format in which they were loaded.
    """
    published = (document.get("architectures") or (None,))[0]
    model.provenance = replace(model.provenance, stored=StoredWeights(
        FolderState.of(kind.path, list_weight_files(kind)), model.config, published, head, base, separate, loaded,
        stored_dtype(kind)))


def open_folder(kind: FolderKind, head: str, dtype: torch.dtype, device: torch.device) -> Transformer:
    """Read the model of a folder of any kind, in training mode; `head` as in `load`.

    An adapter stays separate where its weights cannot be summed while the base is read.
    """
    published = None if head == "auto" else head
    match kind:
        case OwnFolder():
            model = read_own_model(kind.path, dtype=dtype, device=device, install=install_matrices)
            check_matrices(model, str(kind.path / SAFE))
            return keep_head(model, head)
        case GgufModel():
            blocks = refuse_too_large(kind.open_weights(), dtype)
            return build_published(kind.body, blocks, published=published, dtype=dtype, device=device,
                                   install=partial(install_blocks, blocks))
        case PublishedFolder() if kind.quantization is not None:
            source = QuantizedWeights(Weights(kind.path), kind.quantization)
            return build_published(kind, source, published=published, dtype=dtype, device=device,
                                   install=partial(install_published, source))
        case PublishedFolder():
            return build_published(kind, Weights(kind.path), published=published, dtype=dtype, device=device)
        case SentenceFolder(body=body):
            saved, classes = body.document.get("architectures"), body.layout.classes
            bare = [*(name for name in classes if name.endswith("Model") and isinstance(saved, list) and name in saved),
                    *(name for name, one in classes.items() if one.base == "")]  # the saved one first
            model = build_published(body, Weights(body.path), published=bare[0] if bare else None, dtype=dtype,
                                    device=device)
            model = put_head(model, kind.head, kind.maps)
            return to_classifier(model) if is_classifier_folder(kind.path) else model
        case AdapterFolder() if kind.is_own or kind.learns_inputs:
            return open_unmerged(kind, head, dtype, device)
        case AdapterFolder():
            return build_on_base(*open_base(kind), head, dtype=dtype, device=device)


def refuse_too_large(source: GgufWeights, dtype: torch.dtype) -> GgufWeights:
    """Return the weights of a file. Raises `InputError` where this machine has no room for them in a number format."""
    needed, free = source.predict_bytes(dtype), available_memory()
    if free is not None and needed > free:
        raise InputError(f"needs {format_bytes(needed)} of memory, and {format_bytes(free)} are free",
                         where=source.where, remedy="close other programs, or take a file of a smaller model")
    return source


def keep_head(model: Transformer, head: str) -> Transformer:
    """Return a model of our own layout with the head that it has, or with none. Raises `InputError` for another one."""
    kind = NO_HEAD if model.config.head is None else model.config.head.kind
    if head == NO_HEAD:
        model.config, model.head = model.config.model_copy(update={"head": None}), None
        model.packs = not reads_padding(model.config)
    elif head not in ("auto", kind):
        raise InputError(f"the folder has no head {head!r}", where="head",
                         remedy=f"{suggest_name(head, list(dict.fromkeys(['auto', kind, NO_HEAD])))}; "
                                "a new head is put on with task=...")
    return model


def merge_if_possible(model: Transformer) -> Transformer:
    """Merge a model's adapter where it is a sum of weights; any other stays next to them."""
    kinds = model.provenance.rewrite_kinds
    if kinds and kinds <= MERGEABLE:
        if kinds & {"lora", "qlora"}:
            merge_pairs(model)
        if "quantization_aware" in kinds:
            fix_rounding(model)
        model.provenance = replace(model.provenance, rewrites=())
        model.requires_grad_(True)
    return model


def open_adapter(folder: str | Path, *, base: str | None = None, head: str = "auto",
                 dtype: str | torch.dtype = "auto", device: str | torch.device = "auto") -> Transformer:
    """Load an adapter on its base model, the two separate, in evaluation mode.

    `base` overrules the base that the adapter names; the rest is as in `saucier.load`, which gives the two merged.
    Raises `InputError` for an adapter that cannot be read, and for a base that it does not belong to.
    """
    check_options(head, base)
    kind, place = identify_adapter(find_model_folder(resolve_folder(folder)), base), choose_real_device(device)
    number_format = choose_number_format(dtype, kind, place)
    model = open_unmerged(kind, head, number_format, place)
    remember_stored(model, kind, model.provenance.document, head=head, base=base, separate=True, loaded=number_format)
    return model.eval()


def open_unmerged(folder: AdapterFolder, head: str, dtype: torch.dtype, device: torch.device) -> Transformer:
    """Load an adapter of any layout on its base model, the two separate."""
    if not folder.is_own:
        return open_peft(*open_base(folder), head, dtype=dtype, device=device)
    if folder.base is None:
        return read_own_adapter(folder.settings, None, folder.path / WEIGHTS, dtype=dtype, device=device)
    place = folder.resolve_base()
    named = folder.base == folder.settings.get("base_model_name_or_path")
    is_folder = Path(folder.base).is_dir() or (folder.path / folder.base).is_dir()
    origin = str(place.absolute()) if is_folder and not named else folder.base  # a hub id stays: its place is a cache
    return read_own_adapter(folder.settings, load(place, dtype=dtype, device=device), folder.path / WEIGHTS,
                            origin=origin)


def open_base(folder: AdapterFolder) -> tuple[Adapter, PublishedFolder, MergedWeights]:
    """Open the base model of an adapter in PEFT's layout. Raises `InputError` for one that is in no published layout.
    """
    adapter = read_adapter(folder.path)
    base = identify_folder(folder.resolve_base(), modules=False)
    if not isinstance(base, PublishedFolder):
        what = "a GGUF file" if isinstance(base, GgufModel) else "in our own layout"
        raise base_error(f"it is {what}, and an adapter of PEFT names the weights of a published one",
                         adapter.folder, adapter.base, base.path)
    source = MergedWeights(Weights(base.path), adapter, base.layout.bases)
    return adapter, replace(base, document={**base.document, **source.labels(base.document)}), source


def open_peft(adapter: Adapter, base: PublishedFolder, source: MergedWeights, head: str, *, dtype: torch.dtype,
              device: torch.device) -> Transformer:
    """Load an adapter in PEFT's layout on its base model, the two separate."""
    modules = source.take_pairs()
    model = build_on_base(adapter, base, source, head, dtype=dtype, device=device)
    names = base.name_weights(model)
    unlike = frozenset(own for own, _ in model.named_parameters() if (match := names.rules.match(own)) is not None
                       and any(names.present(one, source) in source.instead for one in match.foreign))
    model.provenance = replace(model.provenance, origin=Origin.of(base.path, model, unlike))
    if adapter.options.get("peft_type") in LEARNED_INPUTS:
        return attach_prefix(model, adapter)
    return attach_lora(model, adapter, modules, names)


def build_on_base(adapter: Adapter, base: PublishedFolder, source: MergedWeights, head: str, *, dtype: torch.dtype,
                  device: torch.device) -> Transformer:
    """Build an adapter's base model with what the adapter holds whole, and its sums that were not taken out.

    Raises `InputError` for another base than the one that the adapter was learned on, where the adapter tells.
    """
    name = adapter.published(base.layout) if head == "auto" else head
    model = build_published(base, source, published=name, dtype=dtype, device=device)
    names = base.name_weights(model)
    here, changed = mark_parameters(model), {*source.instead, *source.changes}
    for parameter, mark in adapter.marks.items():
        match = names.rules.match(parameter)
        own = match is not None and any(names.present(one, source) in changed for one in match.foreign)
        if not own and here.get(parameter, mark) != mark:
            raise source.another_base(f"{parameter} has other values")
    return model
