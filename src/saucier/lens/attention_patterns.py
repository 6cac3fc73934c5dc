"""What attends to what, found by running the attentions of a reduced copy of the model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from saucier import config as c
from saucier.config.base import Config, rewrite_config
from saucier.config.questions import global_terms, has_prefix, list_terms
from saucier.errors import InputError
from saucier.model import Transformer, build

VOCAB = 1000
"""Tokens that a reduced model knows, where no part names one by a higher id."""
NAMED = ("padding", "token")
"""Fields that hold the id of a token."""
WIDTH = 64
"""The widest stream of a reduced model."""
SPARE = 8
"""Further rows of a table of positions: in some models positions are counted from after the padding's id."""
WITHOUT = {"head": None, "pooler": None, "mix": None}
RANDOM = ("dropout", "noise")
"""Fields that say how much is dropped or disturbed in training."""

Layers = dict[str, list[tuple[int, ...]]]
"""For each stack, and each block of the reduced model, the numbers of the blocks that it represents."""


def reduce_model(config: c.Transformer, length: int) -> tuple[c.Transformer, Layers]:
    """Return the reduced model, and for each of its blocks the numbers of those of the whole model that it represents.

    Blocks whose attentions are alike are one, the stream is narrow, and tables of positions have room for the text.
    """
    room = max(VOCAB, *(one + 1 for one in named_token_ids(config)))
    whole, layers = config.model_copy(update=WITHOUT), Layers()
    for side in ("encoder", "decoder"):
        stack: c.Stack | None = getattr(config, side)
        if stack is not None:
            kept, layers[side] = distinct_blocks(stack)
            few = stack.model_copy(update={"layers": c.Cycle(blocks=kept, times=1)})
            whole = whole.model_copy(update={side: few})
    return lengthen_positions(narrow_stream(rewrite_config(whole, partial(reduce_part, room=room))), length), layers


def narrow_stream(config: c.Transformer) -> c.Transformer:
    """Return a model whose attentions are as wide as before, on a narrow stream; where parts name its width, as it is.
    """
    fixed = isinstance(config.embed.positions, c.Axial) or any(
        block.bottleneck for stack in config.stacks for block in stack.blocks())
    if fixed or config.dim <= WIDTH:
        return config
    same_heads = rewrite_config(config, lambda part: part if not isinstance(part, c.Projection) else
                                part.model_copy(update={"head_dim": part.widths(config.dim)[2]}))
    return same_heads.model_copy(update={"dim": WIDTH})


def lengthen_positions(config: c.Transformer, length: int) -> c.Transformer:
    """Return a model whose tables of positions are long enough for a text of this length."""
    return rewrite_config(config, partial(lengthen_table, length=length + SPARE))


def lengthen_table(part: Config, length: int) -> Config:
    """Return a table of positions, or maps along a text, with more rows where they have fewer; others as they are."""
    if not isinstance(part, c.Learned | c.Sinusoidal | c.LowRank | c.Axial) or (part.length or length) >= length:
        return part
    if isinstance(part, c.Axial):
        return part.model_copy(update={"shape": (-(-length // part.shape[1]), part.shape[1])})
    return part.model_copy(update={"length": length})


def distinct_blocks(stack: c.Stack) -> tuple[tuple[c.Block, ...], list[tuple[int, ...]]]:
    """Return the blocks of a stack whose self-attentions differ, and the numbers of those that are like each."""
    found: dict[tuple[c.SelfAttention, ...], list[int]] = {}
    blocks = stack.blocks()
    for number, block in enumerate(blocks):
        parts = tuple(one.inner for one in block.sublayers if isinstance(one.inner, c.SelfAttention))
        found.setdefault(parts, []).append(number)
    return tuple(blocks[numbers[0]] for numbers in found.values()), [*map(tuple, found.values())]


def reduce_part(part: Config, room: int) -> Config:
    """Return a part without what does not take part in attention."""
    changed: dict[str, Any] = {name: 0.0 for name in RANDOM if name in type(part).model_fields}
    match part:
        case c.FeedForward() | c.GatedFeedForward():
            changed["hidden"] = 1
        case c.Embedding(vocab=vocab, projection=projection):
            clusters = isinstance(projection, c.ProjectClusters)  # of a vocabulary that is left out
            changed |= {"vocab": min(vocab, room), "projection": None if clusters else projection}
    return part.model_copy(update=changed) if changed else part


def named_token_ids(config: c.Transformer) -> list[int]:
    """Return the ids of tokens that parts of a model name."""
    found = [0]

    def note(part: Config) -> Config:
        """Look at one part."""
        found.extend(one for name in NAMED if isinstance(one := getattr(part, name, None), int))
        return part

    rewrite_config(config, note)
    return found


SeenKeys = npt.NDArray[np.bool_]
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
    seen: SeenKeys
    """[T, K], True where the query (row) gives the key (column) weight; a memory's keys come first."""

    @property
    def share(self) -> float:
        """Share of all pairs that are seen."""
        return float(self.seen.mean())

    def as_json(self) -> dict[str, Any]:
        """Return plain values; of each query the numbers of the keys that it sees."""
        return {"side": self.side, "layers": self.layers, "heads": self.heads, "share": self.share,
                "seen": [np.flatnonzero(row).tolist() for row in self.seen]}


class ReadText(Protocol):
    """A text that a model reads in several rows at once."""

    @property
    def seed(self) -> int:
        """Feeds what a kernel draws."""

    def inputs(self, config: c.Transformer, rows: int) -> dict[str, Any]:
        """Return what the model is called with."""


@dataclass(frozen=True, slots=True)
class PatternText:
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
        """Return what the model is called with: one text, repeated in `rows` rows."""
        room = min(TOKENS, config.embed.vocab)
        generator = torch.Generator().manual_seed(self.seed)
        ids = torch.randint(room // 2, room, (1, self.length), generator=generator).expand(rows, -1)
        mask = torch.ones_like(ids)
        found: dict[str, Any] = {"input_ids": ids, "attention_mask": mask}
        if config.encoder is not None and config.decoder is not None:
            found["decoder_input_ids"] = ids
        every = [part.visibility for stack in config.stacks for part in stack.attentions()]
        if any(global_terms(one) for one in every):
            found["global_attention_mask"] = (torch.arange(self.length) < self.global_tokens).long().expand(rows, -1)
        if any(has_prefix(one) for one in every):
            found["prefix_length"] = torch.full((rows,), self.prefix)
        return found


def find_patterns(config: c.Transformer, text: PatternText, *, training: bool = False) -> list[Pattern]:
    """Return the different patterns of a model's self-attentions, in the order of layers and heads.

    Layers with the same settings are read once; feed-forwards, heads and most of the vocabulary are left out, since
    they do not take part. `training` reads what is seen in training, without dropout.
    Raises `InputError` for a model without self-attention, and for a text that it cannot read.
    """
    small, layers = reduce_model(config, text.length)
    model = build(small, seed=text.seed).double()
    found: list[Pattern] = []
    for side, numbers, part in attention_parts(model, layers):
        model.train(training)
        found += group_heads(side, numbers, find_seen_keys(model, part, text, first=side == "encoder").numpy())
    if not found:
        raise InputError("the model has no self-attention", where="model", remedy="give one that has")
    return found


def attention_parts(model: Transformer, layers: Layers) -> Iterator[tuple[str, tuple[int, ...], nn.Module]]:
    """Yield (side, layers of the whole model that it represents, part) for each self-attention of a reduced model."""
    for side, groups in layers.items():
        stack = getattr(model, side)
        for numbers, block in zip(groups, stack.blocks, strict=True):
            for part in block.modules():
                if isinstance(getattr(part, "config", None), c.SelfAttention) and hasattr(part, "qkv"):
                    yield side, numbers, part


def group_heads(side: str, layers: tuple[int, ...], seen: SeenKeys) -> Iterator[Pattern]:
    """Yield the different patterns among heads. Shapes: seen [H, T, K]."""
    same: dict[bytes, list[int]] = {}
    for head, one in enumerate(seen):
        same.setdefault(one.tobytes(), []).append(head)
    for heads in same.values():
        yield Pattern(side, layers, tuple(heads), len(seen), seen[heads[0]])


def find_seen_keys(model: Transformer, part: Any, text: PatternText, *, first: bool) -> Tensor:
    """Return which keys have a weight for which queries in one attention. Shapes: -> [H, T, K].

    The values of a row of the batch are marks: number m of them is 1 in place m of every head, so what a head mixes
    shows its weights there. A last row without marks holds what does not come from values, and is subtracted. `first`:
    the first time that the attention is applied, and not the last, where two stacks share it.
    """
    config: c.SelfAttention = part.config
    rotated = isinstance(config.positions, c.Rotary) and config.positions.values
    width = 1 if rotated else part.head_dim  # a rotated mark is spread over two places
    keys = count_keys(model, part, text, 0 if first else -1)
    own, part.global_qkv = getattr(part, "global_qkv", None), None  # it sees the same places, by values of its own
    mixed = mix_marks(model, part, text, make_marks(keys, width, part.head_dim))[0 if first else -1]
    part.global_qkv = own
    heads = mixed.unflatten(-1, (-1, part.head_dim))
    weights, rest = (heads[:-1] - heads[-1:]).abs(), heads[-1].abs().max()
    weights = weights.amax(-1, keepdim=True) if rotated else weights
    found: Tensor = weights > (ROUNDING if rest else 0)
    return found.permute(2, 1, 0, 3).flatten(2)[:, :, :keys]


def count_keys(model: Transformer, part: Any, text: PatternText, which: int) -> int:
    """Return how many keys an attention meets: the text's, and those of a memory before it."""
    found: list[int] = []
    hook = part.qkv.register_forward_hook(lambda _, __, x: found.append(x.shape[1]) if x.dim() == 3 else None)
    run_rows(model, text, 1)
    hook.remove()
    return found[which]


def run_rows(model: Transformer, text: ReadText, rows: int) -> None:
    """Let a model read the text, repeated in `rows` rows."""
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(text.seed)
        model(**text.inputs(model.config, rows))


def mix_marks(model: Transformer, part: Any, text: ReadText, values: Tensor, *, flat: float = FLAT) -> list[Tensor]:
    """Run a model with other values in one attention, and return what it mixes of them, each time that it is applied.

    `flat`: what queries are multiplied by. Shapes: values [B, K, E], for every head -> [B, T, H·E] each.
    """
    projection: c.Projection = part.config.projection
    queries = 0 if isinstance(part.config.kernel, c.Hashing) else projection.heads * part.head_dim
    found: list[Tensor] = []

    def mark(_: nn.Module, __: Any, given: Tensor) -> Tensor | None:
        """Put marks in the place of the values. Shapes: [B, T, W] -> the same; tables [N, W] stay."""
        if given.dim() != values.dim():
            return None
        marked = values.to(given).repeat(1, 1, projection.kv_heads or projection.heads)
        return torch.cat([given[..., :queries] * flat, given[..., queries:-marked.shape[-1]], marked], dim=-1)

    def keep(_: nn.Module, given: tuple[Tensor, ...]) -> None:
        """Keep what the output map reads."""
        found.append(given[0])

    hooks = [part.qkv.register_forward_hook(mark), part.out.register_forward_pre_hook(keep)]
    run_rows(model, text, len(values))
    for hook in hooks:
        hook.remove()
    return found


def make_marks(length: int, width: int, head_dim: int) -> Tensor:
    """Return the values that distinguish keys. Shapes: -> [rows + 1, K, E], the last row zeros."""
    rows = -(-length // width)
    place = torch.arange(length)
    made = torch.zeros(rows + 1, length, head_dim)
    made[place // width, place, place % width] = 1.0
    return made


def first_pruned_length(config: c.Transformer, found: Sequence[Pattern]) -> int | None:
    """Return beyond how many tokens a model leaves pairs out, where patterns show nothing of it; None elsewhere."""
    if not all(one.seen.all() or (one.seen == np.tril(np.ones_like(one.seen))).all() for one in found):
        return None
    every = [part.visibility for stack in config.stacks for part in stack.attentions()]
    return min((max(sizes) for one in every if (sizes := [*visibility_extents(one)])), default=None)


def visibility_extents(visibility: c.Visibility) -> Iterator[int]:
    """Yield up to how many tokens each term of a visibility sees them all, where it has an end."""
    for term in list_terms(visibility):
        match term:
            case c.Window(size=size):
                yield size
            case c.BlockWindow(size=size, reach=reach):
                yield size * (reach + 1)
            case c.Beyond(length=length):
                yield length


def select_patterns(found: Sequence[Pattern], layer: int | None, head: int | None) -> list[Pattern]:
    """Return the patterns of a layer or a head. Raises `InputError` where there is no such one."""
    kept = [one for one in found if (layer is None or layer in one.layers) and (head is None or head in one.heads)]
    if not kept:
        last = max(number for one in found for number in one.layers)
        raise InputError(f"there is no layer {layer} with a head {head}" if layer is not None and head is not None
                         else f"there is no {'head' if layer is None else 'layer'} {head if layer is None else layer}",
                         where="--layer" if layer is not None else "--head",
                         remedy=f"layers are 0 to {last}, heads 0 to {found[0].of - 1}")
    return kept
