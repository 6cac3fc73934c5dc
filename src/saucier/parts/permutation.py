"""Keys that a batch hides from single queries, and the places that a second stream asks about.

Letters: B batch, M memory, L length, P queries of the second stream.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from saucier import config as c
from saucier.errors import InputError


def refuse_unread(stack: c.Stack, hidden: Tensor | None, mapping: Tensor | None) -> None:
    """Raise `InputError` for hidden keys or asked places that no part of the stack reads."""
    inner = [residual.inner for block in stack.blocks() for residual in block.sublayers]
    if hidden is not None and not any(isinstance(part, c.SelfAttention) and c.permutes(part.visibility)
                                      for part in inner):
        raise InputError("no attention of this model hides keys from single queries", where="perm_mask",
                         remedy="leave it out, or use a model with kind: permutation")
    if mapping is not None and stack.queries is None:
        raise InputError("this model has no second stream to ask with", where="target_mapping",
                         remedy="leave it out, or use a model with queries")


def places_asked(mapping: Tensor | None) -> Tensor | None:
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


def streams(allowed: Tensor | None, visible: Tensor | None, start: int, length: int,
            targets: Tensor | None) -> Tensor | None:
    """Return who sees what where the batch hides keys: the text sees itself too, the queries as their places do.

    Shapes: allowed broadcasts to [B, 1, L, M + L], visible [B, L, L], targets [B, P] -> [B or 1, 1, L + P, M + L].
    """
    if visible is not None:
        visible = F.pad(visible, (start, 0), value=True)[:, None]
        allowed = visible if allowed is None else allowed & visible
    if allowed is None:
        return None
    allowed = allowed.expand(-1, -1, length, start + length)
    itself = F.pad(torch.eye(length, dtype=torch.bool, device=allowed.device), (start, 0))
    text = allowed | itself
    if targets is None:
        return text
    rows = len(targets)
    asked = allowed.expand(rows, -1, -1, -1).take_along_dim(targets[:, None, :, None], 2)
    return torch.cat([text.expand(rows, -1, -1, -1), asked], dim=2)
