"""A model folder and its tokenizer written anew: in another layout, number format or shape, or with an adapter merged.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path

import torch

from saucier.adaptation.surgery.asked import SEPARATOR, Asked
from saucier.adaptation.surgery.config import NewTokens, Operation, Positions, Tokens
from saucier.adaptation.surgery.operate import operate
from saucier.adaptation.surgery.vocabulary import first_ids
from saucier.checkpoints.model_folder import MODEL_TYPE, read_json
from saucier.config.visibility import SEPARATORS
from saucier.errors import InputError, expect
from saucier.files import disk_errors, refuse_taken, refuse_unwritable, write_atomically, write_json
from saucier.finetuning.folder import copy_task
from saucier.finetuning.prepare import name_labels
from saucier.hub import folder_of
from saucier.inspection.equivalence import Equivalence, compare
from saucier.loading import load, model_folder_of, stored_dtype
from saucier.model import Transformer
from saucier.recipes.coherence import learned_length
from saucier.saving import save_bare
from saucier.text.extension import extended, spellings
from saucier.text.read import read_documents
from saucier.text.tokenizer import Tokenizer, load_tokenizer
from saucier.text.tokenizer_files import TOKENIZER, copy_tokenizer, tokenizer_place
from saucier.text.trimming import trimmed


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


def convert(source: str | Path, target: str | Path, *, layout: str = "auto", dtype: str = "stored", head: str = "auto",
            asked: Asked | None = None, texts: Sequence[str] = ()) -> Converted:
    """Read a model and write it into a new folder.

    `source`: whatever `saucier.load` takes. `layout`: as `saving.save`; `dtype`: "stored" keeps the number format.
    `asked`: what is to be otherwise about the model's shape; `texts`: files on whose text it is compared with what it
    was. Raises `InputError` for a target that is there already, and as reading, operating and writing do.
    """
    expect(target, (str, Path), "target", "give a new folder")
    expect(layout, str, "layout", "give auto, own, published or a model_type")
    target = Path(target)
    refuse_unwritable(target, folder=True)
    refuse_taken(target)
    folder = folder_of(source)
    model = before = load(folder, head=head, dtype=stored_dtype(folder) if dtype == "stored" else dtype, device="cpu")
    operations: tuple[Operation, ...] = () if asked is None else asked.operations(separator_of(folder, model, asked))
    spelling = None if asked is None else respelled(folder, model, asked)
    if spelling is not None:
        operations = (*operations, spelling.operation)
    same = float("inf")
    if operations:
        model, same = operate(before, by=operations, pad=int(model.published.get("pad_token_id") or 0))
    documents = [one.text for one in read_documents(texts)] if texts else []
    new = spelling.operation.numbers() if spelling is not None and isinstance(spelling.operation, Tokens) else None
    found = compare(in_float32(before), in_float32(model), documents, load_tokenizer(folder), same=same,
                    new=new) if documents else None
    if head == "auto":
        name_labels(model, model_folder_of(folder))
    written = ""
    copied: tuple[str, ...] = ()

    def write(place: Path) -> None:
        nonlocal written, copied
        written = save_bare(model, place, layout=layout)
        if head == "auto":
            copy_task(model_folder_of(folder), place, learned_length(model.config))
        copied = copy_tokenizer(folder, place) if spelling is None else write_tokenizer(spelling.tokenizer, place)
        lengthened(place, operations)

    write_atomically(target, write)
    classes = written_classes(target)
    return Converted(target, written, classes[0] if classes and written != MODEL_TYPE else None,
                     sum(parameter.numel() for parameter in model.parameters()),
                     str(next(model.parameters()).dtype).removeprefix("torch."),
                     sum(path.stat().st_size for path in target.rglob("*") if path.is_file()), copied, found)


def in_float32(model: Transformer) -> Transformer:
    """Return a model whose numbers can be compared: itself, or a copy."""
    return model if next(model.parameters()).dtype == torch.float32 else deepcopy(model).float()


def separator_of(folder: Path, model: Transformer, asked: Asked) -> int:
    """Return the separator's id: the tokenizer's, or the published config's in a folder without one.

    Raises `InputError` where global tokens are to be found by separators, and pairs do not have as many as tell them.
    """
    if asked.tokens not in ("question", "choices") or tokenizer_place(folder) is None:
        return int(model.published.get("sep_token_id") or SEPARATOR)
    tokenizer = load_tokenizer(folder)
    separator = tokenizer.sep_id
    count = 0 if separator is None else tokenizer.encode("a", pair="a").count(separator)
    if separator is None or count != SEPARATORS:
        raise InputError(f"pairs of texts have {count} separators, and {SEPARATORS} tell what is global",
                         where="--global", remedy="use --global cls")
    return separator


@dataclass(frozen=True, slots=True)
class Respelled:
    """A tokenizer with other tokens, and what they do to the model."""

    tokenizer: Tokenizer
    operation: Tokens | NewTokens


def respelled(folder: Path, model: Transformer, asked: Asked) -> Respelled | None:
    """Return a folder's tokenizer with fewer tokens, or with more; None where it is to stay as it is.

    Raises `InputError` for two vocabularies, and for a tokenizer that cannot be changed.
    """
    words = asked.new_words()
    if words is None and not asked.vocabulary:
        return None
    option, known = "--vocabulary" if words is None else "--new-tokens", load_tokenizer(folder)
    own = model.config.decoder_embed
    if known.has_own_target and own is not None and not own.tied:
        raise InputError("the two sides have vocabularies of their own", where=option, remedy="leave it out")
    if words is None:
        texts = (one.text for one in read_documents(asked.vocabulary))
        fewer = trimmed(known, texts, keep_first=first_ids(model.config))
        return Respelled(fewer.tokenizer, Tokens(kept=fewer.kept))
    count, file = words
    more = extended(known, (one.text for one in read_documents([file])), count, where=option)
    return Respelled(more, NewTokens(first=known.next_id,
                                     pieces=tuple(tuple(one) for one in spellings(known, more))))


def write_tokenizer(tokenizer: Tokenizer, target: Path) -> tuple[str, ...]:
    """Write a tokenizer that is another one now, and return the names of its files."""
    with disk_errors(target):
        tokenizer.save(target)
    return tuple(name for name in TOKENIZER if (target / name).is_file())


def written_classes(target: Path) -> list[str]:
    """Return the published classes that a written config names."""
    named = read_json(target / "config.json").get("architectures")
    return [str(one) for one in named] if isinstance(named, list) else []


def lengthened(target: Path, operations: Sequence[Operation]) -> None:
    """Tell the tokenizer of longer texts, where it knows how long they may be."""
    path = target / "tokenizer_config.json"
    lengths = [one.length for one in operations if isinstance(one, Positions)]
    if lengths and path.is_file():
        write_json(path, read_json(path) | {"model_max_length": lengths[-1]})
