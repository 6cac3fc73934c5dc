"""The operations as data, and as they are written on a command line: `window:512`, `blocks:64:3`. Needs no torch."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from saucier.config import AtMostFirst, AtSeparator, GlobalTokens
from saucier.config.base import Config
from saucier.errors import InputError, suggest_name


class Windows(Config):
    """Every token sees its neighbours alone, and some tokens all. Source: Beltagy et al. 2020, §3.1, arXiv:2004.05150.

    An encoder becomes a Longformer: its global tokens get maps of their own, which begin as those of all tokens. In a
    decoder a token sees those before it, and none is global.
    """

    width: int = Field(gt=0)
    """How many neighbours a token of an encoder sees, half on each side; of a decoder: the tokens up to itself."""
    tokens: GlobalTokens = AtMostFirst(kind="no_tokens")
    """The tokens that are global where the batch names none."""


class Blocks(Config):
    """A token of an encoder sees the blocks beside its own, those at both ends and some that are drawn: a BigBird.

    Source: Zaheer et al. 2020, §2 and appendix D, arXiv:2007.14062.
    """

    size: int = Field(default=64, gt=0)
    """Positions in a block."""
    drawn: int = Field(default=3, ge=0)
    """Blocks that are drawn for each block."""


class RandomFeatures(Config):
    """Weights of attention by random features, linear in the length: a Performer.

    Source: Choromanski et al. 2021, §2.3 and §4.3, arXiv:2009.14794.
    """

    count: int = Field(default=256, gt=0)
    """Features of a query and of a key."""


class MixedKeys(Config):
    """Attention to a few mixtures of keys, linear in the length: a Linformer; the maps begin as means of neighbours.

    Source: Wang et al. 2020, §4, arXiv:2006.04768.
    """

    rank: int = Field(default=128, gt=0)
    """Mixtures that a token sees."""


class Hashes(Config):
    """Other chunks and rounds of hashes for a model whose attention hashes: a Reformer.

    Source: Kitaev et al. 2020, §4 (table 2: learned with full attention or few rounds, read with others),
    arXiv:2001.04451.
    """

    chunk: int = Field(default=64, gt=0)
    """Positions in a chunk of the sorted row; a text that is no longer is seen whole."""
    rounds: int | None = Field(default=None, gt=0)
    """Hashes of each position; None: as many as before."""


class Positions(Config):
    """A longer table of positions, made of copies of the one that is there, block behind block.

    Source: Beltagy et al. 2020, §5, arXiv:2004.05150.
    """

    length: int = Field(gt=0)
    """Tokens that there is room for."""


class GroupedHeads(Config):
    """Fewer heads for keys and values, each the mean of a group.

    Source: Ainslie et al. 2023, §2.1, arXiv:2305.13245.
    """

    count: int = Field(gt=0)
    """Heads for keys and values; 1 is multi-query attention."""


class Layers(Config):
    """Other layers in a stack: some are left out, some come again with weights of their own.

    Source: Sanh et al. 2019, §2, arXiv:1910.01108, for every second layer; Gong et al. 2019, §3, ICML, for stacking.
    """

    order: tuple[int, ...] = Field(min_length=1)
    """The layers by their number, from 0, in their new order."""
    decoder: bool = False
    """Whether they are the decoder's of a model with two stacks."""


KeptUnits = Mapping[str, tuple[Annotated[int, Field(ge=0)], ...]]
"""Sublayer, or map, by its place in the model (`encoder.blocks.3.attention`) -> the numbers that stay, from 0."""


class Heads(Config):
    """Fewer heads in some attentions; their maps and tables lose the rows and columns of the others.

    The numbers are those of the model with the other heads' outputs set to zero. Positions that know a head by its
    number (T5's table, ALiBi's slopes) keep what belongs to those that stay. At least one head of an attention stays.
    Source: Michel et al. 2019, §2.3, arXiv:1905.10650, for the masks.
    """

    kept: KeptUnits = Field(min_length=1)
    """The heads that stay; an attention that is not named keeps all: `encoder.blocks.0.attention`,
    `decoder.blocks.3.cross`."""


class Neurons(Config):
    """Fewer hidden activations in some feed-forwards: those that stay keep their row of the first map, or both rows
    of a gated one, and their column of the second.
    """

    kept: KeptUnits = Field(min_length=1)
    """The activations that stay; a feed-forward that is not named keeps all: `encoder.blocks.0.feed_forward`."""


class Factorize(Config):
    """Some maps become products of two matrices, P·Q, by their singular values; the full rank is exact up to rounding.

    Source: Wang et al. 2020 (FLOP), §3.1, arXiv:1910.04732 (C eq 50).
    """

    ranks: Mapping[str, Annotated[int, Field(gt=0)]] = Field(min_length=1)
    """Map by its place in the model (`encoder.blocks.3.feed_forward.inner.up`) -> width between the two matrices."""


class Ranks(Config):
    """Fewer ranks of maps that are products; where these are no smaller than one matrix, they are multiplied out.

    The numbers are those of the model with the other ranks' values set to zero.
    """

    kept: KeptUnits = Field(min_length=1)
    """Map by its place in the model -> the ranks that stay; a map that is not named keeps all."""


class Tokens(Config):
    """Fewer tokens, whose ids close up: those that a text uses, as `saucier.text.tokenizer.vocabulary` finds them."""

    kept: tuple[int, ...] = Field(min_length=1)
    """The old ids, in the order of the new ones."""

    def numbers(self) -> dict[int, int]:
        """Return the new id of each old one."""
        return {old: new for new, old in enumerate(self.kept)}


class NewTokens(Config):
    """More tokens, whose ids stand behind all others, as `saucier.text.tokenizer.vocabulary` finds them.

    A new token begins as the mean of the pieces that spelled it.
    """

    first: int = Field(gt=0)
    """The id of the first one; the others follow."""
    pieces: tuple[tuple[int, ...], ...] = Field(min_length=1)
    """For each new token the ids that spelled it so far."""


AttentionOperation = Windows | Blocks | RandomFeatures | MixedKeys | Hashes
"""What a token sees, and how it is weighed."""
Operation = (AttentionOperation | Positions | GroupedHeads | Heads | Neurons | Factorize | Ranks | Layers | Tokens
             | NewTokens)

ATTENTION_EXAMPLES = {"window": "window:512 (neighbours)", "blocks": "blocks:64:3 (positions, drawn blocks)",
                      "features": "features:256", "mixtures": "mixtures:128",
                      "hashes": "hashes:64:4 (positions in a chunk, rounds; of a Reformer)"}
"""The kinds of attention, each with an example."""
SEPARATOR = 2
"""The separator's id where the model does not say: RoBERTa's."""


@dataclass(frozen=True, slots=True)
class OperationOptions:
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
        found: list[Operation] = [
            Layers(order=parse_ranges(words, option), decoder=decoder) for words, option, decoder in (
                (self.layers, "--layers", False), (self.decoder_layers, "--decoder-layers", True)) if words is not None]
        if self.kv_heads is not None:
            found.append(GroupedHeads(count=self.kv_heads))
        if self.positions is not None:
            found.append(Positions(length=self.positions))
        if self.attention is not None:
            found.append(parse_attention(self.attention, parse_global_tokens(self.tokens, separator)))
        elif self.tokens is not None:
            raise InputError("global tokens stand beside a window", where="--global",
                             remedy="give --attention window:512 too")
        return tuple(found)


def parse_attention(words: str, tokens: GlobalTokens) -> AttentionOperation:
    """Read what a token is to see, or how it is to be weighed."""
    kind, *values = words.split(":")
    if not all(re.fullmatch(r"\d{1,9}", value) for value in values):
        raise InputError(f"{words!r} holds no whole numbers", where="--attention", remedy="such as window:512")
    if kind not in ATTENTION_EXAMPLES:
        raise InputError(f"unknown attention {kind!r}", where="--attention",
                         remedy=suggest_name(kind, [*ATTENTION_EXAMPLES]))
    if kind != "window" and tokens != AtMostFirst(kind="no_tokens"):
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
    raise InputError(f"{words!r} is no size", where="--attention", remedy=f"such as {ATTENTION_EXAMPLES[kind]}")


def parse_global_tokens(name: str | None, separator: int) -> GlobalTokens:
    """Read which tokens are global where a batch names none."""
    known: dict[str, GlobalTokens] = {
        "none": AtMostFirst(kind="no_tokens"), "cls": AtMostFirst(kind="first_token"),
        "question": AtSeparator(kind="before_separator", token=separator),
        "choices": AtSeparator(kind="after_separator", token=separator)}
    chosen = "none" if name is None else name
    if chosen not in known:
        raise InputError(f"unknown global tokens {chosen!r}", where="--global", remedy=suggest_name(chosen, [*known]))
    return known[chosen]


def parse_ranges(words: str, option: str) -> tuple[int, ...]:
    """Read numbers and ranges, both ends included, in their order. Raises `InputError` for anything else."""
    found: list[int] = []
    for part in words.split(","):
        match = re.fullmatch(r"\s*(\d{1,4})(?:-(\d{1,4}))?\s*", part)
        if match is None or (match[2] is not None and int(match[2]) < int(match[1])):
            raise InputError(f"{part!r} is no number and no range", where=option, remedy=f"such as {option} 0,2,4 or "
                             f"{option} 0-5")
        found += range(int(match[1]), int(match[2] or match[1]) + 1)
    return tuple(found)
