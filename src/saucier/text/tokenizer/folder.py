"""Reading a tokenizer folder: `tokenizer.json`, the files from before it or a GGUF file, and how the model wants its
texts handled.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken, processors
from tokenizers import Tokenizer as Backend

from saucier.checkpoints.gguf import TOKENS, is_gguf, open_gguf
from saucier.errors import InputError, suggest_name
from saucier.files import read_object, report_disk_errors
from saucier.text.tokenizer.gguf_vocabulary import read_gguf_tokenizer
from saucier.text.tokenizer.legacy_classes import CLASSES, MODEL_TYPES, REFUSED, TokenizerClass
from saucier.text.tokenizer.legacy_files import (
    ROLES,
    Moses,
    TokenizerSettings,
    find_special_tokens,
    read_tokenizer_settings,
)
from saucier.text.tokenizer.sentencepiece import FILES, TARGET_PIECES

LEGACY_FILES = ("vocab.txt", "vocab.json", "vocab.pkl", *FILES)
"""Files of which one makes a folder a tokenizer's, where there is no tokenizer.json."""


def build_legacy_backend(folder: Path, *, target: bool = False) -> tuple[Backend, TokenizerSettings, TokenizerClass]:
    """Build a folder's tokenizer as its class does, special tokens and frame included.

    `target`: that of what is written, where there is one.
    Raises `InputError` for a class that is unknown or cannot be reproduced, and for a file that is not as it should be.
    """
    settings = read_tokenizer_settings(folder)
    settings.target = target
    tokenizer_class = find_class(settings)
    settings.names = {**tokenizer_class.names, **settings.names}
    try:
        built = tokenizer_class.build(settings)
    except InputError:
        raise
    except Exception as error:  # the library raises nothing narrower
        raise InputError(f"the tokenizer's files do not fit together: {error}", where=str(folder),
                         remedy="fetch the whole folder again") from error
    backend, own = built if isinstance(built, tuple) else (built, [])
    add_tokens(backend, settings, tokenizer_class, own)
    add_frame(backend, settings, tokenizer_class)
    return backend, settings, tokenizer_class


def find_class(settings: TokenizerSettings) -> TokenizerClass:
    """Find the class that a folder names, or that belongs to its model. Raises `InputError` for an unknown one."""
    config = read_object(settings.folder / "config.json")
    named = settings.options.get("tokenizer_class") or config.get("tokenizer_class")
    name = str(named or "").removesuffix("Fast")
    if name in ("", "PreTrainedTokenizer", "TokenizersBackend"):
        name = MODEL_TYPES.get(str(config.get("model_type")), "")
    if name in REFUSED:
        raise InputError(f"{name} {REFUSED[name]}", where=str(settings.folder),
                         remedy="give a folder with tokenizer.json")
    if not name:
        raise InputError("nothing says which class these tokenizer files belong to", where=str(settings.folder),
                         remedy="write tokenizer_class into tokenizer_config.json, or give tokenizer.json")
    if name not in CLASSES:
        raise InputError(f"tokenizer_class {name!r} is not known", where=settings.where,
                         remedy=suggest_name(name, [*CLASSES]))
    return CLASSES[name]


def add_tokens(backend: Backend, settings: TokenizerSettings, tokenizer_class: TokenizerClass,
               own: list[AddedToken]) -> None:
    """Add the special tokens in the order that gives new ones their ids, and check the ids that the folder states."""
    backend.add_tokens(list(settings.numbered.values()))
    for number, token in settings.numbered.items():
        given = backend.token_to_id(token.content)
        if given != number:
            raise InputError(f"the added token {token.content!r} gets the id {given} instead of {number}",
                             where=str(settings.folder), remedy="the files do not belong together; fetch them again")
    stated = {token.content for token in settings.numbered.values()}
    named = {role: settings.token(role) for role in ROLES if role in settings.names}
    if "mask" in named and tokenizer_class.spaced_mask and not isinstance(settings.options.get("mask_token"), dict):
        named["mask"] = AddedToken(named["mask"].content, lstrip=True, special=True)
    extra = [AddedToken(name, special=True) for name in tokenizer_class.extra(settings)]
    seen = set(stated)
    for token in [*named.values(), *settings.extra(), *extra]:
        if token.content not in seen:
            backend.add_tokens([token])
            seen.add(token.content)
    for name in seen:  # after the vocabulary, unknown pieces have their ids
        if settings.known is not None and (backend.token_to_id(name) or 0) >= settings.known:
            raise InputError(f"the special token {name!r} is not in vocab.json", where=str(settings.folder),
                             remedy="give a folder with tokenizer.json")
    backend.add_tokens([token for token in own if token.content not in stated])  # these win over the class's


def add_frame(backend: Backend, settings: TokenizerSettings, tokenizer_class: TokenizerClass) -> None:
    """Put the special tokens around texts and pairs."""
    single, pair = fill_templates(settings, tokenizer_class)
    used = dict.fromkeys(part.rsplit(":", 1)[0] if part.rsplit(":", 1)[-1].isdigit() else part
                         for part in f"{single} {pair}".split() if not part.startswith("$"))
    missing = [name for name in used if backend.token_to_id(name) is None]
    if missing:
        raise InputError(f"the special token {missing[0]!r} is not in the vocabulary", where=str(settings.folder),
                         remedy="correct special_tokens_map.json or src_lang")
    backend.post_processor = processors.TemplateProcessing(
        single=single.split(), pair=pair.split(), special_tokens=[(name, backend.token_to_id(name)) for name in used])


def fill_templates(settings: TokenizerSettings, tokenizer_class: TokenizerClass) -> tuple[str, str]:
    """Return what is around a text and around a pair, with the tokens filled in."""
    names = settings.names
    if tokenizer_class.frame is not None:
        single, pair = (template.format(**names, source=settings.option("src_lang", tokenizer_class.source))
                        for template in tokenizer_class.frame)
        return single, pair
    bos = names.get("bos") if settings.option("add_bos_token", False) else None
    eos = names.get("eos") if settings.option("add_eos_token", False) else None
    sides = [" ".join(part for part in (bos and f"{bos}:{side}", f"${text}:{side}", eos and f"{eos}:{side}") if part)
             for side, text in enumerate("AB")]
    return sides[0], " ".join(sides)


NO_LIMIT = 1_000_000_000
"""transformers writes 10^30 for a tokenizer whose model takes any length."""
TARGET = "target_tokenizer"
"""Folder next to a tokenizer that holds the one of the side that writes, where that has its own."""
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
                   "vocab.txt", "vocab.json", "merges.txt", "chat_template.jinja", "target.spm", "target_vocab.json",
                   *FILES)
"""Files that make a folder's tokenizer."""


@dataclass(frozen=True, slots=True)
class TextHandling:
    """How a model wants its texts handled, except for how they are split."""

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
        named = [{"name": name, "template": text} for name, text in self.chat.items()]
        options = {"padding_side": self.padding_side, "truncation_side": self.truncation_side,
                   "model_max_length": self.max_length, "known_ids": self.known,
                   "src_lang": self.moses and self.moses.language,
                   "do_lowercase_and_remove_accent": self.moses and self.moses.plain,
                   "model_input_names": list(self.inputs) or None,
                   "chat_template": self.chat["default"] if list(self.chat) == ["default"] else named or None}
        return {name: value for name, value in options.items() if value is not None}


@dataclass(frozen=True, slots=True)
class TokenizerFiles:
    """What a tokenizer folder holds."""

    backend: tokenizers.Tokenizer
    names: Mapping[str, str]
    handling: TextHandling
    clean_up: bool
    target: TokenizerFiles | None = None
    """That of the side that writes, where it has its own."""


def open_tokenizer_folder(folder: Path) -> TokenizerFiles:
    """Read a tokenizer folder, or a run folder, which keeps it in `tokenizer/`. tokenizer.json wins over older files.

    A GGUF file has its tokenizer inside. Raises `InputError` for a folder without a tokenizer, and for a file that is
    not one.
    """
    if is_gguf(folder):
        return open_gguf_tokenizer(folder)
    for place in (folder, folder / "tokenizer"):
        if (place / "tokenizer.json").is_file():
            other = place / TARGET
            return replace(read_tokenizer_json(place), target=open_tokenizer_folder(other) if other.is_dir() else None)
    for place in (folder, folder / "tokenizer"):
        if any((place / name).is_file() for name in LEGACY_FILES):
            written = read_legacy_tokenizer(place, target=True) if (place / TARGET_PIECES).is_file() else None
            return replace(read_legacy_tokenizer(place), target=written)
    raise InputError("has no tokenizer.json and no older tokenizer files", where=str(folder),
                     remedy="put the model's tokenizer.json into it")


def open_gguf_tokenizer(path: Path) -> TokenizerFiles:
    """Read the tokenizer of a GGUF file."""
    found = read_gguf_tokenizer(open_gguf(path))
    inputs = ("input_ids", "attention_mask", *(["token_type_ids"] if found.segments else []))
    return TokenizerFiles(found.backend, found.names, TextHandling(found.max_length, inputs=inputs, chat=found.chat),
                          clean_up=False)


def read_legacy_tokenizer(folder: Path, *, target: bool = False) -> TokenizerFiles:
    """Read a folder with the older files: the tokenizer of what is read, or (Marian) of what is written."""
    backend, settings, found = build_legacy_backend(folder, target=target)
    handling = replace(read_handling(folder, settings.options, inputs=found.inputs, left=found.left),
                       known=settings.known, moses=settings.moses)
    return TokenizerFiles(backend, settings.names, handling, settings.option("clean_up_tokenization_spaces", False))


def read_tokenizer_json(folder: Path) -> TokenizerFiles:
    """Read a folder with `tokenizer.json`; its truncation and padding are set aside, so that nothing is cut unseen."""
    path = folder / "tokenizer.json"
    options = read_object(folder / "tokenizer_config.json")
    read_object(path)
    try:
        backend = tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises nothing narrower; the JSON itself was read above
        raise InputError(f"is not a tokenizer: {error}", where=str(path), remedy="write it with `save`") from error
    names = find_special_tokens(read_object(folder / "special_tokens_map.json")) | find_special_tokens(options)
    known = CLASSES.get(str(options.get("tokenizer_class")).removesuffix("Fast"))
    left = (known is not None and known.left) or (backend.padding or {}).get("direction") == "left"
    stated = options.get("known_ids")
    handling = replace(read_handling(folder, options, inputs=known.inputs if known else (), left=left),
                       known=stated if isinstance(stated, int) else None)
    backend.no_truncation()
    backend.no_padding()
    return TokenizerFiles(backend, names, handling, bool(options.get("clean_up_tokenization_spaces")))


def read_handling(folder: Path, options: Mapping[str, Any], *, inputs: tuple[str, ...], left: bool) -> TextHandling:
    """Read how texts are handled. Raises `InputError` for a value that makes no sense."""
    where = str(folder / "tokenizer_config.json")
    length = options.get("model_max_length")
    if length is not None and (isinstance(length, bool) or not isinstance(length, int | float) or not length >= 1):
        raise InputError(f"model_max_length is {str(length)[:40]!r}", where=where, remedy="write a number of tokens")
    sides = {}
    for name, default in (("padding_side", "left" if left else "right"), ("truncation_side", "right")):
        sides[name] = options.get(name, default)
        if sides[name] not in ("left", "right"):
            raise InputError(f"{name} is {str(sides[name])[:40]!r}", where=where, remedy="write left or right")
    stated = tuple(str(name) for name in options.get("model_input_names") or ())
    return TextHandling(None if length is None or length >= NO_LIMIT else int(length), sides["padding_side"],
                        sides["truncation_side"], stated or inputs, read_chat_templates(folder, options))


def read_chat_templates(folder: Path, options: Mapping[str, Any]) -> dict[str, str]:
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


def find_tokenizer_files(folder: Path) -> Path | None:
    """Return where a model folder or a run folder, which has them in `tokenizer/`, keeps a tokenizer's files.

    A GGUF file has it inside.
    """
    if is_gguf(folder):
        return folder if TOKENS in open_gguf(folder).metadata else None
    return next((place for place in (folder, folder / "tokenizer") if any((place / name).is_file()
                                                                          for name in TOKENIZER_FILES)), None)


def copy_tokenizer(source: Path, target: Path) -> tuple[str, ...]:
    """Copy the tokenizer's files of a model folder or a run folder, and return their names."""
    place = find_tokenizer_files(source)
    if place is None:
        return ()
    names = tuple(name for name in TOKENIZER_FILES if (place / name).is_file())
    with report_disk_errors(target):
        for name in names:
            shutil.copyfile(place / name, target / name)
    if not (place / TARGET).is_dir():
        return names
    (target / TARGET).mkdir(exist_ok=True)
    return (*names, *(f"{TARGET}/{name}" for name in copy_tokenizer(place / TARGET, target / TARGET)))
