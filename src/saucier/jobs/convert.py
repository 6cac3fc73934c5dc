"""A model folder and its tokenizer written again: in another layout, number format or shape, or with an adapter
merged.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import NoneType
from typing import Any

import torch

from saucier.adaptation.pruning.prune import trim_vocabulary
from saucier.adaptation.surgery.operate import operate
from saucier.adaptation.surgery.operations import SEPARATOR, NewTokens, Operation, OperationOptions, Positions, Tokens
from saucier.checkpoints.hub import resolve_folder
from saucier.checkpoints.layout import MODEL_TYPE
from saucier.config import learned_length
from saucier.config.visibility import SEPARATORS
from saucier.devices import choose_dtype
from saucier.diagnosis.equivalence import Equivalence, compare_models
from saucier.errors import InputError, expect, expect_texts
from saucier.files import read_json, refuse_taken, refuse_unwritable, report_disk_errors, write_atomically, write_json
from saucier.folders.kinds import find_model_folder, place_tokenizer
from saucier.folders.load import load
from saucier.folders.save import save_bare
from saucier.jobs.finetuning.start import name_labels
from saucier.jobs.finetuning.task_folder import copy_task
from saucier.model import Transformer
from saucier.parts.provenance import Saved
from saucier.report.card import find_facts, name_base, write_card
from saucier.result import Result
from saucier.text.reading.documents import read_documents
from saucier.text.tokenizer.folder import TOKENIZER_FILES, find_tokenizer_files
from saucier.text.tokenizer.tokenizer import Tokenizer, load_tokenizer
from saucier.text.tokenizer.vocabulary import extend_tokenizer, spell_new_tokens


@dataclass(frozen=True, slots=True)
class Converted(Result):
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

    def view(self) -> str:
        """Say what was written."""
        layout = "our own layout" if self.published is None and self.layout == MODEL_TYPE else f"layout {self.layout}"
        layout += f", {self.published}" if self.published else ""
        lines = [f"{self.parameters:,} parameters, {self.dtype}, {self.size:,} bytes, {layout} → {self.folder}",
                 f"tokenizer: {', '.join(self.tokenizer) or 'none in the source'}"]
        return "\n".join([*lines, *(self.equivalence.lines() if self.equivalence else ())])

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self) | {"folder": str(self.folder)}


def convert(source: str | Path, target: str | Path, *, layout: str = "auto", dtype: str = "stored", head: str = "auto",
            options: OperationOptions | None = None, texts: Sequence[str] = ()) -> Converted:
    """Read a model and write it into a new folder.

    `source`: whatever `saucier.load` takes. `layout`: as `saving.save`; `dtype`: "stored" keeps the number format.
    `options`: what is to change about the model's shape; `texts`: files on whose text it is compared with what it
    was. Raises `InputError` for a target that is there already, and as reading, operating and writing do.
    """
    expect(target, (str, Path), "target", "give a new folder")
    expect(layout, str, "layout", "give auto, own, published or a model_type")
    expect(options, (OperationOptions, NoneType), "options", "give OperationOptions, or None")
    expect_texts(texts, "texts")
    target = Path(target)
    refuse_unwritable(target, folder=True)
    refuse_taken(target)
    if dtype != "stored":
        choose_dtype(dtype, torch.device("cpu"), ("stored",))
    folder = resolve_folder(source)
    model = before = load(folder, head=head, dtype="stored", device="cpu")
    options = options or OperationOptions()
    operations = options.operations(find_separator(folder, model, options))
    tokenizer, change = change_tokenizer(folder, model, options)
    if change is not None:
        operations = (*operations, change)
    same = float("inf")
    if operations:
        model, same = operate(before, by=operations, pad=int(model.provenance.document.get("pad_token_id") or 0))
    documents = [one.text for one in read_documents(texts)] if texts else []
    new = change.numbers() if isinstance(change, Tokens) else None
    found = compare_models(float32_copy(before), float32_copy(model), documents, load_tokenizer(folder), same=same,
                           new=new) if documents else None
    if head == "auto":
        name_labels(model, find_model_folder(folder))
    written = Saved("", formats={})
    copied: tuple[str, ...] = ()

    def write(place: Path) -> None:
        nonlocal written, copied
        written = save_bare(model, place, layout=layout, dtype=dtype)
        if head == "auto":
            copy_task(find_model_folder(folder), place, learned_length(model.config))
        if tokenizer is None:
            copied = place_tokenizer(folder, place)
        else:
            with report_disk_errors(place):
                tokenizer.save(place)
            copied = tuple(name for name in TOKENIZER_FILES if (place / name).is_file())
        extend_tokenizer_length(place, operations)
        write_converted_card(place, model, source, find_model_folder(folder), reshaped=bool(operations))

    write_atomically(target, write)
    classes = read_json(target / "config.json").get("architectures")
    published = str(classes[0]) if isinstance(classes, list) and classes and written != MODEL_TYPE else None
    return Converted(target, str(written), published,
                     sum(parameter.numel() for parameter in model.parameters()), " and ".join(written.formats),
                     sum(path.stat().st_size for path in target.rglob("*") if path.is_file()), copied, found)


def write_converted_card(place: Path, model: Transformer, source: str | Path, folder: Path, *, reshaped: bool) -> None:
    """Write the card of a converted model: with the history of its source, whose scores another shape has not."""
    facts = find_facts(folder)
    facts = facts if facts.base or facts.made_by else replace(facts, base=name_base(source))
    facts = replace(facts, changed=True, scores=()) if reshaped else facts
    write_card(place, model.config, facts, keep=() if reshaped else [folder])


def float32_copy(model: Transformer) -> Transformer:
    """Return a model whose numbers can be compared: itself, or a copy."""
    return model if next(model.parameters()).dtype == torch.float32 else deepcopy(model).float()


def find_separator(folder: Path, model: Transformer, options: OperationOptions) -> int:
    """Return the separator's id: the tokenizer's, or the published config's in a folder without one.

    Raises `InputError` where global tokens are to be found by separators, and pairs do not have as many as that needs.
    """
    if options.tokens not in ("question", "choices") or find_tokenizer_files(folder) is None:
        return int(model.provenance.document.get("sep_token_id") or SEPARATOR)
    tokenizer = load_tokenizer(folder)
    separator = tokenizer.sep_id
    count = 0 if separator is None else tokenizer.encode("a", pair="a").count(separator)
    if separator is None or count != SEPARATORS:
        raise InputError(f"pairs of texts have {count} separators, and {SEPARATORS} tell what is global",
                         where="--global", remedy="use --global cls")
    return separator


def change_tokenizer(folder: Path, model: Transformer,
                     options: OperationOptions) -> tuple[Tokenizer, Tokens | NewTokens] | tuple[None, None]:
    """Return a folder's tokenizer with fewer tokens, or with more, and what they do to the model.

    None and None where it is to stay as it is.

    Raises `InputError` for two vocabularies, and for a tokenizer that cannot be changed.
    """
    words = options.new_words()
    if words is None and not options.vocabulary:
        return None, None
    option, known = "--vocabulary" if words is None else "--new-tokens", load_tokenizer(folder)
    own = model.config.decoder_embed
    if known.has_own_target and own is not None and not own.tied:
        raise InputError("the two sides have vocabularies of their own", where=option, remedy="leave it out")
    if words is None:
        return trim_vocabulary(model.config, known, options.vocabulary)
    count, file = words
    more = extend_tokenizer(known, (one.text for one in read_documents([file])), count, where=option)
    return more, NewTokens(first=known.next_id, pieces=tuple(tuple(one) for one in spell_new_tokens(known, more)))


def extend_tokenizer_length(target: Path, operations: Sequence[Operation]) -> None:
    """Raise the tokenizer's maximum length, where it has one."""
    path = target / "tokenizer_config.json"
    lengths = [one.length for one in operations if isinstance(one, Positions)]
    if lengths and path.is_file():
        write_json(path, read_json(path) | {"model_max_length": lengths[-1]})
