"""`load`: a model from a folder, or from a run folder's best checkpoint; `open_adapter`: an adapter on its base model,
the two apart. Each in the number format and on the device that suit.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import NoneType

import torch

from saucier.adaptation.own_adapter import read_own_adapter
from saucier.adaptation.peft_reading import attach_lora, attach_prefix
from saucier.checkpoints.adapter_folder import (
    LEARNED_INPUTS,
    OWN,
    WEIGHTS,
    Adapter,
    MergedWeights,
    base_error,
    is_adapter_folder,
    read_adapter,
    read_settings,
)
from saucier.checkpoints.hub import resolve_folder
from saucier.checkpoints.layout import Layout
from saucier.checkpoints.own_folder import MODEL_TYPE, read_json, read_own_model
from saucier.checkpoints.published_folder import (
    PublishedFolder,
    PublishedNames,
    build_published,
    read_published,
)
from saucier.checkpoints.sentence_folder import is_sentence_folder, put_head, read_modules
from saucier.checkpoints.weight_files import Weights
from saucier.devices import choose_real_device, keep_small_blocks
from saucier.errors import InputError, expect, suggest_name
from saucier.families import LAYOUTS
from saucier.folders.kinds import (
    check_adapter_folder,
    choose_number_format,
    find_model_folder,
    find_tokenizer,
    merges_in_reading,
    resolve_base,
)
from saucier.model import Transformer
from saucier.parts.embedding import CharacterTokens
from saucier.parts.provenance import Origin, mark_parameters
from saucier.text.tokenizer.model_inputs import spell_tokens
from saucier.text.tokenizer.tokenizer import Tokenizer, load_tokenizer


def check_tokenizer_fits(model: Transformer, tokenizer: Tokenizer, where: str) -> None:
    """Raise `InputError` for a tokenizer that has ids without a row in the model's table."""
    for ids, rows in ((tokenizer.vocab_size, model.config.input_embed.vocab),
                      (tokenizer.target.vocab_size, model.config.output_embed.vocab)):
        if ids > rows:
            raise InputError(f"the tokenizer does not fit the model: {ids:,} ids, and the model has {rows:,} rows for "
                             "them", where=where, remedy="put the model's own tokenizer into its folder")


def set_token_spellings(model: Transformer, tokenizer: Tokenizer) -> None:
    """Give a model the spellings of a tokenizer's tokens; nothing is done where it does not read characters."""
    tokens = model.embed.tokens
    if isinstance(tokens, CharacterTokens):
        tokens.spell(torch.from_numpy(spell_tokens(tokenizer, range(tokens.num_embeddings), tokens.config.longest)))


def load_token_spellings(model: Transformer, folder: Path | str) -> None:
    """The same with the tokenizer of a folder. Raises `InputError` where a model that reads characters has none."""
    if model.config.embed.characters is None:
        return
    try:
        set_token_spellings(model, load_tokenizer(folder))
    except InputError as error:
        raise InputError("this model reads characters, and no tokenizer spells its tokens", where=str(folder),
                         remedy="put the model's tokenizer into its folder") from error


MERGEABLE = {"lora", "qlora", "freeze", "bias"}
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
    found, place = resolve_folder(path), choose_real_device(device)
    folder = find_model_folder(found)
    number = choose_number_format(dtype, folder, place, base)
    model = (open_model(folder, head, number, place) if base is None else
             open_adapted_model(check_adapter_folder(folder), head, number, place, base)).eval()
    load_token_spellings(model, path)
    if place.type == "cpu":
        keep_small_blocks()
    if not model.provenance.rewrites:
        origin = Origin.of(path, model, tokenizer=find_tokenizer(found, base))
        model.provenance = replace(model.provenance, origin=origin)
    return model


def open_model(folder: Path, head: str, dtype: torch.dtype, device: torch.device) -> Transformer:
    """Read a folder by the layout that its `model_type` names; one of sentence-transformers with its head."""
    if head == "auto" and is_sentence_folder(folder):
        return open_sentence_model(folder, dtype, device)
    if is_adapter_folder(folder):
        return open_adapted_model(folder, head, dtype, device)
    model_type = read_json(folder / "config.json").get("model_type")
    published = None if head == "auto" else head
    if isinstance(model_type, str) and model_type in LAYOUTS:
        return read_published(folder, LAYOUTS[model_type], published=published, dtype=dtype, device=device)
    if model_type != MODEL_TYPE:
        remedy = suggest_name(str(model_type), [MODEL_TYPE, *LAYOUTS])
        raise InputError(f"model_type {model_type!r} is not known", where=str(folder / "config.json"), remedy=remedy)
    if published:
        raise InputError(f"unknown head {head!r}", where="head", remedy="this folder is in our own layout: use auto")
    return read_own_model(folder, dtype=dtype, device=device)


def open_sentence_model(folder: Path, dtype: torch.dtype, device: torch.device) -> Transformer:
    """Read the body of a sentence-transformers folder and put its head on."""
    body, head, maps = read_modules(folder)
    document = read_json(body / "config.json")
    model_type = document.get("model_type")
    layout = LAYOUTS.get(str(model_type))
    if layout is None:
        raise InputError(f"model_type {str(model_type)[:80]!r} is not known", where=str(body / "config.json"),
                         remedy=suggest_name(str(model_type), [*LAYOUTS]))
    said = document.get("architectures")
    bodies = [name for name in layout.classes if name.endswith("Model") and isinstance(said, list) and name in said]
    bodies += [name for name, published in layout.classes.items() if published.base == ""]
    bare = bodies[0] if bodies else None
    model = read_published(body, layout, published=bare, dtype=dtype, device=device)
    return put_head(model, head, maps)


def open_adapted_model(folder: Path, head: str, dtype: torch.dtype, device: torch.device,
                       base: str | None = None) -> Transformer:
    """Read the base model of an adapter with the adapter in it: merged into the weights, where weights can hold it."""

    if not merges_in_reading(folder):
        model = open_apart(folder, base, head, dtype=dtype, device=device)
        return merge_if_possible(model)
    adapter = read_adapter(folder)
    return build_on_base(adapter, open_base(adapter, base), head, dtype=dtype, device=device)


def merge_if_possible(model: Transformer) -> Transformer:
    """Merge a model's adapter where it is a sum of weights; any other stays beside them."""
    from saucier.adaptation.lora import merge

    kinds = model.provenance.rewrite_kinds
    if kinds <= MERGEABLE:
        if kinds & {"lora", "qlora"}:
            merge(model)
        model.provenance = replace(model.provenance, rewrites=())
        model.requires_grad_(True)
    return model


def open_adapter(folder: str | Path, *, base: str | None = None, head: str = "auto",
                 dtype: str | torch.dtype = "auto", device: str | torch.device = "auto") -> Transformer:
    """Load an adapter on its base model, the two apart, in evaluation mode.

    `base` overrules the base that the adapter names; the rest is as in `saucier.load`, which gives the two merged.
    Raises `InputError` for an adapter that cannot be read, and for a base that it does not belong to.
    """
    from saucier.devices import choose_real_device
    from saucier.folders.kinds import choose_number_format

    expect(head, str, "head", "give auto, or the name of a head")
    expect(base, (str, NoneType), "base", "give a folder or a hub id")
    place, found = choose_real_device(device), resolve_folder(folder)
    return open_apart(found, base, head, dtype=choose_number_format(dtype, found, place, base), device=place).eval()


def open_apart(folder: Path, base: str | None, head: str, *, dtype: torch.dtype, device: torch.device) -> Transformer:
    """Load an adapter of any layout on its base model."""
    document = read_settings(folder)
    if document.get("peft_type") != OWN:
        return open_peft(read_adapter(folder), base, head, dtype=dtype, device=device)
    named = base or document.get("base_model_name_or_path")
    if named is None:
        return read_own_adapter(document, None, folder / WEIGHTS, dtype=dtype, device=device)

    place = resolve_base(folder, str(named))
    moved = base is not None and (Path(base).is_dir() or (folder / base).is_dir())
    origin = str(place.absolute()) if moved else str(named)  # a hub id stays one: its place is a cache
    return read_own_adapter(document, load(place, dtype=dtype, device=device), folder / WEIGHTS, origin=origin)


def open_peft(adapter: Adapter, base: str | None, head: str, *, dtype: torch.dtype,
              device: torch.device) -> Transformer:
    """Load an adapter in PEFT's layout on its base model."""
    opened, layout, source = open_base(adapter, base)
    modules = source.take_pairs()
    model = build_on_base(adapter, (opened, layout, source), head, dtype=dtype, device=device)
    names = name_weights(layout, opened, model)
    unlike = frozenset(own for own, _ in model.named_parameters() if is_replaced(own, names, source))
    model.provenance = replace(model.provenance, origin=Origin.of(opened.folder, model, unlike))
    if adapter.options.get("peft_type") in LEARNED_INPUTS:
        return attach_prefix(model, adapter)
    return attach_lora(model, adapter, modules, names)


def build_on_base(adapter: Adapter, found: tuple[PublishedFolder, Layout, MergedWeights], head: str, *,
                  dtype: torch.dtype, device: torch.device) -> Transformer:
    """Build an adapter's base model with what the adapter holds whole, and its sums that were not taken out.

    Raises `InputError` for another base than the one that the adapter was learned on, where the adapter tells.
    """
    opened, layout, source = found
    name = adapter.published(layout) if head == "auto" else head
    model = build_published(opened, layout, published=name, dtype=dtype, device=device)
    names = name_weights(layout, opened, model)
    here, changed = mark_parameters(model), {*source.instead, *source.changes}
    for parameter, mark in adapter.marks.items():
        match = names.rules.match(parameter)
        own = match is not None and any(names.present(one, source) in changed for one in match.theirs)
        if not own and here.get(parameter, mark) != mark:
            raise source.another_base(f"{parameter} has other values")
    return model


def name_weights(layout: Layout, opened: PublishedFolder, model: Transformer) -> PublishedNames:
    """Return the published names of the weights of a model that was built from an opened folder."""
    return PublishedNames(layout.spelled(layout, opened.document), model.config,
                          model.provenance.document["architectures"][0])


def is_replaced(name: str, names: PublishedNames, source: MergedWeights) -> bool:
    """Say whether a parameter is not the base's, but one that the adapter holds whole."""
    match = names.rules.match(name)
    return match is not None and any(names.present(one, source) in source.instead for one in match.theirs)


def open_base(adapter: Adapter, base: str | None = None) -> tuple[PublishedFolder, Layout, MergedWeights]:
    """Open the base model of an adapter in PEFT's layout. Raises `InputError` for one that is in no published layout.
    """
    from saucier.folders.kinds import find_model_folder

    folder = find_model_folder(resolve_base(adapter.folder, base or adapter.base))
    document = read_json(folder / "config.json")
    layout = LAYOUTS.get(str(document.get("model_type")))
    if document.get("model_type") == MODEL_TYPE:
        raise base_error("it is in our own layout, and an adapter of PEFT names the weights of a published one",
                         adapter.folder, adapter.base, folder)
    if layout is None:
        raise InputError(f"the base model's model_type {str(document.get('model_type'))[:80]!r} is not known",
                         where=str(folder / "config.json"),
                         remedy=suggest_name(str(document.get("model_type")), [*LAYOUTS]))
    source = MergedWeights(Weights(folder), adapter, layout.bases)
    return PublishedFolder(folder, document | source.labels(document), source), layout, source
