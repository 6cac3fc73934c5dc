"""Folders by their hub id: `owner/name` is fetched through huggingface_hub, only where no such folder exists."""

from __future__ import annotations

import re
from pathlib import Path

from saucier.errors import InputError, expect
from saucier.files import path_exists

REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")
SETTINGS = ("*.json", "*.txt", "*.model", "*.spm", "*.jinja")
"""Files of configs, tokenizers and adapters."""
WEIGHTS = ("model*.safetensors", "adapter_model.safetensors", "[0-9]_*/model.safetensors")
PICKLED = ("pytorch_model*.bin",)
"""Fetched only where there are no safetensors."""
TUNED = "finetune.yaml"
"""The settings of a fine-tuning, by which its folder is known."""
OTHER = ("onnx/*", "openvino/*", "coreml/*", "original/*", "flax*", "tf_*", "checkpoint-*")
"""Copies for other libraries."""


def is_hub_id(text: str) -> bool:
    """Say whether a text can only be a repository: `owner/name`, where no folder `owner` exists."""
    return REPOSITORY.fullmatch(text) is not None and not path_exists(text) and not path_exists(Path(text).parent)


def locate_model(model: str | Path) -> str:
    """Return a path that means the same from everywhere, or a hub id as it is."""
    return str(Path(model).absolute() if path_exists(model) else model)


def resolve_folder(path: str | Path, *, weights: bool = True) -> Path:
    """Return a folder that exists, or the copy of a repository; `weights`: whether its weights are fetched too.

    The folder of a finished fine-tuning is that of its model.
    Raises `InputError` where it is neither, or cannot be fetched. Nothing is fetched for a path of this machine.
    """
    expect(path, (str, Path), "path", "give a folder, or the id of a repository as owner/name")
    if path_exists(path):
        return find_finetuned_model(Path(path))
    if not is_hub_id(str(path)):
        raise InputError("no such folder", where=str(path),
                         remedy="give a folder, or the id of a repository as owner/name")
    folder = fetch_files(str(path), (*SETTINGS, *(WEIGHTS if weights else ())))
    if weights and not any(next(folder.glob(pattern), None) for pattern in WEIGHTS):
        folder = fetch_files(str(path), (*SETTINGS, *PICKLED))
    return folder


def find_finetuned_model(folder: Path) -> Path:
    """Return the model's folder inside that of a finished fine-tuning; any other folder stays as it is."""
    inside = folder / "model"
    finished = any((inside / name).is_file() for name in ("config.json", "adapter_config.json"))
    return inside if (folder / TUNED).is_file() and finished else folder


def fetch_files(repository: str, patterns: tuple[str, ...]) -> Path:
    """Fetch files of a repository into huggingface_hub's cache; what is there already is not fetched again."""
    import huggingface_hub

    try:
        return Path(huggingface_hub.snapshot_download(repository, allow_patterns=list(patterns),
                                                      ignore_patterns=list(OTHER)))
    except Exception as error:  # the library and the network raise dozens of kinds
        first = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise InputError(f"cannot be fetched: {first[:200]}", where=repository,
                         remedy="check the name and the network, or give a folder") from error
