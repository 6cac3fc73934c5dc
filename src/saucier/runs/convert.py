"""A model folder written anew: in another layout or number format, or with an adapter merged; tokenizer files too."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from saucier.errors import InputError
from saucier.files import disk_errors
from saucier.hub import folder_of
from saucier.loading import load, stored_dtype
from saucier.saving import save
from saucier.text.older.pieces import FILES as PIECES

TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.txt",
             "vocab.json", "merges.txt", "chat_template.jinja", "target.spm", *PIECES)
"""Files that make a folder's tokenizer."""


@dataclass(frozen=True, slots=True)
class Converted:
    """What was written."""

    folder: Path
    layout: str
    """`model_type` of the layout."""
    published: str | None
    """Name of the published class, in a published layout."""
    parameters: int
    dtype: str
    size: int
    """Bytes of all files."""
    tokenizer: tuple[str, ...]
    """Names of the files that were copied."""


def convert(source: str | Path, target: Path, *, layout: str = "auto", dtype: str = "stored",
            head: str = "auto") -> Converted:
    """Read a model and write it into a new folder.

    `source`: whatever `saucier.load` takes. `layout`: as `saving.save`; `dtype`: "stored" keeps the number format.
    Raises `InputError` for a target that is there already, and as reading and writing do.
    """
    if target.exists() and (target.is_file() or any(target.iterdir())):
        raise InputError("is there already", where=str(target), remedy="give a new folder")
    folder = folder_of(source)
    model = load(folder, head=head, dtype=stored_dtype(folder) if dtype == "stored" else dtype, device="cpu")
    written = save(model, target, layout=layout)
    copied = copy_tokenizer(folder, target)
    classes = model.published.get("architectures") or [None]
    return Converted(target, written, classes[0] if written == model.published.get("model_type") else None,
                     sum(parameter.numel() for parameter in model.parameters()),
                     str(next(model.parameters()).dtype).removeprefix("torch."),
                     sum(path.stat().st_size for path in target.rglob("*") if path.is_file()), copied)


def copy_tokenizer(source: Path, target: Path) -> tuple[str, ...]:
    """Copy the tokenizer's files of a folder, or of a run folder, which has them in `tokenizer/`."""
    place = next((place for place in (source, source / "tokenizer") if any((place / name).is_file()
                                                                          for name in TOKENIZER)), None)
    names = () if place is None else tuple(name for name in TOKENIZER if (place / name).is_file())
    with disk_errors(target):
        for name in names:
            assert place is not None, "it holds the names"
            shutil.copyfile(place / name, target / name)
    return names
