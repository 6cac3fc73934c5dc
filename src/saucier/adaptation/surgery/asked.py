"""Operations as they are written on a command line: `window:512`, `blocks:64:3`, `0-5,8`. Needs no torch."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from saucier.adaptation.surgery.config import (
    Blocks,
    GroupedHeads,
    Hashes,
    Layers,
    MixedKeys,
    Operation,
    Positions,
    RandomFeatures,
    Seen,
    Windows,
)
from saucier.config import AfterSeparator, BeforeSeparator, FirstToken, GlobalTokens, NoTokens
from saucier.errors import InputError, nearest

SIZES = {"window": "window:512 (neighbours)", "blocks": "blocks:64:3 (positions, drawn blocks)",
         "features": "features:256", "mixtures": "mixtures:128",
         "hashes": "hashes:64:4 (positions in a chunk, rounds; of a Reformer)"}
"""The kinds of attention, each with an example."""
SEPARATOR = 2
"""The separator's id where the model does not say: RoBERTa's."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a person wants otherwise."""

    attention: str | None = None
    """`window:WIDTH`, `blocks[:SIZE[:DRAWN]]`, `features[:COUNT]`, `mixtures[:RANK]` or
    `hashes[:CHUNK[:ROUNDS]]`."""
    tokens: str | None = None
    """Global tokens of a window: none, cls, question, choices."""
    positions: int | None = None
    kv_heads: int | None = None
    layers: str | None = None
    """Numbers and ranges, such as `0,2,4` or `0-5,0-5`."""
    decoder_layers: str | None = None
    vocabulary: tuple[str, ...] = ()
    """Files whose tokens are kept alone; which those are only the tokenizer knows."""
    new_tokens: str | None = None
    """`COUNT:FILE`, so many more tokens, learned from a text; which those are only the tokenizer knows."""

    def new_words(self) -> tuple[int, str] | None:
        """Return how many tokens are to be learned, and from which file. Raises `InputError` for other words."""
        if self.new_tokens is None:
            return None
        count, _, file = self.new_tokens.partition(":")
        if not re.fullmatch(r"[1-9]\d{0,8}", count) or not file:
            raise InputError(f"{self.new_tokens!r} is no number of tokens and no file", where="--new-tokens",
                             remedy="such as 500:notes.txt")
        if self.vocabulary:
            raise InputError("a vocabulary becomes smaller or larger", where="--new-tokens",
                             remedy="convert with --vocabulary first, and what that gives with --new-tokens")
        return int(count), file

    def operations(self, separator: int = SEPARATOR) -> tuple[Operation, ...]:
        """Return the operations in the order in which they are done. Raises `InputError` for what cannot be read."""
        return tuple(self.wanted(separator))

    def wanted(self, separator: int) -> Iterator[Operation]:
        """Yield them."""
        if self.layers is not None:
            yield Layers(order=numbers(self.layers, "--layers"))
        if self.decoder_layers is not None:
            yield Layers(order=numbers(self.decoder_layers, "--decoder-layers"), decoder=True)
        if self.kv_heads is not None:
            yield GroupedHeads(count=self.kv_heads)
        if self.positions is not None:
            yield Positions(length=self.positions)
        if self.attention is not None:
            yield attention(self.attention, global_tokens(self.tokens, separator))
        elif self.tokens is not None:
            raise InputError("global tokens stand beside a window", where="--global",
                             remedy="give --attention window:512 too")


def attention(words: str, tokens: GlobalTokens) -> Seen:
    """Read what a token is to see, or how it is to be weighed."""
    kind, *values = words.split(":")
    if not all(re.fullmatch(r"\d{1,9}", value) for value in values):
        raise InputError(f"{words!r} holds no whole numbers", where="--attention", remedy="such as window:512")
    if kind not in SIZES:
        raise InputError(f"unknown attention {kind!r}", where="--attention", remedy=nearest(kind, [*SIZES]))
    if kind != "window" and tokens != NoTokens():
        raise InputError(f"{kind} have no global tokens", where="--global", remedy="leave it out, or use window:512")
    match kind, [int(value) for value in values]:
        case "window", [width] if width:
            return Windows(width=width, tokens=tokens)
        case "blocks", [] | [_] | [_, _] as sizes if all(sizes[:1]):
            return Blocks(**dict(zip(("size", "drawn"), sizes, strict=False)))
        case "features", [] | [_] as sizes if all(sizes):
            return RandomFeatures(**dict(zip(("count",), sizes, strict=False)))
        case "mixtures", [] | [_] as sizes if all(sizes):
            return MixedKeys(**dict(zip(("rank",), sizes, strict=False)))
        case "hashes", [] | [_] | [_, _] as sizes if all(sizes):
            return Hashes(**dict(zip(("chunk", "rounds"), sizes, strict=False)))
    raise InputError(f"{words!r} is no size", where="--attention", remedy=f"such as {SIZES[kind]}")


def global_tokens(name: str | None, separator: int) -> GlobalTokens:
    """Read which tokens are global where a batch names none."""
    known: dict[str, GlobalTokens] = {
        "none": NoTokens(), "cls": FirstToken(), "question": BeforeSeparator(token=separator),
        "choices": AfterSeparator(token=separator)}
    if name is None:
        return NoTokens()
    if name not in known:
        raise InputError(f"unknown global tokens {name!r}", where="--global", remedy=nearest(name, [*known]))
    return known[name]


def numbers(words: str, option: str) -> tuple[int, ...]:
    """Read numbers and ranges, both ends included, in their order. Raises `InputError` for anything else."""
    found: list[int] = []
    for part in words.split(","):
        match = re.fullmatch(r"\s*(\d{1,4})(?:-(\d{1,4}))?\s*", part)
        if match is None or (match[2] is not None and int(match[2]) < int(match[1])):
            raise InputError(f"{part!r} is no number and no range", where=option, remedy=f"such as {option} 0,2,4 or "
                                                                                         f"{option} 0-5")
        found += range(int(match[1]), int(match[2] or match[1]) + 1)
    return tuple(found)
