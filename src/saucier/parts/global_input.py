"""ETC's global input: tokens of their own before the text, which all see and which see all.

Letters: B batch, G global tokens, L length.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

from saucier import config as c
from saucier.errors import InputError
from saucier.parts.inputs import Side


def put_globals(stack: c.Stack, side: Side) -> None:
    """Put `global_input_ids` [B, G] before the text of one side; what the model gives is that of the text.

    Without them the first tokens of the text are global. Raises `InputError` where they do not fit the model.
    """
    given = side.inputs.get("global_input_ids")
    if given is None:
        return
    named = {term.otherwise for part in stack.attentions() for term in c.global_terms(part.visibility)}
    counts = {one.count for one in named if isinstance(one, c.FirstTokens)}
    if counts != {given.shape[1]} or given.shape[0] != len(side.ids):
        raise InputError(f"global tokens of shape {list(given.shape)}", where="global_input_ids",
                         remedy=f"give [{len(side.ids)}, {min(counts)}]" if counts
                         else "leave them out: this model has no global input")
    if side.vectors is not None or side.documents is not None or side.cache is not None or side.prompt:
        raise InputError("a global input goes with the ids of one text a row", where="global_input_ids",
                         remedy="leave out inputs_embeds, documents, a cache and a prompt")
    count = given.shape[1]
    side.text, side.ids = side.ids, torch.cat([given, side.ids], dim=1)
    side.prompt = side.ahead = count
    side.mask = None if side.mask is None else F.pad(side.mask, (count, 0), value=True)
    side.segments = None if side.segments is None else F.pad(side.segments, (count, 0))
    side.named = None if side.named is None else F.pad(side.named, (count, 0), value=True)
    if side.positions is not None:
        first = torch.arange(count, device=side.positions.device).expand(len(side.positions), -1)
        side.positions = torch.cat([first, side.positions + count], dim=1)
