"""Tokenizer files from before `tokenizer.json`: settings and special tokens, vocab.txt, vocab.json, merges.txt, and
the Moses preparation that XLM's settings name. Read with errors that name the line, and written.
"""

from __future__ import annotations

import functools
import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from tokenizers import AddedToken
from tokenizers import Tokenizer as Backend

from saucier.errors import InputError, report_missing
from saucier.files import read_object, write_json, write_text

PUNCTUATION = str.maketrans({
    **dict(zip("，、”“∶：？《》）！（；」「～’━〈〉【】％", ",,\"\"::?\"\")!(;\"\"~'-<>[]%", strict=True)),
    **dict(zip("０１２３４５６７８９", "0123456789", strict=True)),
    "…": "...",
})
"""Replacements for the punctuation and the digits of wide scripts. Source: Moses, replace-unicode-punctuation."""
FULL_STOP = re.compile(r"[。．]\s*")
ROMANIAN = str.maketrans("ŞşŢţȘșȚțĂăÂâÎî", "SsTtSsTtAaAaIi")
"""Source: Sennrich et al. 2016, "Edinburgh Neural Machine Translation Systems for WMT 16", code release."""


@dataclass(frozen=True, slots=True)
class Moses:
    """Normal punctuation, no control characters, a space around each token.

    Source: Koehn et al. 2007 (Moses), as Lample and Conneau 2019 (XLM) use it, §4.1 and code release, arXiv:1901.07291.
    """

    language: str = "en"
    plain: bool = True
    """Whether letters lose case and accents."""

    def __call__(self, text: str) -> str:
        """Return a text with spaces between its tokens."""
        normalize, split = build_moses_scripts(self.language)
        spaced = normalize(FULL_STOP.sub(". ", text.translate(PUNCTUATION)))
        shown = "".join(letter for letter in spaced if unicodedata.category(letter)[0] != "C")
        if self.language == "ro":
            shown = shown.translate(ROMANIAN)
        words = " ".join(split(shown))
        if not self.plain:
            return words
        decomposed = unicodedata.normalize("NFD", words.lower())
        return "".join(letter for letter in decomposed if unicodedata.category(letter) != "Mn").lower()

    def prepare_around(self, text: str, kept: Iterable[str]) -> str:
        """Return a text prepared between the tokens to be kept, which stay as they are."""
        text.encode("utf-8")  # half of a surrogate pair would be taken away as a control character
        tokens = "|".join(re.escape(token) for token in sorted(kept, key=len, reverse=True))
        parts = re.split(f"({tokens})", text) if tokens else [text]
        return " ".join(part if place % 2 else self(part) for place, part in enumerate(parts) if part)


@functools.cache
def build_moses_scripts(language: str) -> tuple[Callable[[str], str], Callable[[str], list[str]]]:
    """Return the Moses scripts of a language: normal punctuation, and the cut into tokens.

    Raises `InputError` without sacremoses.
    """
    with report_missing("XLM's texts are prepared by sacremoses, which is not installed", where="tokenizer",
                        remedy="pip install 'saucier[moses]'"):
        import sacremoses
    tokenizer: Any = sacremoses.MosesTokenizer(lang=language)
    normalizer: Any = sacremoses.MosesPunctNormalizer(lang=language)
    return normalizer.normalize, functools.partial(tokenizer.tokenize, return_str=False, escape=False)


ROLES = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")
"""Roles in the order in which transformers gives new ids to their tokens."""
TOKEN_FIELDS = ("single_word", "lstrip", "rstrip", "normalized", "special")
TYPES = {bool: "true or false", int: "a count", str: "a string"}
"""What errors call the types of options."""
Option = TypeVar("Option", bool, int, str)


@dataclass(slots=True)
class TokenizerSettings:
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

    def option(self, name: str, default: Option) -> Option:
        """Return an option, which is of its default's type: yes or no, a word, or a count from 0 to a million.

        Raises `InputError` for anything else; null says nothing of a yes, a no or a word.
        """
        value: Option | None = self.options.get(name, default)
        if value is None and type(default) is not int:
            return default
        fits = type(value) is type(default) and (not isinstance(value, int) or 0 <= value <= 1_000_000)
        if value is None or not fits:
            raise InputError(f"{name} is {str(value)[:60]!r}", where=self.where, remedy=f"write {TYPES[type(default)]}")
        return value

    def token(self, role: str) -> AddedToken:
        """Return the special token of a role as it is written, or plain."""
        written = self.options.get(f"{role}_token")
        if isinstance(written, dict):
            return read_added_token(written, f"{self.where}: {role}_token", special=True)
        known = [token for token in self.numbered.values() if token.content == self.names[role]]
        return known[0] if known else AddedToken(self.names[role], special=True)

    def extra(self) -> Iterator[AddedToken]:
        """Yield the further special tokens that the folder names."""
        for key in ("additional_special_tokens", "extra_special_tokens"):
            found = self.options.get(key) or []
            for value in found.values() if isinstance(found, dict) else found:
                yield read_added_token(value, f"{self.where}: {key}", special=True)


def read_tokenizer_settings(folder: Path) -> TokenizerSettings:
    """Read what a folder says about its tokenizer. Raises `InputError` for a file that is not as it should be."""
    options = dict(read_object(folder / "tokenizer_config.json"))
    numbered = read_numbered_tokens(options.get("added_tokens_decoder"), str(folder / "tokenizer_config.json"))
    if not numbered:
        options |= read_object(folder / "special_tokens_map.json")
    special = set(find_special_tokens(options).values())
    for name, number in read_object(folder / "added_tokens.json").items():
        if isinstance(number, bool) or not isinstance(number, int) or number < 0:
            raise InputError(f"the id of {name!r} is {number!r}", where=str(folder / "added_tokens.json"),
                             remedy="ids are counted from 0")
        if number not in numbered:
            numbered[number] = AddedToken(name, normalized=name not in special, special=name in special)
    return TokenizerSettings(folder, options, dict(sorted(numbered.items())), find_special_tokens(options))


def find_special_tokens(options: Mapping[str, Any]) -> dict[str, str]:
    """Find the special tokens by role; old files write a token as an object with its `content`."""
    found = {role: options.get(f"{role}_token") for role in ROLES}
    plain = {role: name.get("content") if isinstance(name, dict) else name for role, name in found.items()}
    return {role: name for role, name in plain.items() if isinstance(name, str) and name}


def read_numbered_tokens(value: object, where: str) -> dict[int, AddedToken]:
    """Read `added_tokens_decoder`: id -> token."""
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(str(number).isdecimal() for number in value):
        raise InputError("added_tokens_decoder is no list of tokens by id", where=where, remedy="fetch it again")
    return {int(number): read_added_token(token, f"{where}: added_tokens_decoder.{number}")
            for number, token in value.items()}


def read_added_token(value: object, where: str, *, special: bool | None = None) -> AddedToken:
    """Read a token, which is a string or an object with `content`; `special` overrides what the object says."""
    if isinstance(value, str):
        return AddedToken(value, special=bool(special))
    if not isinstance(value, dict) or not isinstance(value.get("content"), str) or not value["content"]:
        raise InputError("is no token", where=where, remedy="write a string, or an object with content")
    options = {name: value[name] for name in TOKEN_FIELDS if isinstance(value.get(name), bool)}
    return AddedToken(value["content"], **(options | ({} if special is None else {"special": special})))


LARGEST_ID = 100_000_000


def read_lines(path: Path) -> list[str]:
    """Read the lines of a UTF-8 file; only a line feed ends a line. Raises `InputError` that names the byte."""
    if not path.is_file():
        raise InputError(f"has no {path.name}", where=str(path.parent), remedy="fetch the whole folder")
    try:
        text = path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError("not UTF-8 text", where=f"{path}, byte {error.start}", remedy="fetch it again") from error
    lines = text.split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def read_vocab_lines(path: Path) -> dict[str, int]:
    """Read a vocabulary with one token a line, whose id is the number of the line."""
    vocab = {line.rstrip(): number for number, line in enumerate(read_lines(path))}
    if not vocab:
        raise InputError("is empty", where=str(path), remedy="fetch it again")
    return vocab


def read_vocab(path: Path) -> dict[str, int]:
    """Read a vocabulary of the form {token: id}. Raises `InputError` for an id that is none, or is given twice."""
    if not path.is_file():
        raise InputError(f"has no {path.name}", where=str(path.parent), remedy="fetch the whole folder")
    vocab, seen = read_object(path), dict[int, str]()
    for token, number in vocab.items():
        if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= LARGEST_ID:
            raise InputError(f"the id of {token!r} is {str(number)[:40]!r}", where=str(path), remedy="fetch it again")
        if number in seen:
            raise InputError(f"{seen[number]!r} and {token!r} both have the id {number}", where=str(path),
                             remedy="fetch it again")
        seen[number] = token
    if not vocab:
        raise InputError("is empty", where=str(path), remedy="fetch it again")
    return vocab


def add_pieces(vocab: Mapping[str, int], pieces: Iterable[str], path: Path) -> dict[str, int]:
    """Return a vocabulary, read from `path`, with the pieces that are none of its tokens numbered after it.

    Raises `InputError` for a vocabulary whose ids leave gaps.
    """
    if sorted(vocab.values()) != list(range(len(vocab))):
        raise InputError("its ids leave gaps", where=str(path), remedy="fetch it again")
    others = [piece for piece in dict.fromkeys(pieces) if piece not in vocab]
    return {**vocab, **{piece: len(vocab) + place for place, piece in enumerate(others)}}


def read_merges(path: Path, vocab: Mapping[str, int]) -> list[tuple[str, str]]:
    """Read the merges in their order. Raises `InputError` for a line that is no pair of known tokens."""
    merges = []
    for number, line in enumerate(read_lines(path), start=1):
        if line.startswith("#version") or not line.strip():
            continue
        merges.append(read_pair(line.rstrip("\r").split(" "), line, f"{path}:{number}"))
        for token in (*merges[-1], "".join(merges[-1])):
            if token not in vocab:
                raise InputError(f"{token!r} is not in vocab.json", where=f"{path}:{number}",
                                 remedy="vocab.json and merges.txt must belong together")
    return merges


def read_codes(path: Path, *, heading: bool) -> list[tuple[str, str]]:
    """Read merges as fastBPE writes them, whose products need not be tokens.

    `heading`: the first line is none of them (CTRL); else how often a pair was seen may follow it (XLM). Of a
    pair that comes twice the last place counts. Raises `InputError` for a line that is no pair.
    """
    lines = [*enumerate(read_lines(path), start=1)][heading:]
    return [read_pair(line.split()[:None if heading else 2], line, f"{path}:{number}")
            for number, line in lines if line.strip()]


def read_pair(parts: list[str], line: str, where: str) -> tuple[str, str]:
    """Return the two parts of a merge. Raises `InputError` for another number of them."""
    if len(parts) != 2:
        raise InputError(f"{line[:60]!r} is no pair", where=where, remedy="fetch it again")
    return parts[0], parts[1]


def write_vocabulary_and_merges(backend: Backend, known: int | None, folder: Path) -> dict[str, Any]:
    """Write `vocab.json` and `merges.txt` of XLM; ids from `known` on are no tokens, and stay away.

    Returns the fields of tokenizer_config.json that belong to them.
    """
    model = json.loads(backend.to_str())["model"]
    vocab = {token: number for token, number in model["vocab"].items() if known is None or number < known}
    write_json(folder / "vocab.json", vocab)
    write_text(folder / "merges.txt", "".join(f"{first} {second}\n" for first, second in model["merges"]))
    added = {str(number): {"content": token.content} | {name: getattr(token, name) for name in TOKEN_FIELDS}
             for number, token in sorted(backend.get_added_tokens_decoder().items())}
    return {"tokenizer_class": "XLMTokenizer", "added_tokens_decoder": added}
