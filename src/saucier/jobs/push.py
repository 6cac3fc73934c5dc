"""`push`: a saved model with its tokenizer and its card becomes a repository of the hub.

Everything is checked before anything is sent; a dry run stops there, and needs no network and no token.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from saucier.checkpoints.hub import ADAPTER_CONFIG, REPOSITORY, find_finetuned_model, is_repository, send_files
from saucier.errors import InputError, expect
from saucier.files import is_folder, path_exists
from saucier.plain import VERSION, format_bytes
from saucier.result import Result
from saucier.table import Table

if TYPE_CHECKING:
    from rich.console import RenderableType

    from saucier.folders.kinds import FolderKind

EXTRAS = frozenset({"generation_config.json", "LICENSE", "LICENSE.txt", "LICENSE.md"})
"""Files that a model's folder may hold, next to those that its kind, its tokenizer and its task bring."""
SHOWN = 5
"""Names of files that an error shows."""


@dataclass(frozen=True, slots=True)
class SentFile:
    """A file of the repository."""

    name: str
    size: int
    """Bytes."""


@dataclass(frozen=True, slots=True)
class Pushed(Result):
    """What was sent, or what a dry run would have sent."""

    folder: Path
    """The folder that was given."""
    hub_id: str
    files: tuple[SentFile, ...]
    private: bool
    dry_run: bool
    address: str | None
    """Where the hub shows the commit; None for a dry run."""

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(one.size for one in self.files)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain values."""
        return Result.to_dict(self) | {"folder": str(self.folder)}

    def view(self) -> RenderableType:
        """Return a line for each file, and what became of them."""
        from rich.console import Group
        from rich.text import Text

        count = f"{len(self.files)} file{'s' * (len(self.files) != 1)}, {format_bytes(self.size)}"
        end = (f"{count} for {self.hub_id}; a dry run: nothing was sent" if self.dry_run
               else f"{count} → {self.hub_id}{' (private)' * self.private}: {self.address}")
        rows = [(one.name, format_bytes(one.size)) for one in self.files]
        return Group(Table(("file", "size"), rows, numbers=(1,)), Text(end))


def push(folder: str | Path, hub_id: str, *, private: bool = False, dry_run: bool = False,
         message: str | None = None) -> Pushed:
    """Send the model of a folder, a run or a fine-tuning, or an adapter, to the repository `hub_id`.

    The repository is made where there is none; `private` is for that one. The model of a run is sent as `convert`
    writes it. `message`: of the commit. Raises `InputError` for an id that is none, a folder that is not whole or
    holds something else, one without a card, and where we may not write; `WorkError` where sending fails.
    """
    expect(folder, (str, Path), "folder", "give a folder")
    if not isinstance(hub_id, str) or not is_repository(hub_id):
        raise InputError(f"{str(hub_id)[:100]!r} is no id of a repository", where="hub id",
                         remedy="write owner/name, of letters, digits, '-', '_' and '.'")
    if not is_folder(folder):
        raise InputError("no such folder", where=str(folder), remedy="give the folder of a saved model, a run, a "
                         "fine-tuning or an adapter")
    with find_saved_model(Path(folder)) as source:
        files = list_files(source)
        sent = tuple(SentFile(name, path.stat().st_size) for name, path in files.items())
        address = None if dry_run else send_files(hub_id, files, private=private,
                                                  message=message or f"Upload a model with saucier {VERSION}")
    return Pushed(Path(folder), hub_id, sent, private, dry_run, address)


@contextmanager
def find_saved_model(folder: Path) -> Iterator[Path]:
    """Yield the folder of a model as it is saved: itself, that of a fine-tuning, or a run's, which is written first."""
    from saucier.folders.kinds import find_model_folder
    from saucier.jobs.convert import convert

    folder = find_finetuned_model(folder)
    if find_model_folder(folder) == folder:
        yield folder
        return
    with tempfile.TemporaryDirectory() as place:
        yield convert(folder, Path(place) / "model").folder


def list_files(folder: Path) -> dict[str, Path]:
    """Return the files of a saved model by their names in the repository, in the order of these.

    Raises `InputError` as `push` does.
    """
    from saucier.folders.kinds import identify_folder
    from saucier.report.card import CARD

    kind = identify_folder(folder)
    found = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if not path.is_dir()}
    known = list_known(kind)
    if strays := [name for name in found if name not in known]:
        more = f" and {len(strays) - SHOWN} more" * (len(strays) > SHOWN)
        raise InputError(f"holds what is no part of the model: {', '.join(strays[:SHOWN])}{more}", where=str(folder),
                         remedy="remove it, or write a folder without it: saucier convert FOLDER NEW")
    if CARD not in found or not found[CARD].read_text(encoding="utf-8", errors="replace").strip():
        raise InputError("there is no model card", where=str(folder / CARD), remedy="write one: what the model is for, "
                         "what it learned from, how good it is")
    check_base(kind)
    return found


def list_known(kind: FolderKind) -> set[str]:
    """Return the names that a folder of this kind may hold. Raises `InputError` for weights that are not whole.

    Weights are safetensors; every shard that an index names must be there.
    """
    from saucier.checkpoints.adapter_folder import CONFIG, WEIGHTS
    from saucier.checkpoints.sentence_modules import MODULES
    from saucier.checkpoints.weight_files import SAFE, SafeShard, shard_paths
    from saucier.folders.kinds import AdapterFolder, SentenceFolder
    from saucier.jobs.finetuning.task_folder import TASK_FILE
    from saucier.report.card import CARD
    from saucier.text.tokenizer.folder import TARGET, TOKENIZER_FILES

    names = {CARD, TASK_FILE, *EXTRAS, *TOKENIZER_FILES, *(f"{TARGET}/{name}" for name in TOKENIZER_FILES)}
    weights: list[Path] = []
    match kind:
        case AdapterFolder():
            names.add(CONFIG)
            weights = shard_paths(kind.path, (WEIGHTS, WEIGHTS))
        case SentenceFolder():
            inner = kind.body.path.relative_to(kind.path).as_posix()
            places = {path.parent.name for path in kind.path.glob("[0-9]_*/config.json")} | {inner}
            files = ("config.json", "sentence_bert_config.json", f"{SAFE}.index.json")
            names |= {f"{place}/{name}".removeprefix("./") for place in places for name in files}
            names |= {f"{inner}/{name}".removeprefix("./") for name in {*names}}
            names |= {MODULES, "config_sentence_transformers.json"}
            weights = shard_paths(kind.body.path, (SAFE, SAFE))
            weights += [path for place in kind.maps for path in shard_paths(place, (SAFE, SAFE))]
        case _:
            names |= {"config.json", f"{SAFE}.index.json"}
            weights = shard_paths(kind.path, (SAFE, SAFE))
    for path in weights:
        SafeShard(path)
    return names | {path.relative_to(kind.path).as_posix() for path in weights}


def check_base(kind: FolderKind) -> None:
    """Raise `InputError` for an adapter that names its base by a path of this machine: nobody else has that."""
    from saucier.folders.kinds import AdapterFolder

    if not isinstance(kind, AdapterFolder) or kind.base is None:
        return
    if REPOSITORY.fullmatch(kind.base) is None or path_exists(kind.base) or path_exists(kind.path / kind.base):
        raise InputError(f"its base model is named by a path of this machine, {kind.base[:100]}",
                         where=str(kind.path / ADAPTER_CONFIG),
                         remedy="write the base's hub id as base_model_name_or_path, or merge the adapter first")
