"""What a folder says about its tokenizer: its class, its special tokens, and the options of the class."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tokenizers import AddedToken

from saucier.errors import InputError
from saucier.files import read_object
from saucier.text.moses import Moses

ROLES = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")
"""Roles in the order in which transformers gives new ids to their tokens."""
TOKEN_FIELDS = ("single_word", "lstrip", "rstrip", "normalized", "special")


@dataclass(slots=True)
class Settings:
    """The options of a tokenizer folder, and its special tokens by role."""

    folder: Path
    options: Mapping[str, Any]
    """tokenizer_config.json, completed by special_tokens_map.json."""
    numbered: Mapping[int, AddedToken] = field(default_factory=dict)
    """Tokens that must get these ids."""
    names: dict[str, str] = field(default_factory=dict)
    """Role -> token; the class's own defaults are filled in later."""
    known: int | None = None
    """Ids from here on are unknown to the model; None: the model knows all."""
    moses: Moses | None = None
    """How texts are prepared before they are split; None: they are not."""
    target: bool = False
    """Whether the tokenizer of what is written is meant, where that has files of its own (Marian)."""

    @property
    def where(self) -> str:
        """The file that errors point to."""
        return str(self.folder / "tokenizer_config.json")

    def flag(self, name: str, default: bool) -> bool:
        """Return an option that is yes or no. Raises `InputError` for anything else."""
        value = self.options.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.fault(name, value, "true or false")
        return value

    def number(self, name: str, default: int) -> int:
        """Return an option that is a count from 0 to a million. Raises `InputError` for anything else."""
        value = self.options.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 1_000_000:
            raise self.fault(name, value, "a count")
        return value

    def text(self, name: str, default: str) -> str:
        """Return an option that is a word. Raises `InputError` for anything else."""
        value = self.options.get(name)
        if value is None:
            return default
        if not isinstance(value, str):
            raise self.fault(name, value, "a string")
        return value

    def fault(self, name: str, value: object, wanted: str) -> InputError:
        """Build the error for an option of the wrong kind."""
        return InputError(f"{name} is {str(value)[:60]!r}", where=self.where, remedy=f"write {wanted}")

    def token(self, role: str) -> AddedToken:
        """Return the special token of a role as it is written, or plain."""
        written = self.options.get(f"{role}_token")
        if isinstance(written, dict):
            return added_token(written, f"{self.where}: {role}_token", special=True)
        known = [token for token in self.numbered.values() if token.content == self.names[role]]
        return known[0] if known else AddedToken(self.names[role], special=True)

    def extra(self) -> Iterator[AddedToken]:
        """Yield the further special tokens that the folder names."""
        for key in ("additional_special_tokens", "extra_special_tokens"):
            found = self.options.get(key) or []
            for value in found.values() if isinstance(found, dict) else found:
                yield added_token(value, f"{self.where}: {key}", special=True)


def read_settings(folder: Path) -> Settings:
    """Read what a folder says about its tokenizer. Raises `InputError` for a file that is not as it should be."""
    options = dict(read_object(folder / "tokenizer_config.json"))
    numbered = numbered_tokens(options.get("added_tokens_decoder"), str(folder / "tokenizer_config.json"))
    if not numbered:
        options |= read_object(folder / "special_tokens_map.json")
    special = set(names_of(options).values())
    for name, number in read_object(folder / "added_tokens.json").items():
        if isinstance(number, bool) or not isinstance(number, int) or number < 0:
            raise InputError(f"the id of {name!r} is {number!r}", where=str(folder / "added_tokens.json"),
                             remedy="ids are counted from 0")
        if number not in numbered:
            numbered[number] = AddedToken(name, normalized=name not in special, special=name in special)
    return Settings(folder, options, dict(sorted(numbered.items())), names_of(options))


def names_of(options: Mapping[str, Any]) -> dict[str, str]:
    """Find the special tokens by role; old files write a token as an object with its `content`."""
    found = {role: options.get(f"{role}_token") for role in ROLES}
    plain = {role: name.get("content") if isinstance(name, dict) else name for role, name in found.items()}
    return {role: name for role, name in plain.items() if isinstance(name, str) and name}


def numbered_tokens(value: object, where: str) -> dict[int, AddedToken]:
    """Read `added_tokens_decoder`: id -> token."""
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(str(number).isdecimal() for number in value):
        raise InputError("added_tokens_decoder is no list of tokens by id", where=where, remedy="fetch it again")
    return {int(number): added_token(token, f"{where}: added_tokens_decoder.{number}")
            for number, token in value.items()}


def added_token(value: object, where: str, *, special: bool | None = None) -> AddedToken:
    """Read a token, which is a string or an object with `content`; `special` overrides what the object says."""
    if isinstance(value, str):
        return AddedToken(value, special=bool(special))
    if not isinstance(value, dict) or not isinstance(value.get("content"), str) or not value["content"]:
        raise InputError("is no token", where=where, remedy="write a string, or an object with content")
    options = {name: value[name] for name in TOKEN_FIELDS if isinstance(value.get(name), bool)}
    return AddedToken(value["content"], **(options | ({} if special is None else {"special": special})))
