"""From a folder with older tokenizer files to a backend of the `tokenizers` library."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tokenizers import AddedToken, processors
from tokenizers import Tokenizer as Backend

from saucier.errors import InputError, nearest
from saucier.files import read_object
from saucier.text.older.classes import CLASSES, MODEL_TYPES, REFUSED, Class
from saucier.text.older.pieces import FILES
from saucier.text.older.renumbered import TARGET_PIECES
from saucier.text.older.settings import ROLES, Settings, read_settings

OLDER = ("vocab.txt", "vocab.json", "vocab.pkl", *FILES)
"""Files of which one makes a folder a tokenizer's, where there is no tokenizer.json."""


def has_older_files(folder: Path) -> bool:
    """Say whether a folder holds a tokenizer in the older files."""
    return any((folder / name).is_file() for name in OLDER)


def has_target_files(folder: Path) -> bool:
    """Say whether what is written has pieces of its own there."""
    return (folder / TARGET_PIECES).is_file()


def read_older(folder: Path, *, target: bool = False) -> tuple[Backend, Settings, Class]:
    """Build a folder's tokenizer as its class does, special tokens and frame included.

    `target`: that of what is written, where `has_target_files` says that there is one.
    Raises `InputError` for a class that is unknown or cannot be reproduced, and for a file that is not as it should be.
    """
    settings = read_settings(folder)
    settings.target = target
    found = class_of(settings)
    settings.names = {**found.names, **settings.names}
    try:
        built = found.build(settings)
    except InputError:
        raise
    except Exception as error:  # the library raises nothing narrower
        raise InputError(f"the tokenizer's files do not fit together: {error}", where=str(folder),
                         remedy="fetch the whole folder again") from error
    backend, own = built if isinstance(built, tuple) else (built, [])
    add_tokens(backend, settings, found, own)
    add_frame(backend, settings, found)
    return backend, settings, found


def class_of(settings: Settings) -> Class:
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
                         remedy=nearest(name, [*CLASSES]))
    return CLASSES[name]


def add_tokens(backend: Backend, settings: Settings, found: Class, own: list[AddedToken]) -> None:
    """Add the special tokens in the order that gives new ones their ids, and check the ids that the folder states."""
    backend.add_tokens(list(settings.numbered.values()))
    for number, token in settings.numbered.items():
        given = backend.token_to_id(token.content)
        if given != number:
            raise InputError(f"the added token {token.content!r} gets the id {given} instead of {number}",
                             where=str(settings.folder), remedy="the files do not belong together; fetch them again")
    stated = {token.content for token in settings.numbered.values()}
    named = [spaced(settings.token(role), role, settings, found) for role in ROLES if role in settings.names]
    extra = [AddedToken(name, special=True) for name in found.extra(settings)]
    seen = set(stated)
    for token in [*named, *settings.extra(), *extra]:
        if token.content not in seen:
            backend.add_tokens([token])
            seen.add(token.content)
    refuse_behind(backend, settings, seen)
    backend.add_tokens([token for token in own if token.content not in stated])  # these win over the class's


def refuse_behind(backend: Backend, settings: Settings, added: Iterable[str]) -> None:
    """Refuse special tokens that are no part of a vocabulary behind which unknown pieces have their ids."""
    known = settings.known
    behind = [name for name in added if known is not None and (backend.token_to_id(name) or 0) >= known]
    if behind:
        raise InputError(f"the special token {behind[0]!r} is not in vocab.json", where=str(settings.folder),
                         remedy="give a folder with tokenizer.json")


def spaced(token: AddedToken, role: str, settings: Settings, found: Class) -> AddedToken:
    """Let the mask take the space before it along, where the class does and the folder says nothing else."""
    if role == "mask" and found.spaced_mask and not isinstance(settings.options.get("mask_token"), dict):
        return AddedToken(token.content, lstrip=True, special=True)
    return token


def add_frame(backend: Backend, settings: Settings, found: Class) -> None:
    """Put the special tokens around texts and pairs."""
    single, pair = templates(settings, found)
    used = dict.fromkeys(part.rsplit(":", 1)[0] if part.rsplit(":", 1)[-1].isdigit() else part
                         for part in f"{single} {pair}".split() if not part.startswith("$"))
    missing = [name for name in used if backend.token_to_id(name) is None]
    if missing:
        raise InputError(f"the special token {missing[0]!r} is not in the vocabulary", where=str(settings.folder),
                         remedy="correct special_tokens_map.json or src_lang")
    backend.post_processor = processors.TemplateProcessing(
        single=single.split(), pair=pair.split(), special_tokens=[(name, backend.token_to_id(name)) for name in used])


def templates(settings: Settings, found: Class) -> tuple[str, str]:
    """Return what stands around a text and around a pair, with the tokens filled in."""
    frame, names = found.frame, settings.names
    if frame is not None:
        values = {**names, "source": settings.text("src_lang", found.source)}
        return frame.single.format(**values), frame.pair.format(**values)
    bos = names.get("bos") if settings.flag("add_bos_token", False) else None
    eos = names.get("eos") if settings.flag("add_eos_token", False) else None
    sides = [" ".join(part for part in (bos and f"{bos}:{side}", f"${text}:{side}", eos and f"{eos}:{side}") if part)
             for side, text in enumerate("AB")]
    return sides[0], " ".join(sides)
