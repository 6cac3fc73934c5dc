"""A model with the same attentions as another, and little else: no heads, no feed-forwards worth the name, few tokens.

No torch.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from saucier import config as c
from saucier.config.base import Config
from saucier.config.rewriting import rewritten

VOCAB = 1000
"""Tokens that a slim model knows, where no part names one by a higher id."""
NAMED = ("padding", "token")
"""Fields that hold the id of a token."""
WIDTH = 64
"""The widest stream of a slim model."""
SPARE = 8
"""Rows that a table of positions has besides: some are counted from behind the padding's id."""
WITHOUT = {"head": None, "pooler": None, "mix": None}
RANDOM = ("dropout", "noise")
"""Fields that say how much is dropped or disturbed in training."""

Layers = dict[str, list[tuple[int, ...]]]
"""For each stack, and each block of the slim model, the numbers of the blocks that it stands for."""

def slimmed(config: c.Transformer, length: int) -> tuple[c.Transformer, Layers]:
    """Return the slim model, and for each of its blocks, side by side, the blocks of the whole model it stands for.

    Blocks whose attentions are alike are one, the stream is narrow, and tables of positions have room for the text.
    """
    room = max(VOCAB, *(one + 1 for one in named(config)))
    whole, layers = config.model_copy(update=WITHOUT), Layers()
    for side in ("encoder", "decoder"):
        stack: c.Stack | None = getattr(config, side)
        if stack is not None:
            kept, layers[side] = distinct(stack)
            few = stack.model_copy(update={"layers": c.Cycle(blocks=kept, times=1)})
            whole = whole.model_copy(update={side: few})
    return lengthened(narrowed(rewritten(whole, partial(slim, room=room))), length), layers

def narrowed(config: c.Transformer) -> c.Transformer:
    """Return a model whose attentions are as wide as before, on a narrow stream; where parts name its width, as it is.
    """
    stacks = [stack for stack in (config.encoder, config.decoder) if stack]
    fixed = isinstance(config.embed.positions, c.Axial) or any(
        block.bottleneck for stack in stacks for block in stack.blocks())
    if fixed or config.dim <= WIDTH:
        return config
    return rewritten(config, partial(heads_kept, dim=config.dim)).model_copy(update={"dim": WIDTH})

def heads_kept(part: Config, dim: int) -> Config:
    """Return maps that say how wide their heads are; any other part as it is."""
    return part.model_copy(update={"head_dim": part.widths(dim)[2]}) if isinstance(part, c.Projection) else part

def lengthened(config: c.Transformer, length: int) -> c.Transformer:
    """Return a model whose tables of positions are long enough for a text of this length."""
    return rewritten(config, partial(longer, length=length + SPARE))

def longer(part: Config, length: int) -> Config:
    """Return a table of positions, or maps along a text, with more rows where they have fewer; others as they are."""
    if not isinstance(part, c.Learned | c.Sinusoidal | c.LowRank | c.Axial) or (part.length or length) >= length:
        return part
    if isinstance(part, c.Axial):
        return part.model_copy(update={"shape": (-(-length // part.shape[1]), part.shape[1])})
    return part.model_copy(update={"length": length})

def distinct(stack: c.Stack) -> tuple[tuple[c.Block, ...], list[tuple[int, ...]]]:
    """Return the blocks of a stack whose self-attentions differ, and the numbers of those that are like each."""
    found: dict[tuple[c.SelfAttention, ...], list[int]] = {}
    blocks = stack.blocks()
    for number, block in enumerate(blocks):
        parts = tuple(one.inner for one in block.sublayers if isinstance(one.inner, c.SelfAttention))
        found.setdefault(parts, []).append(number)
    return tuple(blocks[numbers[0]] for numbers in found.values()), [*map(tuple, found.values())]

def slim(part: Config, room: int) -> Config:
    """Return a part without what does not take part in attention."""
    changed: dict[str, Any] = {name: 0.0 for name in RANDOM if name in type(part).model_fields}
    match part:
        case c.FeedForward() | c.GatedFeedForward():
            changed["hidden"] = 1
        case c.Embedding(vocab=vocab, projection=projection):
            clusters = isinstance(projection, c.ProjectClusters)  # of a vocabulary that is left out
            changed |= {"vocab": min(vocab, room), "projection": None if clusters else projection}
    return part.model_copy(update=changed) if changed else part

def named(config: c.Transformer) -> list[int]:
    """Return the ids of tokens that parts of a model name."""
    found = [0]

    def note(part: Config) -> Config:
        """Look at one part."""
        found.extend(one for name in NAMED if isinstance(one := getattr(part, name, None), int))
        return part

    rewritten(config, note)
    return found
