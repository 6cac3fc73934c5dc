"""What attends to what, read off the built attention itself: each key's value is made a mark, and found in the output.

So the picture is what the kernel does, whatever it is, not what its config says that it should do.
Letters: B rows of the batch, T tokens, K keys, H heads, E head width.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from saucier import config as c
from saucier.config.visibility import global_terms, has_prefix, terms_of
from saucier.errors import InputError
from saucier.inspection.slim import Layers, slimmed
from saucier.model import Transformer, build

Seen = npt.NDArray[np.bool_]
TOKENS = 1000
"""Ids of the text that is read are below it."""
FLAT = 1e-3
"""Queries are made so much smaller, that no weight is too small to be seen."""
ROUNDING = 1e-9
"""A weight below it may be what rounding leaves, where an output has more than values in it."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """What the queries of some heads see."""

    side: str
    """`encoder` or `decoder`."""
    layers: tuple[int, ...]
    """The layers that have it, from 0."""
    heads: tuple[int, ...]
    """The heads of these layers that have it, from 0."""
    of: int
    """Heads in a layer."""
    seen: Seen
    """[T, K], True where the query (row) gives the key (column) weight; a memory's keys come first."""

    @property
    def share(self) -> float:
        """Share of all pairs that are seen."""
        return float(self.seen.mean())


@dataclass(frozen=True, slots=True)
class Text:
    """The text that patterns are read with: its length, and what a batch may say of it."""

    length: int = 64
    """Tokens."""
    global_tokens: int = 1
    """First tokens that are global, where the model has such tokens and does not find them itself."""
    prefix: int = 16
    """First tokens that all may see, where the model has a prefix."""
    seed: int = 0
    """Feeds the weights, the tokens, and what a kernel draws."""

    def inputs(self, config: c.Transformer, rows: int) -> dict[str, Any]:
        """Return what the model is called with: one text, in so many rows."""
        room = min(TOKENS, config.embed.vocab)
        generator = torch.Generator().manual_seed(self.seed)
        ids = torch.randint(room // 2, room, (1, self.length), generator=generator).expand(rows, -1)
        mask = torch.ones_like(ids)
        found: dict[str, Any] = {"input_ids": ids, "attention_mask": mask}
        if config.encoder is not None and config.decoder is not None:
            found["decoder_input_ids"] = ids
        stacks = [stack for stack in (config.encoder, config.decoder) if stack]
        every = [part.visibility for stack in stacks for part in stack.attentions()]
        if any(global_terms(one) for one in every):
            found["global_attention_mask"] = (torch.arange(self.length) < self.global_tokens).long().expand(rows, -1)
        if any(has_prefix(one) for one in every):
            found["prefix_length"] = torch.full((rows,), self.prefix)
        return found


def patterns(config: c.Transformer, text: Text, *, training: bool = False) -> list[Pattern]:
    """Return the different patterns of a model's self-attentions, in the order of layers and heads.

    Layers with the same settings are read once; feed-forwards, heads and most of the vocabulary are left out, since
    they do not take part. `training` reads what is seen in training, without dropout.
    Raises `InputError` for a model without self-attention, and for a text that it cannot read.
    """
    small, layers = slimmed(config, text.length)
    model = build(small, seed=text.seed).double()
    found: list[Pattern] = []
    for side, numbers, part in parts(model, layers):
        model.train(training)
        found += grouped(side, numbers, seen_in(model, part, text, first=side == "encoder").numpy())
    if not found:
        raise InputError("the model has no self-attention", where="model", remedy="give one that has")
    return found


def parts(model: Transformer, layers: Layers) -> Iterator[tuple[str, tuple[int, ...], nn.Module]]:
    """Yield (side, layers of the whole model that it stands for, part) for each self-attention of a slim model."""
    for side, groups in layers.items():
        stack = getattr(model, side)
        for numbers, block in zip(groups, stack.blocks, strict=True):
            for part in block.modules():
                if isinstance(getattr(part, "config", None), c.SelfAttention) and hasattr(part, "qkv"):
                    yield side, numbers, part


def grouped(side: str, layers: tuple[int, ...], seen: Seen) -> Iterator[Pattern]:
    """Yield the different patterns among heads. Shapes: seen [H, T, K]."""
    same: dict[bytes, list[int]] = {}
    for head, one in enumerate(seen):
        same.setdefault(one.tobytes(), []).append(head)
    for heads in same.values():
        yield Pattern(side, layers, tuple(heads), len(seen), seen[heads[0]])


def seen_in(model: Transformer, part: Any, text: Text, *, first: bool) -> Tensor:
    """Return which keys have a weight for which queries in one attention. Shapes: -> [H, T, K].

    The values of a row of the batch are marks: number m of them is 1 in place m of every head, so what a head mixes
    tells its weights there. A last row without marks holds what does not come from values, and is taken off. `first`:
    the first time that the attention is applied, and not the last, where two stacks share it.
    """
    config: c.SelfAttention = part.config
    turned = isinstance(config.positions, c.Rotary) and config.positions.values
    width = 1 if turned else part.head_dim  # a turned mark lies in two places
    keys = keys_of(model, part, text, 0 if first else -1)
    own, part.global_qkv = getattr(part, "global_qkv", None), None  # it sees the same places, by values of its own
    mixed = marked(model, part, text, marks(keys, width, part.head_dim))[0 if first else -1]
    part.global_qkv = own
    heads = mixed.unflatten(-1, (-1, part.head_dim))
    told, rest = (heads[:-1] - heads[-1:]).abs(), heads[-1].abs().max()
    told = told.amax(-1, keepdim=True) if turned else told
    found: Tensor = told > (ROUNDING if rest else 0)
    return found.permute(2, 1, 0, 3).flatten(2)[:, :, :keys]


def keys_of(model: Transformer, part: Any, text: Text, which: int) -> int:
    """Return how many keys an attention meets: the text's, and those of a memory before it."""
    found: list[int] = []
    hook = part.qkv.register_forward_hook(lambda _, __, x: found.append(x.shape[1]) if x.dim() == 3 else None)
    run(model, text, 1)
    hook.remove()
    return found[which]


def run(model: Transformer, text: Text, rows: int) -> None:
    """Let a model read the text, in so many rows alike."""
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(text.seed)
        model(**text.inputs(model.config, rows))


def marked(model: Transformer, part: Any, text: Text, values: Tensor) -> list[Tensor]:
    """Run a model with other values in one attention, and return what it mixes of them, each time that it is applied.

    Shapes: values [B, K, E], for every head -> [B, T, H·E] each.
    """
    projection: c.Projection = part.config.projection
    queries = 0 if isinstance(part.config.kernel, c.Hashing) else projection.heads * part.head_dim
    found: list[Tensor] = []

    def mark(_: nn.Module, __: Any, given: Tensor) -> Tensor | None:
        """Put marks in the place of the values. Shapes: [B, T, W] -> the same; tables [N, W] stay."""
        if given.dim() != values.dim():
            return None
        marked = values.to(given).repeat(1, 1, projection.kv_heads or projection.heads)
        return torch.cat([given[..., :queries] * FLAT, given[..., queries:-marked.shape[-1]], marked], dim=-1)

    def keep(_: nn.Module, given: tuple[Tensor, ...]) -> None:
        """Keep what the output map reads."""
        found.append(given[0])

    hooks = [part.qkv.register_forward_hook(mark), part.out.register_forward_pre_hook(keep)]
    run(model, text, len(values))
    for hook in hooks:
        hook.remove()
    return found


def marks(length: int, width: int, head_dim: int) -> Tensor:
    """Return the values that tell keys apart. Shapes: -> [rows + 1, K, E], the last row zeros."""
    rows = -(-length // width)
    place = torch.arange(length)
    made = torch.zeros(rows + 1, length, head_dim)
    made[place // width, place, place % width] = 1.0
    return made


def begins(config: c.Transformer, found: Sequence[Pattern]) -> int | None:
    """Return beyond how many tokens a model leaves pairs out, where patterns show nothing of it; None elsewhere."""
    if not all(one.seen.all() or (one.seen == np.tril(np.ones_like(one.seen))).all() for one in found):
        return None
    every = [part.visibility for stack in (config.encoder, config.decoder) if stack for part in stack.attentions()]
    return min((max(sizes) for one in every if (sizes := [*extents(one)])), default=None)


def extents(visibility: c.Visibility) -> Iterator[int]:
    """Yield up to how many tokens each term of a visibility sees them all, where it has an end."""
    for term in terms_of(visibility):
        match term:
            case c.Window(size=size):
                yield size
            case c.BlockWindow(size=size, reach=reach):
                yield size * (reach + 1)
            case c.Beyond(length=length):
                yield length


def as_plain(found: Sequence[Pattern]) -> list[dict[str, Any]]:
    """Return plain values; of each query the numbers of the keys that it sees."""
    return [{"side": one.side, "layers": one.layers, "heads": one.heads, "share": one.share,
             "seen": [np.flatnonzero(row).tolist() for row in one.seen]} for one in found]


def chosen(found: Sequence[Pattern], layer: int | None, head: int | None) -> list[Pattern]:
    """Return the patterns of a layer or a head. Raises `InputError` where there is no such one."""
    kept = [one for one in found if (layer is None or layer in one.layers) and (head is None or head in one.heads)]
    if not kept:
        last = max(number for one in found for number in one.layers)
        raise InputError(f"there is no layer {layer} with a head {head}" if layer is not None and head is not None
                         else f"there is no {'head' if layer is None else 'layer'} {head if layer is None else layer}",
                         where="--layer" if layer is not None else "--head",
                         remedy=f"layers are 0 to {last}, heads 0 to {found[0].of - 1}")
    return kept
