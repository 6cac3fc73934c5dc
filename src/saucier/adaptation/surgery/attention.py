"""What tokens see, and how it is weighed: windows with global tokens, blocks, features, mixtures, hashes."""

from __future__ import annotations

import re
from math import lcm

import torch

from saucier import config as c
from saucier.adaptation.surgery.config import Blocks, Hashes, MixedKeys, RandomFeatures, Windows
from saucier.adaptation.surgery.pooling import with_dense_head, with_pooler
from saucier.adaptation.surgery.positions import count_from_zero, count_past_padding
from saucier.adaptation.surgery.shape import Shape, only_encoder, sees_all
from saucier.config import longest_input
from saucier.config.block_patterns import blocks
from saucier.errors import InputError

LOCAL = re.compile(r"(encoder\.blocks\.\d+\.\w+\.inner\.)qkv\.(.+)")


def see_windows(shape: Shape, by: Windows) -> Shape:
    """Turn an encoder into a Longformer, or let a decoder look back a window only.

    Raises `InputError` for an odd width (an encoder looks as far to both sides) and for attention that is not full.
    """
    if shape.config.encoder is None:
        return look_back(shape, by)
    sees_all(only_encoder(shape, "--attention"), "--attention")
    if by.width < 2 or by.width % 2:
        raise InputError(f"a window of {by.width} neighbours has no half on each side", where="--attention",
                         remedy=f"give an even number, such as window:{max(2, by.width + 1)}")
    shape = with_dense_head(count_past_padding(shape))
    bias = [part.projection.bias for part in shape.stacks()["encoder"].attentions()]
    config = shape.attentions(lambda attention: attention.model_copy(update={
        "visibility": c.Window(size=by.width // 2 + 1) | c.Global(otherwise=by.tokens),
        "global_maps": c.GlobalMaps(bias=all(bias))}))
    own = {f"{match[1]}global_qkv.{match[2]}": weight.clone() for name, weight in shape.weights.items()
           if (match := LOCAL.fullmatch(name))}
    return shape.put(config, {**shape.weights, **own}, same=by.width // 2 + 1)


def look_back(shape: Shape, by: Windows) -> Shape:
    """Let each token of a decoder see the last ones before it, and itself."""
    if not isinstance(by.tokens, c.NoTokens):
        raise InputError("a decoder has no global tokens: they would see what is to come", where="--global",
                         remedy="leave it out")
    if any(attention.visibility != c.Causal() for attention in shape.stacks()["decoder"].attentions()):
        raise InputError("the attention is no plain causal one", where="--attention",
                         remedy="begin with a decoder whose tokens see all before them")
    return shape.put(shape.attentions(lambda attention: attention.model_copy(update={
        "visibility": c.Causal() & c.Window(size=by.width)})), same=by.width)


def see_blocks(shape: Shape, by: Blocks) -> Shape:
    """Turn an encoder into a BigBird. Raises `InputError` for attention that is not full, and without positions."""
    sees_all(only_encoder(shape, "--attention"), "--attention")
    shape = with_pooler(count_from_zero(shape))
    room = longest_input(shape.config.embed.positions)
    if room is None:
        raise InputError("blocks are drawn up to a longest input, and the model knows none", where="--attention",
                         remedy="use window:N")
    seen = blocks(by.size, by.drawn, room)
    assert isinstance(seen, c.Beyond), "short inputs are seen whole"
    return shape.put(shape.attentions(lambda attention: attention.model_copy(update={"visibility": seen})),
                     same=seen.length)


def use_features(shape: Shape, by: RandomFeatures) -> Shape:
    """Let every self-attention weigh by random features; where it cannot, building the model says why."""
    return shape.put(shape.attentions(lambda attention: attention.model_copy(update={
        "kernel": c.Favor(features=by.count)})), same=0)


def mix_keys(shape: Shape, by: MixedKeys) -> Shape:
    """Let every token of an encoder see mixtures of keys, each at first the mean of as many neighbours as it takes.

    Raises `InputError` for attention that is not full, without positions, and for more mixtures than positions.
    """
    sees_all(only_encoder(shape, "--attention"), "--attention")
    room = longest_input(shape.config.embed.positions)
    if room is None or by.rank > room:
        raise InputError(f"{by.rank} mixtures of {'no known number of' if room is None else room} positions",
                         where="--attention", remedy="give a model with positions, and fewer mixtures than there are")
    config = shape.attentions(lambda attention: attention.model_copy(update={
        "kernel": c.LowRank(length=room, rank=by.rank, dropout=getattr(attention.kernel, "dropout", 0.0))}))
    like = shape.weights["embed.tokens.weight"]
    maps = neighbours(by.rank, room).to(like)
    own = {f"{match[1]}mixtures.{name}": maps.clone() for weight in shape.weights
           if (match := LOCAL.fullmatch(weight)) and match[2] == "weight" for name in ("keys", "values")}
    return shape.put(config, {**shape.weights, **own}, same=0)


def hash_otherwise(shape: Shape, by: Hashes) -> Shape:
    """Sort into other chunks, in other rounds, where attention hashes. Raises `InputError` where none does."""
    kernels = [attention.kernel for stack in shape.stacks().values() for attention in stack.attentions()]
    hashing = [kernel.chunks.length for kernel in kernels if isinstance(kernel, c.Hashing)]
    if not hashing:
        raise InputError("no attention of the model hashes: its queries and keys are two maps", where="--attention",
                         remedy="begin with a Reformer, or use window:512")
    multiple = lcm(by.chunk, *(kernel.length for kernel in kernels if isinstance(kernel, c.Chunks)))

    def padded(chunks: c.Chunks, length: int) -> c.Chunks:
        return chunks.model_copy(update={"length": length, "multiple": chunks.multiple and multiple})

    def changed(attention: c.SelfAttention) -> c.SelfAttention:
        match attention.kernel:
            case c.Hashing(chunks=chunks, rounds=rounds) as kernel:
                new: c.Hashing | c.Chunks = kernel.model_copy(update={
                    "chunks": padded(chunks, by.chunk), "rounds": by.rounds or rounds})
            case c.Chunks(length=length) as kernel:
                new = padded(kernel, length)
            case _:
                return attention
        return attention.model_copy(update={"kernel": new})

    return shape.put(shape.attentions(changed), same=min(by.chunk, *hashing))


def neighbours(rank: int, length: int) -> torch.Tensor:
    """Return maps that take the mean of neighbours, of about as many each. Shapes: -> [rank, length]."""
    group = torch.arange(length) * rank // length
    found = (torch.arange(rank)[:, None] == group).float()
    return found / found.sum(dim=1, keepdim=True)
