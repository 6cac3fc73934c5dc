"""Texts to the tensors that a published model takes, with padding, and with truncation that is counted.

Letters: B batch, L length.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from saucier.errors import InputError, nearest

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from saucier.text.tokenizer import Tokenizer

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

    def keys(self) -> Iterator[str]:
        """Name the tensors."""
        yield from ("input_ids", "attention_mask")
        if self.token_type_ids is not None:
            yield "token_type_ids"

    def __getitem__(self, name: str) -> Tensor:
        """Return a tensor by name. Raises `KeyError` for a name that `keys` does not give."""
        if name not in self.keys():
            raise KeyError(name)
        tensor: Tensor = getattr(self, name)
        return tensor

    def to(self, device: str | torch.device) -> Encoded:
        """Return the batch on a device."""
        types = None if self.token_type_ids is None else self.token_type_ids.to(device)
        return Encoded(self.input_ids.to(device), self.attention_mask.to(device), types, self.cut)


@dataclass(frozen=True, slots=True)
class Fit:
    """How long rows may be, and what is done with those that are longer or shorter."""

    limit: int | None
    padding: str
    truncation: str

    def __post_init__(self) -> None:
        """Refuse unknown words. Raises `InputError`."""
        for name, value, known in (("padding", self.padding, PADDINGS), ("truncation", self.truncation, TRUNCATIONS)):
            if value not in known:
                raise InputError(f"unknown {name} {value!r}", where=name, remedy=nearest(str(value), [*known]))
        if self.limit is not None and self.limit < 1:
            raise InputError(f"max_length is {self.limit}", where="max_length", remedy="give at least 1")
        if self.padding == "max_length" and self.limit is None:
            raise InputError("this tokenizer has no max_length of its own", where="padding", remedy="give max_length")


@dataclass(slots=True)
class Row:
    """The tokens of one text or pair."""

    ids: list[int]
    types: list[int]
    cut: int = 0


def encode_texts(tokenizer: Tokenizer, texts: Sequence[str], pairs: Sequence[str] | None, fit: Fit, *,
                 special: bool) -> Encoded:
    """Encode texts, or pairs of texts. Raises `InputError` for what `Tokenizer.__call__` lists."""
    rows = text_rows(tokenizer, texts, pairs, fit, special=special)
    told(rows, fit)
    return padded(tokenizer, rows, fit)


def text_rows(tokenizer: Tokenizer, texts: Sequence[str], pairs: Sequence[str] | None, fit: Fit, *,
              special: bool = True) -> list[Row]:
    """Encode texts, or pairs of texts, each in a row of its own length. Raises `InputError` as `encode_texts`."""
    if pairs is not None and len(pairs) != len(texts):
        raise InputError(f"{len(texts)} texts and {len(pairs)} pairs", where="pairs", remedy="give one for each text")
    if not texts:
        raise InputError("there are no texts", where="texts", remedy="give at least one")
    items: list[Any] = list(texts) if pairs is None else list(zip(texts, pairs, strict=True))
    encodings = tokenizer.encodings(items, special)
    rows = [Row(tokenizer.published_ids(one.ids), one.type_ids) for one in encodings]
    for place, row in enumerate(rows):
        if fit.limit is not None and len(row.ids) > fit.limit:
            second = None if pairs is None else pairs[place]
            rows[place] = shortened(tokenizer, texts[place], second, len(row.ids), fit, special=special)
    return rows


def shortened(tokenizer: Tokenizer, first: str, second: str | None, length: int, fit: Fit, *, special: bool) -> Row:
    """Encode one row again, with as many tokens of the text left out as are too many; its frame stays whole."""
    assert fit.limit is not None, "only called for rows over the limit"
    if fit.truncation == "refuse":
        raise InputError(f"a text has {length} tokens, more than max_length {fit.limit}", where="truncation",
                         remedy="shorten it, or let truncation cut it")
    backend, side = tokenizer.backend, tokenizer.handling.truncation_side
    parts = [tokenizer.encodings([text], False)[0] for text in (first, second) if text is not None]
    room = fit.limit - (backend.num_special_tokens_to_add(second is not None) if special else 0)
    sizes = [len(part.ids) for part in parts]
    kept = shares(sizes, max(room, 0), fit.truncation)
    if room < 0 or sum(kept) > room:
        raise InputError(f"max_length {fit.limit} cannot be kept with truncation {fit.truncation}", where="max_length",
                         remedy="make it larger, or cut the other text")
    for part, size in zip(parts, kept, strict=True):
        part.truncate(size, direction=side)
    done = backend.post_process(parts[0], parts[1] if len(parts) > 1 else None, special)
    types = done.type_ids if special else [place for place, size in enumerate(kept) for _ in range(size)]
    return Row(tokenizer.published_ids(done.ids), types, sum(sizes) - sum(kept))


def shares(sizes: Sequence[int], room: int, truncation: str) -> list[int]:
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


def told(rows: Sequence[Row], fit: Fit) -> None:
    """Say once how many texts were cut, and by how much."""
    cut = [row.cut for row in rows if row.cut]
    if cut:
        warnings.warn(f"{len(cut)} of {len(rows)} texts were cut to {fit.limit} tokens; {sum(cut)} tokens are left out",
                      stacklevel=4)


def padded(tokenizer: Tokenizer, rows: Sequence[Row], fit: Fit) -> Encoded:
    """Make rows one length, with padding at the side that the model wants."""
    import torch

    longest = max(len(row.ids) for row in rows)
    width = fit.limit if fit.padding == "max_length" and fit.limit is not None else longest
    missing = [width - len(row.ids) for row in rows]
    if any(missing) and fit.padding == "none":
        raise InputError("the texts have different lengths", where="padding", remedy="use padding longest")
    if any(missing) and tokenizer.pad_id is None:
        raise InputError("this tokenizer has no padding token", where="padding",
                         remedy="choose one: tokenizer.names['pad'] = tokenizer.names['eos']")
    left = tokenizer.handling.padding_side == "left"

    def filled(values: list[int], filler: int, count: int) -> list[int]:
        return [filler] * count + values if left else values + [filler] * count

    ids = [filled(row.ids, tokenizer.pad_id or 0, count) for row, count in zip(rows, missing, strict=True)]
    mask = [filled([1] * len(row.ids), 0, count) for row, count in zip(rows, missing, strict=True)]
    types = [filled(row.types, 0, count) for row, count in zip(rows, missing, strict=True)]
    wants = tokenizer.has_segments
    return Encoded(torch.tensor(ids, dtype=torch.long), torch.tensor(mask, dtype=torch.long),
                   torch.tensor(types, dtype=torch.long) if wants else None, tuple(row.cut for row in rows))


def frame_has_segments(post_processor: str) -> bool:
    """Say whether a frame, as the `tokenizers` library writes it, gives parts of a row different token types."""
    def found(value: Any) -> bool:
        if isinstance(value, dict):
            own = value.get("type") == "BertProcessing" or bool(value.get("type_id"))
            return own or any(map(found, value.values()))
        return isinstance(value, list) and any(map(found, value))

    return found(json.loads(post_processor))
