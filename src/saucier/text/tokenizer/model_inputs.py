"""Tensors that a model takes: token ids with padding and counted truncation, or the characters of tokens.

Letters: B batch, L length, N words, C characters of a word.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from saucier.config.embedding import BEGIN_TEXT, BEGIN_WORD, END_TEXT, END_WORD, PADDING
from saucier.errors import InputError, suggest_name

if TYPE_CHECKING:
    import tokenizers
    import torch
    from torch import Tensor

    from saucier.config import Transformer
    from saucier.text.tokenizer.folder import TextHandling

class Encoder(Protocol):
    """What is needed of a tokenizer to make rows of ids."""

    backend: tokenizers.Tokenizer
    handling: TextHandling

    @property
    def pad_id(self) -> int | None:
        """Id of the padding token, if there is one."""

    @property
    def bos_id(self) -> int | None:
        """Id of the token that begins a text, if there is one."""

    @property
    def eos_id(self) -> int | None:
        """Id of the token that ends a text, if there is one."""

    @property
    def vocab_size(self) -> int:
        """How many ids there are."""

    @property
    def target(self) -> Encoder:
        """The tokenizer of what the model writes."""

    @property
    def has_segments(self) -> bool:
        """Whether the model wants token_type_ids."""

    def encodings(self, items: Sequence[str | tuple[str, str]], add_special_tokens: bool) -> list[tokenizers.Encoding]:
        """Return the backend's encodings of texts or pairs."""

    def published_ids(self, ids: list[int]) -> list[int]:
        """Return ids as the model knows them."""

    def id_to_token(self, number: int) -> str | None:
        """Return the token of an id."""


PADDINGS = ("longest", "max_length", "none")
TRUNCATIONS = ("longest_first", "only_first", "only_second", "refuse")


@dataclass(slots=True)
class Encoded:
    """A batch of texts; `model(**batch)` takes it.

    Shapes: every tensor [B, L], int64; attention_mask is 1 for real tokens.
    """

    input_ids: Tensor
    attention_mask: Tensor
    token_type_ids: Tensor | None
    """None where the tokenizer's frame has no segments."""
    cut: tuple[int, ...]
    """Tokens left out of each row, because it was longer than max_length."""

    def keys(self) -> list[str]:
        """Name the tensors."""
        return ["input_ids", "attention_mask", *(["token_type_ids"] if self.token_type_ids is not None else [])]

    def __getitem__(self, name: str) -> Tensor:
        """Return a tensor by name. Raises `KeyError` for a name that `keys` does not give."""
        tensors: dict[str, Tensor] = {key: getattr(self, key) for key in self.keys()}
        return tensors[name]

    def to(self, device: str | torch.device) -> Encoded:
        """Return the batch on a device."""
        types = None if self.token_type_ids is None else self.token_type_ids.to(device)
        return Encoded(self.input_ids.to(device), self.attention_mask.to(device), types, self.cut)


@dataclass(frozen=True, slots=True)
class LengthOptions:
    """How long rows may be, and what is done with those that are longer or shorter."""

    limit: int | None
    padding: str
    truncation: str

    def __post_init__(self) -> None:
        """Refuse unknown words. Raises `InputError`."""
        for name, value, known in (("padding", self.padding, PADDINGS), ("truncation", self.truncation, TRUNCATIONS)):
            if value not in known:
                raise InputError(f"unknown {name} {value!r}", where=name, remedy=suggest_name(str(value), [*known]))
        if self.limit is not None and self.limit < 1:
            raise InputError(f"max_length is {self.limit}", where="max_length", remedy="give at least 1")
        if self.padding == "max_length" and self.limit is None:
            raise InputError("this tokenizer has no max_length of its own", where="padding", remedy="give max_length")


@dataclass(slots=True)
class EncodedRow:
    """The tokens of one text or pair."""

    ids: list[int]
    types: list[int]
    cut: int = 0


def encode_rows(tokenizer: Encoder, texts: Sequence[str], pairs: Sequence[str] | None, options: LengthOptions, *,
                special: bool = True) -> list[EncodedRow]:
    """Encode texts, or pairs of texts, each in a row of its own length. Raises `InputError` as `Tokenizer`."""
    if pairs is not None and len(pairs) != len(texts):
        raise InputError(f"{len(texts)} texts and {len(pairs)} pairs", where="pairs", remedy="give one for each text")
    if not texts:
        raise InputError("there are no texts", where="texts", remedy="give at least one")
    items: list[Any] = list(texts) if pairs is None else list(zip(texts, pairs, strict=True))
    encodings = tokenizer.encodings(items, special)
    rows = [EncodedRow(tokenizer.published_ids(one.ids), one.type_ids) for one in encodings]
    for place, row in enumerate(rows):
        if options.limit is not None and len(row.ids) > options.limit:
            second = None if pairs is None else pairs[place]
            rows[place] = encode_shortened(tokenizer, texts[place], second, len(row.ids), options, special=special)
    return rows


def encode_shortened(tokenizer: Encoder, first: str, second: str | None, length: int, options: LengthOptions, *,
                     special: bool) -> EncodedRow:
    """Encode one row again, with as many tokens of the text left out as are too many; its frame stays whole."""
    assert options.limit is not None, "only called for rows over the limit"
    if options.truncation == "refuse":
        raise InputError(f"a text has {length} tokens, more than max_length {options.limit}", where="truncation",
                         remedy="shorten it, or let truncation cut it")
    backend, side = tokenizer.backend, tokenizer.handling.truncation_side
    parts = [tokenizer.encodings([text], False)[0] for text in (first, second) if text is not None]
    room = options.limit - (backend.num_special_tokens_to_add(second is not None) if special else 0)
    sizes = [len(part.ids) for part in parts]
    kept = share_room(sizes, max(room, 0), options.truncation)
    if room < 0 or sum(kept) > room:
        raise InputError(f"max_length {options.limit} cannot be kept with truncation {options.truncation}",
                         where="max_length", remedy="make it larger, or cut the other text")
    for part, size in zip(parts, kept, strict=True):
        part.truncate(size, direction=side)
    done = backend.post_process(parts[0], parts[1] if len(parts) > 1 else None, special)
    types = done.type_ids if special else [place for place, size in enumerate(kept) for _ in range(size)]
    return EncodedRow(tokenizer.published_ids(done.ids), types, sum(sizes) - sum(kept))


def share_room(sizes: Sequence[int], room: int, truncation: str) -> list[int]:
    """Say how many tokens of each text stay.

    Errors: none; where the text that may be cut is too short for it, the sum stays over `room`.
    """
    excess = max(0, sum(sizes) - room)
    if len(sizes) == 1:
        return [sizes[0] - excess]
    if truncation in ("only_first", "only_second"):
        place = TRUNCATIONS.index(truncation) - 1
        return [max(0, size - excess) if number == place else size for number, size in enumerate(sizes)]
    small, large = sorted(sizes)
    keep_large = max(small, room - small)
    if small + keep_large > room:
        small, keep_large = room // 2, room - room // 2
    return [keep_large, small] if sizes[0] > sizes[1] else [small, min(keep_large, large)]


def warn_of_cuts(cut: Sequence[int], limit: int | None) -> None:
    """Warn of the texts that were cut to `limit` tokens, and count them. `cut`: the tokens left out of each text."""
    if some := [one for one in cut if one]:
        warnings.warn(f"{len(some)} of {len(cut)} texts were cut to {limit} tokens; {sum(some)} tokens are left out",
                      stacklevel=3)


def pad_rows(tokenizer: Encoder, rows: Sequence[EncodedRow], options: LengthOptions) -> Encoded:
    """Make rows one length, with padding at the side that the model wants."""
    import torch

    longest = max(len(row.ids) for row in rows)
    width = options.limit if options.padding == "max_length" and options.limit is not None else longest
    missing = [width - len(row.ids) for row in rows]
    if any(missing) and options.padding == "none":
        raise InputError("the texts have different lengths", where="padding", remedy="use padding longest")
    if any(missing) and tokenizer.pad_id is None:
        raise InputError("this tokenizer has no padding token", where="padding",
                         remedy="choose one: tokenizer.names['pad'] = tokenizer.names['eos']")
    left = tokenizer.handling.padding_side == "left"

    def pad(values: Iterable[list[int]], filler: int) -> Tensor:
        filled = [[filler] * count + row if left else row + [filler] * count
                  for row, count in zip(values, missing, strict=True)]
        return torch.tensor(filled, dtype=torch.long)

    types = pad((row.types for row in rows), 0) if tokenizer.has_segments else None
    return Encoded(pad((row.ids for row in rows), tokenizer.pad_id or 0), pad(([1] * len(row.ids) for row in rows), 0),
                   types, tuple(row.cut for row in rows))


def frame_has_segments(post_processor: str) -> bool:
    """Say whether a frame, as the `tokenizers` library writes it, gives parts of a row different token types."""
    def found(value: Any) -> bool:
        if isinstance(value, dict):
            own = value.get("type") == "BertProcessing" or bool(value.get("type_id"))
            return own or any(map(found, value.values()))
        return isinstance(value, list) and any(map(found, value))

    return found(json.loads(post_processor))


Spellings = NDArray[np.int16]
"""Symbols of words, [N, C]."""


def spell_words(words: Sequence[str], longest: int = 50) -> Spellings:
    """Spell words, whether a vocabulary has them or not: a mark, their bytes, a mark, padding; what is too long is cut.

    Source: Peters et al. 2018, §3.4, arXiv:1802.05365, and its code release. Shapes: -> [N, C].
    """
    found = np.full((len(words), longest), PADDING, dtype=np.int16)
    for row, word in zip(found, words, strict=True):
        write_symbols(row, list(word.encode("utf-8")))
    return found


def write_symbols(row: Spellings, symbols: Sequence[int]) -> None:
    """Write one word's symbols between its marks. Shapes: row [C]."""
    kept = symbols[:len(row) - 2]
    row[0], row[1:1 + len(kept)], row[1 + len(kept)] = BEGIN_WORD, kept, END_WORD


def spell_tokens(tokenizer: Encoder, ids: Sequence[int], longest: int) -> Spellings:
    """Spell tokens as the vocabulary writes them; those that begin and end a text have symbols of their own.

    Ids that no token has are spelled as the empty word. Shapes: -> [N, C].
    """
    borders = {number: symbol for number, symbol in ((tokenizer.bos_id, BEGIN_TEXT), (tokenizer.eos_id, END_TEXT))
               if number is not None}
    found = spell_words([tokenizer.id_to_token(number) or "" for number in ids], longest)
    for row, number in zip(found, ids, strict=True):
        if number in borders:
            row[:] = PADDING
            write_symbols(row, [borders[number]])
    return found


def check_tokenizer_fits(config: Transformer, tokenizer: Encoder, where: str) -> None:
    """Raise `InputError` for a tokenizer that has ids without a row in a model's table."""
    for ids, rows in ((tokenizer.vocab_size, config.input_embed.vocab),
                      (tokenizer.target.vocab_size, config.output_embed.vocab)):
        if ids > rows:
            raise InputError(f"the tokenizer does not fit the model: {ids:,} ids, and the model has {rows:,} rows for "
                             "them", where=where, remedy="put the model's own tokenizer into its folder")
