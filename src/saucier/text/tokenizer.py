"""`Tokenizer`: text to token ids and back, over the `tokenizers` library; saved and loaded in the Hugging Face layout.

Training lives in `train_tokenizer.py`. Only folders with a `tokenizer.json` are read here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tokenizers

from saucier.errors import InputError
from saucier.files import write_json, write_text

ROLES = ("pad", "unk", "bos", "eos", "cls", "sep", "mask")
SENTINEL = re.compile(r"<extra_id_(\d+)>")
CLEAN_UP = ((" .", "."), (" ?", "?"), (" !", "!"), (" ,", ","), (" ' ", "'"), (" n't", "n't"), (" 'm", "'m"),
            (" 's", "'s"), (" 've", "'ve"), (" 're", "'re"))


class Tokenizer:
    """Text to ids and back. `names` gives the special tokens by role: pad, unk, bos, eos, cls, sep, mask."""

    def __init__(self, backend: tokenizers.Tokenizer, names: Mapping[str, str], *, clean_up: bool = False) -> None:
        """Wrap a `tokenizers.Tokenizer`. `clean_up`: decoding makes `it's.` of `it 's .`, as old BERTs ask for."""
        self.backend = backend
        self.names = dict(names)
        self.clean_up = clean_up
        special = {token.content for token in backend.get_added_tokens_decoder().values() if token.special}
        unmarked = [name for name in dict.fromkeys(self.names.values()) if name not in special]
        backend.add_special_tokens([tokenizers.AddedToken(name, special=True) for name in unmarked])

    def encode(self, text: str, add_special_tokens: bool = True, *, pair: str | None = None) -> list[int]:
        """Give the ids of a text (of a text and its `pair`), by default inside the tokenizer's template.

        Errors: `InputError` for half of a surrogate pair, which is not Unicode text.
        """
        try:
            ids: list[int] = self.backend.encode(text, pair, add_special_tokens=add_special_tokens).ids
        except (UnicodeEncodeError, TypeError) as error:
            raise _not_unicode(text + (pair or ""), error) from error
        return ids

    def encode_batch(self, texts: Sequence[str], add_special_tokens: bool = True) -> list[list[int]]:
        """Give the ids of many texts, on all cores. Errors: as `encode`."""
        try:
            encoded = self.backend.encode_batch_fast(list(texts), add_special_tokens=add_special_tokens)
        except (UnicodeEncodeError, TypeError) as error:
            raise _not_unicode("".join(texts), error) from error
        return [one.ids for one in encoded]

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """Give the text of ids. What the tokenizer's own normalization took away (case, accents) stays away."""
        text = self.backend.decode(list(ids), skip_special_tokens=skip_special_tokens)
        if self.clean_up and not isinstance(self.backend.model, tokenizers.models.BPE):
            for old, new in CLEAN_UP:
                text = text.replace(old, new)
        return text

    @property
    def vocab_size(self) -> int:
        """Number of ids, special tokens included."""
        return int(self.backend.get_vocab_size(with_added_tokens=True))

    def id_to_token(self, number: int) -> str | None:
        """Give the token of an id, as it stands in the vocabulary."""
        token: str | None = self.backend.id_to_token(number)
        return token

    def token_to_id(self, token: str) -> int | None:
        """Give the id of a token, or None."""
        number: int | None = self.backend.token_to_id(token)
        return number

    def _id(self, role: str) -> int | None:
        name = self.names.get(role)
        return None if name is None else self.token_to_id(name)

    @property
    def pad_id(self) -> int | None:
        """Id of the padding token, if there is one."""
        return self._id("pad")

    @property
    def unk_id(self) -> int | None:
        """Id of the unknown token, if there is one."""
        return self._id("unk")

    @property
    def bos_id(self) -> int | None:
        """Id of the token that begins a text, if there is one."""
        return self._id("bos")

    @property
    def eos_id(self) -> int | None:
        """Id of the token that ends a text, if there is one."""
        return self._id("eos")

    @property
    def cls_id(self) -> int | None:
        """Id of BERT's first token, if there is one."""
        return self._id("cls")

    @property
    def sep_id(self) -> int | None:
        """Id of the token that ends BERT's segments, if there is one."""
        return self._id("sep")

    @property
    def mask_id(self) -> int | None:
        """Id of the token that hides another, if there is one."""
        return self._id("mask")

    @property
    def special_ids(self) -> list[int]:
        """Ids of all special tokens, in order."""
        return sorted(number for number, token in self.backend.get_added_tokens_decoder().items() if token.special)

    @property
    def sentinel_ids(self) -> list[int]:
        """Ids of `<extra_id_0>`, `<extra_id_1>`, ... (span corruption), in that order; empty where there are none."""
        found = {int(match[1]): number for number, token in self.backend.get_added_tokens_decoder().items()
                 if (match := SENTINEL.fullmatch(token.content))}
        return [found[place] for place in sorted(found)]

    def save(self, folder: Path | str) -> None:
        """Write `tokenizer.json` and `tokenizer_config.json`, as transformers reads them."""
        write_text(Path(folder) / "tokenizer.json", self.backend.to_str(pretty=True))
        config: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast",
                                  "clean_up_tokenization_spaces": self.clean_up}
        config |= {f"{role}_token": name for role, name in self.names.items()}
        write_json(Path(folder) / "tokenizer_config.json", config)


def load_tokenizer(folder: Path | str) -> Tokenizer:
    """Read a tokenizer from a folder with `tokenizer.json` and, where there is one, `tokenizer_config.json`.

    A run folder, which keeps them in `tokenizer/`, will do as well.
    Errors: `InputError` for a folder without one, and for a file that is not a tokenizer.
    """
    found = [place for place in (Path(folder), Path(folder) / "tokenizer") if (place / "tokenizer.json").is_file()]
    if not found:
        raise InputError("has no tokenizer.json" if Path(folder).is_dir() else "no such folder", where=str(folder),
                         remedy="name the folder that holds tokenizer.json")
    path = found[0] / "tokenizer.json"
    config = _read_json(found[0] / "tokenizer_config.json")
    _read_json(path)
    try:
        backend = tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises nothing narrower; the JSON itself was read above
        raise InputError(f"is not a tokenizer: {error}", where=str(path), remedy="write it with `save`") from error
    return Tokenizer(backend, _names(config), clean_up=bool(config.get("clean_up_tokenization_spaces")))


def _read_json(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"not JSON: {error}", where=str(path), remedy="fetch or write it again") from error
    return value if isinstance(value, dict) else {}


def _names(config: Mapping[str, Any]) -> dict[str, str]:
    """Find the special tokens of a `tokenizer_config.json`; old files write a token as an object with its `content`."""
    found = {role: config.get(f"{role}_token") for role in ROLES}
    return {role: name["content"] if isinstance(name, dict) else name for role, name in found.items() if name}


def _not_unicode(text: str, error: Exception) -> InputError | Exception:
    half = re.search("[\ud800-\udfff]", text)
    if half is None:
        return error
    return InputError(f"character {half.start()} is {half[0]!a}, half of a surrogate pair", where="text to encode",
                      remedy="replace it, for example by U+FFFD")
