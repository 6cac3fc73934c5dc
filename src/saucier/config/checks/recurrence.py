"""Illegal combinations of a memory, a second stream and what they stand beside."""

from __future__ import annotations

from saucier.config.heads import QueryStream
from saucier.config.layers import CrossAttention, SelfAttention, Softmax
from saucier.config.model import Block, Stack, Transformer
from saucier.config.positions import NoPositions, Rotary, TransformerXL
from saucier.config.recurrence import FromZeros
from saucier.config.visibility import permutes
from saucier.errors import InputError


def check_recurrence(name: str, stack: Stack, config: Transformer) -> None:
    """Raise `InputError` where a memory, a second stream or shared biases of a stack cannot work."""
    if (stack.memory or stack.queries) and config.encoder and config.decoder:
        raise InputError("a memory or a second stream works in one stack, and this model has two", where=name,
                         remedy="remove one stack, or memory and queries")
    if stack.memory:
        check_memory(name, stack, config)
    attentions = [residual.inner for block in stack.blocks() for residual in block.sublayers
                  if isinstance(residual.inner, SelfAttention)]
    if stack.queries:
        check_queries(name, attentions)
    shared = {attention.projection.widths(config.dim)[::2] for attention in attentions
              if isinstance(attention.positions, TransformerXL) and attention.positions.shared_biases}
    if len(shared) > 1:
        raise InputError("the layers of a stack share one pair of biases, and their heads differ", where=name,
                         remedy="use shared_biases: false, or equal heads")


def check_memory(name: str, stack: Stack, config: Transformer) -> None:
    """A memory is read by the one attention that every block begins with, and positions count from any place."""
    assert stack.memory is not None, "asked where there is one"
    if isinstance(stack.memory.start, FromZeros) and stack.memory.length is None:
        raise InputError("a memory of zeros needs a length", where=f"{name}.memory.length",
                         remedy="give it, or use start: {kind: nothing}")
    if not isinstance(config.embed.positions, NoPositions) or stack.layer_positions:
        raise InputError("positions of the tokens begin anew in every segment, and a memory would repeat them",
                         where=f"{name}.layer_positions" if stack.layer_positions else "embed.positions",
                         remedy="use relative positions: kind: transformer_xl")
    for index, block in enumerate(stack.blocks()):
        if not begins_with_attention(block):
            raise InputError("a block with a memory begins with its only attention", where=f"{name}.blocks.{index}",
                             remedy="put one attention first, or remove memory")
        attention = block.sublayers[0].inner
        assert isinstance(attention, SelfAttention), "begins_with_attention has looked"
        if not isinstance(attention.kernel, Softmax):
            raise InputError(f"kernel {attention.kernel.kind} reads no memory",
                             where=f"{name}.blocks.{index}.attention", remedy="use kernel softmax, or remove memory")
        if isinstance(attention.positions, Rotary) or attention.global_maps:
            raise InputError("a memory goes neither with rotated keys nor with maps for global tokens",
                             where=f"{name}.blocks.{index}.attention", remedy="use kind: transformer_xl")


def begins_with_attention(block: Block) -> bool:
    """Say whether the first sublayer is the block's only attention."""
    return [index for index, residual in enumerate(block.sublayers)
            if isinstance(residual.inner, SelfAttention | CrossAttention)] == [0] and isinstance(
                block.sublayers[0].inner, SelfAttention)


def check_queries(name: str, attentions: list[SelfAttention]) -> None:
    """A second stream asks about places, so positions and visibility must know places."""
    for attention in attentions:
        if not isinstance(attention.positions, TransformerXL | NoPositions) or attention.global_maps:
            raise InputError("these positions do not know where a row of the second stream asks",
                             where=f"{name}.queries", remedy="use kind: transformer_xl, or remove queries")
        if not permutes(attention.visibility):
            raise InputError("a second stream would see the tokens that it asks for", where=f"{name}.queries",
                             remedy="use a visibility with kind: permutation")


def check_asking(config: Transformer) -> None:
    """A head that is read by a second stream needs one."""
    head = config.language_head
    stacks = [stack for stack in (config.encoder, config.decoder) if stack]
    if head is not None and isinstance(head.predicts, QueryStream) and not any(stack.queries for stack in stacks):
        raise InputError("the head is read by a second stream, and no stack has one", where="head.predicts",
                         remedy="add queries: {} to the stack, or use kind: next")
