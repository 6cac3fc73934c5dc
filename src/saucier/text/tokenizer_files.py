"""Reading a tokenizer folder: `tokenizer.json` or the older files, and how the model wants its texts handled."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import tokenizers

from saucier.errors import InputError
from saucier.files import disk_errors, read_object
from saucier.text.moses import Moses
from saucier.text.older.classes import CLASSES
from saucier.text.older.folder import has_older_files, has_target_files, read_older
from saucier.text.older.pieces import FILES as PIECES
from saucier.text.older.settings import names_of

NO_LIMIT = 1_000_000_000
"""transformers writes 10^30 for a tokenizer whose model takes any length."""
SIDES = ("left", "right")
TARGET = "target_tokenizer"
"""Folder beside a tokenizer that holds the one of the side that writes, where that has its own."""
TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.txt",
             "vocab.json", "merges.txt", "chat_template.jinja", "target.spm", "target_vocab.json", *PIECES)
"""Files that make a folder's tokenizer."""


@dataclass(frozen=True, slots=True)
class Handling:
    """How a model wants its texts handled, apart from how they are split."""

    max_length: int | None = None
    """Longest row of the model, in tokens."""
    padding_side: str = "right"
    truncation_side: str = "right"
    inputs: tuple[str, ...] = ()
    """Names of the tensors that the model takes; empty where neither the folder nor its class says it."""
    chat: Mapping[str, str] = field(default_factory=dict)
    """Chat templates by name."""
    moses: Moses | None = None
    """How a text is prepared before it is split; None: it is not."""
    known: int | None = None
    """Ids from here on are unknown to the model; None: the model knows all."""

    def as_options(self) -> dict[str, Any]:
        """Return the fields of tokenizer_config.json that say this."""
        options: dict[str, Any] = {"padding_side": self.padding_side, "truncation_side": self.truncation_side}
        if self.max_length is not None:
            options["model_max_length"] = self.max_length
        if self.known is not None:
            options["known_ids"] = self.known
        if self.moses is not None:
            options |= {"src_lang": self.moses.language, "do_lowercase_and_remove_accent": self.moses.plain}
        if self.inputs:
            options["model_input_names"] = list(self.inputs)
        if self.chat:
            named = [{"name": name, "template": text} for name, text in self.chat.items()]
            options["chat_template"] = self.chat["default"] if list(self.chat) == ["default"] else named
        return options


@dataclass(frozen=True, slots=True)
class Opened:
    """What a tokenizer folder holds."""

    backend: tokenizers.Tokenizer
    names: Mapping[str, str]
    handling: Handling
    clean_up: bool
    target: Opened | None = None
    """That of the side that writes, where it has its own."""


def open_folder(folder: Path) -> Opened:
    """Read a tokenizer folder, or a run folder, which keeps it in `tokenizer/`. tokenizer.json wins over older files.

    Raises `InputError` for a folder without a tokenizer, and for a file that is not one.
    """
    for place in (folder, folder / "tokenizer"):
        if (place / "tokenizer.json").is_file():
            other = place / TARGET
            return replace(with_tokenizer_json(place), target=open_folder(other) if other.is_dir() else None)
    for place in (folder, folder / "tokenizer"):
        if has_older_files(place):
            written = with_older_files(place, target=True) if has_target_files(place) else None
            return replace(with_older_files(place), target=written)
    raise InputError("has no tokenizer.json and no older tokenizer files", where=str(folder),
                     remedy="put the model's tokenizer.json into it")


def with_older_files(folder: Path, *, target: bool = False) -> Opened:
    """Read a folder with the older files: the tokenizer of what is read, or (Marian) of what is written."""
    backend, settings, found = read_older(folder, target=target)
    handling = handling_of(folder, settings.options, inputs=found.inputs, left=found.left)
    handling = replace(handling, known=settings.known, moses=settings.moses)
    return Opened(backend, settings.names, handling, settings.flag("clean_up_tokenization_spaces", False))


def with_tokenizer_json(folder: Path) -> Opened:
    """Read a folder with `tokenizer.json`; its truncation and padding are set aside, so that nothing is cut unseen."""
    path = folder / "tokenizer.json"
    options = read_object(folder / "tokenizer_config.json")
    read_object(path)
    try:
        backend = tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises nothing narrower; the JSON itself was read above
        raise InputError(f"is not a tokenizer: {error}", where=str(path), remedy="write it with `save`") from error
    names = names_of(read_object(folder / "special_tokens_map.json")) | names_of(options)
    known = CLASSES.get(str(options.get("tokenizer_class")).removesuffix("Fast"))
    left = (known is not None and known.left) or (backend.padding or {}).get("direction") == "left"
    handling = handling_of(folder, options, inputs=known.inputs if known else (), left=left)
    if isinstance(options.get("known_ids"), int):
        handling = replace(handling, known=options["known_ids"])
    backend.no_truncation()
    backend.no_padding()
    return Opened(backend, names, handling, bool(options.get("clean_up_tokenization_spaces")))


def handling_of(folder: Path, options: Mapping[str, Any], *, inputs: tuple[str, ...], left: bool) -> Handling:
    """Read how texts are handled. Raises `InputError` for a value that makes no sense."""
    where = str(folder / "tokenizer_config.json")
    length = options.get("model_max_length")
    if length is not None and (isinstance(length, bool) or not isinstance(length, int | float) or not length >= 1):
        raise InputError(f"model_max_length is {str(length)[:40]!r}", where=where, remedy="write a number of tokens")
    sides = {}
    for name, default in (("padding_side", "left" if left else "right"), ("truncation_side", "right")):
        sides[name] = options.get(name, default)
        if sides[name] not in SIDES:
            raise InputError(f"{name} is {str(sides[name])[:40]!r}", where=where, remedy="write left or right")
    stated = tuple(str(name) for name in options.get("model_input_names") or ())
    return Handling(None if length is None or length >= NO_LIMIT else int(length), sides["padding_side"],
                    sides["truncation_side"], stated or inputs, chat_templates(folder, options))


def chat_templates(folder: Path, options: Mapping[str, Any]) -> dict[str, str]:
    """Read the chat templates by name: a file of its own, else a string or a list in tokenizer_config.json."""
    path = folder / "chat_template.jinja"
    if path.is_file():
        try:
            return {"default": path.read_text(encoding="utf-8")}
        except UnicodeDecodeError as error:
            raise InputError("not UTF-8 text", where=f"{path}, byte {error.start}", remedy="fetch it again") from error
    found = options.get("chat_template")
    if found is None or isinstance(found, str):
        return {} if found is None else {"default": found}
    try:
        return {str(one["name"]): str(one["template"]) for one in found}
    except (TypeError, KeyError) as error:
        raise InputError("chat_template is neither a string nor a list of named ones",
                         where=str(folder / "tokenizer_config.json"), remedy="fetch it again") from error


def tokenizer_place(folder: Path) -> Path | None:
    """Return where a model folder or a run folder, which has them in `tokenizer/`, keeps a tokenizer's files."""
    return next((place for place in (folder, folder / "tokenizer") if any((place / name).is_file()
                                                                         for name in TOKENIZER)), None)


def copy_tokenizer(source: Path, target: Path) -> tuple[str, ...]:
    """Copy the tokenizer's files of a model folder or a run folder, and return their names."""
    place = tokenizer_place(source)
    if place is None:
        return ()
    names = tuple(name for name in TOKENIZER if (place / name).is_file())
    with disk_errors(target):
        for name in names:
            shutil.copyfile(place / name, target / name)
    if not (place / TARGET).is_dir():
        return names
    (target / TARGET).mkdir(exist_ok=True)
    return (*names, *(f"{TARGET}/{name}" for name in copy_tokenizer(place / TARGET, target / TARGET)))
