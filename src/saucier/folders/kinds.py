"""Which kind a folder is (a model in our layout or a published one, sentence-transformers, an adapter, a GGUF file; a
run is its best checkpoint), and what follows from it: the base model, the tokenizer, the number format of the weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from saucier import config as c
from saucier.checkpoints.adapter_folder import (
    CONFIG,
    LEARNED_INPUTS,
    OWN,
    PICKLED_WEIGHTS,
    WEIGHTS,
    is_adapter_folder,
    read_settings,
)
from saucier.checkpoints.gguf import GgufFile, is_gguf, open_gguf
from saucier.checkpoints.gguf_weights import GgufWeights, read_document
from saucier.checkpoints.hub import resolve_folder
from saucier.checkpoints.layout import MODEL_TYPE, QUANTIZATION
from saucier.checkpoints.published_folder import PublishedFolder
from saucier.checkpoints.sentence_modules import is_sentence_folder, read_modules
from saucier.checkpoints.steps import usable_checkpoint
from saucier.checkpoints.weight_files import SAFE, Weights, shard_paths
from saucier.errors import InputError
from saucier.families import find_layout
from saucier.files import path_exists, read_json
from saucier.text.tokenizer.folder import TOKENIZER_FILES, copy_tokenizer, find_tokenizer_files
from saucier.text.tokenizer.tokenizer import load_tokenizer


@dataclass(frozen=True, slots=True)
class OwnFolder:
    """A model in our own layout."""

    path: Path


@dataclass(frozen=True, slots=True)
class SentenceFolder:
    """A body in a published layout with the embedding head that sentence-transformers puts on it."""

    path: Path
    body: PublishedFolder
    head: c.EmbeddingHead
    maps: list[Path]
    """Folders of the weights of the head's maps."""


@dataclass(frozen=True, slots=True)
class AdapterFolder:
    """An adapter, in PEFT's layout or our own form, and the name of its base model."""

    path: Path
    settings: Mapping[str, Any]
    base: str | None
    """The base that was given, or else the one that the settings name; None: an adapter of ours that holds all."""

    @property
    def is_own(self) -> bool:
        """Whether it is in our own form."""
        return self.settings.get("peft_type") == OWN

    @property
    def learns_inputs(self) -> bool:
        """Whether it is one of PEFT's that put something before the text."""
        return self.settings.get("peft_type") in LEARNED_INPUTS

    @property
    def learned_rounding(self) -> bool:
        """Whether it learned with numbers of few bits in mind, so that it is a quantized model when it is opened."""
        rewrites = self.settings.get("rewrites")
        return isinstance(rewrites, list) and any(isinstance(one, dict) and one.get("kind") == "quantization_aware"
                                                  for one in rewrites)

    def resolve_base(self) -> Path:
        """Find the base model: a folder, relative to the adapter's or not, or a hub id.

        Raises `InputError` where it is missing, and where it is itself an adapter.
        """
        if not isinstance(self.base, str) or not self.base:
            raise InputError("base_model_name_or_path is missing", where=str(self.path / CONFIG),
                             remedy="write the base model's folder")
        near = self.path / self.base
        try:
            found = resolve_folder(near if path_exists(near) and near.is_dir() else self.base)
        except InputError as error:
            raise InputError(f"its base model is not there: {error}", where=str(self.path),
                             remedy="put it back, name it with --base, or write it as base_model_name_or_path",
                             ) from error
        if is_adapter_folder(found):
            raise InputError("the base model is itself an adapter", where=str(self.path),
                             remedy="merge that one first, and name the result as base_model_name_or_path")
        return found


@dataclass(frozen=True, slots=True)
class GgufModel:
    """A file of llama.cpp, which is read as the published folder that it was made from."""

    file: GgufFile
    body: PublishedFolder

    @property
    def path(self) -> Path:
        """The file."""
        return self.file.path

    def open_weights(self) -> GgufWeights:
        """Return its tensors. Raises `InputError` for unknown ones."""
        return GgufWeights(self.file, self.body.document)


FolderKind = OwnFolder | PublishedFolder | SentenceFolder | AdapterFolder | GgufModel


def identify_folder(path: Path, base: str | None = None, *, modules: bool = True) -> FolderKind:
    """Return which kind a folder is, with what its config says; that of a run is the kind of its best checkpoint.

    `base`: of an adapter, instead of the one that it names. `modules`: whether the modules of sentence-transformers
    count. Raises `InputError` for a folder of no known kind, and for a `base` where there is no adapter.
    """
    folder = find_model_folder(path)
    if base is None and is_gguf(folder):
        file = open_gguf(folder)
        document = read_document(file)
        return GgufModel(file, PublishedFolder(folder, find_layout(document, folder), document))
    if modules and base is None and is_sentence_folder(folder):
        body, head, maps = read_modules(folder)
        return SentenceFolder(folder, read_published_config(body), head, maps)
    if is_adapter_folder(folder):
        return identify_adapter(folder, base)
    if base is not None:
        raise InputError("holds a whole model, and no adapter that needs a base", where=str(folder),
                         remedy="leave the base out")
    if read_json(folder / "config.json").get("model_type") == MODEL_TYPE:
        return OwnFolder(folder)
    return read_published_config(folder)


def identify_adapter(folder: Path, base: str | None = None) -> AdapterFolder:
    """Read what the folder of an adapter says; `base` as in `identify_folder`. Raises `InputError` for any other."""
    settings = read_settings(folder)
    return AdapterFolder(folder, settings, base or settings.get("base_model_name_or_path"))


def read_published_config(folder: Path) -> PublishedFolder:
    """Read the config of a model in a published layout. Raises `InputError` for a `model_type` that no family has."""
    document = read_json(folder / "config.json")
    plain = {name: value for name, value in document.items() if name != QUANTIZATION}
    return PublishedFolder(folder, find_layout(document, folder / "config.json"), plain, document.get(QUANTIZATION))


def find_model_folder(folder: Path) -> Path:
    """Return the folder that holds the weights: itself, or a run's best or last checkpoint."""
    if is_gguf(folder) or (folder / "config.json").is_file() or is_sentence_folder(folder) or is_adapter_folder(folder):
        return folder
    return usable_checkpoint(folder)


def stored_dtype(kind: FolderKind) -> torch.dtype:
    """Return the number format that holds a folder's weights exactly; an adapter has that of its base model."""
    match kind:
        case AdapterFolder(base=None, is_own=True):
            return Weights(kind.path, stem=(WEIGHTS, WEIGHTS)).dtype()
        case AdapterFolder():
            return stored_dtype(identify_folder(kind.resolve_base()))
        case SentenceFolder(body=body):
            return Weights(body.path).dtype()
        case GgufModel():
            return kind.open_weights().dtype()
        case OwnFolder() | PublishedFolder():
            return Weights(kind.path).dtype()


def list_weight_files(kind: FolderKind) -> list[Path]:
    """Return the files that hold a folder's weights; those of an adapter's base as well."""
    match kind:
        case OwnFolder():
            return [kind.path / SAFE]
        case GgufModel():
            return [kind.path]
        case PublishedFolder():
            return shard_paths(kind.path)
        case SentenceFolder(body=body, maps=maps):
            return [path for folder in (body.path, *maps) for path in shard_paths(folder)]
        case AdapterFolder():
            own = [path for name in (WEIGHTS, PICKLED_WEIGHTS) if (path := kind.path / name).is_file()]
            return own if kind.base is None else [*own, *list_weight_files(identify_folder(kind.resolve_base()))]


def find_tokenizer(kind: FolderKind) -> Path | None:
    """Return the folder with the tokenizer of a model: its own, its run's or its base model's; None for none."""
    return next((place for place in list_tokenizer_folders(kind) if find_tokenizer_files(place) is not None), None)


def list_tokenizer_folders(kind: FolderKind) -> Iterator[Path]:
    """Yield where the tokenizer of a model may be; an adapter's base is looked for last."""
    yield kind.path
    if isinstance(kind, SentenceFolder):
        yield kind.body.path
    if kind.path.absolute().parent.name == "checkpoints":
        yield kind.path.absolute().parent.parent
    if isinstance(kind, AdapterFolder) and kind.base is not None:
        yield from list_tokenizer_folders(identify_folder(kind.resolve_base()))


def place_tokenizer(source: Path, target: Path) -> tuple[str, ...]:
    """Copy the tokenizer's files of a model folder, or write the one that is inside a GGUF file; return their names."""
    if not is_gguf(source):
        return copy_tokenizer(source, target)
    if find_tokenizer_files(source) is None:
        return ()
    load_tokenizer(source).save(target)
    return tuple(name for name in TOKENIZER_FILES if (target / name).is_file())
