"""Which kind a folder is (own, published, sentence-transformers, adapter, run), and what belongs to it: where its
weights,
its base model and its tokenizer are, and in which number format it is opened.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch

from saucier.checkpoints.adapter_folder import (
    CONFIG,
    LEARNED_INPUTS,
    OWN,
    WEIGHTS,
    is_adapter_folder,
    read_settings,
)
from saucier.checkpoints.hub import resolve_folder
from saucier.checkpoints.sentence_folder import is_sentence_folder, read_modules
from saucier.checkpoints.weight_files import Weights
from saucier.devices import choose_dtype
from saucier.errors import InputError, expect
from saucier.files import path_exists
from saucier.text.tokenizer.folder import find_tokenizer_files


def choose_number_format(dtype: str | torch.dtype, folder: Path, device: torch.device,
                         base: str | None = None) -> torch.dtype:
    """Return the number format in which a folder's model is opened. Raises `InputError` for an unknown name."""
    expect(dtype, (str, torch.dtype), "dtype", "give auto, float32, bfloat16 or float16")
    if dtype in ("auto", "stored"):
        return read_stored_dtype(folder, base)
    return choose_dtype(dtype, device, ("auto", "stored", "fastest"))


def read_stored_dtype(path: str | Path, base: str | None = None) -> torch.dtype:
    """Return the number format that holds a folder's weights exactly (an adapter's: its base model's, or `base`'s)."""
    folder = find_model_folder(resolve_folder(path))
    while is_adapter_folder(folder):
        if base is None and is_whole_adapter(folder):
            return Weights(folder, stem=(WEIGHTS, WEIGHTS)).dtype()
        folder, base = find_model_folder(find_base(folder, base)), None
    return Weights(read_modules(folder)[0] if is_sentence_folder(folder) else folder).dtype()


def find_tokenizer(folder: Path, base: str | None = None) -> Path | None:
    """Return the folder with the tokenizer of what was opened: its own, its run's or its base's; None for none."""
    return next((place for place in list_tokenizer_folders(folder, base) if find_tokenizer_files(place) is not None),
                None)


def list_tokenizer_folders(folder: Path, base: str | None) -> Iterator[Path]:
    """Yield where the tokenizer of an opened folder may be; an adapter's base is looked for last."""
    yield folder
    if is_sentence_folder(folder):
        yield read_modules(folder)[0]
    if folder.absolute().parent.name == "checkpoints":
        yield folder.absolute().parent.parent
    if is_adapter_folder(folder) and (base is not None or not is_whole_adapter(folder)):
        yield from list_tokenizer_folders(find_base(folder, base), None)


def check_adapter_folder(folder: Path) -> Path:
    """Return the folder of an adapter. Raises `InputError` for one that is none."""
    if not is_adapter_folder(folder):
        raise InputError("holds a whole model, and no adapter that needs a base", where=str(folder),
                         remedy="leave the base out")
    return folder


def is_whole_adapter(folder: Path) -> bool:
    """Say whether an adapter of ours names no base: it holds the whole model."""
    settings = read_settings(folder)
    return settings.get("peft_type") == OWN and settings.get("base_model_name_or_path") is None


def find_base(folder: Path, base: str | None = None) -> Path:
    """Return the folder of an adapter's base model: the one that is told, or that it names."""

    named = base or read_settings(folder).get("base_model_name_or_path")
    if not isinstance(named, str) or not named:
        raise InputError("base_model_name_or_path is missing", where=str(folder / CONFIG),
                         remedy="write the base model's folder")
    return resolve_base(folder, named)


def merges_in_reading(folder: Path) -> bool:
    """Say whether an adapter's sums can be made while the base model is read."""
    return read_settings(folder).get("peft_type") not in (OWN, *LEARNED_INPUTS)


def find_model_folder(folder: Path) -> Path:
    """Return the folder that holds the weights: itself, or a run's best or last checkpoint."""
    if (folder / "config.json").is_file() or is_sentence_folder(folder) or is_adapter_folder(folder):
        return folder
    from saucier.checkpoints.steps import usable_checkpoint

    return usable_checkpoint(folder)


def resolve_base(folder: Path, base: str) -> Path:
    """Find the base model that an adapter names: a path, beside the adapter or not, or a hub id."""
    near = folder / base
    try:
        found = resolve_folder(near if path_exists(near) and near.is_dir() else base)
    except InputError as error:
        raise InputError(f"its base model is not there: {error}", where=str(folder),
                         remedy="put it back, name it with --base, or write it as base_model_name_or_path") from error
    if (found / CONFIG).is_file() and not (found / "config.json").is_file():
        raise InputError("the base model is itself an adapter", where=str(folder),
                         remedy="merge that one first, and name the result as base_model_name_or_path")
    return found
