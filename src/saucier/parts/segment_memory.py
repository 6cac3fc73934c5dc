"""The memory from one segment to the next (Transformer-XL), and the second stream of queries (XLNet).

Rows of a stack are [memory; text; queries]. Only text has residuals and queries of its own; memory and text give
keys
and values; queries only ask.

Letters: B batch, M memory, L length, P queries, H heads, E head width, D dim.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from saucier import config as c
from saucier.errors import InputError
from saucier.parts.context import Context
from saucier.parts.norms import dropout


def recall_memory(stack: c.Stack, mems: Sequence[Tensor] | None, rows: int, like: Tensor) -> tuple[Tensor, ...] | None:
    """Return what each block remembers before this segment, [B, M, D]; `like` [D] has the right format and place.

    Raises `InputError` for a memory that is not this model's.
    """
    memory, layers = stack.memory, len(stack.blocks())
    if memory is None:
        if mems is not None:
            raise InputError("this model has no memory", where="mems", remedy="leave it out")
        return None
    if mems is not None:
        if len(mems) != layers or any(past.dim() != 3 or past.shape[1:] != (rows, like.shape[-1]) for past in mems):
            raise InputError(f"{len(mems)} tensors of shapes {sorted({tuple(past.shape) for past in mems})}",
                             where="mems", remedy=f"give {layers} of [memory, {rows}, {like.shape[-1]}]")
        return tuple(past.transpose(0, 1).to(like.dtype) for past in mems)
    match memory.start.kind:
        case "zeros":
            assert memory.length is not None, "check() refuses zeros without a length"
            return (like.new_zeros(rows, memory.length, like.shape[-1]),) * layers
        case "nothing":
            return None


def next_memory(memory: c.SegmentMemory, past: Tensor | None, x: Tensor) -> Tensor:
    """Return what a block remembers after this segment. Shapes: past [B, M, D], x [B, L, D] -> [M', B, D]."""
    new = x if memory.reuse is None else x[:, :memory.reuse]
    joined = new if past is None else torch.cat([past, new], dim=1)
    return (joined if memory.length is None else joined[:, -memory.length:]).detach().transpose(0, 1)


def prepend_memory(x: Tensor, inner: nn.Module, context: Context) -> Tensor:
    """Put a block's memory before the rows that its attention reads. Shapes: x [B, L, D] -> [B, M + L, D]."""
    if context.past is None or not getattr(inner, "reads_past", False):
        return x
    return torch.cat([context.past, x], dim=1)


def split_streams(query: Tensor, key: Tensor, value: Tensor, context: Context) -> tuple[Tensor, Tensor, Tensor]:
    """Leave each row what its part has: no queries for the memory, no keys and values for the second stream.

    Shapes: each [B, H, M + L + P, E] -> queries [B, H, L + P, E], keys and values [B, G, M + L, E].
    """
    past = 0 if context.past is None else context.past.shape[1]
    rows, end = query.shape[2] - context.asking, key.shape[2] - context.asking
    query, key, value = query[:, :, past:], key[:, :, :end], value[:, :, :end]
    if context.asked is None or not context.want_weights:
        return query, key, value
    text, asking = query.split([rows - past, context.asking], dim=2)
    at = context.asked[:, None, :, None].expand_as(asking)
    return torch.cat([text, torch.zeros_like(text).scatter(2, at, asking)], dim=2), key, value


def rejoin_streams(mixed: Tensor, context: Context) -> Tensor:
    """Undo the widening of `split_streams`, made to give weights of every place.

    Shapes: [B, H, 2·L, E] -> [B, H, L + P, E].
    """
    if context.asked is None or not context.want_weights:
        return mixed
    text, places = mixed.chunk(2, dim=2)
    return torch.cat([text, places.take_along_dim(context.asked[:, None, :, None], 2)], dim=2)


class QueryVector(nn.Module):
    """The vector that rows of the second stream begin as. Source: Yang et al. 2019, §2.3, eq 3–4."""

    def __init__(self, config: c.QueryVector, dim: int) -> None:
        """Build the vector [D]."""
        super().__init__()
        self.rate = config.dropout
        self.weight = nn.Parameter(torch.empty(dim))

    def forward(self, x: Tensor, count: int) -> Tensor:
        """Put this number of rows after the text. Shapes: x [B, L, D] -> [B, L + P, D]."""
        rows = self.weight.to(x.dtype).expand(len(x), count, -1)
        return torch.cat([x, dropout(rows, self.rate) if self.training else rows], dim=1)


def refuse_unused_inputs(stack: c.Stack, hidden: Tensor | None, mapping: Tensor | None) -> None:
    """Raise `InputError` for hidden keys or queried places that no part of the stack reads."""
    inner = [residual.inner for block in stack.blocks() for residual in block.sublayers]
    if hidden is not None and not any(isinstance(part, c.SelfAttention) and c.hides_keys(part.visibility)
                                      for part in inner):
        raise InputError("no attention of this model hides keys from single queries", where="perm_mask",
                         remedy="leave it out, or use a model with kind: permutation")
    if mapping is not None and stack.queries is None:
        raise InputError("this model has no second stream to ask with", where="target_mapping",
                         remedy="leave it out, or use a model with queries")


def find_query_positions(mapping: Tensor | None) -> Tensor | None:
    """Return the place that each row of the second stream asks about. Shapes: [B, P, L] -> [B, P].

    Raises `InputError` for a row that does not hold a single 1.
    """
    if mapping is None:
        return None
    if not torch.compiler.is_compiling() and not bool((((mapping == 1).sum(-1) == 1) & ((mapping != 0).sum(-1) == 1))
                                                      .all()):
        raise InputError("a row of target_mapping is not a single 1 among zeros", where="target_mapping",
                         remedy="let every row ask about one place")
    return mapping.argmax(-1)
