"""A model folder and its tokenizer written anew: in another layout, number format or shape, or with an adapter merged.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from saucier.adaptation.surgery.asked import SEPARATOR, Asked
from saucier.adaptation.surgery.config import Operation, Positions
from saucier.adaptation.surgery.operate import operate
from saucier.checkpoints.model_folder import MODEL_TYPE, read_json
from saucier.errors import InputError
from saucier.files import disk_errors, write_json
from saucier.hub import folder_of
from saucier.inspection.equivalence import Equivalence, compare
from saucier.loading import load, stored_dtype
from saucier.saving import save
from saucier.text.older.pieces import FILES as PIECES
from saucier.text.read import read_documents
from saucier.text.tokenizer import load_tokenizer

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
    equivalence: Equivalence | None = None
    """What a change of the shape did to the numbers, where there was text to see it on."""


def convert(source: str | Path, target: Path, *, layout: str = "auto", dtype: str = "stored", head: str = "auto",
            asked: Asked | None = None, texts: Sequence[str] = ()) -> Converted:
    """Read a model and write it into a new folder.

    `source`: whatever `saucier.load` takes. `layout`: as `saving.save`; `dtype`: "stored" keeps the number format.
    `asked`: what is to be otherwise about the model's shape; `texts`: files on whose text it is compared with what it
    was. Raises `InputError` for a target that is there already, and as reading, operating and writing do.
    """
    if target.exists() and (target.is_file() or any(target.iterdir())):
        raise InputError("is there already", where=str(target), remedy="give a new folder")
    folder = folder_of(source)
    model = before = load(folder, head=head, dtype=stored_dtype(folder) if dtype == "stored" else dtype, device="cpu")
    operations = () if asked is None else asked.operations(int(model.published.get("sep_token_id") or SEPARATOR))
    same = float("inf")
    if operations:
        model, same = operate(before, by=operations, pad=int(model.published.get("pad_token_id") or 0))
    documents = [one.text for one in read_documents(texts)] if texts else []
    written = save(model, target, layout=layout)
    copied = copy_tokenizer(folder, target)
    extended(target, operations)
    classes = written_classes(target)
    return Converted(target, written, classes[0] if classes and written != MODEL_TYPE else None,
                     sum(parameter.numel() for parameter in model.parameters()),
                     str(next(model.parameters()).dtype).removeprefix("torch."),
                     sum(path.stat().st_size for path in target.rglob("*") if path.is_file()), copied,
                     compare(before.float(), model.float(), documents, load_tokenizer(folder), same=same)
                     if documents else None)


def written_classes(target: Path) -> list[str]:
    """Return the published classes that a written config names."""
    named = read_json(target / "config.json").get("architectures")
    return [str(one) for one in named] if isinstance(named, list) else []


def extended(target: Path, operations: Sequence[Operation]) -> None:
    """Tell the tokenizer of longer texts, where it knows how long they may be."""
    path = target / "tokenizer_config.json"
    lengths = [one.length for one in operations if isinstance(one, Positions)]
    if lengths and path.is_file():
        write_json(path, read_json(path) | {"model_max_length": lengths[-1]})


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
