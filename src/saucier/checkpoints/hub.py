"""Folders by their hub id: `owner/name` is fetched through huggingface_hub, only where no such folder exists; files
are sent there when a person says so.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from saucier.errors import InputError, SaucierError, WorkError, expect
from saucier.files import path_exists

REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")
SETTINGS = ("*.json", "*.txt", "*.model", "*.spm", "*.jinja")
"""Files of configs, tokenizers and adapters."""
WEIGHTS = ("model*.safetensors", "adapter_model.safetensors", "[0-9]_*/model.safetensors")
PICKLED = ("pytorch_model*.bin",)
"""Fetched only where there are no safetensors."""
ADAPTER_CONFIG = "adapter_config.json"
"""By which the folder of an adapter is known."""
TUNED = "finetune.yaml"
"""The settings of a fine-tuning, by which its folder is known."""
OTHER = ("onnx/*", "openvino/*", "coreml/*", "original/*", "flax*", "tf_*", "checkpoint-*")
"""Copies for other libraries."""


TOKEN = re.compile(r"hf_\w+")
"""What looks like a token, wherever a message has one."""


def is_repository(text: str) -> bool:
    """Say whether a text can be the id of a repository, `owner/name`, as the hub accepts new ones."""
    return REPOSITORY.fullmatch(text) is not None and not re.search(r"--|\.\.|[.-](?:/|$)|/[.-]|\.git$", text)


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
    finished = any((inside / name).is_file() for name in ("config.json", ADAPTER_CONFIG))
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


def send_files(repository: str, files: Mapping[str, Path], *, private: bool, message: str) -> str:
    """Send files, by their names there, in one commit; return its address. The repository is made where there is none.

    Raises `InputError` without a token and for one that may not write there, `WorkError` where sending fails.
    No message shows the token.
    """
    import huggingface_hub as hub
    from huggingface_hub.errors import HTTPError  # type: ignore[attr-defined]  # of the library that it sends with

    token = hub.get_token()
    if token is None:
        raise InputError("there is no token for the hub", where=repository,
                         remedy="run `hf auth login`, or set HF_TOKEN, to one that may write")
    api = hub.HfApi(token=token)
    try:
        api.create_repo(repository, private=private, exist_ok=True)
        operations = [hub.CommitOperationAdd(name, path) for name, path in files.items()]
        return str(api.create_commit(repository, operations, commit_message=message).commit_url)
    except (HTTPError, OSError, ValueError, RuntimeError) as error:
        raise explain_refusal(error, repository, token) from None  # the chain would show a token in a message


def explain_refusal(error: Exception, repository: str, token: str) -> SaucierError:
    """Return what went wrong in one line, without the token or any other."""
    status = getattr(getattr(error, "response", None), "status_code", None)
    match status:
        case 401:
            return InputError("the hub does not know this token", where=repository,
                              remedy="run `hf auth login` again, or set HF_TOKEN to another")
        case 403 | 404:
            return InputError("this token may not write there", where=repository,
                              remedy="use one with the right to write, or an owner that is you")
        case _:
            first = next(iter(str(error).strip().splitlines()), type(error).__name__)
            told = TOKEN.sub("(token)", first.replace(token, "(token)"))[:200]
            return WorkError(f"cannot be sent: {told}", where=repository,
                             remedy="check the network and try again: what was sent already is not sent twice")
