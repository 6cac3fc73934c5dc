"""`Memory`, what a decoder reads of an encoder.

Letters: B batch, S source length, D dim, T tokens of packed rows, W width of a state.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from saucier.parts.inputs import Inputs, Side, boolean
from saucier.parts.ragged import Ragged
from saucier.parts.visibility import ANYWHERE, Span


@dataclass(slots=True)
class Memory:
    """What the decoder reads of the encoder."""

    hidden: Tensor | None
    """[B, S, D], or [1, T, D] when packed."""
    mask: Tensor | None
    documents: Tensor | None
    layout: Ragged | None = None
    states: tuple[tuple[Tensor, ...], ...] = ()
    """[B, W] each, in which its recurrent layers ended."""

    def make_room(self, length: int) -> None:
        """Let the mask cover vectors before the source's text."""
        if self.mask is not None:
            self.mask = F.pad(self.mask, (length, 0), value=True)
        if self.documents is not None:
            self.documents = F.pad(self.documents, (length, 0), value=ANYWHERE)

    def span(self, target: Side) -> Span:
        """Say which of the encoder's tokens the decoder's queries may see."""
        assert self.hidden is not None, "two_stacks fills it"
        keys = self.hidden.shape[1] if self.layout is None else self.layout.shape[1]
        padding = None if self.layout is not None else self.mask
        return Span(target.ids.shape[1], keys, 0, target.ids.device, padding, target.documents, self.documents)


def read_memory(inputs: Inputs) -> Memory | None:
    """Return the output of an encoder that is not part of the model, where a decoder alone is given one."""
    hidden = inputs.get("encoder_hidden_states")
    return None if hidden is None else Memory(hidden, boolean(inputs.get("encoder_attention_mask")), None)
