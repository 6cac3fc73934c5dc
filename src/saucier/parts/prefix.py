"""What an adapter puts before the text: keys and values of a prefix, or the vectors of a soft prompt.

Letters: B batch, L length, P positions before the text, K key-value heads, E head width, D width of the token table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

import torch
from torch import Tensor, nn

from saucier.errors import InputError
from saucier.parts.embedding import Embedding
from saucier.parts.inputs import EncoderMemory, Side
from saucier.parts.linear import Linear
from saucier.parts.output import Cache

KeyValuePair = tuple[Tensor, Tensor]


class TrainedValues(nn.Module):
    """Values that are trained themselves."""

    def __init__(self, rows: int, columns: int) -> None:
        """Build them, empty."""
        super().__init__()
        self.values = nn.Parameter(torch.empty(rows, columns))

    def begin(self, generator: torch.Generator) -> None:
        """Start near zero."""
        with torch.no_grad():
            self.values.normal_(0.0, 0.02, generator=generator)

    def forward(self) -> Tensor:
        """Shapes: -> [P, columns]."""
        return self.values


class PrefixNetwork(nn.Module):
    """Values that a small network makes of vectors. Source: Li and Liang 2021, §4.3, arXiv:2101.00190."""

    def __init__(self, rows: int, columns: int, *, dim: int, hidden: int) -> None:
        """Build the vectors and both maps, empty."""
        super().__init__()
        self.vectors = nn.Parameter(torch.empty(rows, dim))
        self.up, self.down = Linear(dim, hidden), Linear(hidden, columns)

    def begin(self, generator: torch.Generator) -> None:
        """Start with values near zero."""
        with torch.no_grad():
            self.vectors.normal_(generator=generator)
            for one in (self.up, self.down):
                one.weight.normal_(0.0, one.in_features**-0.5, generator=generator)
                one.bias.zero_()
            self.down.weight.mul_(0.02)

    def forward(self) -> Tensor:
        """Shapes: -> [P, columns]."""
        return self.down(torch.tanh(self.up(self.vectors)))  # type: ignore[no-any-return]


@dataclass(slots=True)
class PrefixCache:
    """Keys and values of a prefix in a pass without a cache: read like one, and never written."""

    pairs: list[KeyValuePair]
    """[B, K, P, E] twice for each self-attention, in the order they are computed."""
    length: int
    cross: dict[int, KeyValuePair] = field(default_factory=dict)
    """As in `Cache`, for one pass."""

    def extend(self, slot: int, key: Tensor, value: Tensor) -> KeyValuePair:
        """Return the prefix with what follows it. Shapes: [B, K, L, E] twice -> [B, K, P + L, E] twice."""
        first, second = self.pairs[slot]
        return torch.cat([first.to(key.dtype), key], dim=2), torch.cat([second.to(value.dtype), value], dim=2)

    def advance(self, count: int) -> None:
        """Count new positions."""
        self.length += count


class PrefixKeys(nn.Module):
    """Keys and values before the text, for every self-attention of a stack.

    They are where a cache would have the keys of P tokens, so the text's places begin at P.
    """

    added = True
    """Its parameters are no part of the model that was built."""

    def __init__(self, widths: Sequence[tuple[int, int]], made: nn.Module, length: int) -> None:
        """`widths`: (K, E) of each self-attention; `made`: what gives the values, [P, twice the sum of K·E]."""
        super().__init__()
        self.widths, self.length, self.made = list(widths), length, made
        self.by_distance = False
        """Whether attention depends on how far keys are from a query, padding counted."""

    def pairs(self, rows: int) -> list[KeyValuePair]:
        """Return keys and values for a number of rows, [B, K, P, E]."""
        sizes = [heads * width for heads, width in self.widths for _ in range(2)]
        parts = self.made().split(sizes, dim=1)
        shaped = [part.unflatten(1, self.widths[place // 2]).transpose(0, 1).expand(rows, -1, -1, -1)
                  for place, part in enumerate(parts)]
        return list(zip(shaped[::2], shaped[1::2], strict=True))

    def before(self, rows: int) -> PrefixCache:
        """Return the prefix for a pass over a number of rows."""
        return PrefixCache(self.pairs(rows), self.length)

    def settle(self) -> None:
        """Keep the values, and drop a network that made them."""
        values = self.made().detach()
        held = TrainedValues(*values.shape).to(values.device)
        with torch.no_grad():
            held.values.copy_(values)
        self.made = held


class SoftPrompt(nn.Module):
    """Vectors before those of the text's tokens. Source: Lester et al. 2021, §2, arXiv:2104.08691."""

    added = True
    """Its parameters are no part of the model that was built."""

    def __init__(self, length: int, dim: int) -> None:
        """Build them, empty."""
        super().__init__()
        self.length = length
        self.by_distance = False
        """As in `PrefixKeys`."""
        self.vectors = nn.Parameter(torch.empty(length, dim))


class TargetPrompt(nn.Module):
    """Vectors before those of an encoder-decoder's target, and maybe others before those of its source."""

    added = True
    """Its parameters are no part of the model that was built."""

    def __init__(self, target: SoftPrompt, source: SoftPrompt | None) -> None:
        """Put both under one roof."""
        super().__init__()
        self.target, self.source = target, source

    @property
    def length(self) -> int:
        """Positions before the target."""
        return self.target.length


VirtualTokens = PrefixKeys | SoftPrompt | TargetPrompt


def fill_cache_with_prefix(cache: Cache, front: VirtualTokens, rows: int) -> None:
    """Write a prefix into an empty cache."""
    if isinstance(front, PrefixKeys):
        for slot, (key, value) in enumerate(front.pairs(rows)):
            cache.extend(slot, key, value)
        cache.length = front.length


def prepend_to_sides(front: VirtualTokens, source: Side | None, target: Side, memory: EncoderMemory, *,
                     embeds: tuple[Embedding, Embedding]) -> None:
    """Put a prefix or prompts before the sides of an encoder-decoder; `embeds` are those of the source and the target.

    Raises `InputError` for packed pairs with a prompt before the target: it would read every source.
    """
    read, written = split_by_side(front)
    if read is not None:
        memory.make_room(read.length)
        if source is not None:
            prepend_to_side(read, source, embeds[0])
    if isinstance(written, SoftPrompt) and target.documents is not None:
        raise InputError("packed pairs would be seen by each other through the prompt before the target",
                         where="decoder_documents", remedy="give one pair in a row")
    if written is not None:
        prepend_to_side(written, target, embeds[1])


def split_by_side(front: VirtualTokens) -> tuple[SoftPrompt | None, PrefixKeys | SoftPrompt | None]:
    """Return what comes before the source of an encoder-decoder, and what before its target."""
    match front:
        case PrefixKeys():
            return None, front
        case SoftPrompt():
            return front, None
        case TargetPrompt(source=source, target=target):
            return source, target


def drop_prompt(records: tuple[Tensor, ...] | None, prompt: int) -> tuple[Tensor, ...] | None:
    """Return records without the rows of a prompt. Shapes: [..., P + L, D] each -> [..., L, D]."""
    return records if records is None or not prompt else tuple(one[..., prompt:, :] for one in records)


def prepend_to_side(front: VirtualTokens, side: Side, embed: Embedding) -> None:
    """Put a prefix or a prompt before one side of a model's input: masks grow by it, and places move on by it.

    A prompt is read with the first tokens; a cache then holds it. Raises `InputError` for padding at the left where
    attention counts distances.
    """
    assert not isinstance(front, TargetPrompt), "it has a prompt for each side"
    if side.mask is not None and front.by_distance and not bool(side.mask[:, 0].all()):
        raise InputError("padding at the left stands between a prefix or a prompt and the text, and this model counts "
                         "the distance", where="attention_mask", remedy="give rows of one length, or one at a time")
    side.make_room(front.length)
    match front:
        case PrefixKeys():
            side.before = front.length
            side.cache = cast(Cache, front.before(len(side.ids))) if side.cache is None else side.cache
        case SoftPrompt() if side.cache is None or not side.cache.length:
            prepend_prompt(front, side, embed)


def prepend_prompt(front: SoftPrompt, side: Side, embed: Embedding) -> None:
    """Put the vectors of a prompt before those of the tokens; segments and languages begin as they do in the text."""
    rows, length = len(side.ids), front.length
    vectors = embed.scaled(embed.tokens(side.ids)) if side.vectors is None else side.vectors
    side.put_before(side.ids.new_zeros(rows, length))
    side.vectors = torch.cat([front.vectors.to(vectors.dtype).expand(rows, -1, -1), vectors], dim=1)
    if (languages := side.inputs.get("langs")) is not None:
        side.inputs = {**side.inputs, "langs": torch.cat([languages[:, :1].expand(-1, length), languages], dim=1)}
