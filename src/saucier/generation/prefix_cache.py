"""Keys and values of what was read in earlier calls: a prompt that begins as one of them is read from there on.

A chat's history, or the examples before each question, are read once. Letters: B prompts, L length, V vocab.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Annotated, Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from saucier.arguments import Help, check_argument
from saucier.errors import InputError
from saucier.generation.feeds import prediction_kind
from saucier.generation.options import GenerationOptions
from saucier.generation.rules import Prompt
from saucier.generation.slots import find_state
from saucier.model import Transformer

Kept = list[Any]
"""Arrays that a feed took from its cache."""


@runtime_checkable
class KeepsRows(Protocol):
    """A feed whose cache can be filled with what another one held."""

    begun: list[int]
    """[B], how many first tokens of each prompt are in the cache already."""

    def take_row(self, row: int, length: int) -> Kept:
        """Return copies of keys and values of a row's first `length` tokens."""

    def put_row(self, row: int, kept: Kept, length: int) -> None:
        """Fill the first `length` places of a row, before the prompt is read."""


@dataclass(slots=True)
class Entry:
    """What was read once."""

    ids: Tensor
    """[L]."""
    kept: Kept
    bytes: int


@dataclass(slots=True)
class PrefixCache:
    """What earlier calls of `saucier.generate` read, shared by the calls that are given it; for any number of models.

    What was used longest ago goes when `limit` bytes are exceeded. Scores after a prefix are those of reading it anew:
    to the last bit with the native engine, and up to rounding with the model's own parts.
    """

    limit: Annotated[int, Help("", minimum=1)] = 2**30
    """Bytes that are kept, at most."""
    reused: int = 0
    """Tokens that were not read again."""
    read: int = 0
    """Tokens of prompts that were read."""
    entries: OrderedDict[tuple[object, ...], Entry] = field(default_factory=OrderedDict, repr=False)
    """Model, engine and ids -> what was read, the latest last."""

    def __post_init__(self) -> None:
        """Raises `InputError` for a limit that is no number of bytes."""
        check_argument("limit", self.limit, Annotated[int, Help("", minimum=1)])

    @property
    def bytes(self) -> int:
        """What is kept now."""
        return sum(entry.bytes for entry in self.entries.values())

    def restore(self, feed: KeepsRows, prompt: Prompt, copies: int, maker: tuple[object, ...]) -> None:
        """Fill a feed's rows as far as their prompts begin as something that the same maker (weights, engine) has read.
        """
        for number, ids in enumerate(split_prompt(prompt)):
            length, found = 0, None
            for key, entry in self.entries.items():
                if key[:-1] == maker and (common := count_common(entry.ids, ids)) > length:
                    length, found = common, key
            length = min(length, len(ids) - 1)  # the last one is read for its scores
            if found is not None and length:
                self.entries.move_to_end(found)
                feed.put_row(number * copies, self.entries[found].kept, length)
                feed.begun[number] = length
            self.reused, self.read = self.reused + length, self.read + len(ids) - length

    def keep(self, feed: KeepsRows, texts: list[tuple[int, Tensor]], maker: tuple[object, ...]) -> None:
        """Keep what a feed has read: rows with their ids [L]; shorter beginnings of the same go, or are not kept."""
        for row, ids in texts:
            if any(key[:-1] == maker and count_common(entry.ids, ids) == len(ids)
                   for key, entry in self.entries.items()):
                continue  # kept already, perhaps with more after it
            for key in [key for key, entry in self.entries.items()
                        if key[:-1] == maker and count_common(entry.ids, ids) == len(entry.ids)]:
                del self.entries[key]
            kept = feed.take_row(row, len(ids))
            self.entries[*maker, tuple(ids.tolist())] = Entry(ids.clone(), kept, sum(one.nbytes for one in kept))
        while self.bytes > self.limit:
            self.entries.popitem(last=False)


def count_common(left: Tensor, right: Tensor) -> int:
    """Return how many first ids are the same. Shapes: [L], [L']."""
    both = min(len(left), len(right))
    different = (left[:both] != right[:both]).nonzero()
    return int(different[0]) if len(different) else both


def split_prompt(prompt: Prompt) -> list[Tensor]:
    """Return each prompt without its padding. Shapes: -> [L] each."""
    ids = prompt.ids.cpu()
    return list(ids) if prompt.mask is None else [row[mask.bool()] for row, mask in zip(ids, prompt.mask.cpu(),
                                                                                         strict=True)]


def check_prefix_cache(model: Transformer, prompt: Prompt, options: GenerationOptions, compiled: bool) -> None:
    """Raise `InputError` for a model whose reading cannot be taken up again, and for more rows than one without an
    engine that gives each its length.
    """
    stack = model.config.decoder
    reason = "a learned prompt stands before the text" if model.front is not None else \
        "only a decoder alone goes on from a prompt" if stack is None or model.config.encoder is not None else \
        find_state(stack)
    if reason is None and (prediction_kind(model.config).kind != "next" or prompt.prefix is not None):
        reason = "the model reads a prompt as a whole"
    if reason is not None:
        raise InputError(reason, where="prefix_cache", remedy="leave it out")
    if compiled or not options.use_cache:
        raise InputError("it cannot go with " + ("compile" if compiled else "use_cache=False"), where="prefix_cache",
                         remedy="leave one of them out")
    if options.engine is None and len(prompt.ids) > 1:
        raise InputError(f"{len(prompt.ids)} prompts, and one at a time goes on from what was read",
                         where="prefix_cache", remedy="use engine=Native(), which takes any number")


def read_texts(prompt: Prompt, written: Tensor | None, copies: int, fill: int) -> list[tuple[int, Tensor]]:
    """Return the first row of each prompt, and what has been read there: the prompt, and what was `written` [R, new]
    after it but for the last token, and for what fills rows that have ended.
    """
    texts = split_prompt(prompt)
    if written is not None:
        for number, row in enumerate(written.cpu()[::copies]):
            real = (row != fill).nonzero()
            texts[number] = torch.cat([texts[number], row[:int(real[-1]) if len(real) else 0]])
    return [(number * copies, text) for number, text in enumerate(texts)]
